"""Several residual streams: every layer runs on the first and predicts and corrects the others (AltUp, arXiv 2301.13310), beside a
low-rank path around attention (LAuReL, arXiv 2411.07501). Gemma 3n.

Called by arch/sizes.py and arch/tensors.py for families that have them.
"""

from ..errors import UnsupportedError
from . import names
from .spec import Matrix

COUNT = 4  # streams


class Streams:
    """The matrices that make the other streams of the first one, and those that bring them back to it: one below the other."""

    __slots__ = ("back", "count", "spread")


class LayerStreams:
    """Of one layer: the coefficients' matrices, the norm before their router, a scale, and the low-rank path with its norm."""

    __slots__ = ("correct", "laurel_down", "laurel_norm", "laurel_up", "predict", "rank", "router", "router_norm", "scale")


def read_streams(file, key, spec):
    for name, value in (("altup.num_inputs", COUNT), ("altup.active_idx", 0)):
        found = file.u(key + name, value)
        if found != value:
            raise UnsupportedError("the file asks for an unimplemented variant", expected=value, found=found, where=key + name)
    spec.streams = Streams()
    spec.streams.count = COUNT


def read_stream_tensors(taken, spec):
    width, others = spec.width, COUNT - 1
    shape, rows = (width, width, others), (0, others * width)
    spec.streams.spread = Matrix(taken.need(names.STREAMS_SPREAD + ".weight", shape), None, rows)
    spec.streams.back = Matrix(taken.need(names.STREAMS_BACK + ".weight", shape))
    for layer in spec.layers:
        start = names.prefix(layer.index)
        s = layer.streams = LayerStreams()
        s.router = taken.matrix(start + names.STREAM_ROUTER, width, COUNT, False)
        s.router_norm = taken.norm(start + names.STREAM_ROUTER_NORM, width)
        s.predict = taken.matrix(start + names.STREAM_PREDICT, COUNT, COUNT * COUNT, False)
        s.correct = taken.matrix(start + names.STREAM_CORRECT, COUNT, COUNT, False)
        s.scale = taken.need(f"{start}{names.STREAM_SCALE}.weight", (width,))
        down = taken.tensors.get(f"{start}{names.LAUREL_DOWN}.weight")
        s.rank = down.shape[-1] if down is not None and len(down.shape) == 2 else 0
        s.laurel_down = taken.matrix(start + names.LAUREL_DOWN, width, s.rank, False)
        s.laurel_up = taken.matrix(start + names.LAUREL_UP, s.rank, width, False)
        s.laurel_norm = taken.norm(start + names.LAUREL_NORM, width)
