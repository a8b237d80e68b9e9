"""Whole programs on the cuda backend's launches: every family beside the reference backend, a few of them kernel by kernel.

Most launches are done by twins in numpy, which are held to the cases of the kernels here: what goes into launches, in what
order and where results lie is checked for every tiny model. What remains of the difference is rounding to float16.
"""

from contextlib import closing

import numpy
import pytest
import tiny
import twins
from run import modules
from whole import Emulated

from reflex.arch import load_spec
from reflex.backends.reference import Plan
from reflex.gguf.reader import open_model
from reflex.program import build

CONTEXT = 512
BATCHES = 7, 1, 1, 30, 64, 1  # tokens one after another: every kind of product, with prompts across windows
DEEP, FEW = 16, (7, 1)  # layers from which on fewer batches do
CLOSE = 0.025  # standard deviations of the logits, for the few layers of most models; mistakes are seldom below 0.1
TEXTS = 4  # of which one must do for a mixture of experts: where two experts are as good, rounding chooses
BRANCHES = 5  # of two tokens behind a prompt
ROUNDED = "gpt-oss", "llama-yarn"  # compared with llama.cpp
STEPS = "ernie4_5-moe-plain", "mimo2-fused", "llama-yarn"  # the same, a token at a time
EMULATED = "gpt2", "mistral3", "olmo2", "gpt-oss"  # with kernels in the emulator


def opened(name, folder, kind="F16", **changes):
    return closing(open_model(str(tiny.write(name, folder / "m.gguf", kind, **changes))))


def bound(program):
    return CLOSE * max(1.0, (len(program.layers) / 4) ** 0.5)


def off(found, wanted):
    return numpy.abs(found - wanted).max() / wanted.std()


def follow(plan, ids, first):
    """The reference's logits behind `ids`, a text that goes on from slot `first`."""
    count = len(ids)
    strands = ((0, count, 0 if first else -1, 0),)
    plan.evaluate(ids, first, list(range(first, first + count)), [0] * count, [0] * count, [count - 1], strands=strands)
    return numpy.array(plan.logits(0))


@pytest.mark.parametrize("module", modules(), ids=lambda m: m.__name__.rpartition(".")[2])
def test_twins_do_what_kernels_do(module):
    wrong = []
    for case in module.cases():
        if case.emulate and all(twins.known(name) for name, *_ in case.launches):
            args = case.fresh()
            for name, grid, _, picks in case.launches:
                twins.run(name, grid, [args[i] for i in picks])
            wrong += case.check(args)
    assert not wrong


@pytest.mark.parametrize("name", sorted(tiny.MODELS))
def test_a_program_gives_the_reference_logits(name, tmp_path):
    with opened(name, tmp_path) as file:
        program = build(load_spec(file), CONTEXT)
        tested, trusted = Emulated(file, program, CONTEXT), Plan(file, program, CONTEXT)
        assert too_far(tested, trusted) == {}
        assert [kernel for kernel in tested.used if not twins.known(kernel)] == []


def too_far(tested, trusted):
    """{batch: how far its logits are off} of those that are too far; {} where there is a text without any."""
    program = tested.program
    for seed in range(TEXTS if any(step.op == "route" for step in program.steps) else 1):
        found = {what: error for what, error in differences(tested, trusted, seed).items() if not error < bound(program)}
        if not found:
            break
    return found


def chunked(spec):
    """Chunks of 8192 positions as short ones, and queries that grow as soon."""
    for layer in spec.layers:
        layer.chunk = layer.chunk and 24
    spec.temper = (spec.temper[0], 24, spec.temper[2])


OTHERWISE = {  # model and what is changed of it -> of its Spec; what no file of tiny.MODELS has
    ("llama4", ()): chunked,
    ("llama4", (("head_dim", 64),)): chunked,
    ("mistral4", (("joined", True),)): None,
    ("kimi-linear", (("joined", True), ("latent", (32, 8, 16)))): None,  # its key value_length is that of a value then
    ("deepseek2-joined", (("latent", (256, 64, 32)), ("head_dim", 96))): None,  # sizes that tiles of latent attention know
    ("gemma4", (("heads", 6), ("kv_heads", 2))): None,  # keys of another layer, of heads that fill no block
}


@pytest.mark.parametrize(("name", "changes"), OTHERWISE, ids=str)
def test_a_program_that_no_tiny_model_has(name, changes, tmp_path):
    with opened(name, tmp_path, **dict(changes)) as file:
        spec, change = load_spec(file), OTHERWISE[name, changes]
        plain = build(spec, CONTEXT)
        if change:
            change(spec)
        program = build(spec, CONTEXT)
        tested, trusted, otherwise = Emulated(file, program, CONTEXT), Plan(file, program, CONTEXT), Plan(file, plain, CONTEXT)
        assert too_far(tested, trusted) == {}
        ids = numpy.random.default_rng(3).integers(3, tiny.VOCABULARY, 100).tolist()
        assert not change or off(follow(otherwise, ids, 0), follow(trusted, ids, 0)) > 0.1


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_K", "IQ2_XXS", "F32"])
def test_matrices_of_heads_that_are_stored_the_other_way_round(kind, tmp_path):
    sizes = {"width": 256, "q_rank": 256, "latent": (256, 8, 64), "head_dim": 72, "feed_forward": 256, "layers": 2}
    with opened("deepseek2-joined", tmp_path, kind, experts=(4, 2, 256), shared=512, **sizes) as file:
        program = build(load_spec(file), CONTEXT)
        tested, trusted = Emulated(file, program, CONTEXT), Plan(file, program, CONTEXT)
        assert too_far(tested, trusted) == {}
        assert "head_transposed" in tested.used


def differences(tested, trusted, seed):
    """{batch: how far its logits are off} of a text of random tokens."""
    ids, at, errors = numpy.random.default_rng(seed).integers(3, tiny.VOCABULARY, CONTEXT).tolist(), 0, {}
    for count in BATCHES if len(tested.program.layers) < DEEP else FEW:
        part = ids[at : at + count]
        errors[f"{count} tokens from {at} on"] = off(tested.follow(part, at), follow(trusted, part, at))
        at += count
    return errors | dict(branches(tested, trusted, ids, at))


def branches(tested, trusted, ids, at):
    """The same of branches behind the text, in a batch that is steady and in one that is not."""
    rows = 2 * BRANCHES
    starts = [at + row - row % 2 for row in range(rows)]
    words = [at + row % 2 for row in range(rows)], [at] * rows, starts, list(range(rows))
    strands = [(row, 2, 0, row % 4 - 1) for row in range(0, rows, 2)]  # each continues the text; some leave a state elsewhere
    trusted.evaluate(ids[at : at + rows], at, *words, strands=strands)
    wanted = numpy.array([trusted.logits(row) for row in range(rows)])
    for reach, tree in ((2048, rows), (0, 0)):
        found = tested.evaluate(ids[at : at + rows], at, *words, reach=reach, tree=tree, strands=strands)
        yield f"branches, reach {reach}", off(found, wanted)


@pytest.mark.parametrize("name", ROUNDED)
def test_prompts_are_rounded_where_llama_cpp_rounds_them(name, tmp_path):
    """Nearer to it than it is to float32 arithmetic: its activations are half floats beside weights that are, its cache is not."""
    pytest.importorskip("xllamacpp")
    from llama import Llama

    ids = numpy.random.default_rng(7).integers(0, tiny.VOCABULARY, 100).tolist()
    with opened(name, tmp_path) as file:
        program = build(load_spec(file), CONTEXT)
        tested, trusted = Emulated(file, program, CONTEXT), Plan(file, program, CONTEXT)
        peer = Llama(tmp_path / "m.gguf", CONTEXT)
        rows = [(peer.logits(ids[:n])[-1], tested.follow(ids[:n], 0), follow(trusted, ids[:n], 0)) for n in (7, 64, 100)]
        peer.close()
    assert max(off(found, theirs) for theirs, found, _ in rows) < 0.004
    assert max(off(exact, theirs) for theirs, _, exact in rows) > 0.0045  # what remains if nothing is rounded


@pytest.mark.parametrize("name", STEPS)
def test_steps_are_rounded_where_llama_cpp_rounds_them(name, tmp_path):
    """With its usual cache, of half floats as ours: activations beside weights that are half floats, keys and values."""
    pytest.importorskip("xllamacpp")
    from llama import Llama

    ids = numpy.random.default_rng(7).integers(0, tiny.VOCABULARY, 64).tolist()
    with opened(name, tmp_path) as file:
        program = build(load_spec(file), CONTEXT)
        tested, trusted = Emulated(file, program, CONTEXT), Plan(file, program, CONTEXT)
        peers = [Llama(tmp_path / "m.gguf", CONTEXT, own_cache=own) for own in (True, False)]
        usual, exact = (peer.logits(ids)[-1] for peer in peers)
        for peer in peers:
            peer.close()
        found, right = tested.follow(ids, step=1), follow(trusted, ids, 0)
    assert off(found, usual) < 0.0025
    assert min(off(exact, usual), off(right, usual)) > 0.004  # what remains if nothing, or not the cache, is rounded


@pytest.mark.parametrize("name", EMULATED)
def test_the_kernels_themselves(name, tmp_path):
    with opened(name, tmp_path, layers=2, width=32) as file:
        program = build(load_spec(file), CONTEXT)
        tested, trusted = Emulated(file, program, CONTEXT, quick=False), Plan(file, program, CONTEXT)
        ids, at = numpy.random.default_rng(0).integers(3, tiny.VOCABULARY, 4).tolist(), 0
        for count in (3, 1):
            part = ids[at : at + count]
            assert off(tested.follow(part, at), follow(trusted, part, at)) < CLOSE, f"{count} tokens from {at} on"
            at += count
