"""What cases of kernels with a state share: a table of places, strands as kernels read them, what must be left in places."""

import numpy
from run import Addresses

BEFORE = 7  # float32 of a place that belong to other steps


def places_of(states):
    """Each state in a place of its own, behind numbers that nobody may touch."""
    return [numpy.concatenate([numpy.full(BEFORE, 5.0, numpy.float32), state]) for state in states]


def words_of(strands):
    """Strands as kernels read them."""
    return numpy.array([len(strands), *(word for strand in strands for word in strand)], "int32")


def given(words, reference):
    """(Addresses before, strands, result, list of the places behind): `reference` changes words["states"]."""
    before = Addresses(places_of(words["states"]))
    result = reference(words)
    return before, words_of(words["strands"]), result, places_of(words["states"])
