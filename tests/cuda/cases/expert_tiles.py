import numpy

from reflex.kernels.cuda.expert_tiles import SHARED
from reflex.ops.gated import UNITS

from .expert_order import arranged, routed
from .expert_plain import Compared
from .halves import halves, stored
from .linear_plain import weights_of
from .linear_tiles import FORMATS, HALF, TILES

UNUSED = numpy.zeros(1, "u1"), 0, 0, 0, numpy.zeros(1, "f4"), 0, 0, numpy.zeros(1, "f4")
EXPERTS = 3


def stack(block, rows, columns, random, experts=EXPERTS):
    data, w = weights_of(block, experts * rows, columns, random)
    line = columns // block.elements * block.nbytes
    return block.id, data, w.reshape(experts, rows, columns), random.standard_normal((experts, rows), "f4"), rows * line


def case(label, tile, tokens, used, columns, stacks, mode, random, apart=False, biased=True, act=0, emulate=True):
    """stacks: of stack(). The bound is that of cases/linear_tiles.py."""
    experts, block_tokens, rows = len(stacks[0][2]), *TILES[tile]
    chosen, _ = routed(tokens, experts, used, random)
    order, tiles = arranged(chosen, experts, block_tokens)
    each, pairs = 1 if apart else used, chosen.reshape(-1)
    x = random.standard_normal((tokens * used // each, columns), "f4")
    xh, factor = halves(x, None, 0)
    h = (xh[:, :columns].astype("f4") * factor[:, None])[numpy.arange(len(pairs)) // each]
    products = []
    for _, _, w, bias, _ in stacks:
        y = numpy.empty((len(pairs), w.shape[1]), "f4")
        for e in range(experts):
            y[pairs == e] = h[pairs == e] @ w[e].T + biased * bias[e]
        products.append(y)
    error = 4 * HALF * max(float((h[:8] ** 2 @ (w.reshape(-1, columns).T ** 2)).max()) ** 0.5 for _, _, w, _, _ in stacks)
    stride, args, wanted, total = stacks[0][2].shape[1] + 5, [stored(xh), factor, each, columns, order, tiles], {}, 0
    for i, (id, data, w, bias, far) in enumerate(stacks):
        out = numpy.full((len(pairs), stride), numpy.nan, "f4")
        result = out.copy()
        result[:, : w.shape[1]] = products[i] if mode == 0 else UNITS[list(UNITS)[act]](*products)
        if mode == 0 or i == 0:
            wanted[13 + 8 * i] = result
            total += -(-w.shape[1] * (1 if mode == 0 else 2) // rows)
        args += [data, id, far, w.shape[1], bias, int(biased), w.shape[1], out]
    args += UNUSED * (2 - len(stacks))
    largest = max(float(numpy.nanmax(numpy.abs(v))) for v in wanted.values())
    if mode == 2:
        error *= max(1, *(float(numpy.abs(p).max()) for p in products))
    args += [stride, mode, act]
    grid = len(tiles), total
    return Compared(label, f"expert_tiles_{tile}", grid, args, wanted, SHARED, max(error / largest, 1e-6), emulate=emulate)


def cases():
    random = numpy.random.default_rng(43)
    for i, block in enumerate(FORMATS):
        columns = max(block.elements, 32) * (3 if block.elements <= 32 else 1)
        yield case(block.name, "32", 2, 2, columns, [stack(block, 5, columns, random)], 0, random, apart=bool(i % 2))
    first, second = (next(b for b in FORMATS if b.elements == n) for n in (256, 32))
    yield case("many", "32", 40, 2, 256, [stack(first, 3, 256, random)], 0, random, apart=True)
    yield case("two", "64", 3, 2, 512, [stack(b, 5, 512, random) for b in (first, second)], 0, random)
    pair = [stack(first, 67, 256, random) for _ in range(2)]
    yield case("gated", "64", 2, 1, 256, pair, 2, random, act=1)


def bench():
    random = numpy.random.default_rng(44)
    kinds = {block.name: block for block in FORMATS}
    shapes = ("Q4_K", 768, 2048, 2), ("Q4_K", 2048, 768, 0), ("Q6_K", 2048, 768, 0), ("Q8_0", 768, 2048, 2)
    for kind, rows, columns, mode in shapes:
        stacks = [stack(kinds[kind], rows, columns, random, 128) for _ in range(2 if mode else 1)]
        for tokens, tile in ((1, "32"), (32, "32"), (512, "32"), (512, "64")):
            label = f"{kind}-{rows}x{columns}-{tokens}"
            one = case(label, tile, tokens, 8, columns, stacks, mode, random, apart=not mode, biased=False, emulate=False)
            used = len(numpy.unique(one.args[5][one.args[5][:, 2] > 0, 0]))
            one.bytes, one.flops = used * sum(s[4] for s in stacks), 16 * tokens * rows * columns * len(stacks)
            yield one
