"""Whatever the format, the length of rows and the device: a launch asks for no more shared memory than a block there may have, or
the model is refused before anything is lowered."""

from types import SimpleNamespace

import pytest

from reflex import native
from reflex.backends.cuda import lowering as lowered
from reflex.backends.cuda import memory, recurrent
from reflex.backends.cuda.lowering import lowering
from reflex.backends.cuda.module import open_images
from reflex.errors import KernelCacheError, UnsupportedError
from reflex.program.records import BATCH, Program
from reflex.quant.types import TYPES, by_name, row_bytes

# What a block may have on the devices that run a file (CUDA C++ Programming Guide, table of compute capabilities), in KB.
LIMITS = {"sm_75": 64, "sm_80": 99, "sm_90": 227, "sm_100": 227, "sm_120": 99, "ptx": 99}  # 8.6 and 8.9 run those of 8.0
COLUMNS = 2048, 9728, 11008, 11264, 14336, 25600, 28672, 29568, 40960, 53248, 65536, 131072
EXPERTS = (2048, 768, 8), (4096, 14336, 2), (5120, 8192, 8), (7168, 2048, 8), (16384, 16384, 4), (32768, 1024, 32)
SHAPES = (32, 32), (512, 1), (1, 1, 2048)
HEADS = (64, 64), (128, 128), (192, 128), (256, 256), (320, 320), (384, 384), (512, 512), (576, 512), (1024, 1024)


@pytest.fixture(scope="module", params=LIMITS)
def images(request):
    path = f"{native.cache_folder()}/cuda-{request.param}.bin"
    try:
        return open_images(path)
    except KernelCacheError:
        pytest.skip(f"cache/ does not hold {request.param}: run python precompile.py --all")


class Weights:
    """Tensors without data: {name: (type, shape)}."""

    def __init__(self, shapes):
        self.tensors, self.expanded, self.begins, self.size = {}, {}, (), 0
        for name, (kind, shape) in shapes.items():
            size = row_bytes(kind, shape[0]) * shape[1] * (shape[2] if len(shape) > 2 else 1) if len(shape) > 1 else 4 * shape[0]
            self.tensors[name] = SimpleNamespace(name=name, type=kind, shape=shape, nbytes=size, address=self.size)
            self.size += -(-size // 256) * 256

    def kind(self, tensor):
        return tensor.type

    def place(self, address):
        return address


class Launches(list):
    def add(self, kernel, grid, values, shared=0, overlap=True):
        self.append((kernel, shared))


def launches(images, program, weights, shape, multiprocessors=132):
    """[(kernel, dynamic shared bytes)] of a program without layers."""
    places, found = memory.Memory(weights, program, 512), Launches()
    lowering(program)(images, multiprocessors, found, weights, program, places, *shape)._lower(0, len(program.steps))
    assert found
    return found


def program_of(widths):
    made = Program("none", 8, 512, 8)
    made.widths, made.layers = {**widths, "logits": 8}, [0]
    return made


def products(kind, columns):
    """A feed-forward between a norm and its residual: gate and up together, down by itself, over rows as long."""
    made, gate = program_of({"x": columns, "h": columns, "g": columns, "u": columns, "y": columns}), (kind.id, (columns, columns))
    made.emit("rmsnorm", "h", ("x",), ("norm",), {"eps": 1e-6})
    for out in "gu":
        made.emit("linear", out, ("h",), (out, None))
    made.emit("gated", "g", ("g", "u"), (), {"act": "silu"})
    made.emit("linear", "y", ("g",), ("down", None))
    made.emit("add", "x", ("x", "y"), (), {"scale": 1.0})
    return made, Weights({"norm": (0, (columns,)), "g": gate, "u": gate, "down": gate})


def mixture(kind, width, inner, used):
    widths = {"x": width, "h": width, "y": width, "r": 64, "routes": 2 * used}
    widths |= {"g": used * inner, "u": used * inner, "d": used * width}
    made, args = program_of(widths), {"used": used}
    made.emit("rmsnorm", "h", ("x",), ("norm",), {"eps": 1e-6})
    made.emit("linear", "r", ("h",), ("router", None))
    made.emit("route", "routes", ("r",), (None,), args | {"gating": "softmax", "renormalize": True, "scale": 1.0, "groups": 0})
    for out in "gu":
        made.emit("expert_linear", out, ("h", "routes"), (out, None), args)
    made.emit("gated", "g", ("g", "u"), (), {"act": "silu"})
    made.emit("expert_linear", "d", ("g", "routes"), ("down", None), args)
    made.emit("expert_sum", "y", ("d", "routes"), (), args)
    made.emit("add", "x", ("x", "y"), (), {"scale": 1.0})
    stacks = {"g": (kind.id, (width, inner, 64)), "u": (kind.id, (width, inner, 64)), "down": (kind.id, (inner, width, 64))}
    return made, Weights({"norm": (0, (width,)), "router": (0, (width, 64)), **stacks})


def heads(dims):
    made, (key, value) = program_of({"q": 8 * dims[0], "k": 2 * dims[0], "v": 2 * dims[1], "a": 8 * dims[1]}), dims
    made.caches = [(2, *dims)]
    args = {"heads": 8, "kv_heads": 2, "key_dim": key, "value_dim": value, "layer": 0}
    args |= {"softcap": None, "scale": 1.0, "window": None}
    made.emit("attention", "a", ("q", "k", "v"), (), args)
    return made


@pytest.mark.parametrize("kind", TYPES.values(), ids=lambda kind: kind.name)
def test_products(images, kind):
    for columns in (columns for columns in COLUMNS if columns % kind.elements == 0):
        several = [(shape, 132) for shape in SHAPES] if columns == COLUMNS[-1] else []  # whose kernels keep no whole rows
        for shape, multiprocessors in (((1, 1), 132), ((1, 1), 40), *several):
            for kernel, shared in launches(images, *products(kind, columns), shape, multiprocessors):
                assert shared + kernel.shared <= LIMITS[images.target] << 10, (kernel.name, columns, shape)


@pytest.mark.parametrize("kind", TYPES.values(), ids=lambda kind: kind.name)
def test_experts(images, kind):
    for sizes in EXPERTS:
        program, weights = mixture(kind, *sizes)
        if sizes[2] > 29 and images.target == "sm_75":
            with pytest.raises(UnsupportedError, match="kernels for sm_75 cannot hold 32 experts for a token"):
                lowered.refuse_large(program, images)
            continue
        lowered.refuse_large(program, images)
        for shape in ((1, 1), *(SHAPES if sizes == EXPERTS[-2] else ()), (512, 1)):
            for kernel, shared in launches(images, program, weights, shape):
                assert shared + kernel.shared <= LIMITS[images.target] << 10, (kernel.name, sizes, shape)


def test_one_token_has_kernels_of_its_own_as_far_as_they_fit(images):
    """On a T4 too, for the rows of every model that fits it; longer ones take the kernels of several tokens."""
    for name, most in (("q4_k", {"sm_75": 25600, "sm_90": 65536}), ("q8_0", {"sm_75": 11008, "sm_90": 65536})):
        for columns in (columns for columns in COLUMNS if columns % by_name(name).elements == 0):
            names = [kernel.name for kernel, _ in launches(images, *products(by_name(name), columns), (1, 1))]
            own = all(kernel.startswith(("linear_dot", "linear_stream")) for kernel in names)
            if images.target in most:
                assert own == (columns <= most[images.target]), (name, columns)


@pytest.mark.parametrize("dims", HEADS, ids=str)
def test_heads(images, dims):
    program = heads(dims)
    if max(dims) > 512:
        with pytest.raises(UnsupportedError, match=f"heads of {max(dims)} dimensions, more than 512"):
            lowering(program)
        return
    if max(dims) > 320 and images.target == "sm_75":
        with pytest.raises(UnsupportedError, match=f"kernels for sm_75 cannot hold attention with {dims[0]} dimensions of a key"):
            lowered.refuse_large(program, images)
        return
    lowered.refuse_large(program, images)
    for shape in ((1, 1), *SHAPES):
        for kernel, shared in launches(images, program, Weights({}), shape):
            assert shared + kernel.shared <= LIMITS[images.target] << 10, (kernel.name, shape)


def test_states(images):
    """The most rows of a state that are not refused."""
    for rule in ("delta", "channels", "scan"):
        for size in (1, 16, 17, 64, 128, 129, 256, recurrent.MOST_ROWS):
            name, lanes, _, shared = recurrent.shape(rule, size, BATCH)
            assert lanes * recurrent.HELD >= size and lanes <= 32
            assert shared + images.kernel(name).shared <= LIMITS[images.target] << 10
