"""How well a model decides labelled questions under each scoring rule: accuracy, calibration, dependence on option order.

    python bench/decisions.py demo bench/labelled/*.jsonl
    python bench/decisions.py my.gguf my.jsonl --rule sum --rule mean --terminator "\\n" --svg calibration.svg

The format of a labelled file is in bench/labels.py, the measures in bench/metrics.py. All rules are computed from the same
passes, so that they differ in nothing but the rule. `--record NAME` writes bench/results/decisions-NAME.json, from which
docs/decisions.md and its pictures are made.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from bench import decision_picture, labels, metrics, record
from reflex import demo, load
from reflex.errors import ReflexError
from reflex.rules import DEFAULT, RULES, checked, score_of

ORDERS = ("rotations", "given", "all")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a .gguf file, or demo")
    parser.add_argument("files", nargs="+", help="labelled questions, JSON lines")
    parser.add_argument("--rule", action="append", choices=tuple(RULES), help="repeatable; by default all")
    parser.add_argument("--temperature", type=float, default=1.0, help="divides the scores before they become probabilities")
    parser.add_argument("--terminator", default="", help="a text that ends every candidate")
    parser.add_argument("--prior", default="", help="stands for no prompt in pmi, where a question has no prior of its own")
    parser.add_argument("--orders", choices=ORDERS, default="rotations", help="orders in which options are listed")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--ctx", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--resamples", type=int, default=2000, help="of the bootstrap")
    parser.add_argument("--seed", type=int, default=1, help="of the bootstrap")
    parser.add_argument("--record", default="", metavar="NAME", help="write bench/results/decisions-NAME.json")
    parser.add_argument("--svg", default="", metavar="FILE", help="write the reliability picture")
    return parser.parse_args()


class Answers:
    """The scores of every question in every order: what the measures are made of."""

    def __init__(self, rules):
        self.rows = {rule: [] for rule in rules}  # rule -> scores of each prediction
        self.places, self.items, self.orders, self.tasks = [], [], [], []
        self.tokens = []  # per prediction: fewest and most tokens of its candidates

    def add(self, number, item, order, decision):
        for rule, rows in self.rows.items():
            scores = [score_of(candidate, rule) for candidate in decision.candidates]
            rows.append([-np.inf if score is None else score for score in scores])
        self.places.append(order.index(item.answer))
        self.items.append(number)
        self.orders.append(order)
        self.tasks.append(item.task)
        counts = [len(candidate.token_ids) for candidate in decision.candidates]
        self.tokens.append((min(counts), max(counts)))


def answered(model, items, options, rules):
    """Ask every question in every order; returns Answers."""
    found = Answers(rules)
    prior_rule = next((rule for rule in rules if RULES[rule].prior), rules[0])
    for number, item in enumerate(items):
        if sys.stderr.isatty():
            print(f"\r{number + 1} of {len(items)} questions ", end="", file=sys.stderr, flush=True)
        for order in item.orders(options.orders):
            prompt, candidates = item.asked(order)
            prior = {"prior": item.prior or options.prior} if RULES[prior_rule].prior else {}
            try:
                decision = model.system1(prompt, candidates, prior_rule, terminator=options.terminator, **prior)
            except ReflexError as error:
                error.where = item.where
                raise
            found.add(number, item, order, decision)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    return found


class Part:
    """The predictions of one task, or of all, as arrays."""

    def __init__(self, found, inside, options):
        rows = [row for row, taken in enumerate(inside) if taken]
        self.scores = {rule: metrics.padded([scores[row] for row in rows]) for rule, scores in found.rows.items()}
        self.answers = np.array([found.places[row] for row in rows])
        self.items = np.array([found.items[row] for row in rows])
        self.orders = [found.orders[row] for row in rows]
        self.tokens = [found.tokens[row] for row in rows]
        self.weight = metrics.weights(self.items, options.resamples, options.seed)

    def of_rule(self, rule, first, temperature):
        """Every measure of one rule, and its accuracy less that of the first."""
        mine = metrics.Predictions(self.scores[rule], self.answers, temperature)
        others = metrics.Predictions(self.scores[first], self.answers, temperature)
        lead = mine.right - others.right
        body = metrics.intervals(mine, self.weight)
        body["lead"] = metrics.interval(self.weight[0][0] @ lead, self.weight[1] @ lead)
        body["fitted"] = metrics.fitted(self.scores[rule], self.answers, self.items, self.weight)
        body["bins"] = metrics.bins(mine, self.weight)
        return body

    def as_dict(self, temperature):
        first = next(iter(self.scores))
        sizes = np.isfinite(self.scores[first]).sum(1)
        return {
            "n": len(set(self.items)),
            "predictions": len(self.items),
            "chance": round(float(self.weight[0][0] @ (1 / sizes)), 4),
            "tokens": [min(low for low, _ in self.tokens), max(high for _, high in self.tokens)],
            "rules": {rule: self.of_rule(rule, first, temperature) for rule in self.scores},
        }

    def order_bias(self, temperature):
        body = {}
        for rule, scores in self.scores.items():
            found = metrics.Predictions(scores, self.answers, temperature)
            body[rule] = metrics.order_bias(found, self.answers, self.orders, self.items, self.weight)
        return body


def summary(found, options):
    """The measures of all questions, of each task, and the order bias of the tasks that were asked in several orders."""
    tasks = {task: Part(found, [name == task for name in found.tasks], options) for task in dict.fromkeys(found.tasks)}
    turned = {name: part for name, part in tasks.items() if len(part.items) > len(set(part.items))}
    return {
        "all": Part(found, [True] * len(found.tasks), options).as_dict(options.temperature),
        "tasks": {name: part.as_dict(options.temperature) for name, part in tasks.items()},
        "orders": {name: part.order_bias(options.temperature) for name, part in turned.items()},
    }


def raw(found, temperature):
    """What every prediction was: place of the answer and, by rule, the place chosen and both probabilities."""
    answers = np.array(found.places)
    body = {"question": found.items, "answer": found.places}
    for rule, scores in found.rows.items():
        mine = metrics.Predictions(metrics.padded(scores), answers, temperature)
        body[rule] = {
            "best": mine.best.tolist(),
            "p_best": [round(float(x), 4) for x in mine.confidence],
            "p_answer": [round(float(x), 4) for x in mine.of_answer],
        }
    return body


def show(body):
    """The summary as text."""
    print(f"{'task':<18}{'rule':<6}{'n':>5}{'accuracy':>10}{'95 %':>14}{'Brier':>8}{'log loss':>10}{'ECE':>7}{'T':>8}")
    for task, part in {**body["tasks"], "all": body["all"]}.items():
        for rule, row in part["rules"].items():
            value, low, high = row["accuracy"]
            line = f"{task:<18}{rule:<6}{part['n']:>5}{value:>10.3f}{f'{low:.2f} to {high:.2f}':>14}{row['brier'][0]:>8.3f}"
            print(f"{line}{row['log_loss'][0]:>10.3f}{row['ece'][0]:>7.3f}{row['fitted']['temperature']:>8.2f}")
    for task, rules in body["orders"].items():
        for rule, row in rules.items():
            chosen = " ".join(f"{100 * share:.0f}" for share in row["chosen"])
            share = 100 * row["changed"][0]
            print(f"{task}, {rule}: {share:.0f} % of decisions change with the order; chosen by place, %: {chosen}")


def main():
    options = arguments()
    try:
        checked(DEFAULT, options.temperature)
        files = [(path, labels.read(path)) for path in options.files]
        items = [item for _, part in files for item in part]
        path = demo.resolve(options.model)
        with load(path, options.backend, options.ctx, options.threads) as model:
            found = answered(model, items, options, list(dict.fromkeys(options.rule or RULES)))
            backend = model.backend
    except ReflexError as error:
        print(f"{Path(__file__).name}: {error.category}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    settings = {name: getattr(options, name) for name in ("temperature", "terminator", "prior", "orders", "resamples", "seed")}
    body = {
        "model": record.model(path),
        "backend": backend,
        "labelled": [labels.identity(*file) for file in files],
        "settings": settings,
        **summary(found, options),
        "raw": raw(found, options.temperature),
    }
    show(body)
    if options.record:
        record.write(f"decisions-{options.record}", "decisions of labelled questions under each rule", body)
    if options.svg:
        Path(options.svg).write_text(decision_picture.reliability([body]))


if __name__ == "__main__":
    main()
