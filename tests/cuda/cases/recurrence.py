import numpy
from run import Case
from strands import BEFORE, given

from reflex.ops import delta_rule, state_scan

GROUPED, CHANNELS, SCAN = 1, 2, 4


def launch(label, tensors, words, sizes, flags, scale, reference, **options):
    """tensors: q, k, v, dt, beta, a, d as the kernel has them."""
    q, k, v, dt, beta, a, d = tensors
    heads, _, rows, columns = sizes
    places, strands, wanted, left = given(words, reference)
    args = [q, k, v, dt, beta, numpy.full_like(v, numpy.nan), a, d, places, strands, BEFORE, *sizes, flags, scale]
    options = {"tolerance": delta_rule.TOLERANCE, "shared": 4 * (32 * rows + 256)} | options
    return Case(label, "recurrence", ((columns + 31) // 32, heads), args, {5: wanted, 8: left}, **options)


def delta(one, random, **options):
    (q, k, v, dt, beta, a), words = delta_rule.inputs(one, random)
    sizes = [one[name] for name in ("heads", "key_heads", "key_dim", "value_dim")]
    flags = GROUPED * (one["order"] == "grouped") + CHANNELS * one["channels"]
    label = f"delta {one['rows']}x{sizes} {one['order']} {one['channels']}"
    tensors = q, k, v, dt, beta, a, numpy.zeros(1, "float32")
    reference = lambda words: delta_rule.reference(*tensors[:6], **words)  # noqa: E731
    return launch(label, tensors, words, sizes, flags, sizes[2] ** -0.5, reference, **options)


def scan(one, random, **options):
    (u, b, c, dt, a, d), words = state_scan.inputs(one, random)
    sizes = [one[name] for name in ("heads", "groups", "state_dim", "head_dim")]
    tensors = c, b, u, dt, numpy.zeros(1, "float32"), a, d
    reference = lambda words: state_scan.reference(u, b, c, dt, a, d, **words)  # noqa: E731
    return launch(f"scan {one['rows']}x{sizes}", tensors, words, sizes, GROUPED + SCAN, 1.0, reference, **options)


def few(one):
    """The emulator is slow: few rows where much is done in each."""
    small = one.get("key_dim", one.get("state_dim")) * one["heads"] < 110
    return {**one, "rows": min(one["rows"], 7 if small else 2)}


def cases():
    random = numpy.random.default_rng(1)
    for one in delta_rule.CASES:
        yield delta(few(one), random, emulate=one["key_dim"] * one["heads"] < 300)
    for one in state_scan.CASES:
        yield scan(few(one), random, emulate=one["state_dim"] * one["heads"] < 300)


def bench():
    random = numpy.random.default_rng(1)
    for make, op in ((delta, delta_rule), (scan, state_scan)):
        for one in op.BENCH:
            made = make(one, random, emulate=False)
            made.bytes = 8 * sum(array.size for array in made.args[8].arrays[:1])
            yield made
