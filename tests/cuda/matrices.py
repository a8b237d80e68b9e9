"""Matrices of every block format for the cases of products."""

import numpy
from blocks import random_blocks

from reflex import quant
from reflex.quant.types import TYPES

SLACK = 256  # readable bytes behind every buffer


def fast():
    return [block for block in TYPES.values() if hasattr(quant.load(block.name), "FRAGMENT")]


def tiled():
    """Those with kernels for any number of tokens, and for several formats together."""
    return [block for block in fast() if quant.load(block.name).FRAGMENT.tiled]


class Matrix:
    """Random weights [rows, columns] of one type; `values` in float64."""

    def __init__(self, block, rows, columns, random, biased=False):
        self.block, self.rows, self.biased = block, rows, biased
        blocks = random_blocks(block, 2000, random)  # of values up to 200: a real model's are far below
        blocks = blocks[numpy.abs(quant.load(block.name).decode(blocks)).max(axis=1) < 200]
        blocks = blocks[random.integers(0, len(blocks), rows * columns // block.elements)]
        self.values = quant.load(block.name).decode(blocks).astype(float).reshape(rows, columns)
        self.bytes = numpy.concatenate([blocks.reshape(-1), numpy.full(SLACK, 0x7F, "uint8")])
        self.bias = random.standard_normal(rows, "float32")
        self.out = numpy.full(rows, numpy.nan, "float32")

    def arguments(self, out):
        return [self.bytes, self.block.id, self.rows, self.bias, int(self.biased), out]


NOTHING = [numpy.zeros(1, "uint8"), 0, 0, numpy.zeros(1, "float32"), 0, numpy.zeros(1, "float32")]


def tiles(matrices):
    return sum((m.rows + 15) // 16 for m in matrices)


class Weights(Matrix):
    """As many as in a real model, none of them looked at."""

    def __init__(self, block, rows, columns, random):
        self.block, self.rows, self.biased = block, rows, False
        blocks = random_blocks(block, 4096, random).reshape(-1)
        self.bytes = numpy.resize(blocks, rows * columns // block.elements * block.nbytes + SLACK)
        self.bias = numpy.zeros(1, "float32")
        self.out = numpy.zeros(rows, "float32")
