"""Q4_K: eight groups of 32, scales and minimums of six bits."""

from .affine import Layout
from .affine import encoder as affine
from .packing import planes, sixbit_pairs

IMPORTANCE = "twice the block"
LAYOUT = Layout(144, 0, 8, 32, 15, 63, (-1, 0.1, 20))


def encoder(v, weighted):
    return affine(v, weighted, LAYOUT, sixbit_pairs(v, 144, 4), planes(v, 144, 16, 128, 32, 4))
