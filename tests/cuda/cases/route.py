import numpy
from run import Case

from reflex.ops import route as op

GATINGS = "softmax", "sigmoid", "softmax of chosen", "sigmoid of chosen"  # as the kernel counts them


def settings(words, bias, experts):
    """Arguments from the bias on."""
    given = numpy.zeros(1, "f4") if bias is None else bias
    return [
        given, int(bias is not None), experts, words["used"], GATINGS.index(words["gating"]),
        int(words["renormalize"]), words["scale"], words["groups"], words["groups_used"],
    ]  # fmt: skip


def case(label, logits, bias, words, emulate=True):
    rows, experts = logits.shape
    wanted = op.reference(logits, bias, **words)
    args = [logits, *settings(words, bias, experts), rows, numpy.full_like(wanted, numpy.nan)]
    return Case(label, "route", (rows + 3) // 4, args, {11: wanted}, tolerance=1e-5, emulate=emulate)


def cases():
    random = numpy.random.default_rng(31)
    for number, words in enumerate(op.CASES):
        (logits, bias), words = op.inputs(words, random)
        if words["gating"] in GATINGS:  # others the backend refuses
            yield case(f"{number}-{logits.shape[1]}", logits, bias, words)
    (logits, bias), words = op.inputs(op.CASES[2], random)
    logits[:, 64:] = logits[:, :64]  # ties
    logits[1] = 0
    yield case("ties", logits, None, words)


def bench():
    random = numpy.random.default_rng(32)
    for words in op.BENCH:
        (logits, bias), own = op.inputs(words, random)
        yield case(f"{len(logits)}x{logits.shape[1]}", logits, bias, own, emulate=False)
