"""Encoders against ggml's own quantizers: the same bytes, on random, odd and real rows, with and without importance."""

import gguf
import libgguf
import numpy as np
import pytest
from real import locate

from reflex import quant
from reflex.errors import InvalidInputError, UnsupportedError
from reflex.gguf.reader import open_model
from reflex.native import bytes_at
from reflex.quant import encoders
from reflex.quant.types import by_id, by_name

NAMES = encoders.names()
MISPLACED = {"IQ3_S"}  # ggml writes the groups that follow one of zeros to the places of the group before


def rows_of_every_kind():
    """{what: float32 rows} of 1024 columns, and one of a width that leaves eight lanes unfilled."""
    rng = np.random.default_rng(5)
    normal = rng.standard_normal((16, 1024)).astype("f4")
    odd = normal.copy()
    for row, factor in enumerate((0, 1e-12, 1e-17, 1e-30, 1e-42, 1e6)):
        odd[row] *= np.float32(factor)
    odd[6], odd[7] = 1.5, -2
    odd[8], odd[9], odd[10] = np.round(odd[8]), np.abs(odd[9]), -np.abs(odd[10])
    odd[11, ::2] = 0
    odd[12], odd[13, 1:] = np.where(odd[12] > 0, 1, -1), 0
    odd[14] = -odd[14, ::-1]
    odd[15, :512] = 3
    return {
        "normal": normal * np.float32(0.05),
        "heavy tails": rng.laplace(size=(9, 1024)).astype("f4"),
        "few": (normal * (rng.random(normal.shape) < 0.05)).astype("f4"),
        "odd": odd,
        "lattice": rng.integers(-8, 9, (8, 1024)).astype("f4") / 4,
        "one block": normal[:1, :256],
        "narrow": normal[:5, :768],
    }


def importances(columns, name=""):
    """{how: importance}; with a format's name, only what it can be made with."""
    rng = np.random.default_rng(columns)
    without = {} if name and getattr(encoders.load(name), "NEEDED", False) else {"none": None}
    return {
        **without,
        "even": (rng.random(columns) + 1e-3).astype("f4"),
        "uneven": np.exp(3 * rng.standard_normal(columns)).astype("f4"),
    }


def ggml(name, rows, importance):
    with np.errstate(all="ignore"):
        return libgguf.quantize_rows(rows, by_name(name).id, importance)


def differing(name, found, wanted):
    """How many blocks differ."""
    size = by_name(name).nbytes
    return int((found.reshape(-1, size) != wanted.reshape(-1, size)).any(axis=1).sum())


@pytest.mark.parametrize("name", NAMES)
def test_the_bytes_are_ggmls(name):
    for what, rows in rows_of_every_kind().items():
        rows = rows if name not in MISPLACED else rows[(rows.reshape(len(rows), -1, 32) != 0).any(axis=2).all(axis=1)]
        for how, importance in importances(rows.shape[1], name).items():
            found = quant.encode(name, rows, importance)
            assert differing(name, found, ggml(name, rows, importance)) == 0, (what, how)


@pytest.fixture(scope="module")
def real():
    """Rows of a real model's matrices, 576 or 1536 columns wide, and of its embedding as rows of 768."""
    file = open_model(str(locate("smollm2")))
    found = []
    for part in ("token_embd", "blk.3.ffn_down", "blk.17.attn_q", "blk.29.ffn_gate", "blk.0.attn_v"):
        tensor = file.tensor(f"{part}.weight")
        columns = tensor.shape[0]
        data = bytes_at(tensor.address, tensor.nbytes // tensor.shape[1] * 48)
        found.append(quant.decode(by_id(tensor.type).name, data, (48, columns)))
    file.close()
    return [rows if rows.shape[1] % 256 == 0 else rows.reshape(-1, 768) for rows in found]


@pytest.mark.parametrize("name", NAMES)
def test_the_bytes_are_ggmls_on_real_rows(name, real):
    for rows in real:
        for how, importance in importances(rows.shape[1], name).items():
            assert differing(name, quant.encode(name, rows, importance), ggml(name, rows, importance)) == 0, how


@pytest.mark.parametrize("name", ["F16", "BF16"])
def test_half_precision(name):
    rng = np.random.default_rng(2)
    rows = rng.integers(0, 1 << 32, (64, 333), dtype=np.uint32).view("f4")
    rows = np.where(np.isfinite(rows), rows, 1).astype("f4")
    kind = gguf.GGMLQuantizationType[name]
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(quant.encode(name, rows), gguf.quants.quantize(rows, kind).view("u1").reshape(64, -1))
    np.testing.assert_array_equal(quant.decode("F32", quant.encode("F32", rows), rows.shape), rows)


def test_scales_just_below_powers_of_two():
    """ggml's MXFP4 scale comes from log2f, whose rounding lifts some of them: every exponent, a hundred steps below each."""
    powers = np.ldexp(np.float32(1), np.arange(-149, 128)).astype("f4").view("i4")
    steps = np.concatenate([(powers - k)[powers > k] for k in range(-2, 110)]).view("f4")
    rows = np.zeros((len(steps) // 8, 8, 32), "f4")
    rows[:, :, 7] = -steps[: len(steps) // 8 * 8].reshape(-1, 8)
    rows[:, :, 9] = -0.37 * rows[:, :, 7]
    rows = rows.reshape(-1, 256)
    for name in ("MXFP4", "NVFP4"):
        assert differing(name, quant.encode(name, rows), ggml(name, rows, None)) == 0


def test_threads_make_no_difference():
    rows = np.random.default_rng(1).standard_normal((300, 1024)).astype("f4")
    weights = importances(1024)["uneven"]
    wanted = quant.encode("Q4_0", rows, weights, threads=1)
    for threads in (None, 2, 5):
        np.testing.assert_array_equal(quant.encode("q4_0", rows, weights, threads), wanted)


def test_shapes():
    rows = np.random.default_rng(1).standard_normal((2, 3, 512))
    found = quant.encode("Q6_K", rows)
    assert found.shape == (2, 3, 420) and found.dtype == np.uint8
    np.testing.assert_array_equal(quant.requantize(rows, "Q6_K"), found.reshape(-1))
    assert quant.decode("Q6_K", found, rows.shape).shape == rows.shape
    np.testing.assert_array_equal(quant.encode("Q6_K", rows[0].T.copy().T), found[0])


@pytest.mark.parametrize("name", NAMES)
def test_blocks_whose_importance_says_nothing_are_made_without_it(name):
    """All zeros, an infinity, no number or a negative one: ones in their place, and the other blocks as ever."""
    rows = rows_of_every_kind()["normal"]
    size = by_name(name).elements
    weights = importances(1024)["even"]
    for bad in (0, np.inf, np.nan, -1):
        given, meant = weights.copy(), weights.copy()
        given[:size] = bad if bad == 0 else given[:size]
        given[size - 1] = bad
        meant[:size] = 1
        found = quant.encode(name, rows, given)
        np.testing.assert_array_equal(found, quant.encode(name, rows, meant))
        assert np.isfinite(quant.decode(name, found)).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_no_number_is_named(value):
    rows = np.zeros((300, 1024), "f4")
    rows[217, 5] = rows[290, 3] = value
    with pytest.raises(InvalidInputError, match=r"finite numbers; found -?(nan|inf); at index \(217, 5\)"):
        quant.encode("Q4_K", rows)


@pytest.mark.parametrize("name", MISPLACED)
def test_groups_behind_one_of_zeros_are_in_their_places(name):
    rows = np.random.default_rng(4).standard_normal((4, 256)).astype("f4")
    rows[:, 64:96] = 0
    error = quant.decode(name, quant.encode(name, rows), rows.shape) - rows
    assert (np.sqrt(np.mean(error**2)) < 0.2 and (error[:, 64:96] == 0).all()) or np.abs(error[:, 64:96]).max() < 0.2
    theirs = quant.decode(name, ggml(name, rows, None), rows.shape) - rows
    assert np.sqrt(np.mean(theirs**2)) > 0.5  # or else ggml is mended, and MISPLACED can go


def test_refusals():
    rows = np.ones((2, 512), "f4")
    with pytest.raises(InvalidInputError, match=r"multiple of 256 columns; found shape \(2, 100\)"):
        quant.encode("Q4_K", rows[:, :100])
    with pytest.raises(InvalidInputError, match="expected 512; found 3"):
        quant.encode("Q4_K", rows, np.ones(3))
    with pytest.raises(UnsupportedError, match="one like Q4_0"):
        quant.encode("Q4_L", rows)
    with pytest.raises(UnsupportedError, match="nothing can be encoded as Q8_1"):
        quant.encode("Q8_1", rows)
    with pytest.raises(InvalidInputError, match="multiple of 32 columns"):
        quant.encode("Q8_0", np.float32(1))
    with pytest.raises(InvalidInputError, match="IQ2_XS needs importance"):
        quant.encode("IQ2_XS", rows)
