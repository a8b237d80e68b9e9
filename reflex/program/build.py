"""Spec -> Program: the embedding, every layer's mixer and feed-forward, the head. Called by session and tests.

The last layer computes keys and values for all tokens, then keeps only the rows whose logits are wanted.
Refuses nothing: whatever load_spec accepted has a program.
"""

from .attention import emit_attention
from .dense import emit_feed_forward
from .head import emit_head
from .records import Program
from .rope import rope_table


def build(spec, context=0, adapters=None):
    """The Program of a Spec. `context` (tokens, 0: the model's own) matters only to files with long and short factors. `adapters`:
    Adapters (adapters.py), whose steps follow those of their matrices."""
    program = Program(spec.architecture, spec.vocabulary, spec.context_length, spec.width)
    program.adapters = adapters
    program.context = context or spec.context_length
    context = context or spec.context_length
    program.ropes = [rope_table(rotation, context) for rotation in spec.rotations]
    x = program.buffer("x", spec.width)
    program.emit("embed", x, (), (spec.embedding,), {"scale": spec.embed_scale})
    if adapters:
        adapters.embedding(program, x, spec.embedding, spec.embed_scale)
    if spec.positions:
        program.emit("add_position", x, (x,), (spec.positions,))
    if spec.inputs:
        from .layer_inputs import emit_inputs  # an import that most programs need not wait for

        emit_inputs(program, spec)
    if spec.streams:
        from . import streams

        streams.emit_begin(program, spec)
    last = spec.layers[-1]
    for layer in spec.layers:
        program.layers.append(len(program.steps))
        emit = streams.emit_predicted if spec.streams else emit_attention
        source = emit(program, spec, layer, layer is last)
        if layer.feed_forward or layer.experts:
            emit_feed_forward(program, spec, layer, source)
        if spec.streams:
            streams.emit_corrected(program, spec, layer)
        elif layer.input_gate:
            from .layer_inputs import emit_input

            emit_input(program, spec, layer)
        if layer.out_scale:
            program.emit("weigh", x, (x,), (layer.out_scale,))
    program.layers.append(len(program.steps))
    if spec.streams:
        streams.emit_end(program, spec)
    emit_head(program, spec)
    return program
