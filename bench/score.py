"""What scoring many candidates costs, as a multiple of the prompt alone: interleaved, every run from an empty cache.

    python bench/score.py MODEL [--backend cpu|cuda] [--threads N] [-n ROUNDS]

A prompt of 200 random tokens and 64 candidates of 4: `apart`, where no two share a token, and in two trees of shared beginnings
(a node has as many children as the name's figures say, from the first token to the last). `separate` computes prompt and candidate
once per candidate, 64 times. A round does each once, in turn, and states it as a ratio to that round's prompt alone; the figure is
the median of the rounds. `floor` is the ratio of the multiplications of matrices that the rows and their logits need, counted: what
a machine bound by them could reach. Writes bench/results/score-BACKEND-TITLE.json.
"""

import argparse
import random
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import record
from reflex import demo
from reflex.open import open_model
from reflex.tree import Tree, evaluate

PROMPT, CANDIDATES, LENGTH = 200, 64, 4
TREES = {"tree 2-2-4-4": (2, 2, 4, 4), "tree 4-4-2-2": (4, 4, 2, 2)}
FIRST_ID = 300  # ids below are bytes and special tokens in many vocabularies


class Work:
    """Random prompts and candidates over a vocabulary; a prompt is never asked for twice."""

    def __init__(self, vocabulary, seed=1):
        self.random, self.ids = random.Random(seed), range(FIRST_ID, vocabulary - FIRST_ID)
        self.prompts = 0

    def prompt(self):
        self.prompts += 1  # the first token differs, so that nothing of it is in the cache
        return [self.ids[self.prompts], *self.random.choices(self.ids, k=PROMPT - 1)]

    def apart(self):
        firsts = self.random.sample(self.ids, CANDIDATES)
        return [[first, *self.random.choices(self.ids, k=LENGTH - 1)] for first in firsts]

    def tree(self, widths):
        tails = [[]]
        for width in widths:
            tails = [[*tail, token] for tail in tails for token in self.random.sample(self.ids, width)]
        return tails


def sizes(file, program):
    """Multiplications of matrices for a row, and for a row's logits."""
    trunk, head = 0, 0
    for at, step in enumerate(program.steps):
        if step.op == "linear":
            tensor = file.tensors[step.weights[0]]
            count = tensor.shape[0] * (step.args["rows"][1] if "rows" in step.args else tensor.shape[1])
            trunk, head = (trunk, head + count) if at >= program.layers[-1] else (trunk + count, head)
    return trunk, head


class Case:
    """Candidates whose scoring is timed, or None: the prompt alone, with the log-probability of one token behind it."""

    def __init__(self, name, tails, separate=False):
        self.name, self.separate = name, separate
        self.tails = tails or [[FIRST_ID]]
        self.rows = len(Tree(self.tails).rows())
        self.seconds = []

    def run(self, session, work):
        """Seconds of one run."""
        if self.separate:
            return sum(timed(session, work.prompt(), [tail]) for tail in self.tails)
        return timed(session, work.prompt(), self.tails)

    def cost(self, trunk, head):
        """Multiplications, with the last layer counted as if every row went through all of it."""
        if self.separate:
            return sum(Case("", [tail]).cost(trunk, head) for tail in self.tails)
        return (PROMPT + self.rows) * trunk + (1 + self.rows) * head


def timed(session, prompt, tails):
    start = time.perf_counter()
    evaluate(session, prompt, tails)
    return time.perf_counter() - start


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--backend", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("-n", type=int, default=5, help="rounds")
    parser.add_argument("--no-separate", action="store_true", help="leave out the 64 separate runs, which take most of the time")
    parser.add_argument("--what", default="", help="results file bench/results/score-WHAT.json; default: backend and title")
    return parser.parse_args()


def measure(session, cases, rounds):
    work = Work(session.plan.vocabulary, seed=2)
    for case in cases:
        if not case.separate:
            case.run(session, work)  # memory is touched, launches are made
    for _ in range(rounds):
        for case in cases:
            case.seconds.append(case.run(session, work))


def main():
    options = arguments()
    path = demo.resolve(options.model)
    file, _, session = open_model(path, options.backend, PROMPT + 1024, options.threads)
    work = Work(session.plan.vocabulary)
    cases = [Case("prompt", None), Case("apart", work.apart()), *(Case(name, work.tree(w)) for name, w in TREES.items())]
    if not options.no_separate:
        cases.append(Case("separate", cases[1].tails, separate=True))
    measure(session, cases, options.n)
    alone, costs = cases[0], sizes(file, session.plan.program)
    rows = []
    for case in cases:
        floor = case.cost(*costs) / alone.cost(*costs)
        ratio = record.ratios(alone.seconds, case.seconds)
        rows.append({"case": case.name, "rows": case.rows, "ms": record.summary([1e3 * s for s in case.seconds]), "ratio": ratio})
        rows[-1]["floor"] = round(floor, 3)
        spent = 1e3 * statistics.median(case.seconds)
        print(f"{case.name:<13} {case.rows:4} rows {spent:10.1f} ms {ratio['median']:7.2f} times the prompt, floor {floor:6.2f}")
    model = record.model(path)
    device = getattr(getattr(session.plan, "gpu", None), "description", "")
    report = {"model": model, "backend": options.backend, "device": device, "threads": options.threads}
    name = options.what or f"{options.backend}-{record.slug(model['title'])}"
    record.write(f"score-{name}", "cost of scoring 64 candidates of 4 tokens on a prompt of 200", report | {"cases": rows})
    session.close()
    file.close()


if __name__ == "__main__":
    main()
