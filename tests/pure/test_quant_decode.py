"""Decoded blocks against gguf (numpy) and ggml (C), and `unpack` in plain Python against both; bit for bit."""

import gguf
import libgguf
import numpy as np
import pytest

from reflex import quant
from reflex.quant import combed, grids
from reflex.quant.plain import Memory
from reflex.quant.types import TYPES, by_name

SPECIAL = [0x00, 0x01, 0x04, 0x3C, 0x7C, 0x7E, 0x7F, 0x80, 0xBC, 0xFC, 0xFF]  # bytes of infinite, NaN, tiny half floats
ALL = list(TYPES.values())
ORACLES = {
    "gguf": lambda blocks, block: gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType(block.id)),
    "ggml": lambda blocks, block: libgguf.dequantize_rows(blocks, block.id),
}
WITHOUT = {  # formats an oracle has no decoder for; test_without_an_oracle has them
    "gguf": {"Q1_0", "Q8_1", "Q8_K", "I8", "I16", "I32", "I64", "F64"},
    "ggml": {"Q8_1", "Q8_K", "I8", "I16", "I32", "I64", "F64", "F32", "F16", "BF16"},
}


def random_blocks(block, count=40, seed=1):
    """uint8 [3 * count, bytes]: random blocks, blocks of special bytes, and random blocks without special half floats."""
    rng = np.random.default_rng(seed + block.id)
    blocks = rng.integers(0, 256, (3 * count, block.nbytes), dtype=np.uint8)
    blocks[:count] = rng.choice(np.array(SPECIAL, dtype=np.uint8), (count, block.nbytes))
    blocks[2 * count :] &= 0xBF  # no exponent is all ones
    return blocks


def assert_same(found, wanted):
    """Equal bits, signs of zero included; any NaN equals any NaN."""
    found, wanted = np.asarray(found), np.asarray(wanted).reshape(np.shape(found))
    assert found.dtype == wanted.dtype == np.float32
    nan = np.isnan(wanted)
    np.testing.assert_array_equal(np.isnan(found), nan)
    np.testing.assert_array_equal(found.view(np.uint32)[~nan], np.ascontiguousarray(wanted).view(np.uint32)[~nan])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("oracle", ORACLES)
@pytest.mark.parametrize("block", ALL, ids=lambda b: b.name)
def test_decode(block, oracle):
    if block.name in WITHOUT[oracle]:
        with pytest.raises((NotImplementedError, ValueError)):  # or else the list above is out of date
            ORACLES[oracle](random_blocks(block), block)
        return
    blocks = random_blocks(block)
    found = quant.load(block.name).decode(blocks)
    assert found.shape == (len(blocks), block.elements)
    assert np.isfinite(found).any()
    assert_same(found, ORACLES[oracle](blocks, block))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_without_an_oracle():
    """Layouts that the packages do not decode, taken apart with numpy records."""
    for name, dtype in {
        "Q8_1": [("d", "<f2"), ("sum", "<f2"), ("q", "i1", 32)],
        "Q8_K": [("d", "<f4"), ("q", "i1", 256), ("sums", "<i2", 16)],
    }.items():
        blocks = random_blocks(by_name(name))
        record = blocks.copy().view(np.dtype(dtype))[:, 0]
        assert record.dtype.itemsize == by_name(name).nbytes
        assert_same(quant.load(name).decode(blocks), record["d"].astype("f4")[:, None] * record["q"].astype("f4"))
    for name, code in {"I8": "i1", "I16": "<i2", "I32": "<i4", "I64": "<i8", "F64": "<f8"}.items():
        blocks = random_blocks(by_name(name))
        assert_same(quant.load(name).decode(blocks), blocks.view(code).astype("f4"))


@pytest.mark.filterwarnings("ignore:overflow")  # 12 times the largest scale of MXFP4 is infinite
@pytest.mark.parametrize(("name", "scale_bytes"), [("MXFP4", 1), ("NVFP4", 4)])
def test_every_scale_with_every_code(name, scale_bytes):
    block = by_name(name)
    blocks = np.empty((256, block.nbytes), dtype=np.uint8)
    blocks[:, :scale_bytes] = np.arange(256, dtype=np.uint8)[:, None]
    codes = np.arange(block.nbytes - scale_bytes)
    blocks[:, scale_bytes:] = codes % 16 | (codes + codes // 16 * 3 + 7) % 16 << 4
    found = quant.load(name).decode(blocks)
    assert len(np.unique(np.abs(found))) > 126 and not np.isnan(found).any()
    for oracle in ORACLES.values():
        assert_same(found, oracle(blocks, block))
    element = quant.load(name).unpack(Memory(blocks))
    assert_same([[element(i * block.nbytes, j) for j in range(block.elements)] for i in range(256)], found)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("block", ALL, ids=lambda b: b.name)
def test_unpack_equals_decode(block):
    blocks = random_blocks(block, 2 if block.elements > 1 else 40)
    element = quant.load(block.name).unpack(Memory(blocks))
    found = [[element(i * block.nbytes, j) for j in range(block.elements)] for i in range(len(blocks))]
    assert all(type(value) is np.float32 for row in found for value in row)
    assert_same(found, quant.load(block.name).decode(blocks))


@pytest.mark.parametrize("block", [b for b in ALL if b.elements == 1], ids=lambda b: b.name)
def test_scalars_are_indexed(block):
    values = random_blocks(block, seed=2)[80:]
    element = quant.load(block.name).unpack(Memory(values))
    assert_same([element(0, i) for i in range(len(values))], quant.decode(block.name, values.tobytes()))


@pytest.mark.parametrize("block", ALL, ids=lambda b: b.name)
def test_no_blocks_at_all(block):
    assert quant.decode(block.name, b"").shape == (0,)


def test_decode_takes_any_buffer():
    data = random_blocks(by_name("Q5_K"))[80:].tobytes()
    wanted = quant.decode("Q5_K", data)
    for view in (bytearray(data), memoryview(data)):
        assert_same(quant.decode("q5_k", view), wanted)


def test_sign_patterns_are_even():
    from reflex.quant import grids

    signs = grids.signs()
    assert [s & 127 for s in signs] == list(range(128))
    assert all(s.bit_count() % 2 == 0 for s in signs)


def test_points_are_found_by_the_runs_of_a_table():
    """As kernels for processors that permute bytes look them up (combed.ternary_points), index by index."""
    runs = combed.Runs(grids.iq1_s())
    points = np.frombuffer(grids.iq1_s(), "i1").reshape(-1, 8)
    assert len(points) == 2048
    for index, point in enumerate(points):
        number = runs.numbers[index >> 3]
        behind = (index - runs.ends[number] + 128) % 256 - 128
        found = runs.first[index], runs.last[number + (behind >= 0)]
        assert [(half >> at & 3) - 1 for half in found for at in combed.PAIRS] == point.tolist()
