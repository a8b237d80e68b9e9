"""The tables of docs/decisions.md, from bench/results/decisions-*.json. bench/readme.py puts them into the page."""

import json

from bench import record
from bench.record import MISSING, measured_on, table
from reflex.rules import RULES

FILE = record.ROOT / "docs" / "decisions.md"
LABELLED = record.ROOT / "bench" / "labelled"


def results():
    return record.read("decisions-*")


def _needs_results(block):
    return lambda: block(results()) if results() else MISSING


def _percent(share):
    return f"{100 * share:.0f}"


def rules():
    """The rules as reflex/rules.py has them."""
    return table(["rule", "a candidate's score"], [[f"`{name}`", row.says] for name, row in RULES.items()])


def questions():
    """One row per task of the labelled set: how many, and the first question with its right answer."""
    rows = {}
    for path in sorted(LABELLED.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            item = json.loads(line)
            texts = item.get("candidates") or item["options"]
            shown = f"`{item['prompt'].splitlines()[-1]}`" if "options" not in item else "options in the prompt, lines A to D"
            right = f"`{texts[item['answer']]}`"
            found = rows.setdefault(item.get("task", path.stem), [0, len(texts), shown, right, path.name])
            found[0] += 1
    head = ["task", "questions", "candidates", "last line of the first prompt", "its answer", "file"]
    return table(head, [[task, *map(str, row)] for task, row in rows.items()])


@_needs_results
def accuracy(found):
    """Share of right decisions: one row per task and model, one column per rule."""
    names = list(found[0]["all"]["rules"])
    rows = []
    for task in [*found[0]["tasks"], "all"]:
        for result in found:
            part = result["tasks"].get(task, result["all"])
            values = {rule: part["rules"][rule]["accuracy"] for rule in names}
            most = max(value for value, _, _ in values.values())
            alike = all(value == most for value, _, _ in values.values())
            cells = [_interval(values[rule], values[rule][0] == most and not alike) for rule in names]
            tokens = "{} to {}".format(*part["tokens"])
            rows.append([task, result["model"]["title"], str(part["n"]), tokens, _percent(part["chance"]), *cells])
    head = ["task", "model", "questions", "tokens", "chance", *(f"`{name}`" for name in names)]
    note = "\nPercent of right decisions; in brackets 95 % of bootstrap samples of the questions; bold: the best of the row. "
    return table(head, rows) + note + measured_on(found)


def _interval(row, best):
    value = f"**{_percent(row[0])}**" if best else _percent(row[0])
    return f"{value} ({_percent(row[1])} to {_percent(row[2])})"


@_needs_results
def differences(found):
    """The rules that are better or worse than the default by more than chance, per task and model."""
    rows = []
    for result in found:
        for task, part in {**result["tasks"], "all": result["all"]}.items():
            for rule, row in part["rules"].items():
                value, low, high = row["lead"]
                if low > 0 or high < 0:
                    value, low, high = (round(100 * x) for x in (value, low, high))
                    cells = [f"{value:+d}", f"{low:+d} to {high:+d}"]
                    rows.append([task, result["model"]["title"], f"`{rule}`", *cells])
    first = next(iter(found[0]["all"]["rules"]))
    head = ["task", "model", "rule", f"points over `{first}`", "95 %"]
    if not rows:
        return f"No rule differs from `{first}` by more than chance.\n"
    return table(head, sorted(rows, key=lambda row: (row[0], row[1])))


@_needs_results
def calibration(found):
    """What the probabilities are worth, as they come and after a temperature fitted on other questions."""
    rows = []
    for result in found:
        for rule, row in result["all"]["rules"].items():
            other = row["fitted"]
            plain = [f"{row[name][0]:.3f}" for name in ("brier", "log_loss", "ece")]
            better = [f"{other['temperature']:.2f}", *(f"{other[name][0]:.3f}" for name in ("brier", "log_loss", "ece"))]
            rows.append([result["model"]["title"], f"`{rule}`", *plain, *better])
    head = ["model", "rule", "Brier", "log loss", "ECE", "fitted temperature", "Brier then", "log loss then", "ECE then"]
    return table(head, rows) + "\nAll questions together; lower is better everywhere.\n"


@_needs_results
def order(found):
    """How the order of listed options moves decisions."""
    rows = []
    for result in found:
        for task, by_rule in result["orders"].items():
            for rule, row in by_rule.items():
                accuracy = result["tasks"][task]["rules"][rule]["accuracy"][0]
                chosen, right = (" ".join(map(_percent, row[name])) for name in ("chosen", "right"))
                cells = [_interval(row["changed"], False), chosen, right, _percent(accuracy), _percent(row["averaged"][0])]
                rows.append([result["model"]["title"], task, f"`{rule}`", *cells])
    head = ["model", "task", "rule", "decisions that change", "chosen, A to D", "right where the answer is at A to D"]
    head += ["accuracy", "averaged over orders"]
    return table(head, rows) + "\nPercent; every question asked in the four rotations of its options.\n"


def _drawing(name, words):
    """A block that shows one of the pictures."""
    return lambda: f"![{words}]({name}.svg)" if results() else MISSING


BLOCKS = {
    "rules": rules,
    "questions": questions,
    "accuracy": accuracy,
    "differences": differences,
    "calibration": calibration,
    "order": order,
    "picture_accuracy": _drawing("decisions-accuracy", "Accuracy of each rule, by task and model"),
    "picture_reliability": _drawing("decisions-reliability", "Probability of decisions against how often they are right"),
    "picture_places": _drawing("decisions-places", "How often each place of a list of options is chosen"),
}
