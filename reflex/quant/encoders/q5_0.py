"""Q5_0: the value of the largest size becomes -16; with importance, a search."""

from .packing import planes
from .q4_0 import signed

IMPORTANCE = "row"


def encoder(v, weighted):
    return signed(v, weighted, 16, 22, planes(v, 22, 2, 4, 1, 1, shift=4), planes(v, 22, 6, 16, 16, 4))
