"""Experts that stay in the file until a router asks for them: which bytes are on the device, when, and what was copied.

Over the stub driver, whose device memory can be read: it computes nothing, so what a router "chose" is what the test wrote. Needs
the sm_90 kernels in cache/.
"""

import json

import process
import pytest
import tiny
from stub import fake

EXPERTS, USED = 16, 2
RUN = """
import json
from reflex import native
from reflex.open import open_model
from reflex.sample import Sampling
file, _, session = open_model({path!r}, "cuda", 1024, experts={experts!r})
plan = session.plan
plan._open()
real = plan.device.copy_out
stacks = {{name: t for name, t in file.tensors.items() if name.endswith("_exps.weight")}}
size = {{name: t.nbytes // {count} for name, t in stacks.items()}}
chosen = []  # experts of each row, for every layer

def copy_out(target, source, bytes):
    real(target, source, bytes)
    if plan.experts and target == plan.experts._routes:
        values = native.view(target, bytes // 4, "f")
        for row in range(len(values) // {used} // 2):
            for j in range({used}):
                values[(2 * row + 1) * {used} + j] = chosen[row % len(chosen)][j]

plan.device.copy_out = copy_out

def at(name, e):
    return plan.gpu.base + plan.gpu.layout.place(stacks[name].address) + e * size[name]

def same(name, e):
    return native.bytes_at(at(name, e), size[name]) == native.bytes_at(stacks[name].address + e * size[name], size[name])

def here():
    \"\"\"Experts that are whole on the device, in every layer.\"\"\"
    plan.device.synchronize()
    found = [[e for e in range({count}) if same(name, e)] for name in stacks]
    assert all(one == found[0] for one in found), found
    return found[0]

def step(rows, *experts):
    chosen[:] = experts
    plan.evaluate([1] * rows, 0, list(range(rows)), [0] * rows, [0] * rows, list(range(rows)))
    return here()

def follow():
    return len(list(plan.follow(1, 3, Sampling(), 1, [1], (5,), 2)))

def facts():
    e = plan.experts
    return e and [e.asked, e.fetched, e.bytes]

print(json.dumps([{body}]))
plan.close()
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    if not (process.ROOT / "cache" / "cuda-sm_90.bin").exists():
        pytest.skip("no sm_90 kernels in cache/: python precompile.py --only sm_90")
    path = fake.build(tmp_path_factory.mktemp("stub"))
    return path or pytest.skip("no C compiler")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    tiny.write("qwen3moe", path, "Q8_0", width=256, experts=(EXPERTS, USED, 256))
    return path


@pytest.fixture
def run(library, model, tmp_path):
    def run(body, experts="lazy", path=model, **settings):
        log = tmp_path / "calls.log"
        log.unlink(missing_ok=True)
        code = RUN.format(path=str(path), experts=experts, count=EXPERTS, used=USED, body=body)
        done = fake.python(code, fake.environment(library, log, **settings))
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout), log.read_text().splitlines()

    return run


def test_experts_come_when_they_are_chosen(run):
    """Each once, whole, in every layer, whatever the rows; those of an earlier batch stay."""
    steps = "here(), step(1, [3, 9]), step(1, [9, 3]), step(3, [15, 0], [3, 0], [9, 1])"
    (start, first, again, more, counts), _ = run(f"{steps}, facts()")
    assert start == [] and first == again == [3, 9] and more == [0, 1, 3, 9, 15]
    layers = counts[1] // 5
    assert counts[0] == layers * (2 + 2 + 5) and counts[1] == layers * 5 and counts[2] > 0


def test_what_is_copied_is_what_was_asked_for(run):
    """Counted: an expert more is its bytes more, and what is there is not copied again."""

    def copied(*experts):
        (*_, counts), lines = run(f"step(1, {list(experts)}), step(1, {list(experts)}), facts()")
        return counts[2], sum(int(line.split()[1]) for line in lines if line.startswith("cuMemcpyHtoDAsync_v2 "))

    (one, all_of_one), (two, all_of_two) = copied(3, 3), copied(3, 9)
    assert one > 0 and two == 2 * one and all_of_two - all_of_one == one


def test_a_batch_that_asks_for_most_experts_finds_all(run):
    (found, counts), _ = run("step(16, [3, 9]), facts()")
    assert found == list(range(EXPERTS)) and counts is None
    (few, all_of_them, counts), _ = run("step(1, [3, 9]), step(16, [3, 9]), facts()")
    assert few == [3, 9] and all_of_them == list(range(EXPERTS)) and counts is None


def test_unattended_decoding_finds_all(run):
    (few, count, found, counts), _ = run("step(1, [3, 9]), follow(), here(), facts()")
    assert few == [3, 9] and count == 2 and found == list(range(EXPERTS)) and counts is None


def test_eager_uploads_everything_at_once(run):
    (found, counts), _ = run("step(1, [3, 9]), facts()", experts="eager")
    assert found == list(range(EXPERTS)) and counts is None


@pytest.mark.parametrize("rows", [1, 5])
def test_the_same_launches_whether_experts_are_asked_for_or_there(run, rows):
    """Same kernels in the same order; only where one row chooses its experts by itself does asking add a router's choice."""

    def kernels(lines):
        return [line.split()[1] for line in lines if line.startswith("cuLaunchKernelEx ")]

    lazy, eager = (kernels(run(f"step({rows}, [3, 9])", experts=experts)[1]) for experts in ("lazy", "eager"))
    assert [name for name in lazy if name != "route"] == [name for name in eager if name != "route"]
    assert lazy == eager or rows == 1


def test_a_file_that_shrinks_meanwhile_is_one_error(run, model, tmp_path):
    path = tmp_path / "shrinks.gguf"
    path.write_bytes(model.read_bytes())
    body = f"step(1, [3, 9]), __import__('os').truncate({str(path)!r}, 4096), step(1, [1, 2])"
    with pytest.raises(AssertionError, match="ModelFileError: the file cannot be read to its end"):
        run(body, path=path)


@pytest.mark.parametrize("failing", ["cuMemHostAlloc:2", "cuEventRecord:999"])
def test_a_driver_that_fails_is_one_error(run, failing):
    with pytest.raises(AssertionError, match=r"reflex\.errors"):
        run("step(1, [3, 9])", FAIL=failing)
