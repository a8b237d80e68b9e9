"""Every family, bit for bit: what a process did before changes nothing of an answer, nor does memory that nobody wrote, nor the
company that a candidate has in its batch.
"""

import adapters
import numpy as np
import pytest
from tiny import MODELS, write

import reflex
from reflex import native
from reflex.arch import load_spec
from reflex.errors import ContextOverflowError, InvalidInputError, StateError
from reflex.gguf.reader import open_model
from reflex.program import build
from reflex.tree import evaluate

TEXT = np.random.default_rng(3).integers(3, 500, 700).tolist()
TAILS = [[40, 41, 42], [40, 41, 43], [40], [44, 45, 46, 47], [40, 41, 42, 48], [49, 50]]
PREFIX = TEXT[:60]  # longer than the windows of tiny models
CONTEXT = 700
NAN = b"\xff"
ROUNDED = ("llama-smollm", "qwen35", "lfm2moe", "gemma3", "gpt-oss")  # whose activations are, in Q8_0; blocks of 32 fit their rows


def ways(name, folder):
    """What a program does that others may not: its operations with what they are asked for, and what they hang on."""
    file = open_model(str(write(name, folder / "m.gguf")))
    program = build(load_spec(file), CONTEXT)
    file.close()
    return {(step.op, *step.args, len(step.ins), *[bool(w) for w in step.weights]) for step in program.steps}


@pytest.fixture(scope="module")
def distinct(tmp_path_factory):
    """Names of models, none of which does only what those before it do."""
    seen, found, folder = set(), [], tmp_path_factory.mktemp("ways")
    for name in MODELS:
        mine = ways(name, folder)
        if not mine <= seen:
            seen |= mine
            found.append(name)
    return found


def opened(path, backend="cpu", threads=1, **options):
    return reflex.load(path, backend=backend, threads=threads, context=CONTEXT, **options)


def answers(model):
    """Scores of several candidates, of fewer behind a part of the prompt, and logits behind another text."""
    session = model._session
    first = evaluate(session, PREFIX, TAILS), evaluate(session, TEXT[:45], TAILS[:2])
    return *first, model.logits(TEXT[100:139]).tobytes()


def alone(model):
    """Of every candidate, one token after another: what `answers` gives first is defined so."""
    session, found = model._session, []
    for tail in TAILS:
        found.append([])
        for count in range(len(tail)):
            session.sync([*PREFIX, *tail[:count]])
            found[-1] += session.plan.logprobs(0, [tail[count]])
    return found


def poison(model):
    """Everything that a request computes becomes NaN, caches and states too; what the plan was made with stays."""
    plan = model._session.plan
    model._session.forget()
    if model._session.backend == "reference":
        for array in (*plan._keys, *plan._values, *plan._states):
            array[:] = np.nan
        return
    memory, filled = plan.memory, 0
    for (name, address), mapping in zip(memory.places.items(), memory.maps, strict=True):
        own = name in plan.program.widths or name in ("key/value cache", "states") or "scratch" in name
        if own or name.endswith(".q8") or name.startswith("angles"):
            native.view(address, mapping.size)[:] = NAN * mapping.size
            filled += 1
    assert filled > len(plan.program.widths) / 2


def equal(path, backend, kind=None):
    with opened(path, backend) as fresh:
        wanted = answers(fresh)
        wrong = [] if answers(fresh) == wanted else ["again"]
        wrong += [] if alone(fresh) == wanted[0] else ["one at a time"]
    with opened(path, backend, threads=2) as other:
        poison(other)
        wrong += [] if answers(other) == wanted else ["memory that nobody wrote, or threads"]
        other.session(TEXT[100:190]).generate(max_tokens=2)
        poison(other)
        wrong += [] if answers(other) == wanted else ["memory of another request"]
    return wrong


@pytest.mark.parametrize("name", MODELS)
def test_a_used_process_and_packed_candidates(tmp_path, name):
    assert equal(write(name, tmp_path / "m.gguf"), "cpu") == []


@pytest.mark.parametrize("name", ROUNDED)
def test_with_rounded_activations(tmp_path, name):
    assert equal(write(name, tmp_path / "m.gguf", "Q8_0"), "cpu") == []


def test_the_reference_too(distinct, tmp_path):
    assert len(distinct) > 20
    found = {name: equal(write(name, tmp_path / "m.gguf"), "reference") for name in distinct}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


# ---- what may come before a request ----


class Interrupted(Exception):
    pass


def longer(model, folder):
    """A text of two batches, and candidates behind it."""
    evaluate(model._session, TEXT[:600], TAILS)


def shorter(model, folder):
    model.logits(TEXT[:7])
    model.session(TEXT[:3]).generate(max_tokens=2)


def refused(model, folder):
    """Before any work: more than the context holds, no such token, nothing to score."""
    for error, call in (
        (ContextOverflowError, lambda: model.logits([*TEXT, 5])),
        (InvalidInputError, lambda: model.logits([1, 512])),
        (InvalidInputError, lambda: model.system1("the quick", [])),
    ):
        with pytest.raises(error):
            call()


def interrupted(model, folder):
    """Between two batches of a text that begins as the next one, and of its candidates."""
    session, left = model._session, [1]

    def watch():
        left[0] -= 1
        if left[0] < 0:
            raise Interrupted

    for batches in (1, 0):
        left[0] = batches
        session.watch(watch)
        with pytest.raises(Interrupted):
            evaluate(session, [*PREFIX, *TEXT[60:640]], TAILS)
    session.watch(None)


def broken(model, folder):
    """In the middle of a batch that begins as the next one."""
    plan, session = model._session.plan, model._session
    layer = plan.program.layers[len(plan.program.layers) // 2]
    evaluate(session, PREFIX[:50], TAILS[:2])

    def half(ids, first, positions, shared, branch, outputs, runs=(), steady=True, strands=()):
        plan.begin(ids, first, positions, shared, branch, outputs, runs, strands)
        if session.backend == "reference":
            plan.run(0, layer)
        else:
            plan.team.execute(plan.memory.places["step table"], plan.steps // 2)
        raise Interrupted

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(plan), "evaluate", lambda self, *args, **words: half(*args, **words))
        for ask in (lambda: evaluate(session, PREFIX, TAILS), lambda: session.sync(PREFIX)):
            with pytest.raises(Interrupted):
                ask()


def imported(model, folder):
    """States: one that is refused, one of a text that begins as the next one does, used and left."""
    path = folder / "state"
    with opened(model.file.path, model._session.backend) as other:
        other.session(PREFIX[:55]).export_state(path)
    data = path.read_bytes()
    (folder / "damaged").write_bytes(data[:-9] + bytes(1) + data[-8:])
    with pytest.raises(StateError):
        model.import_state(folder / "damaged")
    model.import_state(path).append(TEXT[200:210]).logits()
    model.import_state(path)


def adapted(model, folder):
    """Another model over the same file, with an adapter, is asked in between."""
    names = [name for name in adapters.matrices(model.file.path) if name in ("blk.0.attn_output.weight", "blk.0.ssm_out.weight")]
    if names:
        adapters.write(folder / "lora", model.file.path, names)
        with opened(model.file.path, model._session.backend, lora=folder / "lora") as other:
            answers(other)


BEFORE = [longer, shorter, refused, interrupted, broken, imported, adapted]


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_whatever_came_before(distinct, tmp_path, backend):
    """Every kind of request in between, on one process, and once more in another order with nothing of the cache left out."""
    wrong = []
    for name in distinct if backend == "cpu" else distinct[::4]:
        path = write(name, tmp_path / "m.gguf")
        with opened(path, backend) as fresh:
            wanted = answers(fresh)
        with opened(path, backend) as used:
            for before in BEFORE:
                before(used, tmp_path)
                wrong += [] if answers(used) == wanted else [(name, before.__name__)]
    assert wrong == []
