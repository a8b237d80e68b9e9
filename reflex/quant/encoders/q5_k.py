"""Q5_K: as Q4_K with a fifth bit of the levels apart."""

from .affine import Layout
from .affine import encoder as affine
from .packing import planes, sixbit_pairs

IMPORTANCE = "twice the block"
LAYOUT = Layout(176, 0, 8, 32, 31, 63, (-0.5, 0.1, 15))


def encoder(v, weighted):
    high, low = planes(v, 176, 16, 32, 32, 1, shift=4), planes(v, 176, 48, 128, 32, 4)
    return affine(v, weighted, LAYOUT, sixbit_pairs(v, 176, 4), high, low)
