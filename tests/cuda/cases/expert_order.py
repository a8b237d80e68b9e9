import numpy
from run import Case


def most(pairs, experts, tokens):
    return (pairs + (tokens - 1) * min(experts, pairs)) // tokens


def arranged(chosen, experts, tokens):
    """(order, tiles) of int [rows, used]; what the kernel makes, whose tiles of an expert may hold its pairs in another order.
    Pairs of negative experts are left out; what is left of order stays as it was, -1."""
    ids = chosen.reshape(-1)
    log = 10 - max(5, (experts - 1).bit_length())
    place = numpy.arange(len(ids))
    listed = numpy.lexsort((place, place % (1 << log), ids))[(ids < 0).sum() :]
    order = numpy.full(len(ids), -1, "i4")
    order[: len(listed)] = listed
    tiles = numpy.zeros((most(len(ids), experts, tokens), 4), "i4")
    at = first = 0
    for expert in range(experts):
        left = int((ids == expert).sum())
        while left > 0:
            tiles[at] = expert, first, min(left, tokens), 0
            first, left, at = first + min(left, tokens), left - tokens, at + 1
    return order, tiles


def routed(rows, experts, used, random):
    """(int [rows, used], float32 [rows, 2 used]): some experts get many rows."""
    chosen = numpy.array([random.permutation(experts)[:used] for _ in range(rows)])
    chosen[: rows // 3] = chosen[0]
    return chosen, numpy.concatenate([random.random((rows, used)), chosen], 1).astype("f4")


def case(rows, experts, used, tokens, random, emulate=True, absent=0):
    """`absent`: the first so many experts are left out."""
    chosen, routes = routed(rows, experts, used, random)
    chosen[chosen < absent] = -1
    routes[:, used:] = chosen
    order, tiles = arranged(chosen, experts, tokens)
    args = [routes, rows, experts, used, tokens, numpy.full_like(order, -1), numpy.full_like(tiles, -1), len(tiles)]
    label = f"{rows}x{used}of{experts}-{tokens}" + (f"-without-{absent}" if absent else "")
    return Case(label, "expert_order", 1, args, {5: order, 6: tiles}, 4 * rows * used, tolerance=0, emulate=emulate)


def cases():
    random = numpy.random.default_rng(35)
    yield case(1, 4, 2, 8, random)
    yield case(33, 60, 4, 8, random)
    yield case(40, 128, 8, 32, random)
    yield case(5, 512, 10, 8, random)
    yield case(3, 1, 1, 64, random)
    yield case(40, 128, 8, 32, random, absent=100)
    yield case(7, 32, 4, 8, random, absent=3)
    yield case(4, 8, 2, 8, random, absent=8)


def bench():
    random = numpy.random.default_rng(36)
    for rows in (32, 512):
        yield case(rows, 128, 8, 64, random, emulate=False)
