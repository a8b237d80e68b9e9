"""The emulator finds what a device would do silently wrong: each fault is put into a kernel that passes without it."""

import importlib.util
import itertools
import re

import emulated_collectives
import emulated_memory
import emulator
import numpy
import pytest

from reflex.kernels.cuda import levels, memory, ptx

HEADER = "from numba import cuda\nfrom numba.types import float32, int32, uint32\nfrom reflex.kernels.cuda import ptx\n"
# Two tiles of A[16, 64] and B[8, 64] (float16) through shared memory, two stages of cp.async; each warp a half of the depth.
PRODUCT = """
def product(a, b, out, tiles):
    ptx.pdl_launch()
    lane, warp = int32(cuda.threadIdx.x & 31), int32(cuda.threadIdx.x >> 5)
    stages = cuda.shared.array(768, uint32, alignment=16)  # 2 stages of 24 rows of 16 words
    sums = cuda.shared.array(128, float32)
    ptx.pdl_wait()
    c0 = c1 = c2 = c3 = float32(0)
    for step in range(tiles + 1):
        if step < tiles:
            for i in range(cuda.threadIdx.x, 96, 64):
                row, chunk = i >> 2, i & 3
                to = (step & 1) * 384 + row * 16 + ((chunk ^ (row & 3)) << 2)
                if row < 16:
                    ptx.cp_async16(stages, to, a, (row * tiles + step) * 16 + chunk * 4)
                else:
                    ptx.cp_async16(stages, to, b, ((row - 16) * tiles + step) * 16 + chunk * 4)
        ptx.cp_async_commit()
        if step > 0:
            ptx.cp_async_wait(1)
            cuda.syncthreads()
            base = ((step - 1) & 1) * 384
            row, chunk = lane & 15, warp * 2 + (lane >> 4)
            a0, a1, a2, a3 = ptx.ldmatrix_x4(stages, base + row * 16 + ((chunk ^ (row & 3)) << 2))
            row, chunk = 16 + (lane & 7), warp * 2 + ((lane >> 3) & 1)
            b0, b1 = ptx.ldmatrix_x2(stages, base + row * 16 + ((chunk ^ (row & 3)) << 2))
            c0, c1, c2, c3 = ptx.mma_f16(a0, a1, a2, a3, b0, b1, c0, c1, c2, c3)
            cuda.syncthreads()
    if warp == 1:
        ptx.stsf4(sums, lane * 4, c0, c1, c2, c3)
    cuda.syncthreads()
    if warp == 0:
        at = (lane >> 2) * 8 + (lane & 3) * 2
        d0, d1, d2, d3 = ptx.ldsf4(sums, lane * 4)
        ptx.stf2(out, at, c0 + d0, c1 + d1)
        ptx.stf2(out, at + 64, c2 + d2, c3 + d3)
"""
REDUCE = """
def reduce(x, out, count):
    ptx.pdl_launch()
    parts = cuda.shared.array(8, float32)
    ptx.pdl_wait()
    t = int32(cuda.threadIdx.x)
    total = float32(0)
    for i in range(t, count, 64):
        total += x[i]
    for m in (16, 8, 4, 2, 1):
        total += ptx.shfl_xor(total, m)
    if t & 31 == 0:
        parts[t >> 5] = total
    cuda.syncthreads()
    if t == 0:
        out[0] = parts[0] + parts[1]
"""
numbers = itertools.count()


@pytest.fixture
def kernel(tmp_path):
    """A kernel from its source text with (old, new) replaced; Python reads it from a file, as it must."""

    def build(text, old="", new=""):
        assert old in text
        path = tmp_path / f"kernel_{next(numbers)}.py"
        path.write_text(HEADER + text.replace(old, new, 1))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return getattr(module, re.search(r"def (\w+)", text).group(1))

    return build


def product_is_right(function, seed=0):
    random = numpy.random.default_rng(3)
    a, b = (random.standard_normal((n, 96), "float32").astype("float16") for n in (16, 8))
    out = numpy.full((16, 8), numpy.nan, "float32")
    emulator.launch(function, 1, 64, [a.view("uint32"), b.view("uint32"), out, 3], seed=seed)
    return numpy.allclose(out, a.astype("float32") @ b.astype("float32").T, atol=1e-3)


def reduce_is_right(function, seed=0, count=100):
    out = numpy.full(1, numpy.nan, "float32")
    emulator.launch(function, 1, 64, [numpy.arange(count, dtype="float32"), out, count], seed=seed)
    return out[0] == count * (count - 1) / 2


def goes_wrong(right, function):
    """Whether some order of the warps gives an error or a wrong result."""
    for seed in range(6):
        try:
            if not right(function, seed):
                return True
        except emulator.EmulationError:
            return True
    return False


def test_kernels_without_faults_pass(kernel):
    for seed in range(4):
        assert product_is_right(kernel(PRODUCT), seed)
        assert reduce_is_right(kernel(REDUCE), seed)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("cp_async_wait(1)\n            cuda.syncthreads()", "cp_async_wait(1)"),  # others' copies are not there yet
        ("c3)\n            cuda.syncthreads()", "c3)"),  # the stage is overwritten while others read it
        ("cp_async_wait(1)", "cp_async_wait(2)"),  # waits for too little
        ("ptx.cp_async_commit()", "pass"),
        ("row * 16 + ((chunk ^ (row & 3)) << 2)\n                if", "row * 16 + (chunk << 2)\n                if"),  # swizzle
        ("row, chunk = 16 + (lane & 7)", "row, chunk = 16 + (lane & 6)"),
        ("chunk = lane & 15, warp * 2 + (lane >> 4)", "chunk = lane & 15, warp * 2 + ((lane >> 3) & 1)"),
        ("ptx.stsf4(sums, lane * 4, c0, c1, c2, c3)\n    cuda.syncthreads()", "ptx.stsf4(sums, lane * 4, c0, c1, c2, c3)"),
    ],
)
def test_faults_in_a_staged_product(kernel, old, new):
    assert goes_wrong(product_is_right, kernel(PRODUCT, old, new))


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("ptx.shfl_xor(total, m)", "(ptx.shfl_xor(total, m) if t < 50 else total)", "divergent"),
        ("    cuda.syncthreads()", "    if t < 32:\n        cuda.syncthreads()", "deadlock|threads are at"),
        ("count, 64)", "count + 1, 64)", "out of bounds: element 100 of 100"),
        ("x[i]", "x[i - 1]", "out of bounds: element -1"),
        ("parts[t >> 5]", "parts[t]", "out of bounds: element 32 of 8 in shared"),
        ("total += x[i]", "total += ptx.ldf4(x, i)[0]", "misaligned: 16 bytes at byte"),
        ("x[i]", "ptx.lds32(x, i)", "an instruction for shared memory in global memory"),
        ("    ptx.pdl_wait()\n", "", "before pdl_wait"),
        ("    ptx.pdl_wait()\n", "    if t < 0:\n        ptx.pdl_wait()\n", "UnboundLocalError|before pdl_wait"),
        ("out[0] = parts[0]", "out[0] = ptx.ldgf(out, 0)", "read-only loads"),
        ("total = float32(0)", "while ptx.ld_acquire(out, 0) != 0:\n        pass\n    total = float32(0)", "deadlock"),
    ],
)
def test_faults_are_named_with_their_line(kernel, old, new, complaint):
    with pytest.raises(emulator.EmulationError, match=complaint):
        reduce_is_right(kernel(REDUCE, old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    cuda.syncthreads()\n", ""),
        ("if t & 31 == 0:", "if t == 0:"),  # parts[1] holds what nobody wrote
        ("(16, 8, 4, 2, 1)", "(16, 8, 4, 2)"),
    ],
)
def test_faults_in_a_reduction(kernel, old, new):
    assert goes_wrong(reduce_is_right, kernel(REDUCE, old, new))


LAST_BLOCK = """
def last_block(out, arrivals, blocks):
    ptx.pdl_wait()
    if cuda.threadIdx.x == 0:
        ptx.red_release_add(arrivals, 0, 1)
        while ptx.ld_acquire(arrivals, 0) < blocks:
            pass
    cuda.syncthreads()
    out[cuda.blockIdx.x * 32 + cuda.threadIdx.x] = arrivals[0]
"""


def test_blocks_wait_for_each_other_only_in_a_cooperative_launch(kernel):
    out, arrivals = numpy.zeros(96, "uint32"), numpy.zeros(1, "uint32")
    emulator.launch(kernel(LAST_BLOCK), 3, 32, [out, arrivals, 3], cooperative=True)
    assert (out == 3).all()
    with pytest.raises(emulator.EmulationError, match="deadlock"):
        emulator.launch(kernel(LAST_BLOCK), 3, 32, [out, numpy.zeros(1, "uint32"), 3])


PAGES = """
def pages_copy(pages, out, at):
    ptx.pdl_wait()
    t = int32(cuda.threadIdx.x)
    a, b, c, d = ptx.ld128(pages[t >> 4], (t & 15) * 16 + at)
    ptx.st128(out, t * 4, a, b, c, d)
    ptx.sth(pages[1], t * 2, float32(t))
"""


def test_accesses_by_address(kernel):
    from run import Addresses

    pages = Addresses([numpy.arange(64, dtype="uint32"), numpy.arange(64, 128, dtype="uint32")])
    out = numpy.zeros(128, "uint32")
    with pytest.raises(emulator.EmulationError, match="out of bounds: 16 bytes at address"):
        emulator.launch(kernel(PAGES), 1, 32, [pages.copy(), out, 1 << 40])
    with pytest.raises(emulator.EmulationError, match="misaligned: 16 bytes at byte 8"):
        emulator.launch(kernel(PAGES), 1, 32, [pages.copy(), out, 8])
    emulator.launch(kernel(PAGES, "ptx.sth(pages[1]", "ptx.sth(pages[0]"), 1, 32, [pages, out, 0])
    assert (out[64:] == numpy.arange(64, 128)).all()
    assert (pages.arrays[0].view("float16")[:32] == numpy.arange(32)).all()


DYNAMIC = """
def views(out):
    words = cuda.shared.array(0, uint32, alignment=16)
    floats = cuda.shared.array(0, float32, alignment=16)
    ptx.pdl_wait()
    t = int32(cuda.threadIdx.x)
    floats[32 + t] = float32(t)
    ptx.bar_sync(1, 64)
    out[t] = ptx.bits2f(words[32 + (t ^ 32)])
"""


def test_dynamic_shared_memory_is_one_place_with_several_types(kernel):
    out = numpy.zeros(64, "float32")
    emulator.launch(kernel(DYNAMIC), 1, 64, [out], dynamic=4 * 96)
    assert (out == numpy.arange(64) ^ 32).all()
    emulator.launch(kernel(DYNAMIC, "ptx.bar_sync(1, 64)", "pass"), 1, 64, [out], dynamic=4 * 96)
    assert numpy.isnan(out).any()


BULK = """
def bulk(x, out):
    ptx.pdl_wait()
    t = int32(cuda.threadIdx.x)
    stage = cuda.shared.array(64, uint32, alignment=128)
    ready = cuda.shared.array(2, uint32, alignment=8)
    if t == 0:
        ptx.mbar_init(ready, 0, 1)
        ptx.mbar_fence()
    cuda.syncthreads()
    if t == 0:
        ptx.mbar_expect(ready, 0, 256)
        ptx.bulk_g2s(stage, 0, x, 0, ready, 0, 256)
    while ptx.mbar_try_wait(ready, 0, 0) == 0:
        pass
    out[t] = stage[t]
"""


def test_bulk_copies_arrive_at_their_barrier(kernel):
    x, out = numpy.arange(64, dtype="uint32"), numpy.zeros(64, "uint32")
    emulator.launch(kernel(BULK), 1, 64, [x, out])
    assert (out == x).all()
    emulator.launch(kernel(BULK, "while ptx.mbar_try_wait(ready, 0, 0) == 0:", "while False:"), 1, 64, [x, out])
    assert (out == 0xFFFFFFFF).all()
    with pytest.raises(emulator.EmulationError, match="deadlock"):
        emulator.launch(kernel(BULK, "expect(ready, 0, 256)", "expect(ready, 0, 272)"), 1, 64, [x, out])


def test_every_instruction_has_a_twin():
    names = {name for module in (ptx, memory) for name, value in vars(module).items() if type(value).__name__ == "_Intrinsic"}
    twins = vars(emulator.PTX).keys() | emulator.MEETINGS | emulated_memory.MEMORY.keys() | emulated_collectives.NOT_EMULATED
    assert names - twins == set()


def test_variants_of_an_instruction_by_feature_level():
    text = "a;\n" + levels.marked("x", {75: "", 80: "new;"}) + "\nb;\n" + levels.marked("y", {90: "newest;"}) + "\nc;\n"
    assert [line for line in levels.at_level(text, 90).split("\n") if line] == ["a;", "new;", "b;", "newest;", "c;"]
    with pytest.raises(ValueError, match="y needs sm_90"):
        levels.at_level(text, 80)
    with_first = levels.at_level(levels.marked("x", {75: "", 80: "new;"}), 75)
    assert with_first.strip() == ""





def test_matrix_products_of_bytes_and_halves_agree_with_their_definition():
    """Row and column of every register as the PTX manual gives them, spelled out one by one."""
    random = numpy.random.default_rng(5)
    a, b = random.integers(-128, 128, (16, 32)).astype("int8"), random.integers(-128, 128, (32, 8)).astype("int8")
    lanes = []
    for lane in range(32):
        row, k = lane >> 2, 4 * (lane & 3)
        words = [a[row, k : k + 4], a[row + 8, k : k + 4], a[row, k + 16 : k + 20], a[row + 8, k + 16 : k + 20]]
        words += [b[k : k + 4, row], b[k + 16 : k + 20, row]]
        lanes.append((*(int(w.copy().view("uint32")[0]) for w in words), 1, 2, 3, 4))
    wanted = a.astype(int) @ b.astype(int)
    for lane, found in enumerate(emulated_collectives.WARP["mma_s8"](lanes)):
        row, column = lane >> 2, 2 * (lane & 3)
        assert found == (*(wanted[row, column : column + 2] + (1, 2)), *(wanted[row + 8, column : column + 2] + (3, 4)))


def test_products_of_bits_agree_with_their_definition():
    random = numpy.random.default_rng(6)
    a, b = random.integers(0, 2**32, (16, 4), "uint32"), random.integers(0, 2**32, (8, 4), "uint32")  # rows of A, columns of B
    wanted = numpy.array([[sum(int(w).bit_count() for w in row & column) for column in b] for row in a])
    lanes = [(*(int(w) for w in (a[n >> 2, n & 3], a[(n >> 2) + 8, n & 3], b[n >> 2, n & 3])), 1, 2, 3, 4) for n in range(32)]
    for lane, found in enumerate(emulated_collectives.WARP["mma_b1"](lanes)):
        row, column = lane >> 2, 2 * (lane & 3)
        assert found == (*(wanted[row, column : column + 2] + (1, 2)), *(wanted[row + 8, column : column + 2] + (3, 4)))
