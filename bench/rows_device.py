"""Products of a few tokens in steady batches on a GPU beside those of many, and answers behind a prefix that the cache holds.

    python bench/rows_device.py [--shape NAME=FILE ...]

First, for some formats and the matrices of three shapes, 1 to 32 tokens: whether results are, to the bit, those of the kernels of
many tokens, which steady batches rest on; then the time of both. For each model file: milliseconds of an answer behind a prefix of
2,000 tokens that the cache holds, where the kernels of few tokens serve and where they do not, whether the numbers are the same,
and what of that is the device's, by kernel. Builds nothing: cache/ must hold the device's kernels. bench/results/rows-device.json
gets every number; the exit code is 1 when a bit differs.
"""

import argparse
import itertools
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "tests" / "cuda"))

from blocks import random_blocks
from matrices import SLACK

from bench import gpu, record
from bench.formats_device import Product, put
from bench.state import CANDIDATES, text_of
from reflex.backends.cuda import launch, products
from reflex.backends.cuda.driver import call, function
from reflex.backends.cuda.fusion import Linear
from reflex.open import open_model
from reflex.quant import load
from reflex.quant.types import TYPES
from reflex.score import score

FORMATS = "Q4_K", "Q6_K", "Q8_0", "F16", "IQ2_XS"
SHAPES = {"0.6B": (1024, 2048, 3072), "4B": (2560, 4096, 9728), "8B": (4096, 4096, 12288)}  # width, heads, feed-forward
TOKENS, TIMED = (1, 2, 3, 8, 9, 16, 17, 32), (2, 8, 16)
APART = 256 << 20  # bytes of weights that a timed product walks through: more than any cache
LAUNCHES, ROUNDS, ANSWERS, PREFIX = 20, 5, 15, 2000
LARGEST = 200  # weight: a real model's are far below
UNSET, PRESENT = 0x7FC00000, 0x3F8CCCCD  # NaN, and 1.1, in the place of results


def products_of(shape):
    """(name, columns, rows of the matrices, mode) of a layer's products."""
    width, heads, feed = SHAPES[shape]
    return (
        ("qkv", width, (heads, 1024, 1024), "store"), ("o", heads, (width,), "add"), ("gate-up", width, (feed, feed), "gated"),
        ("down", feed, (width,), "add"),
    )  # fmt: skip


class Products(Product):
    """The lowering of up to three products of one input in a steady batch; their weights lie one behind the other."""

    def __init__(self, runner, chain, tokens, block, columns, rows, mode):
        super().__init__(runner, chain, tokens, block, max(rows), columns, reach=1)
        self.made, at = None, 0
        steps = []
        for number, count in enumerate(rows):
            steps.append(SimpleNamespace(weights=("w", None), args={}, out=f"out {number}", at=at, size=(block.id, columns, count)))
            at += count * columns // block.elements * block.nbytes
        self.record = Linear("x", steps)
        self.record.mode, self.bytes = mode, at
        if mode != "store":
            self.record.out = "out 0"
        self.record.act = "silu" if mode == "gated" else None

    def _size(self, step):
        return step.size

    def _matrix(self, step):
        return self.weights + step.at

    def _halves(self, *arguments):
        if self.made is None:
            self.made = super()._halves(*arguments)
        return self.made

    def _outs(self, record, rows):
        return [self.out(step) for step in record.steps]

    _own_outs = _outs

    def out(self, step):
        return self.named(self.record.out or step.out, 4 * self.tokens * self.shape[2]), self.shape[2]


def made(runner, tokens, block, product, random, weights, times=1, room=0):
    """(chain, lowering) of a product, with its input in place."""
    _, columns, rows, mode = product
    chain = launch.Chain(runner.library)
    lowered = Products(runner, chain, tokens, block, columns, rows, mode)
    put(runner, lowered._at("x")[0], random.standard_normal((tokens, columns), "float32"))
    for number in range(times):
        lowered.add(weights + number % max(1, room // lowered.bytes) * lowered.bytes)
    chain.bind(runner.gpu, runner.module)
    return chain, lowered


def results(runner, tokens, block, product, weights):
    """The bytes of every result."""
    chain, lowered = made(runner, tokens, block, product, numpy.random.default_rng(tokens), weights)
    outs = dict.fromkeys(lowered.out(step) for step in lowered.record.steps)
    for address, stride in outs:
        runner.gpu.fill(address, PRESENT if product[3] == "add" else UNSET, tokens * stride)
    chain.run()
    runner.gpu.synchronize()
    found = []
    for address, stride in outs:
        values = numpy.empty((tokens, stride), "float32")
        runner.gpu.copy_out(values.ctypes.data, address, values.nbytes)
        runner.gpu.synchronize()
        found.append(values)
    lowered.close()
    chain.close()
    return found


def spent(runner, tokens, block, product, weights, room):
    """(median microseconds of a product, bytes of its weights)."""
    chain, lowered = made(runner, tokens, block, product, numpy.random.default_rng(1), weights, LAUNCHES, room)
    graph = chain.capture(1)  # behind the launch that makes the input half floats
    rounds = [runner._elapsed(graph.launch) / LAUNCHES for _ in range(ROUNDS + 1)][1:]
    nbytes = lowered.bytes
    graph.close()
    lowered.close()
    chain.close()
    return sorted(rounds)[len(rounds) // 2], nbytes


def served(most, work, *arguments):
    """The result of work, steady batches of up to `most` tokens taking the kernels of few."""
    kept, products.STEADY = products.STEADY, most
    try:
        return work(*arguments)
    finally:
        products.STEADY = kept


def equal(runner, kinds):
    """Complaints about results that differ from those of many tokens."""
    wrong = []
    for block, weights, _ in kinds:
        for shape in SHAPES:
            for product, tokens in itertools.product(products_of(shape), TOKENS):
                many = served(0, results, runner, tokens, block, product, weights)
                some = results(runner, tokens, block, product, weights)
                label = f"{block.name} {shape} {product[0]} of {tokens}"
                if not all(numpy.isfinite(values[:, : product[2][i]]).all() for i, values in enumerate(many)):
                    wrong.append(f"{label}: a result of the kernels of many tokens is not finite")
                if [values.tobytes() for values in some] != [values.tobytes() for values in many]:
                    places = sum(int((a.view("u4") != b.view("u4")).sum()) for a, b in zip(some, many, strict=True))
                    wrong.append(f"{label}: {places} of {sum(values.size for values in many)} results differ")
    return wrong


def times(runner, kinds):
    """Rows of (format, shape, product, tokens, microseconds of many, of few, GB/s of few)."""
    rows = []
    for block, weights, room in kinds:
        for shape in SHAPES:
            for product, tokens in itertools.product(products_of(shape), TIMED):
                many, _ = served(0, spent, runner, tokens, block, product, weights, room)
                some, nbytes = spent(runner, tokens, block, product, weights, room)
                rows.append((block.name, shape, product[0], tokens, round(many, 2), round(some, 2), round(nbytes / some / 1e3)))
                print("  {:<7} {:<5} {:<8} {:2} tokens {:8.2f} us {:8.2f} us {:6} GB/s".format(*rows[-1]), flush=True)
    return rows


def filled(runner, name):
    """(block, address of random weights, bytes)."""
    block = next(block for block in TYPES.values() if block.name == name)
    most = max(sum(rows) * columns for shape in SHAPES for _, columns, rows, _ in products_of(shape))
    size = max(APART, most // block.elements * block.nbytes)
    blocks = random_blocks(block, 8192, numpy.random.default_rng(3))
    blocks = blocks[numpy.abs(load(block.name).decode(blocks)).max(axis=1) < LARGEST]
    content = numpy.resize(blocks.reshape(-1), size + SLACK)
    address = runner.gpu.allocate(content.nbytes, "weights")
    put(runner, address, content)
    return block, address, size


# ---- answers behind a held prefix ----------------------------------------------------------------------------


def captured(chain, rows):
    """A graph of some launches of a chain."""
    stream, cell = chain.device.stream, (launch.Int64 * 1)()
    call("cuStreamBeginCapture_v2", stream, 2)
    for row in rows:
        chain.run(row, row + 1)
    status = function("cuStreamEndCapture")(stream, launch.addressof(cell))
    if status:
        raise RuntimeError(f"cuStreamEndCapture: {status}")
    return launch.Graph(cell[0], stream)


def by_kernel(chain, shape):
    """[(microseconds, kernel, launches)], each kernel's launches by themselves, and all of them together."""
    runner, groups, every = SimpleNamespace(gpu=chain.device), {}, range(shape.first, shape.last)
    for row in every:
        groups.setdefault(chain.kernels[row].name, []).append(row)
    found = []
    for name, rows in (*groups.items(), ("all", every)):
        graph = captured(chain, rows)
        found.append((round(sorted(gpu.Runner._elapsed(runner, graph.launch) for _ in range(6))[2], 1), name, len(rows)))
        graph.close()
    return sorted(found, reverse=True)


class Clocked:
    """A plan, some of whose methods are replaced."""

    def __init__(self, plan):
        self.plan = plan

    def __getattr__(self, name):
        return getattr(self.plan, name)


def held(session, ids, tokens):
    """Milliseconds of answers, of queueing their batch, of waiting for its results; the log-probabilities; the shape."""
    plan = session.plan
    for key in list(plan.shapes):
        plan._drop(key)
    rows, parts = {"answer": [], "queue": [], "wait": []}, {}

    def clocked(name, work):
        def run(*arguments, **words):
            started = time.perf_counter_ns()
            found = work(*arguments, **words)
            parts[name] = (time.perf_counter_ns() - started) / 1e6
            return found

        return run

    session.plan = Clocked(plan)
    session.plan.evaluate, session.plan.logprobs_of_rows = clocked("queue", plan.evaluate), clocked("wait", plan.logprobs_of_rows)
    try:
        for number in range(ANSWERS + 3):
            started = time.perf_counter_ns()
            found = served(tokens, score, session, ids, CANDIDATES)
            if number > 2:  # the third makes a graph of the launches
                rows["answer"].append((time.perf_counter_ns() - started) / 1e6)
                for name, spent in parts.items():
                    rows[name].append(spent)
    finally:
        session.plan = plan
    return rows, [candidate.logprobs for candidate in found.candidates], next(reversed(plan.shapes.values()))


def answers(name, path):
    """The record of one model file."""
    session = open_model(path, "cuda")[2]
    ids = session.encode(text_of(session, PREFIX, 1))
    score(session, ids, CANDIDATES)
    session.forget()
    started = time.perf_counter_ns()
    score(session, ids, CANDIDATES)
    row = {"shape": name, "prefix_tokens": len(ids), "computed_ms": round((time.perf_counter_ns() - started) / 1e6, 1)}
    print(f"{name}: {len(ids)} tokens, computed in {row['computed_ms']} ms", flush=True)
    wanted = None
    for label, tokens in (("many", 0), ("few", products.STEADY)):
        rows, found, shape = held(session, ids, tokens)
        kernels = by_kernel(shape.chain, shape)
        wanted = wanted or found
        row[label] = {f"{what}_ms": record.summary(values) for what, values in rows.items()}
        row[label] |= {"kernels": kernels, "same": found == wanted}
        medians = ", ".join(f"{what} {row[label][f'{what}_ms']['median']:.2f}" for what in rows)
        print(f"  {label}: {medians} ms; {'same' if found == wanted else 'OTHER'} numbers", flush=True)
        for spent, kernel, launches in kernels[:14]:
            print(f"    {spent:8.1f} us {launches:4} {kernel}", flush=True)
    session.close()
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", action="append", default=[], help="NAME=FILE")
    parser.add_argument("--formats", default=",".join(FORMATS))
    options = parser.parse_args()
    names, started = [name for name in options.formats.split(",") if name], time.perf_counter()
    runner = gpu.Runner()
    body = {"device": runner.gpu.name, "kernels_for": runner.images.target}
    body["wrong"] = equal(runner, [filled(runner, name) for name in names])
    runner.gpu.close()
    print(f"{len(body['wrong'])} wrong, {time.perf_counter() - started:.1f} s", *body["wrong"][:20], sep="\n  ", flush=True)
    body["answers"] = [answers(*shape.split("=", 1)) for shape in options.shape]
    print(f"{time.perf_counter() - started:.1f} s", flush=True)
    runner = gpu.Runner()
    kinds = [filled(runner, name) for name in names]
    body["times"] = times(runner, kinds)
    print(f"{time.perf_counter() - started:.1f} s", flush=True)
    runner.gpu.close()
    record.write("rows-device", "products of a few tokens in steady batches, on a GPU", body)
    return 1 if body["wrong"] or not all(row["few"]["same"] for row in body["answers"]) else 0


if __name__ == "__main__":
    sys.exit(main())
