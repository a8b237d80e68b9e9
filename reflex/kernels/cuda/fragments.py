"""Block formats as operands of m16n8k16: their FRAGMENT records (reflex/quant/fragment.py says what those promise), bound to
this backend's instructions and enumerated from the table of types. Called by the linear kernels."""

from functools import cache

from numba.types import int32, uint32

from ...quant import load
from ...quant.types import TYPES
from . import ptx
from .export import device
from .memory import staging


class Bound:
    """A format's record with its functions as device functions; `base` as in quant/fragment.py."""

    def __init__(self, block, fragment, base):
        self.block = block
        self.record = fragment
        functions = fragment.build(ptx, base, device)
        self.place, self.load_head, self.load_chunk, self.codes, self.scales = map(device, functions)
        self.table = fragment.table() if fragment.table else b""


def stager(table, threads):
    """Device function of a thread's number: puts a table into shared memory; the threads must meet before it is used."""
    copy, pieces = staging(table), len(table) // 16

    def stage(tid):
        i = int32(tid)
        while i < pieces:
            copy(uint32(i))
            i = int32(i + threads)

    def nothing(tid):
        pass

    return device(stage if pieces else nothing)


@cache
def bound(base=0):
    """Every format that has fragments, by the id of its type; once, so that kernel files share what is compiled."""
    formats = {block.id: (block, getattr(load(block.name), "FRAGMENT", None)) for block in TYPES.values()}
    return {id: Bound(block, fragment, base) for id, (block, fragment) in formats.items() if fragment}
