"""Two Ray actors on two cores against one process, one thread each, on a table of long prompts; then the same with an actor killed.

    python bench/integrations.py [MODEL] [--rows 16] [--rounds 3]

Rounds are interleaved. Seconds count from when the models are loaded to the last row, those of Ray's start stand beside them. In
the last run an actor is ended by SIGKILL at half of the rows; all outputs must be the same bytes. Writes
bench/results/integrations.json. Needs two idle cores, ray and the demo model; takes two minutes.
"""

import argparse
import csv
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import record
from reflex import demo
from reflex.integrations.pool import Pool
from reflex.integrations.ray import score, started

LABELS = [" good", " bad", " neither"]
SENTENCES = (
    "The room was clean and the view over the harbour was better than in the pictures.",
    "Breakfast came late twice, and nobody at the desk could say why.",
    "We would come back for the garden alone, but not in the high season.",
    "The lift was out of order for three days, with two small children on the fifth floor.",
    "Somebody had thought about every detail of the bathroom, down to the soap.",
)
ASKED = {"prompt_column": "text", "labels": LABELS, "backend": "cpu", "threads": 1, "rows": 1}


def prompt(number, sentences=30):
    """A review that shares no beginning with another one."""
    order = [SENTENCES[(number * 7 + place * (1 + number % 3)) % len(SENTENCES)] for place in range(sentences)]
    return f"{number}. {' '.join(order)}\nIn one word, this review is"


class Killing(Pool):
    """A pool one of whose actors is killed at half of the rows."""

    def run(self, tasks):
        tasks = list(tasks)
        for number, done in enumerate(super().run(tasks), 1):
            if number == len(tasks) // 2:
                os.kill(self.seats[0].pid, signal.SIGKILL)
            yield done


def timed(source, target, **more):
    """(what `score` says, seconds of all of it)."""
    begun = time.monotonic()
    found = score(str(source), str(target), **ASKED, **more)
    return found, time.monotonic() - begun


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="demo")
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    begun = time.monotonic()
    ray, _ = started(None)
    ray_start = time.monotonic() - begun
    one, two, whole_one, whole_two, outputs = [], [], [], [], set()
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.csv", Path(folder) / "out.csv"
        with open(source, "w", newline="") as file:
            csv.writer(file).writerows([["text"], *([prompt(number)] for number in range(options.rows))])
        for _ in range(options.rounds):
            for seconds, whole, actors in ((one, whole_one, 0), (two, whole_two, 2)):
                found, spent = timed(source, target, model=options.model, actors=actors)
                seconds.append(found["seconds"])
                whole.append(spent)
                outputs.add(target.read_bytes())
        killed, _ = timed(source, target, model=options.model, actors=2, pool=Killing)
        outputs.add(target.read_bytes())
        with open(target, newline="") as file:
            tokens = [int(row["reflex_prompt_tokens"]) for row in csv.DictReader(file)]
    ray.shutdown()
    if len(outputs) != 1 or killed["bad"] or killed["restarts"] != 1:
        raise SystemExit(f"{len(outputs)} different outputs, and the killed run: {killed}")
    ratios = record.ratios(two, one)
    body = {
        "model": record.model(demo.resolve(options.model)),
        "rows": options.rows,
        "prompt_tokens": record.summary(tokens),
        "threads_each": 1,
        "ray": ray.__version__,
        "ray_start_s": round(ray_start, 2),
        "one_process_s": record.summary(one),
        "two_actors_s": record.summary(two),
        "times_as_fast": ratios,
        "one_process_with_load_s": record.summary(whole_one),
        "two_actors_with_load_s": record.summary(whole_two),
        "one_killed_s": killed["seconds"],
        "one_killed_restarts": killed["restarts"],
        "identical": True,
    }
    record.write("integrations", "a table of long prompts: two Ray actors against one process, one thread each", body)
    print(f"two actors are {ratios['median']} times as fast as one process ({ratios['min']} to {ratios['max']})")
    print(f"{options.rows} rows of {tokens[0]} tokens; one killed at half: {killed['seconds']:.1f} s, 1 restart, the same bytes")


if __name__ == "__main__":
    main()
