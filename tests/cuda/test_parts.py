"""Taps on the cuda backend: what lies between two launches is what the reference computes, and a patch goes on from the new value.

Launches are done by twins in numpy (whole.py); memory that nobody wrote is NaN.
"""

from contextlib import closing

import numpy
import pytest
import tiny
import twins
from whole import Emulated, Launches

from reflex import native
from reflex.arch import load_spec
from reflex.backends.cuda import lifetimes, parts
from reflex.backends.cuda.moments import moments
from reflex.backends.reference import Plan
from reflex.gguf.reader import open_model
from reflex.lab.patch import changes
from reflex.lab.taps import chosen, points
from reflex.lab.trace import record
from reflex.lab.walk import DeviceWalk, ReferenceWalk
from reflex.program import build

CONTEXT = 256
TOKENS = 21
TEXTS = 4  # of which one must do for a mixture of experts: where two experts are as good, rounding chooses
FAMILIES = "llama-smollm", "gemma3", "gpt2", "command-r", "qwen3moe", "gpt-oss", "granite", "deci", "phi3", "olmo2"
SPARSE = ("gemma3n",)  # with gates of which a threshold leaves little, so that their own errors are large: taps that have names
EVERYWHERE = ("embedding", "final_norm", "logits")
CLOSE = 0.03  # standard deviations of a tap; products on the device round their inputs to float16


class Rows(Launches):
    """A chain that runs on an Emulated."""

    plan: "Device"

    def run(self, first, last):
        self.plan.launch(self[first:last])


class Device(Emulated):
    """The part of a Plan's interface that Parts uses."""

    library = None

    def __init__(self, *facts):
        super().__init__(*facts)
        self.image, self.device = self.images, self

    def settle(self, chain, whole):
        assert whole
        chain.plan = self
        self._allocate()

    def check(self, ids, first_slot, outputs):
        assert len(ids) <= self.memory.rows and len(outputs) <= self.memory.most_wanted

    def accept(self, *batch):
        super().accept(*batch)
        self.wanted = len(batch[5])

    def address(self, relative):
        return relative

    def copy_out(self, host, source, size):
        native.view(host, size)[:] = self._view(source, numpy.uint8)[:size].tobytes()

    def copy_in(self, target, host, size):
        self._view(target, numpy.uint8)[:size] = numpy.frombuffer(native.bytes_at(host, size), numpy.uint8)

    def synchronize(self):
        pass

    def logits(self, row):
        at = self.memory.logits(self.wanted)
        return self._view(at, numpy.float32)[row * self.program.vocabulary :][: self.program.vocabulary]


@pytest.fixture
def walks(tmp_path, monkeypatch):
    """(a walk over the launches, one over the reference) of a tiny model."""
    monkeypatch.setattr(parts, "Chain", lambda library: Rows())
    files = []

    def get(name):
        file = open_model(str(tiny.write(name, tmp_path / f"{name}.gguf", "F16")))
        files.append(closing(file))
        program = build(load_spec(file), CONTEXT)
        return DeviceWalk(Device(file, program, CONTEXT)), ReferenceWalk(Plan(file, program, CONTEXT))

    yield get
    for file in files:
        file.thing.close()


def ids(count, seed=1):
    return numpy.random.default_rng(seed).integers(3, tiny.VOCABULARY, count).tolist()


@pytest.mark.parametrize("name", (*FAMILIES, *SPARSE, "gemma4"))
def test_taps_are_those_of_the_reference(walks, name):
    walk, trusted = walks(name)
    known = points(walk.program)
    shown = [point for point in known.values() if "cuda" in point.backends]
    if name in SPARSE:
        shown = [point for point in shown if not point.name.startswith("steps.")]
    walk.batch = 16  # the text takes two batches
    for seed in range(TEXTS if any(step.op == "route" for step in walk.program.steps) else 1):
        found, wanted = (record(one, ids(TOKENS, seed), shown) for one in (walk, trusted))
        off = {tap: float(numpy.abs(found[tap] - wanted[tap]).max() / wanted[tap].std()) for tap in found}
        if max(off.values()) < CLOSE:
            break
    assert [kernel for kernel in walk.plan.used if not twins.known(kernel)] == []
    assert {tap: error for tap, error in off.items() if not error < CLOSE} == {}


@pytest.mark.parametrize("name", sorted(tiny.MODELS))
def test_every_family_shows_its_residual_stream(tmp_path, name):
    with closing(open_model(str(tiny.write(name, tmp_path / "m.gguf")))) as file:
        program = build(load_spec(file), CONTEXT)
    known, found = points(program), moments(program)
    expected = {*EVERYWHERE, *(tap for tap in known if tap.endswith((".residual_in", ".residual_out")))}
    assert expected <= {tap for tap, point in known.items() if "cuda" in point.backends}
    assert lifetimes.moments(program)[program.steps[0].out] == lifetimes.ALWAYS
    for at, moment in found.items():
        for buffer in moment.buffers:
            writers = [n for n, step in enumerate(program.steps[:at]) if step.out == buffer]
            assert writers, "a buffer that no step before has written"


def test_a_patch_goes_on_from_the_new_value_and_its_own_changes_nothing(walks):
    walk, trusted = walks("llama-smollm")
    known = points(walk.program)
    shown = chosen(known, ["logits", "layers.1.residual_out"], "cuda")
    plain = record(walk, ids(TOKENS), shown)

    def patched(walk, value):
        given = changes(known, {"layers.0.residual_out": value}, lambda known, name: chosen(known, name, "cuda"))
        return record(walk, ids(TOKENS), shown, None, given)

    same = patched(walk, lambda x: x)
    assert all((same[tap] == plain[tap]).all() for tap in plain)
    found, wanted = (patched(one, (slice(3, 9), 0.5)) for one in (walk, trusted))
    for tap in found:
        assert numpy.abs(found[tap] - wanted[tap]).max() < CLOSE * wanted[tap].std() < numpy.abs(found[tap] - plain[tap]).max()
