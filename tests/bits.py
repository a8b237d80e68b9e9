"""What no answer may depend on: requests before it, memory that nobody wrote, the company that a candidate has.

Shared by tests/cpu/test_bits.py and bench/bits_device.py, which runs where there is no pytest.
"""

from contextlib import contextmanager
from unittest.mock import patch

import adapters
import numpy as np

import reflex
from reflex.errors import ContextOverflowError, InvalidInputError, StateError
from reflex.tree import evaluate

TEXT = np.random.default_rng(3).integers(3, 500, 700).tolist()
TAILS = [[40, 41, 42], [40, 41, 43], [40], [44, 45, 46, 47], [40, 41, 42, 48], [49, 50]]
PREFIX = TEXT[:60]  # longer than the windows of tiny models
CONTEXT = 700
ROUNDED = ("llama-smollm", "qwen35", "lfm2moe", "gemma3", "gpt-oss")  # models whose rows blocks of 32 fit, for Q8_0


class Interrupted(Exception):
    pass


@contextmanager
def raising(error):
    """What is inside must raise this error."""
    try:
        yield
    except error:
        return
    raise AssertionError(f"no {error.__name__}")


def opened(path, backend, threads=1, **options):
    return reflex.load(path, backend=backend, threads=threads, context=CONTEXT, **options)


def answers(model):
    """Scores of several candidates, of fewer behind a part of the prompt, and logits behind another text."""
    session = model._session
    first = evaluate(session, PREFIX, TAILS), evaluate(session, TEXT[:45], TAILS[:2])
    return *first, model.logits(TEXT[100:139]).tobytes()


# ---- what may come before a request: functions of a model and a folder ----


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
        with raising(error):
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
        with raising(Interrupted):
            evaluate(session, [*PREFIX, *TEXT[60:640]], TAILS)
    session.watch(None)


def broken(model, folder):
    """In the middle of a batch that begins as the next one."""
    session = model._session
    evaluate(session, PREFIX[:50], TAILS[:2])
    with HALF[session.backend](session.plan):
        for ask in (lambda: evaluate(session, PREFIX, TAILS), lambda: session.sync(PREFIX)):
            with raising(Interrupted):
                ask()


@contextmanager
def half_on_host(plan):
    """Batches of the reference or the cpu backend end in the middle."""
    layer = plan.program.layers[len(plan.program.layers) // 2]

    def half(self, ids, first, positions, shared, branch, outputs, runs=(), steady=True, strands=()):
        self.begin(ids, first, positions, shared, branch, outputs, runs, strands)
        if hasattr(self, "team"):  # of threads that go through the steps
            self.team.execute(self.memory.places["step table"], self.steps // 2)
        else:
            self.run(0, layer)
        raise Interrupted

    with patch.object(type(plan), "evaluate", half):
        yield


@contextmanager
def half_on_device(plan):
    """The same of the cuda backend: half of the launches are queued."""
    from reflex.backends.cuda.launch import Chain, Graph

    run = Chain.run

    def half(self, first=0, last=None):
        run(self, first, first + ((len(self) if last is None else last) - first) // 2)
        raise Interrupted

    def none(self):
        raise Interrupted

    with patch.object(Chain, "run", half), patch.object(Graph, "launch", none):
        yield


HALF = {"reference": half_on_host, "cpu": half_on_host, "cuda": half_on_device}


def imported(model, folder):
    """States: one that is refused, one of a text that begins as the next one does, used and left."""
    path = folder / "state"
    with opened(model.file.path, model._session.backend) as other:
        other.session(PREFIX[:55]).export_state(path)
    data = path.read_bytes()
    (folder / "damaged").write_bytes(data[:-9] + bytes(1) + data[-8:])
    with raising(StateError):
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
