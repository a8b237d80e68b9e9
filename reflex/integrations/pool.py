"""Ray actors over tasks: each has a little work ahead, and one that dies is replaced while its work is done again.

A task whose actor died twice is cut into single rows, and a row that did this twice gets an error as its result, so that one
poisonous row ends neither the run nor its neighbours. Actors that end one after the other with nothing done in between end the run.
Errors of the engine come out as they are. Called by ray.
"""

from collections import deque

from ..errors import DeviceError, InternalError, InvalidInputError, ReflexError
from .scorer import Scorer, failed

AHEAD = 2  # tasks that an actor has been given, so that it need not wait for the next
TRIES = 2  # deaths of actors that a task may see
IN_VAIN = 8  # deaths of actors without a task done in between


class Task:
    """Some rows: `number` of the part, `at` the place of the first one in it."""

    def __init__(self, number, texts, at=0):
        self.number, self.texts, self.at = number, texts, at
        self.deaths = 0

    def rows(self):
        """A task for each row."""
        return [Task(self.number, [text], self.at + place) for place, text in enumerate(self.texts)]


class Seat:
    """An actor, and the next one when it dies. `needs`: what Ray is to keep for it."""

    def __init__(self, ray, settings, needs):
        self.ray, self.settings, self.needs = ray, settings, needs
        self.given = {}  # reference -> task, None for the load; in the order in which the actor does them
        self.pid = None
        self._start()

    def _start(self):
        self.actor = self.ray.remote(max_concurrency=1, **self.needs)(Scorer).remote(**self.settings)
        self.given = {self.actor.load.remote(): None}

    def give(self, task):
        self.given[self.actor.score.remote(task.texts)] = task

    def replace(self):
        """Start again; ([(task, rows) that had come already], [tasks that were not done, first the one at which it ended])."""
        self.ray.kill(self.actor)
        done, left = [], [(reference, task) for reference, task in self.given.items() if task is not None]
        try:
            while left:
                done.append((left[0][1], self.ray.get(left[0][0])))
                del left[0]
        except self.ray.exceptions.RayError:
            pass  # of the task at which it ended
        self._start()
        return done, [task for _, task in left]


class Pool:
    """`actors` actors that have `needs` each. `settings`: arguments of Scorer."""

    def __init__(self, ray, settings, actors, needs, say=lambda text: None):
        self.ray, self.say = ray, say
        self.seats = [Seat(ray, settings, needs) for _ in range(actors)]
        self.again = deque()  # tasks to be done again
        self.restarts = self.in_vain = 0

    def wait(self):
        """Until every actor has loaded its model."""
        for seat in self.seats:
            self._load(seat)

    def _load(self, seat):
        while seat.pid is None:
            reference = next(iter(seat.given))
            self._take(seat, reference)

    def run(self, tasks):
        """Yield (task, rows) of `tasks`, an iterator, in the order in which they are done; of a task that was cut, row by row."""
        tasks = iter(tasks)
        while True:
            for seat in self.seats:
                while len(seat.given) < AHEAD and (task := self.again.popleft() if self.again else next(tasks, None)):
                    seat.give(task)
            given = {reference: seat for seat in self.seats for reference in seat.given}
            if not any(task for seat in self.seats for task in seat.given.values()):
                return
            for reference in self.ray.wait(list(given), num_returns=1)[0]:
                yield from self._take(given[reference], reference)

    def _take(self, seat, reference):
        """What a reference that is done has brought: (task, rows), or nothing."""
        task = seat.given.get(reference)
        try:
            found = self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            problem = error.cause
            if isinstance(problem, DeviceError) and task is not None:  # another process may have better luck
                return self._died(seat, str(problem))
            if isinstance(problem, ReflexError):
                raise problem from None
            raise InternalError(f"an actor failed: {problem!r}", remedy="report it, with the table's row") from None
        except self.ray.exceptions.RayActorError as error:
            why, *more = str(error).splitlines()
            if "creation task" in why:  # every other one would end so too
                remedy = "install Reflex on every node, for the Python that Ray runs there"
                raise InternalError("an actor cannot be made", found=(more or [why])[-1], remedy=remedy) from None
            return self._died(seat, why)
        except self.ray.exceptions.RayError as error:
            return self._died(seat, f"{type(error).__name__}")
        del seat.given[reference]
        self.in_vain = 0
        if task is None:
            seat.pid = found
            return []
        return [(task, found)]

    def _died(self, seat, why):
        """Replace an actor; its work waits for the next. A list of (task, rows) that nobody will try again."""
        self.restarts += 1
        self.in_vain += 1
        if self.in_vain > IN_VAIN:
            remedy = "look for what ends them (memory: fewer actors, or a smaller --ctx)"
            raise InternalError("actors end one after the other", "work done in between", why, remedy=remedy)
        seat.pid = None
        self.say(f"reflex: warning: an actor ended ({why}); another one takes its place")
        done, left = seat.replace()
        self.again.extendleft(reversed(left[1:]))
        if not left:
            return done
        first = left[0]
        first.deaths += 1
        if first.deaths < TRIES:
            self.again.appendleft(first)
        elif len(first.texts) > 1:
            self.again.extendleft(reversed(first.rows()))
        else:
            found = f"{first.deaths} dead actors"
            problem = InternalError(
                "the row ends its actor", "an actor that lives", found, remedy="leave the row out, and report it"
            )
            return [*done, (first, [failed(problem)])]
        return done

    def close(self):
        """End the actors."""
        for seat in self.seats:
            self.ray.kill(seat.actor)


def needs_of(ray, backend, actors, threads):
    """(actors, what Ray keeps for each): `actors` as asked for, or as many as devices or processors allow."""
    have = ray.cluster_resources()
    kind, each = ("GPU", 1) if backend == "cuda" else ("CPU", threads)
    most = int(have.get(kind, 0) // each)
    if not most or (actors or 1) > most:
        remedy = "ask for fewer actors or threads" if most else "see `reflex doctor` on the nodes, or use --backend cpu"
        need = f"{each} {kind} each for {actors or 1}"
        raise InvalidInputError("there is not enough for the actors", need, f"{have.get(kind, 0):g} {kind}", remedy=remedy)
    return actors or most, {"num_cpus": 0 if backend == "cuda" else threads, "num_gpus": 1 if backend == "cuda" else 0}
