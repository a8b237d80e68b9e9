"""The first evaluation follows the upload: launches wait for the part of the weights that they read, and for no more.

Over the stub driver with the sm_90 kernels in cache/. What each launch reads is taken from its parameters here too, but against
the tensors of the file, not against the parts.
"""

import json
from itertools import pairwise

import process
import pytest
import tiny
from stub import fake

RUN = """
import json
from itertools import pairwise
from reflex.backends.cuda import gpu, launch, memory
from reflex.open import open_model
gpu.LEAST_PART = 4096
file, _, session = open_model({path!r}, "cuda", 512, weights={weights!r})
plan, waits, parts = session.plan, [], []
layout = plan.gpu.layout

def furthest_byte(chain, row):
    at = chain._table[row * launch.ROW_WORDS + launch.CELLS_WORD] >> 3
    cells = chain._cells[at : at + chain._table[row * launch.ROW_WORDS + launch.COUNT_WORD]]
    offsets = [memory.offset(c) for c in cells if c >> 48 == launch.TAG | memory.WEIGHTS]
    ends = [layout.place(t.address) + t.nbytes for o in offsets for t in file.tensors.values()
            if layout.place(t.address) <= o < layout.place(t.address) + t.nbytes]
    return len(offsets) == len(ends) and max(ends, default=0)

def spy(chain, first, last, real=plan.gpu.parts):
    found = real(chain, first, last)
    parts.append([(mark, a, b, max(furthest_byte(chain, row) for row in range(a, b))) for mark, a, b in found])
    return found

def wait(mark=-1, real=plan.gpu.upload.wait):
    waits.append(mark)
    real(mark)

plan.gpu.parts, plan.gpu.upload.wait = spy, wait
for at in (0, 7):
    plan.evaluate([1] * 7, at, list(range(at, at + 7)), [0] * 7, [0] * 7, [6])
plan.argmax(0)
print(json.dumps(dict(parts=parts, waits=waits, ends=plan.gpu.arrivals, rows=len(next(iter(plan.shapes.values())).chain))))
plan.close()
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    tiny.write("llama-smollm", path, "Q8_0", width=128, heads=2, kv_heads=1, head_dim=64, layers=4)
    return path


@pytest.fixture
def first(driver_library, model, tmp_path, sm_90):
    """Run a first and a second evaluation: (what the script printed, driver calls)."""

    def run(weights="quantized", **settings):
        log = tmp_path / "calls.log"
        done = fake.python(RUN.format(path=str(model), weights=weights), fake.environment(driver_library, log, **settings))
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout), log.read_text().splitlines()

    return run


def test_every_launch_waits_for_what_it_reads(first):
    facts, _ = first()
    ((*parts,),) = facts["parts"]
    assert len(parts) > 3 and facts["ends"] == sorted(facts["ends"])
    assert [a for _, a, _, _ in parts] == [0, *(b for _, _, b, _ in parts[:-1])] and parts[-1][2] == facts["rows"]
    for mark, _, _, furthest in parts:
        assert furthest <= facts["ends"][mark]
    assert any(furthest > facts["ends"][mark - 1] for mark, _, _, furthest in parts if mark), "a part waits for too much"
    assert facts["waits"] == [*(mark for mark, _, _, _ in parts), -1]  # and the second evaluation for nothing


def test_launches_are_queued_between_the_waits(first):
    facts, calls = first()
    calls = [line for line in calls if line.startswith(("cuStreamWaitEvent", "cuLaunchKernelEx"))]
    waits = [i for i, line in enumerate(calls) if line.startswith("cuStreamWaitEvent")]
    sizes = [b - a for _, a, b, _ in facts["parts"][0]]
    assert waits[0] == 0 and [b - a - 1 for a, b in pairwise(waits)] == sizes
    for at in waits[:-1]:
        assert not calls[at + 1].split("shared=")[1].split()[1:], "a launch behind a wait must not overlap what is before it"


def test_expanded_weights_are_waited_for_at_once(first):
    facts, _ = first("f16")
    assert facts["parts"] == [] and facts["waits"] == [-1]


def test_a_failed_upload_ends_the_first_evaluation(driver_library, model):
    words = ("generate", model, "hello", "--max-tokens", "2", "--backend", "cuda")
    for failure in ("cuEventRecord:719@1", "cuMemcpyHtoDAsync_v2:719@2"):
        done = process.reflex(*words, env=fake.environment(driver_library, FAIL=failure))
        lines = done.stderr.decode().splitlines()
        assert len(lines) == 1 and lines[0].startswith("reflex: device: ") and done.returncode == 4, lines
