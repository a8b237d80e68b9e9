"""Score a column of a table: CSV or Parquet in, the same with columns of results out, by Ray actors that hold a model each.

    python -m reflex.integrations.ray reviews.csv scored.csv --model demo --prompt-column text --labels " good" " bad"

What is done stays beside the output until all is done: a run that was ended, however, goes on where it was when the same command is
given again. An actor that dies is replaced. The result is that of one process, to the bit on machines of one kind. docs/tables.md
has it all. Needs the extra `ray`; with `actors=0` nothing of Ray.
"""

import argparse
import contextlib
import json
import os
import signal
import sys
import time
from itertools import islice

from .. import rules, settings
from ..backends import choice
from ..demo import resolve
from ..errors import InternalError, InvalidInputError, ReflexError, UnsupportedError
from ..output_file import refuse_inputs
from .columns import RESULTS, digest, open_table
from .parts import Parts, mark_of
from .pool import Pool, Task, needs_of
from .scorer import Scorer

MOST_ROWS, PARTS = 256, 256  # rows of a part, and parts of a run with fewer rows than that makes
PACKAGES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # where actors find this package too
ERROR = list(RESULTS).index("error")


def score(
    source, target, model, prompt_column, labels, *, rule=rules.DEFAULT, temperature=1.0, terminator="", prior="", chat=False,
    system="", actors=None, threads=1, backend="auto", weights="quantized", context=None, rows=None, prefix="reflex_",
    delimiter=",", address=None, say=None, pool=Pool,
):  # fmt: skip
    """Score the texts in `prompt_column` of the table `source`; write it to `target` with the columns of columns.RESULTS.

    `labels`, `rule`, `temperature`, `terminator`, `prior`: as of `Model.system1`. With `chat`, or a `system` message, texts are
    messages to a model that follows instructions. `actors`: by default one per GPU, or per `threads` processors; 0 computes in this
    process. `backend`, `weights`, `context`: as of `reflex.load`. `rows`: of a part, which is what an interruption can cost.
    `address`: of a Ray cluster; by default one is started here. `say`: called with lines for a person.

    Returns {rows, scored, resumed, bad, first_bad, restarts, actors, seconds}, `bad` rows having an error in place of a label.
    Raises one error of reflex.errors; what was done is kept then."""
    say = say or (lambda text: None)
    labels = checked_labels(labels)
    backend, path = choice.resolve(backend), resolve(model)
    table = open_table(source, prompt_column, prefix, delimiter)
    refuse_inputs(target, (source, path))
    engine = {"backend": backend, "context": context or None, "threads": threads, "weights": weights}
    asked = {"rule": rule, "temperature": temperature, "terminator": terminator, "prior": prior}
    scorer = {"model": path, "labels": labels, "engine": engine, "settings": asked, "chat": chat, "system": system}
    plan = {"input": digest(source), "column": prompt_column, "prefix": prefix, "delimiter": delimiter, "model": mark_of(path)}
    plan |= {name: engine[name] for name in ("backend", "context", "weights")} | asked
    plan |= {"labels": labels, "chat": chat, "system": system}
    rows = rows or min(MOST_ROWS, max(1, table.rows // PARTS))
    parts = Parts(target, plan, rows, table.rows)
    try:
        run = Run(table, parts, say)
        workers = alone(scorer) if actors == 0 else among_actors(pool, scorer, actors, address, say)
        found = run.over(workers)
        parts.finish(lambda place: table.write(place, run.counted(parts.all())))
        return {**found, "bad": run.bad, "first_bad": run.first_bad}
    finally:
        parts.close()


def checked_labels(labels):
    """The labels as a list, refused where they cannot name an answer."""
    found = [labels] if isinstance(labels, str) else list(labels)
    if len(found) < 2 or len(set(found)) < len(found) or not all(isinstance(label, str) and label for label in found):
        raise InvalidInputError("the labels are no choice", "two or more different texts", found, remedy="--labels ' good' ' bad'")
    return found


class Run:
    """The rows of a table that are not done yet, as tasks; what comes back, as parts."""

    def __init__(self, table, parts, say):
        self.table, self.parts, self.say = table, parts, say
        self.left = [number for number in range(parts.count) if parts.get(number) is None]
        self.resumed = parts.total - sum(map(parts.length, self.left))
        self.waiting = {}  # number of a part -> {place: row} of those that are not whole yet
        self.bad, self.first_bad = 0, None

    def tasks(self):
        """A Task for each part that is left; the table is read once."""
        left, texts = set(self.left), self.table.texts()
        for number in range(self.parts.count):
            length = self.parts.length(number)
            found = list(islice(texts, length))
            if number in left:
                yield Task(number, found)

    def over(self, workers):
        """Let `workers`, a context, do what is left."""
        if self.resumed:
            self.say(f"going on after {self.resumed} of {self.parts.total} rows")
        facts = {"rows": self.parts.total, "resumed": self.resumed, "scored": self.parts.total - self.resumed}
        if not self.left:
            return {**facts, "actors": 0, "restarts": 0, "seconds": 0.0}
        with workers as pool:
            begun, meter = time.monotonic(), Meter(self.say, self.parts.total, self.resumed)
            for task, rows in pool.run(self.tasks()):
                self._take(task, rows)
                meter(len(rows))
            seconds = time.monotonic() - begun
        return {**facts, "actors": len(pool.seats), "restarts": pool.restarts, "seconds": round(seconds, 3)}

    def _take(self, task, rows):
        whole = self.waiting.setdefault(task.number, {})
        whole.update(enumerate(rows, task.at))
        if len(whole) == self.parts.length(task.number):
            self.parts.put(task.number, [whole[place] for place in sorted(whole)])
            del self.waiting[task.number]

    def counted(self, rows):
        """The rows on their way to the output; those with an error are counted."""
        for number, row in enumerate(rows, 1):
            if row[ERROR] is not None:
                self.bad += 1
                self.first_bad = self.first_bad or f"row {number}: {row[ERROR]}"
            yield row


class Meter:
    """Says how far the work is: nothing at first, then more and more seldom, at least once a minute."""

    def __init__(self, say, total, done, clock=time.monotonic):
        self.say, self.total, self.done, self.begun_at, self.clock = say, total, done, done, clock
        self.start = clock()
        self.next = self.start + 2

    def __call__(self, more):
        self.done += more
        now = self.clock()
        if now < self.next:
            return
        self.next = now + min(60, max(2, (now - self.start) / 5))
        speed = (self.done - self.begun_at) / (now - self.start)
        left = (self.total - self.done) / speed
        self.say(f"{self.done / self.total:4.0%}  {self.done} of {self.total} rows, {speed:.3g} rows/s, {left:.0f} s left")


class alone:
    """This process in place of a Pool."""

    seats, restarts = (), 0

    def __init__(self, scorer):
        self.scorer = Scorer(**scorer)

    def __enter__(self):
        self.scorer.load()
        return self

    def run(self, tasks):
        """(task, rows), one after the other."""
        for task in tasks:
            yield task, self.scorer.score(task.texts)

    def __exit__(self, *_):
        self.scorer.close()


class among_actors:
    """A Pool of Ray actors as a context. Ray is started where it does not run yet, and then ended."""

    def __init__(self, kind, scorer, actors, address, say):
        self.kind, self.scorer, self.actors, self.address, self.say = kind, scorer, actors, address, say
        self.pool = None

    def __enter__(self):
        self.ray, self.started = started(self.address)
        try:
            engine = self.scorer["engine"]
            actors, needs = needs_of(self.ray, engine["backend"], self.actors, engine["threads"])
            self.pool = self.kind(self.ray, self.scorer, actors, needs, self.say)
            self.pool.wait()
        except BaseException:
            self.__exit__()
            raise
        return self.pool

    def __exit__(self, *_):
        if self.pool is not None:
            self.pool.close()
        if self.started:
            self.ray.shutdown()


def started(address):
    """(the module ray, whether it was started here)."""
    settings.no_reports_of_ray()
    try:
        import ray
    except ModuleNotFoundError:
        remedy = "pip install 'reflex-gguf[ray]', or --actors 0 for this process alone"
        raise UnsupportedError("actors need Ray", "the package ray", "nothing", remedy=remedy) from None
    if ray.is_initialized():
        return ray, False
    try:
        here = {} if address else {"runtime_env": {"env_vars": {"PYTHONPATH": settings.path_with(PACKAGES)}}}
        ray.init(address=address or "local", include_dashboard=False, log_to_driver=False, logging_level="ERROR", **here)
    except Exception as error:
        remedy = "see `ray status`, or leave out --address"
        raise InternalError("Ray does not start", address or "Ray on this machine", str(error), remedy=remedy) from None
    return ray, True


def arguments(words):
    """The command line; its names are those of `score`."""
    parser = argparse.ArgumentParser(
        prog="python -m reflex.integrations.ray", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("source", metavar="IN", help="a table, .csv, .tsv or .parquet")
    add("target", metavar="OUT", help="the table to write, of the same kind")
    add("--model", required=True, help="a .gguf file, or demo")
    add("--prompt-column", required=True, help="the column of texts to score")
    add("--labels", nargs="+", required=True, help="the answers to score, usually beginning with a space")
    add("--rule", choices=tuple(rules.RULES), default=rules.DEFAULT, help="how labels of different lengths compare")
    add("--temperature", type=float, default=1.0, help="divides the scores before they become probabilities")
    add("--terminator", default="", help="a text that ends every label")
    add("--prior", default="", help="stands for no prompt in pmi")
    add("--chat", action="store_true", help="texts are messages; the chat template in the file makes the prompts")
    add("--system", default="", help="a system message in front; means --chat")
    add("--actors", type=int, help="by default one per GPU, or per --threads processors; 0: this process, without Ray")
    add("--threads", type=int, default=1, help="threads of an actor on the CPU")
    add("--backend", choices=("auto", "cpu", "cuda"), default="auto")
    add("--weights", choices=("quantized", "f16", "f32"), default="quantized", help="how weights lie on a GPU")
    add("--ctx", type=int, dest="context", help="most tokens of a prompt; by default the model's own limit")
    add("--rows", type=int, help="rows of a part: what an interruption can cost")
    add("--prefix", default="reflex_", help="what the names of the new columns begin with")
    add("--delimiter", default=",", help="of CSV")
    add("--address", help="of a Ray cluster")
    add("--json", action="store_true", help="print the counts as JSON")
    return vars(parser.parse_args(words))


def interrupt(*_):
    """SIGTERM ends a run as Ctrl-C does: with Ray's processes."""
    raise KeyboardInterrupt


def main(words=None):
    """The exit code: 0; 1 where rows have errors; those of errors; 130 after Ctrl-C or SIGTERM."""
    options = arguments(words)
    as_json = options.pop("json")
    say = lambda text: print(text, file=sys.stderr, flush=True)  # noqa: E731
    signal.signal(signal.SIGTERM, interrupt)
    try:
        for name, least in (("actors", 0), ("threads", 1), ("rows", 1), ("context", 1)):
            if options[name] is not None and options[name] < least:
                raise InvalidInputError(f"--{name} is out of range", f"{least} or more", options[name], remedy="leave it out")
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):  # Ray prints a report of each death
            found = score(**options, say=say)
    except ReflexError as error:
        say(error.line())
        return error.exit_code
    except KeyboardInterrupt:
        say("interrupted: what is done is kept, the same command goes on from there")
        return 130
    if as_json:
        print(json.dumps({"schema_version": 1, "type": "result", "command": "table", **found}))
    else:
        print(f"{found['rows']} rows, {found['bad']} with errors, {found['seconds']:.1f} s, {found['restarts']} actors replaced")
    if found["bad"]:
        where = f"see {options['prefix']}error; {found['first_bad']}"
        say(f"reflex: warning: {found['bad']} of {found['rows']} rows have errors, {where}")
    return 1 if found["bad"] else 0


if __name__ == "__main__":
    sys.exit(main())
