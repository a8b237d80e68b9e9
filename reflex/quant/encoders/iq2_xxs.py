"""IQ2_XXS: eight groups of 32 with four points of 8 and four times seven signs each."""

from .. import grids
from . import lattice

IMPORTANCE, NEEDED = "block", True
LATTICE = lattice.Lattice(66, grids.iq2_xxs, 8, 3, 2, 32, True, 6, 0.1, 1e-15, start=True)
WRITER = lattice.words(66, 2, 6, (8, 8), 4)
tables = LATTICE.tables


def encoder(v, weighted):
    return lattice.encoder(v, True, LATTICE, WRITER)
