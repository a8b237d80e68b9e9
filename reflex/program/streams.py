"""Emitter of blocks with several residual streams (AltUp) and a low-rank path around attention (LAuReL): see arch/streams.py.

The buffer `streams` holds all of them side by side, x the first. Small products of x make the coefficients that mix them.
"""

from .attention import emit_heads
from .layer_inputs import emit_branch


def emit_begin(program, spec):
    """Adds the steps that make the streams of the embedding in x."""
    width, count = spec.width, spec.streams.count
    others = program.buffer("others", (count - 1) * width)
    program.linear(others, "x", spec.streams.spread)
    program.emit("streams_begin", program.buffer("streams", count * width), ("x", others))


def emit_coefficients(program, spec, layer, out, matrix):
    """out = matrix tanh(router norm(x) / width)"""
    h, m = program.buffer("h", spec.width), program.buffer("modalities", spec.streams.count)
    program.norm(h, "x", layer.streams.router_norm, spec)
    program.linear(m, h, layer.streams.router)
    program.emit("softcap", m, (m,), (), {"cap": float(spec.width)})
    program.emit("scale", m, (m,), (), {"factor": 1 / spec.width})
    program.linear(out, m, matrix)


def emit_first(program, spec, out, source):
    """The first stream of several."""
    width = spec.width
    place = {"heads": 1, "head_dim": width, "stride": spec.streams.count * width, "first": 0}
    program.emit("head_part", out, (source,), (), place)


def emit_predicted(program, spec, layer, select):
    """Adds the steps that predict all streams and leave the first one behind attention in x."""
    s, width, count = layer.streams, spec.width, spec.streams.count
    coefficients, predicted = program.buffer("predicting", count * count), program.buffer("predicted", count * width)
    emit_coefficients(program, spec, layer, coefficients, s.predict)
    program.emit("streams_predict", predicted, ("streams", coefficients))
    emit_first(program, spec, "x", predicted)
    h, low = program.buffer("h", width), program.buffer("low", s.rank)
    side, y = program.buffer("side", width), program.buffer("y", width)
    program.norm(h, "x", layer.attn_norm, spec)
    program.linear(low, h, s.laurel_down)
    program.linear(side, low, s.laurel_up)
    program.norm(side, side, s.laurel_norm, spec)
    program.emit("add", side, (side, h), (), {"scale": 1.0})
    for buffer in (side, predicted) if select else ():
        program.emit("select", buffer, (buffer,))
    a = emit_heads(program, spec, layer, h, select)
    program.linear(y, a, layer.o)
    program.norm(y, y, layer.attn_out_norm, spec)
    program.emit("add", y, (y, side), (), {"scale": 1.0})
    program.emit("add", "x", ("x", y), (), {"scale": 1.0})
    program.emit("scale", "x", ("x",), (), {"factor": 2**-0.5})


def emit_corrected(program, spec, layer):
    """Adds the steps that correct all streams by what the block made of the first one, which is in x."""
    width, count = spec.width, spec.streams.count
    coefficients, first = program.buffer("correcting", count), program.buffer("first", width)
    emit_coefficients(program, spec, layer, coefficients, layer.streams.correct)
    program.emit("streams_correct", "streams", (program.buffer("predicted", count * width), "x", coefficients))
    emit_first(program, spec, "x", "streams")
    emit_first(program, spec, first, "streams")
    program.emit("weigh", first, (first,), (layer.streams.scale,))
    y = emit_branch(program, spec, layer, first)
    program.emit("streams_inject", "streams", ("streams", y))


def emit_end(program, spec):
    """Adds the steps that leave the mean of the streams in x, each brought back by a matrix and to the length of the first."""
    width, count = spec.width, spec.streams.count
    others, back = program.buffer("others", (count - 1) * width), program.buffer("back", (count - 1) * width)
    place = {"heads": 1, "head_dim": (count - 1) * width, "stride": count * width, "first": width}
    program.emit("head_part", others, ("streams",), (), place)
    program.head_linear(back, others, spec.streams.back, count - 1, width)
    program.emit("streams_end", "x", ("streams", back))
