"""Runs of four float32 values as kernels read and write them: one 16-byte access where whole and aligned, else one by one.

`left` values remain at element `at`; those past the end read as 0 and are not written.
"""

from numba.types import float32, int32

from . import ptx
from .export import device


@device
def load4_or(p, at, left, aligned, missing):
    """Four values that an earlier kernel may have written, `missing` for those past the end."""
    a, b, c, d = missing, missing, missing, missing
    if aligned and left >= 4:
        a, b, c, d = ptx.ldf4(p, at)
    else:
        if left > 0:
            a = p[at]
        if left > 1:
            b = p[int32(at + 1)]
        if left > 2:
            c = p[int32(at + 2)]
        if left > 3:
            d = p[int32(at + 3)]
    return a, b, c, d


@device
def load4(p, at, left, aligned):
    return load4_or(p, at, left, aligned, float32(0))


@device
def store4(p, at, left, aligned, a, b, c, d):
    if aligned and left >= 4:
        ptx.stf4(p, at, a, b, c, d)
    else:
        if left > 0:
            p[at] = a
        if left > 1:
            p[int32(at + 1)] = b
        if left > 2:
            p[int32(at + 2)] = c
        if left > 3:
            p[int32(at + 3)] = d


@device
def weights4(w, at, left):
    """Four values of an aligned array that no kernel writes, so that they may be read before earlier kernels end."""
    a, b, c, d = float32(0), float32(0), float32(0), float32(0)
    if left >= 4:
        a, b, c, d = ptx.ldgf4(w, at)
    else:
        if left > 0:
            a = ptx.ldgf(w, at)
        if left > 1:
            b = ptx.ldgf(w, int32(at + 1))
        if left > 2:
            c = ptx.ldgf(w, int32(at + 2))
    return a, b, c, d
