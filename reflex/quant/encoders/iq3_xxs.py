"""IQ3_XXS: eight groups of 32 with eight points of 4 and four times seven signs each."""

from .. import grids
from . import lattice

IMPORTANCE, NEEDED = "twice the block", False
LATTICE = lattice.Lattice(98, grids.iq3_xxs, 4, 8, 2, 32, True, 15, 0.2, 1e-8, fudge=1.0125)
WRITER = lattice.words(98, 2, 66, (8, 4), 8)
tables = LATTICE.tables


def encoder(v, weighted):
    return lattice.encoder(v, weighted, LATTICE, WRITER, lattice.squares)
