"""Matrix products read the weights' own bytes and no other: in every format and level, between pages that nobody may touch."""

import numpy as np
import pytest
from fences import Fenced
from levels import LEVELS, load
from one_step import random_blocks

from reflex.kernels.dot import CODES, LESS, QUANTIZED_GROUP, SCALES
from reflex.quant.lanes import COMBED, TURNED
from reflex.quant.types import TYPES, row_bytes

OUTPUTS = 3
FORMATS = [b for b in TYPES.values() if b.name[0] != "I" or b.name[1] == "Q"]  # not the integer types


@pytest.fixture(scope="module", params=LEVELS)
def library(request):
    return load(request.param)


def widths(block):
    """Rows shorter than a group, of one group, and of several with every kind of rest."""
    return sorted({-(-columns // block.elements) * block.elements for columns in (32, 64, 96, 224, 256, 768, 800, 1000)})


def activations(tokens, columns, random):
    """Rows of quantized groups, without a page around them: [tokens, bytes]."""
    groups = -(-columns // 256)
    row = np.zeros((tokens, groups, QUANTIZED_GROUP), np.uint8)
    signed = random.integers(-127, 128, (tokens, groups, SCALES), "int8")
    codes = signed.view(np.uint8)
    row[..., :SCALES] = codes
    row[..., SCALES : CODES[TURNED]] = random.standard_normal((tokens, groups, 32), "float32").view(np.uint8)
    row[..., CODES[TURNED] : CODES[COMBED]] = codes.reshape(tokens, groups, 8, 4, 8).swapaxes(2, 3).reshape(codes.shape)
    row[..., CODES[COMBED] : LESS] = codes.reshape(tokens, groups, 64, 4).swapaxes(2, 3).reshape(codes.shape)
    row[..., LESS:] = (-64 * signed.reshape(tokens, groups, 16, 16).sum(3, "int32")).view(np.uint8)
    return row.reshape(tokens, -1)


def product(kernel, weights, x, block, columns):
    """What the kernel writes for weights at an address: [tokens, OUTPUTS]."""
    tokens = len(x)
    out, count = np.zeros((tokens, OUTPUTS), np.float32), np.array([tokens], np.int64)
    words = weights, 0, x.ctypes.data, out.ctypes.data, columns // 256, columns % 256 // 32, OUTPUTS, count.ctypes.data
    step = np.array([*words, row_bytes(block.id, columns), x.strides[0], out.strides[0], 0, 0, 0, columns], np.int64)
    kernel(step.ctypes.data, 0, 1)
    return out


@pytest.mark.parametrize("block", FORMATS, ids=lambda b: b.name)
def test_weights_alone_are_read(library, block):
    name = f"linear_q8_{block.name}"
    if name not in library:
        pytest.skip("not multiplied by bytes")
    random = np.random.default_rng(block.id)
    for columns in widths(block):
        data = random_blocks(block, OUTPUTS * columns, random).tobytes()
        for tokens in (1, 9):
            x, found = activations(tokens, columns, random), []
            for at_end in (False, True):
                weights = Fenced(len(data), at_end)
                weights.view[:] = data
                found.append(product(getattr(library, library.variant(name)), weights.address, x, block, columns))
                weights.free()
            np.testing.assert_array_equal(*found)
