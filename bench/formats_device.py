"""Every block format's matrix products on a GPU, as the engine launches them, beside those of Q4_K.

    python bench/formats_device.py [--only NAME,NAME] [--no-check] [--layouts]

A matrix of 12288 x 4096 (the gate of a layer of 8 billion weights) times 1, 8, 32 and 512 tokens. A format is slow when one
token takes more than twice Q4_K's time per byte of weights, or a prompt more than that and than twice Q4_K's time. First each
format's results on a smaller matrix are compared with numpy. Builds nothing: cache/ must hold the device's kernels.
bench/results/formats.json gets every number; the exit code is 1 when a result is wrong. With --layouts only one token is timed,
in every way to divide its product that the device can take, and nothing is written.
"""

import argparse
import itertools
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "tests" / "cuda"))

from matrices import Matrix, Weights

from bench import gpu, record
from reflex.backends.cuda import launch, products
from reflex.backends.cuda.fusion import Linear
from reflex.quant import load
from reflex.quant.types import TYPES

BASELINE, SLOWEST = "Q4_K", 2
ROWS, COLUMNS = 12288, 4096
CHECKED_ROWS, CHECKED_COLUMNS, CHECKED_TOKENS = 400, 1024, (1, 7, 16, 30, 70)
TOKENS = (1, 8, 32, 512)
APART = 256 << 20  # bytes of weights that a timed product walks through: more than any cache
LAUNCHES, ROUNDS = 20, 5


class Product(products.Products):
    """The lowering of one product to a chain, over buffers that exist already."""

    def __init__(self, runner, chain, tokens, block, rows, columns, reach=0):
        self.image, self.multiprocessors, self.chain, self.reach = runner.images, runner.gpu.multiprocessors, chain, reach
        self.own, self.tokens, self.block, self.shape = [], tokens, block, (block.id, columns, rows)
        self.buffers, self.gpu, self.memory = {}, runner.gpu, self
        self.record = Linear("x", [SimpleNamespace(weights=("w", None), args={})])
        self.weights, self.layout = 0, None

    def add(self, weights):
        """The launches of the product with the weights at this address."""
        self.weights = weights
        self._linear(self.record)

    def _rings(self, *arguments):
        return self.layout or super()._rings(*arguments)

    def named(self, name, size):
        if name not in self.buffers:
            self.buffers[name] = self.gpu.allocate(size + 4096, name)
        return self.buffers[name]

    def halves(self):
        return self.named("halves", 2 * self.tokens * self.shape[1]), self.named("factors", 4 * self.tokens)

    def rest(self):
        return self.named("rest", 2 * self.tokens * self.shape[1]), self.named("factors of the rest", 4 * self.tokens)

    def close(self):
        for address in self.buffers.values():
            self.gpu.free(address)

    def _at(self, source):
        return self.named(source, 4 * self.tokens * self.shape[1]), self.tokens

    def _size(self, step):
        return self.shape

    def _matrix(self, step):
        return self.weights

    def _outs(self, record, rows):
        return [(self.named("out", 4 * self.tokens * self.shape[2]), self.shape[2])]


def formats(only):
    """Every format with kernels of its own, the baseline first."""
    known = [block for block in TYPES.values() if products.fragment_of(block.id) and (not only or block.name in only)]
    baseline = next(block for block in TYPES.values() if block.name == BASELINE)
    return [baseline, *(block for block in known if block is not baseline)]


def put(runner, address, array):
    runner.gpu.copy_in(address, array.ctypes.data, array.nbytes)
    runner.gpu.synchronize()


def wrong(runner, block, random):
    """[(tokens, steady, error)] of products that differ from numpy's by more than rounding explains."""
    found = []
    matrix = Matrix(block, CHECKED_ROWS, CHECKED_COLUMNS, random)
    for tokens in CHECKED_TOKENS:
        for reach in (0, 1):
            chain = launch.Chain(runner.library)
            product = Product(runner, chain, tokens, block, CHECKED_ROWS, CHECKED_COLUMNS, reach)
            x = random.standard_normal((tokens, CHECKED_COLUMNS), "float32")
            put(runner, product._at("x")[0], x)
            weights = product.named("weights", matrix.bytes.nbytes)
            put(runner, weights, matrix.bytes)
            product.add(weights)
            chain.bind(runner.gpu, runner.module)
            chain.run()
            y = numpy.empty((tokens, CHECKED_ROWS), "float32")
            runner.gpu.synchronize()
            runner.gpu.copy_out(y.ctypes.data, product.named("out", 0), y.nbytes)
            runner.gpu.synchronize()
            wanted = x @ matrix.values.T
            noise = 4 * 2**-11 * float(numpy.sqrt((x**2) @ (matrix.values**2).T).max())
            error = float(numpy.abs(y - wanted).max())
            if not error <= noise:
                found.append((tokens, bool(reach), error / noise))
            product.close()
            chain.close()
    return found


def spent(runner, block, tokens, copies, size, layout=None):
    """Microseconds per product: each of some rounds."""
    chain = launch.Chain(runner.library)
    product = Product(runner, chain, tokens, block, ROWS, COLUMNS)
    product.layout = layout
    x = numpy.random.default_rng(1).standard_normal((tokens, COLUMNS), "float32")
    put(runner, product._at("x")[0], x)
    for i in range(LAUNCHES):
        product.add(copies + i % max(1, APART // size) * size)
    chain.bind(runner.gpu, runner.module)
    graph = chain.capture()
    rounds = [runner._elapsed(graph.launch) / LAUNCHES for _ in range(ROUNDS + 1)][1:]
    kernels = [kernel.name for kernel in chain.kernels[: len(chain.kernels) // LAUNCHES]]
    graph.close()
    chain.close()
    product.close()
    return sorted(rounds), kernels


def layouts(runner, block):
    """((warps that share a tile, runs, stages, places of a table's word), blocks, shared memory) of linear_stream: all that fit."""
    stream, kernel = load(block.name).STREAM, runner.images.kernel(f"linear_stream_{block.name}")
    whole, most = runner.images.multiprocessor_shared_bytes, runner.images.most_shared_bytes - kernel.shared
    ways = (1, *reversed(products.WAYS)) if stream.tables else (1,)
    for splits, runs, stages, places, tall in itertools.product((1, 2, 4, 8), (1, 2, 4), (1, 2, 3, 4), ways, (1, 2, 3, 4, 6, 8)):
        if tall > 1 and (splits * runs * stream.run < COLUMNS or tall > 2 * splits or tall * stages > 8):
            continue
        shared = stream.shared_bytes(COLUMNS, splits, runs, stages, places, tall)
        units = products.blocks(ROWS // products.TILE * splits, products.WARPS)
        if shared <= most and splits * runs * stream.run <= COLUMNS:
            for resident in range(1, min(3, whole // (shared + kernel.shared + products.RESERVED)) + 1):
                yield (splits, runs, stages, places, tall), min(units, resident * runner.gpu.multiprocessors), shared


def compared(runner, block, random):
    """Print a format's layouts, the fastest first, and what the engine's own takes."""
    weights = Weights(block, ROWS, COLUMNS, random).bytes
    size = (weights.nbytes + 255) // 256 * 256
    copies = runner.gpu.allocate(max(1, APART // size) * size, "weights")
    for i in range(max(1, APART // size)):
        put(runner, copies + i * size, weights)
    own, _ = spent(runner, block, 1, copies, size)
    found = sorted((spent(runner, block, 1, copies, size, layout)[0][ROUNDS // 2], layout[:2]) for layout in layouts(runner, block))
    runner.gpu.free(copies)
    best = "; ".join(f"{took:.2f} {' '.join(map(str, (*layout, grid)))}" for took, (layout, grid) in found[:8])
    print(f"{block.name:<8} {own[ROUNDS // 2]:6.2f}, of {len(found)} (splits runs stages places tall blocks): {best}", flush=True)


def timed(runner, block, random):
    """{tokens: (microseconds of each round, kernels)}."""
    weights = Weights(block, ROWS, COLUMNS, random).bytes
    size = (weights.nbytes + 255) // 256 * 256
    count = max(1, APART // size)
    copies = runner.gpu.allocate(count * size, "weights")
    for i in range(count):
        put(runner, copies + i * size, weights)
    found = {tokens: spent(runner, block, tokens, copies, size) for tokens in TOKENS}
    runner.gpu.free(copies)
    return found


def rows_of(name, bits, times, baseline, own_bytes):
    """A record per number of tokens."""
    ratio = own_bytes / baseline["bytes"]
    for tokens, (rounds, kernels) in times.items():
        median = rounds[len(rounds) // 2]
        usual = baseline["times"][tokens][0]
        allowed = SLOWEST * usual[len(usual) // 2] * (ratio if tokens == 1 else max(1, ratio))
        yield {
            "format": name, "bits": bits, "tokens": tokens, "us": round(median, 2), "raw": [round(t, 2) for t in rounds],
            "of_allowed": round(median / allowed, 3), "gb_s": round(own_bytes / median / 1e3),
            "tflop_s": round(2 * tokens * ROWS * COLUMNS / median / 1e6, 1), "kernels": sorted(set(kernels)),
        }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names of formats, separated by commas")
    parser.add_argument("--no-check", action="store_true", help="only time")
    parser.add_argument("--layouts", action="store_true", help="compare the ways to divide one token's product")
    options = parser.parse_args()
    runner, random, faults = gpu.Runner(), numpy.random.default_rng(5), {}
    chosen = formats(options.only.upper().split(",") if options.only else ())
    if options.layouts:
        for block in chosen:
            if f"linear_stream_{block.name}" in runner.images:
                compared(runner, block, random)
        return 0
    if not options.no_check:
        faults = {block.name: wrong(runner, block, random) for block in chosen}
        for name, found in faults.items():
            print(f"{name:<8} {found or 'right'}", flush=True)
    baseline, lines = None, []
    print(f"{'format':<8} {'bits':>6} {'tokens':>6} {'us':>9} {'of allowed':>10}         {'GB/s':>6} {'TFLOP/s':>7}")
    for block in chosen:
        size = ROWS * COLUMNS // block.elements * block.nbytes
        times = timed(runner, block, random)
        baseline = baseline or {"times": times, "bytes": size}
        for line in rows_of(block.name, 8 * block.nbytes / block.elements, times, baseline, size):
            lines.append(line)
            verdict = "ok" if line["of_allowed"] <= 1 else "SLOW"
            numbers = f"{line['bits']:6.2f} {line['tokens']:6} {line['us']:9.2f} {line['of_allowed']:10.2f} {verdict:<7}"
            print(f"{block.name:<8} {numbers} {line['gb_s']:6} {line['tflop_s']:7.1f}  {' '.join(line['kernels'])}", flush=True)
    body = {"device": runner.gpu.name, "kernels_for": runner.images.target, "rows": ROWS, "columns": COLUMNS}
    record.write("formats", "products of every block format on a GPU", body | {"wrong": faults, "products": lines})
    runner.gpu.close()
    return 1 if any(faults.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
