"""The persistent decode kernel alone on a device: results against numpy, bit equality of two runs, time per token.

`python bench/persistent_device.py CUBIN [JOB ...]`, from the repository's root, with numpy and libcuda.so.1 (CUBIN: see
persistent_cubin.py). Jobs:
check:SHAPE:LAYERS:SLOT (full width, few layers, small vocabulary, against a float32 model), time:SHAPE:CONTEXT,CONTEXT[:KEY=N ...]
(random weights of the whole model in the mix of a Q4_K_M file; keys: stage, batch, profile). Narrow and wide kernels are
both tried where they fit.
"""

import ctypes
import sys
import time
from pathlib import Path

import numpy

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/cuda")]

from dense import Dense, blocks_of  # noqa: E402

from reflex.backends.cuda import persistent as host  # noqa: E402

SHAPES = {  # layers, width, heads, kv_heads, size, hidden, vocabulary
    "0.6B": (28, 1024, 16, 8, 128, 3072, 151936),
    "4B": (36, 2560, 32, 8, 128, 9728, 151936),
    "8B": (36, 4096, 32, 8, 128, 12288, 151936),
    "llama8B": (32, 4096, 32, 8, 128, 14336, 128256),
}
STATIC = 21504  # bytes of shared memory, an upper bound
PARTS = ("x>qkv", "q>att>o", "y>gate", "h>down", "x>head", "QKV", "O", "GATE", "DOWN", "HEAD", "all", "[weights]", "[attention]",
    "[stage]", "[barrier]", "[sums]",
)  # fmt: skip
BANDWIDTH = 4550.0  # GB/s that a kernel can read on an H200
Q4, Q6 = 12, 14
cuda = ctypes.CDLL("libcuda.so.1")


def call(name, *arguments):
    status = getattr(cuda, name)(*arguments)
    if status:
        raise SystemExit(f"{name}: {status}")


def new(name, kind, *arguments):
    value = kind()
    call(name, ctypes.byref(value), *arguments)
    return value


def more_bits(layer, layers):
    """llama.cpp's Q4_K_M: these layers have v and down in Q6_K."""
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


def types_of(layers):
    def types(layer):
        six = Q6 if more_bits(layer, layers) else Q4
        return Q4, Q4, six, Q4, Q4, Q4, six

    return types


class Device:
    def __init__(self, cubin):
        call("cuInit", 0)
        device = new("cuDeviceGet", ctypes.c_int, 0)
        context = new("cuDevicePrimaryCtxRetain", ctypes.c_void_p, device)
        call("cuCtxSetCurrent", context)
        self.blocks = new("cuDeviceGetAttribute", ctypes.c_int, 16, device).value
        self.stream = new("cuStreamCreate", ctypes.c_void_p, 0)
        self.events = [new("cuEventCreate", ctypes.c_void_p, 0) for _ in range(2)]
        self.image = Path(cubin).read_bytes()
        self.module = new("cuModuleLoadData", ctypes.c_void_p, self.image)
        self.owned = []

    def function(self, name):
        return new("cuModuleGetFunction", ctypes.c_void_p, self.module, name.encode())

    def alloc(self, size):
        address = new("cuMemAlloc_v2", ctypes.c_uint64, ctypes.c_size_t(size + 256))
        self.owned.append(address)
        return address.value

    def put(self, array):
        array = numpy.ascontiguousarray(array)
        address = self.alloc(array.nbytes)
        self.write(address, array)
        return address

    def write(self, address, array):
        call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes))

    def zeros(self, words):
        address = self.alloc(4 * words)
        call("cuMemsetD32_v2", ctypes.c_uint64(address), 0, ctypes.c_size_t(words))
        return address

    def get(self, address, count, kind):
        array = numpy.empty(count, kind)
        call("cuMemcpyDtoH_v2", ctypes.c_void_p(array.ctypes.data), ctypes.c_uint64(address), ctypes.c_size_t(array.nbytes))
        return array

    def free(self):
        call("cuStreamSynchronize", self.stream)
        for address in self.owned:
            call("cuMemFree_v2", address)
        self.owned = []


class Decode:
    """The kernel with the buffers of one model."""

    def __init__(self, device, sizes, table, listed, frequencies, pages, name, flags=host.HALVES, eps=1e-6, blocks=None):
        self.device, self.sizes, self.pairs = device, sizes, len(frequencies)
        self.function = device.function(name)
        call("cuFuncSetAttribute", self.function, 8, host.SHARED_LIMIT - STATIC)
        self.stages = sizes.stages(STATIC, listed)
        self.shared = sizes.shared_bytes(self.stages, listed)
        self.cells, self.ids, self.positions, self.seen, self.branch = (device.zeros(16) for _ in range(5))
        self.stops, self.logits, self.out = device.zeros(16), device.zeros(sizes.vocabulary), device.zeros(4096)
        self.status, self.exchange = device.zeros(17 * sizes.blocks), device.zeros(sizes.exchange_words())
        self.table, self.frequencies, self.pages = (device.put(a) for a in (table, frequencies, pages))
        self.flags, self.eps = flags, eps

    def launch(self, tokens, stops=0):
        s, d = self.sizes, self.device
        values = [
            self.table, self.frequencies, self.pages, self.cells, self.ids, self.positions, self.seen, self.branch, self.stops,
            self.exchange, self.logits, self.out, self.status, s.layers, s.width, s.heads, s.kv_heads, s.size, s.hidden,
            s.vocabulary, self.pairs, self.flags, self.stages, s.stage, s.room, tokens, stops, self.eps,
            s.size**-0.5 * 1.4426950408889634, 1.0, 1.0, 1.0, 1.0,
        ]  # fmt: skip
        kinds = {"i": ctypes.c_int, "u": ctypes.c_uint, "f": ctypes.c_float}
        cells = [kinds.get(letter, ctypes.c_uint64)(v) for letter, v in zip(host.PARAMETERS, values, strict=True)]
        parameters = (ctypes.c_void_p * len(cells))(*map(ctypes.addressof, cells))
        call("cuLaunchCooperativeKernel", self.function, s.blocks, 1, 1, host.THREADS, 1, 1, self.shared, d.stream, parameters)

    def set(self, token, slot):
        for address, value in ((self.ids, token), (self.positions, slot), (self.seen, slot), (self.branch, slot)):
            self.device.write(address, numpy.array([value], numpy.int32))
        self.device.write(self.cells, numpy.array([1, slot, 1], numpy.int32))

    def failed(self):
        call("cuStreamSynchronize", self.device.stream)
        return self.device.get(self.status, self.sizes.blocks, numpy.uint32).any()


def kernels(sizes):
    return ["persistent_narrow", "persistent"] if sizes.width <= 1024 else ["persistent"]


def check(device, shape, layers, slot, tokens=3):
    sizes = host.Sizes(layers, *SHAPES[shape][1:6], 8192, device.blocks)
    model = Dense(sizes, lambda layer: (Q4, Q4, Q6, Q4, Q4, Q4, Q6) if layer % 2 == 0 else (Q4,) * 7, Q6)
    start = model.cache(slot + tokens)
    pages, cache_at = model.pages(start)
    table, listed = model.table([device.put(a) for a in model.arrays()], cache_at)
    for name in kernels(sizes):
        places = numpy.array([device.put(p) for p in pages], numpy.int64)
        decode = Decode(device, sizes, table, listed, model.frequencies, places, name)
        runs = []
        for _ in range(2):
            for place, page in zip(places, pages, strict=True):
                device.write(int(place), page)
            decode.set(7, slot)
            decode.launch(tokens)
            failed = decode.failed()
            logits = device.get(decode.logits, sizes.vocabulary, numpy.float32)
            runs.append((logits, device.get(decode.out, tokens + 1, numpy.int32)))
        (logits, out), same = runs[0], all((a == b).all() for a, b in zip(*runs, strict=True))
        cache, token, gap = start.copy(), 7, 0.0
        for i in range(tokens):
            wanted = model.step(token, slot + i, slot + i, cache)
            token = int(out[1 + i])
            gap = max(gap, (wanted.max() - wanted[token]) / wanted.std())
        found = model.cache_of([device.get(int(p), q.size, numpy.uint16) for p, q in zip(places, pages, strict=True)])
        filled = slice(0, slot + tokens)
        away = numpy.abs(found[:, :, :, filled].astype(numpy.float32) - cache[:, :, :, filled].astype(numpy.float32)).max()
        error = (logits - wanted) / wanted.std()
        good = not failed and same and gap < 0.05 and numpy.abs(error).max() < 0.05
        print(
            f"check {shape} {name} {layers} layers, slot {slot}: logits off by {error.std():.2e} std (largest"
            f" {numpy.abs(error).max():.2e}), cache by {away:.2e}, chosen within {gap:.2e} std of the best, two runs"
            f" {'equal' if same else 'DIFFER'}, {'failed waits' if failed else 'no failed wait'}: {'ok' if good else 'WRONG'}",
            flush=True,
        )
    device.free()


POOL = {}


def fill(device, type_id, rows, columns, random):
    """Random blocks of a whole matrix on the device: a few megabytes, repeated."""
    if (type_id, columns) not in POOL:
        POOL[type_id, columns] = blocks_of(type_id, (8 << 20) // columns, columns, random, columns**-0.5)
    some = POOL[type_id, columns]
    total, some = rows * some.shape[1], some.reshape(-1)
    address = device.alloc(total)
    at = 0
    while at < total:
        size = min(some.size, total - at)
        device.write(address + at, some[:size])
        at += size
    return address, total


def timing(device, shape, contexts, stage=0, batch=16, repeats=5, profile=0):
    layers, width, heads, kv_heads, size, hidden, vocabulary = SHAPES[shape]
    sizes = host.Sizes(*SHAPES[shape], device.blocks, stage)
    random = numpy.random.default_rng(1)
    rows = (heads * size, kv_heads * size, kv_heads * size, width, hidden, hidden, width)
    total, entries = 0, []
    norms, heads_norm = device.put(numpy.ones(width, numpy.float32)), device.put(numpy.ones(size, numpy.float32))
    for layer in range(layers):
        pairs = []
        for i, type_id in enumerate(types_of(layers)(layer)):
            address, count = fill(device, type_id, rows[i], sizes.columns(i), random)
            total += count
            pairs.append((address, type_id))
        entries.append({"matrices": pairs, "norms": [norms] * 2, "head_norms": [heads_norm] * 2, "biases": [0] * 3})
    output, count = fill(device, Q6, vocabulary, width, random)
    total += count
    layer_bytes = 2 * kv_heads * 256 * size * 2
    words, listed = host.table(sizes, entries, (output, Q6), (output, Q6), norms, [i * layer_bytes for i in range(layers)])
    page = (0.5 * random.standard_normal(layer_bytes * layers // 2, numpy.float32)).astype(numpy.float16)
    pages = numpy.array([device.put(page) for _ in range((max(contexts) + 64) // 256 + 1)], numpy.int64)
    frequencies = 1e6 ** (-numpy.arange(size // 2) / (size // 2))
    for name in kernels(sizes):
        decode = Decode(device, sizes, numpy.array(words, numpy.int64), listed, frequencies, pages, name + "_profiled" * profile)
        for context in contexts:
            measure(decode, f"{shape} {name} context {context}", context, total, batch, repeats, profile)
    device.free()


def measure(decode, label, context, total, batch, repeats, profile):
    """Time per token, one by one and `batch` per launch; whether the logits are the same before and after."""
    device, sizes, times, results = decode.device, decode.sizes, {}, []
    for tokens in (1, batch):
        launches = 16 if tokens == 1 else 2
        decode.set(11, context)
        decode.launch(tokens)
        if decode.failed():
            print("A WAIT FAILED", device.get(decode.status, sizes.blocks, numpy.uint32), flush=True)
            return
        results.append(device.get(decode.logits, sizes.vocabulary, numpy.float32))
        best = []
        for _ in range(repeats):
            call("cuEventRecord", device.events[0], device.stream)
            for _ in range(launches):
                decode.launch(tokens)
            call("cuEventRecord", device.events[1], device.stream)
            call("cuEventSynchronize", device.events[1])
            best.append(new("cuEventElapsedTime", ctypes.c_float, *device.events).value * 1000 / (launches * tokens))
        times[tokens] = sorted(best)[len(best) // 2]
        results.append(device.get(decode.logits, sizes.vocabulary, numpy.float32))
    same = (results[0] == results[1]).all() and (results[2] == results[3]).all()
    finite = all(numpy.isfinite(r).all() for r in results)
    share = total / times[batch] / 1000 / BANDWIDTH * 100
    print(
        f"{label}: {times[1]:.1f} us per token one by one, {times[batch]:.1f} with {batch} per launch ="
        f" {1e6 / times[batch]:.0f} tok/s; {total / 1e6:.0f} MB, {share:.0f} % of read bandwidth; {decode.stages} stages;"
        f" results {'repeat' if same else 'DIFFER'}"
        f"{'' if finite else ', NOT FINITE'}{', A WAIT FAILED' if decode.failed() else ''}",
        flush=True,
    )
    if profile:
        cycles = device.get(decode.status, 17 * sizes.blocks, numpy.uint32)[sizes.blocks :].reshape(-1, 16) / batch
        scale = times[batch] / cycles[:, 10].mean()
        for what, row in (("mean", cycles.mean(0)), ("block 0", cycles[0]), ("last block", cycles[-1])):
            parts = "  ".join(f"{n} {x * scale:.1f}" for n, x in zip(PARTS, row, strict=True))
            print(f"   {what}: {parts} us ({1 / scale:.0f} cycles per us)", flush=True)


def main():
    begun = time.perf_counter()
    device = Device(sys.argv[1])
    for job in sys.argv[2:]:
        kind, shape, *rest = job.split(":")
        if kind == "check":
            check(device, shape, *map(int, rest))
        else:
            words = dict(word.split("=") for word in rest[1:])
            timing(device, shape, [int(n) for n in rest[0].split(",")], **{k: int(v) for k, v in words.items()})
        print(f"   {time.perf_counter() - begun:.1f} s", flush=True)


if __name__ == "__main__":
    main()
