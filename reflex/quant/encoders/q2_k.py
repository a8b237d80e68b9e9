"""Q2_K: sixteen groups of 16, scales and minimums of four bits."""

from .affine import Layout
from .affine import encoder as affine
from .packing import nibble_pairs, planes

IMPORTANCE = "block"
LAYOUT = Layout(84, 80, 16, 16, 3, 15, (-0.5, 0.1, 15), size_only=True)


def encoder(v, weighted):
    return affine(v, weighted, LAYOUT, nibble_pairs(v, 84, 0, 16), planes(v, 84, 16, 64, 32, 2))
