"""Single draws on a device over the stub driver: what they ask of it, and that changed logits are drawn from on the host."""

import json

import pytest
import tiny
from stub import fake

RUN = """
import json
from reflex.open import open_model
_, _, session = open_model({path!r}, "cuda", 512)
plan = session.plan
session.sync([1] * 7)
found = [{body}]
print(json.dumps(found))
plan.close()
"""
DRAW = "plan.sample(0, 0.8, 40, 0.95, 0.05, {})"


@pytest.fixture
def drawn(driver_library, tmp_path, sm_90):
    """Run draws: (their results, driver calls without those of starting and ending)."""
    path = tiny.write("llama-smollm", tmp_path / "tiny.gguf")

    def run(*draws):
        log = tmp_path / "calls.log"
        log.unlink(missing_ok=True)
        source = RUN.format(path=str(path), body=", ".join(draws))
        done = fake.python(source, fake.environment(driver_library, log))
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout), [line.split(" grid")[0] for line in log.read_text().splitlines()]

    return run


def test_a_draw_is_two_launches_and_three_small_copies(drawn):
    (_, once), (found, twice) = drawn(DRAW.format(0.1)), drawn(DRAW.format(0.1), DRAW.format(0.7))
    assert found == [0, 0]  # the stub computes nothing
    more = list(twice)
    for line in once:
        more.remove(line)
    more = sorted(line for line in more if not line.startswith(("cuStreamSynchronize", "cuCtxSetCurrent")))
    assert [line.split()[:2] for line in more] == [
        ["cuLaunchKernelEx", "sample"],
        ["cuLaunchKernelEx", "sample_bins"],
        ["cuMemcpyDtoHAsync_v2", "16"],
        ["cuMemcpyDtoHAsync_v2", "4"],
        ["cuMemcpyHtoDAsync_v2", "48"],
    ]


def test_the_host_draws_from_logits_that_it_holds(drawn):
    change = "plan.logits(0).__setitem__(9, float({!r}))"
    found, calls = drawn(change.format("50"), DRAW.format(0.5), change.format("inf"), DRAW.format(0.5))
    assert found == [None, 9, None, -1]
    assert not any("sample" in line for line in calls)
    assert sum(line == f"cuMemcpyDtoHAsync_v2 {4 * tiny.VOCABULARY}" for line in calls) == 1


def test_the_temperature_of_zero_needs_no_draw(drawn):
    found, calls = drawn("plan.logits(0).__setitem__(5, 1.0)", "plan.argmax(0)")
    assert found == [None, 5] and not any("sample" in line for line in calls)
