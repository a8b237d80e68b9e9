import numpy
from run import Case
from strands import BEFORE, given

from reflex.ops import delta_rule, head_l2norm, state_scan

GROUPED, STEPS, SIGMOID, NORMED = 1, 2, 4, 8
THREADS, HELD, FIXED = 128, 16, 8
EPS = 1e-6


def shared_bytes(name, lanes, room):
    copies = 3 if "channels" in name else 2
    return 8 * room * (copies * HELD * lanes + THREADS // lanes + 4)


def launch(label, rule, tensors, words, sizes, flags, reference, room=3, variant="8", **options):
    """tensors: q, k, v, dt, beta, bias, a, d as the kernel has them."""
    q, k, v, dt, beta, bias, a, d = tensors
    heads, _, rows, columns = sizes
    places, strands, wanted, left = given(words, reference)
    lanes = 1
    while lanes * HELD < rows:
        lanes *= 2
    if lanes > FIXED:
        variant = "any"
    lanes = lanes if variant == "any" else FIXED
    width = THREADS // lanes
    scale = 1.0 if rule == "scan" else rows**-0.5
    args = [q, k, v, dt, beta, bias, numpy.full_like(v, numpy.nan), a, d, places, strands, BEFORE, *sizes, lanes, room]
    name = f"recurrence_{rule}_{variant}"
    options = {"tolerance": delta_rule.TOLERANCE, "shared": shared_bytes(name, lanes, room)} | options
    grid = (columns + width - 1) // width, heads
    return Case(f"{label} {lanes} lanes", name, grid, [*args, flags, scale, EPS], {6: wanted, 9: left}, **options)


def softplus(x):
    return numpy.logaddexp(x, 0).astype("float32")


def delta(one, random, raw=False, **options):
    """`raw`: steps, weights, keys and queries are what they are made from."""
    (q, k, v, dt, beta, a), words = delta_rule.inputs(one, random)
    sizes = [one[name] for name in ("heads", "key_heads", "key_dim", "value_dim")]
    flags = GROUPED * (one["order"] == "grouped")
    rule = "channels" if one["channels"] else "delta"
    label = f"{rule} {one['rows']}x{sizes} {one['order']}" + " raw" * raw
    bias = random.standard_normal(dt.shape[1], "float32")
    tensors = q, k, v, dt, beta, bias, a, numpy.zeros(1, "float32")
    if raw:
        flags += STEPS + SIGMOID + NORMED
        made = (head_l2norm.reference(x, heads=sizes[1], head_dim=sizes[2], eps=EPS) for x in (q, k))
        inner = *made, v, softplus(dt + bias), (1 / (1 + numpy.exp(-beta))).astype("float32"), a
    else:
        inner = q, k, v, dt, beta, a
    return launch(label, rule, tensors, words, sizes, flags, lambda words: delta_rule.reference(*inner, **words), **options)


def scan(one, random, raw=False, **options):
    (u, b, c, dt, a, d), words = state_scan.inputs(one, random)
    sizes = [one[name] for name in ("heads", "groups", "state_dim", "head_dim")]
    bias = random.standard_normal(dt.shape[1], "float32")
    tensors = c, b, u, dt, numpy.zeros(1, "float32"), bias, a, d
    steps = softplus(dt + bias) if raw else dt
    reference = lambda words: state_scan.reference(u, b, c, steps, a, d, **words)  # noqa: E731
    label = f"scan {one['rows']}x{sizes}" + " raw" * raw
    return launch(label, "scan", tensors, words, sizes, GROUPED + STEPS * raw, reference, **options)


def few(one):
    """The emulator is slow: few rows where much is done in each."""
    small = one.get("key_dim", one.get("state_dim")) * one["heads"] < 110
    return {**one, "rows": min(one["rows"], 7 if small else 2)}


def cases():
    random = numpy.random.default_rng(1)
    for make, op, size in ((delta, delta_rule, "key_dim"), (scan, state_scan, "state_dim")):
        for one in op.CASES:
            for raw, variant in ((False, "8"), (True, "any")):
                yield make(few(one), random, raw, variant=variant, emulate=one[size] * one["heads"] < 300)
    more = {"heads": 2, "key_heads": 1, "key_dim": 64, "value_dim": 20, "order": "tiled", "channels": False}
    for rows, variant, emulate in ((33, "8", False), (33, "any", False), (3, "any", True), (11, "8", True)):
        for channels in (False, True):
            yield delta({**more, "rows": rows, "channels": channels}, random, True, variant=variant, emulate=emulate, room=10)
        one = {"rows": rows, "heads": 2, "head_dim": 20, "groups": 1, "state_dim": 64}
        yield scan(one, random, True, variant=variant, emulate=emulate, room=2)


def bench():
    random = numpy.random.default_rng(1)
    few_heads = [{**one, "heads": 16} for one in delta_rule.BENCH]
    for make, ones in ((delta, delta_rule.BENCH), (delta, few_heads), (scan, state_scan.BENCH)):
        for one in ones:
            made = make(one, random, True, emulate=False, room=16)
            made.bytes = 8 * sum(array.size for array in made.args[9].arrays[:1])
            yield made
