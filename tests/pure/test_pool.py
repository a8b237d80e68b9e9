"""Work among actors that die, over a Ray of the test's own: nothing is lost, nothing done twice, and a poisonous row is found."""

import types

import pytest

from reflex.errors import ContextOverflowError, DeviceError, InternalError, InvalidInputError
from reflex.integrations import pool
from reflex.integrations.pool import Pool, Task, needs_of
from reflex.integrations.ray import ERROR


class RayError(Exception):
    pass


class RayActorError(RayError):
    pass


class RayTaskError(RayError):
    def __init__(self, cause):
        super().__init__(str(cause))
        self.cause = cause


class Dies(Exception):
    """What a row does to its actor's process."""


class Actor:
    """Calls wait in a queue, and are done in their order when somebody asks for one of them."""

    def __init__(self, inner, needs):
        self.inner, self.needs, self.dead, self.queue = inner, needs, False, []
        for name in ("load", "score"):
            setattr(self, name, types.SimpleNamespace(remote=lambda *words, name=name: self.call(name, words)))

    def call(self, name, words):
        self.queue.append(Reference(self, name, words))
        return self.queue[-1]

    def work(self, until):
        while until in self.queue:
            self.queue.pop(0).do()


class Reference:
    def __init__(self, actor, name, words):
        self.actor, self.name, self.words = actor, name, words
        self.outcome = self.problem = None

    def do(self):
        try:
            if self.actor.dead:
                raise Dies
            self.outcome = getattr(self.actor.inner, self.name)(*self.words)
        except Dies:
            self.actor.dead = True
            self.problem = RayActorError("The actor died unexpectedly.\nAnd much more.")
        except Exception as error:
            self.problem = RayTaskError(error)


class Ray:
    """`actors`: all that ever were."""

    exceptions = types.SimpleNamespace(RayError=RayError, RayActorError=RayActorError, RayTaskError=RayTaskError)

    def __init__(self):
        self.actors = []

    def remote(self, **needs):
        return lambda kind: types.SimpleNamespace(remote=lambda **settings: self._actor(kind(**settings), needs))

    def _actor(self, inner, needs):
        self.actors.append(Actor(inner, needs))
        return self.actors[-1]

    def wait(self, references, num_returns):
        return references[-num_returns:], references[:-num_returns]  # not the oldest: what comes first is anybody's guess

    def get(self, reference):
        reference.actor.work(reference)
        if reference.problem:
            raise reference.problem
        return reference.outcome

    def kill(self, actor):
        actor.dead = True


class Scorer:
    """Rows are texts; what each does is the test's to say. `what`: {text: how often it still does it, or an error}."""

    def __init__(self, what, log):
        self.what, self.log = what, log

    def load(self):
        self._do("load")
        return 4711

    def _do(self, text):
        left = self.what.get(text, 0)
        if isinstance(left, Exception):
            raise left
        if left:
            self.what[text] = left - 1
            raise Dies

    def score(self, texts):
        rows = []
        for text in texts:
            self._do(text)
            rows.append([text, *[None] * 6])
        self.log.extend(texts)
        return rows


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setattr(pool, "Scorer", Scorer)

    def go(texts, what, actors=2, each=4):
        said, log, ray = [], [], Ray()
        workers = Pool(ray, {"what": what, "log": log}, actors, {"num_cpus": 1}, said.append)
        workers.wait()
        tasks = [Task(number, texts[at : at + each]) for number, at in enumerate(range(0, len(texts), each))]
        found = {}
        for task, rows in workers.run(tasks):
            for place, row in enumerate(rows, task.number * each + task.at):
                assert place not in found, "a row came twice"
                found[place] = row
        workers.close()
        assert all(actor.dead for actor in ray.actors) and sorted(found) == list(range(len(texts)))
        return [found[place] for place in sorted(found)], workers, said

    return go


TEXTS = [f"row {number}" for number in range(37)]


@pytest.mark.parametrize("actors", [1, 2, 5])
def test_every_row_once(run, actors):
    rows, workers, said = run(TEXTS, {}, actors)
    assert [row[0] for row in rows] == TEXTS and workers.restarts == 0 and not said


@pytest.mark.parametrize("actors", [1, 2, 5])
@pytest.mark.parametrize("victim", ["row 0", "row 17", "row 36"])
def test_a_death_costs_nothing(run, victim, actors):
    rows, workers, said = run(TEXTS, {victim: 1}, actors)
    assert [row[0] for row in rows] == TEXTS and workers.restarts == 1
    (line,) = said
    assert "another one takes its place" in line and "\n" not in line


@pytest.mark.parametrize("actors", [1, 2])
def test_rows_that_end_their_actor_get_errors_and_no_others(run, actors):
    poison = {"row 5", "row 6", "row 30"}
    rows, workers, _ = run(TEXTS, dict.fromkeys(poison, 10**6), actors)
    for text, row in zip(TEXTS, rows, strict=True):
        assert (row[0] is None and "the row ends its actor" in row[ERROR]) if text in poison else row[0] == text
    assert workers.restarts == 2 * 3 + 2 * 2  # twice each row; before that twice each of two tasks


def test_actors_that_always_die_end_the_run(run):
    with pytest.raises(InternalError, match="actors end one after the other"):
        run(TEXTS, dict.fromkeys(TEXTS, 10**6), each=1)
    with pytest.raises(InternalError, match="actors end one after the other"):
        run(TEXTS, {"load": 10**6})


def test_an_actor_that_dies_while_it_loads_is_replaced(run):
    rows, workers, _ = run(TEXTS, {"load": 2})
    assert [row[0] for row in rows] == TEXTS and workers.restarts == 2


def test_actors_that_cannot_be_made_end_the_run_at_once(run, monkeypatch):
    text = (
        "The actor died because of an error raised in its creation task, and so on\nModuleNotFoundError: No module named 'reflex'"
    )
    monkeypatch.setattr(Ray, "get", lambda self, reference: (_ for _ in ()).throw(RayActorError(text)))
    with pytest.raises(InternalError, match="an actor cannot be made; found ModuleNotFoundError: No module named 'reflex'"):
        run(TEXTS, {})


def test_errors_of_the_engine_come_out_as_they_are(run):
    problem = ContextOverflowError("too long", 5, 6, "here", "shorter")
    with pytest.raises(ContextOverflowError) as caught:
        run(TEXTS, {"load": problem})
    assert caught.value is problem
    with pytest.raises(DeviceError):
        run(TEXTS, {"load": DeviceError("no device")})
    with pytest.raises(InternalError, match="an actor failed"):
        run(TEXTS, {"row 3": ValueError("x")})


def test_a_device_that_fails_is_tried_by_another_process(run):
    rows, _, _ = run(TEXTS, {"row 9": DeviceError("an illegal address")})
    assert rows[9][0] is None and "the row ends its actor" in rows[9][ERROR]
    assert [row[0] for row in rows if row[0]] == [text for text in TEXTS if text != "row 9"]


HAVE = {"CPU": 4.0, "GPU": 2.0}


@pytest.mark.parametrize(
    "backend, actors, threads, expected",
    [("cpu", None, 1, 4), ("cpu", None, 3, 1), ("cpu", 2, 2, 2), ("cuda", None, 8, 2), ("cuda", 1, 1, 1)],
)
def test_actors_by_what_there_is(backend, actors, threads, expected):
    ray = types.SimpleNamespace(cluster_resources=lambda: HAVE)
    count, needs = needs_of(ray, backend, actors, threads)
    assert count == expected and needs["num_gpus"] == (backend == "cuda")


@pytest.mark.parametrize(
    "backend, actors, threads, have", [("cpu", 5, 1, HAVE), ("cpu", None, 5, HAVE), ("cuda", None, 1, {"CPU": 4.0})]
)
def test_too_many_actors_are_refused(backend, actors, threads, have):
    ray = types.SimpleNamespace(cluster_resources=lambda: have)
    with pytest.raises(InvalidInputError, match="not enough for the actors"):
        needs_of(ray, backend, actors, threads)
