"""Tables among real Ray actors on this machine: the same bytes as one process makes, whatever dies."""

import csv
import os
import signal

import pytest
import tiny

from reflex.errors import InvalidInputError, ModelFileError
from reflex.integrations.pool import Pool
from reflex.integrations.ray import score

ray = pytest.importorskip("ray", reason="ray is not installed")

LABELS = [" fox", " dog", " over"]
TEXTS = [f"the quick brown fox number {number} jumps over" for number in range(48)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(tiny.write("llama-smollm", tmp_path_factory.mktemp("models") / "tiny.gguf"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """One Ray for all tests, which `score` then uses. Its actors find what the tests import."""
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        _system_config={"enable_metrics_collection": False},
    )
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "in.csv"
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([["text"], *([text] for text in TEXTS)])
    return str(path)


@pytest.fixture(scope="module")
def asked(model):
    return {"model": model, "prompt_column": "text", "labels": LABELS, "backend": "cpu", "context": 128, "rows": 2}


@pytest.fixture(scope="module")
def whole(source, asked, tmp_path_factory):
    """The bytes that one process makes."""
    target = tmp_path_factory.mktemp("whole") / "out.csv"
    score(source, str(target), **asked, actors=0)
    return target.read_bytes()


class Killing(Pool):
    """A pool whose actors are killed after some results, each at another place; then it goes on."""

    at = (5, 12)

    def run(self, tasks):
        for number, done in enumerate(super().run(tasks)):
            if number in self.at:
                os.kill(self.seats[number % len(self.seats)].pid, signal.SIGKILL)
            yield done


class Interrupted(Killing):
    """The same, but the run ends."""

    def run(self, tasks):
        for number, done in enumerate(super().run(tasks)):
            yield done
            if number == 7:
                raise KeyboardInterrupt


def test_actors_that_are_killed_cost_nothing(cluster, source, asked, whole, tmp_path):
    said = []
    target = tmp_path / "out.csv"
    found = score(source, str(target), **asked, actors=2, pool=Killing, say=said.append)
    assert found["actors"] == 2 and found["restarts"] == 2 and found["scored"] == 48 and found["bad"] == 0
    assert target.read_bytes() == whole
    assert sum("an actor ended" in line for line in said) == 2 and not any("\n" in line for line in said)


def test_an_interrupted_run_goes_on_with_other_actors(cluster, source, asked, whole, tmp_path):
    target = tmp_path / "out.csv"
    with pytest.raises(KeyboardInterrupt):
        score(source, str(target), **asked, actors=2, pool=Interrupted)
    found = score(source, str(target), **asked, actors=1)
    assert found["resumed"] == 16 and found["scored"] == 32 and target.read_bytes() == whole


def test_errors_come_out_of_actors_whole(cluster, source, asked, tmp_path):
    with pytest.raises(InvalidInputError, match="there is not enough for the actors; expected 2 CPU each for 2; found 2 CPU"):
        score(source, str(tmp_path / "out.csv"), **asked, actors=2, threads=2)
    with pytest.raises(InvalidInputError, match="temperature") as caught:
        score(source, str(tmp_path / "out.csv"), **asked, actors=1, temperature=-1.0)
    assert caught.value.expected == "a number more than 0" and caught.value.found is not None
    broken = tmp_path / "broken.gguf"
    with open(asked["model"], "rb") as file:
        broken.write_bytes(file.read()[:-100])
    with pytest.raises(ModelFileError):
        score(source, str(tmp_path / "out.csv"), **asked | {"model": str(broken)}, actors=1)
    assert os.listdir(tmp_path) == ["broken.gguf"]
