"""Every family, bit for bit: what a process did before changes nothing of an answer, nor does memory that nobody wrote, nor the
company that a candidate has in its batch.
"""

import numpy as np
import pytest
from bits import BEFORE, CONTEXT, PREFIX, ROUNDED, TAILS, TEXT, answers, opened
from tiny import MODELS, write

from reflex import native
from reflex.arch import load_spec
from reflex.gguf.reader import open_model
from reflex.program import build

NAN = b"\xff"


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


LATENT = {"head_dim": 42, "latent": (32, 10, 32), "q_rank": 32}  # sizes that blocks of 32 fit


@pytest.mark.parametrize(("name", "sizes"), [*((name, {}) for name in ROUNDED), ("deepseek2", LATENT)], ids=str)
def test_with_rounded_activations(tmp_path, name, sizes):
    assert equal(write(name, tmp_path / "m.gguf", "Q8_0", **sizes), "cpu") == []


def test_the_reference_too(distinct, tmp_path):
    assert len(distinct) > 20
    found = {name: equal(write(name, tmp_path / "m.gguf"), "reference") for name in distinct}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


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
