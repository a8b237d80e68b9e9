"""Draws how rules decide, from bench/results/decisions-*.json: docs/decisions-*.svg.

    python bench/decision_picture.py

`reliability`: one panel per model and rule; a dot is a bin of decisions, right of the decision's probability and as high as
the share that was right; on the diagonal the probability says the truth. `accuracies`: per task and model, a dot and a 95 %
interval for each rule. `places`: how often each place of a listed option is chosen. Plain SVG, as in bench/picture.py.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from xml.sax.saxutils import escape

from bench import record
from bench.picture import COLOURS, STYLE, _text

FOLDER = record.ROOT / "docs"
PANEL, GAP, LEFT = 150, 34, 190  # px: side of a panel, distance between panels, room for names
ROW = 16  # px: height of one rule in a row of accuracies


def page(width, height, title, parts):
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">'
    style = f"<title>{escape(title)}</title><style>{STYLE}</style>"
    return "\n".join([head, style, _text(24, 30, title, "head"), *parts, "</svg>"]) + "\n"


def line(x1, y1, x2, y2, colour=""):
    paint = f'stroke="{colour}" stroke-width="2"' if colour else 'class="axis"'
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {paint}/>'


def dot(x, y, radius, colour):
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{colour}" fill-opacity="0.85"/>'


def colours(result):
    """{rule: colour} in the order of the result."""
    return dict(zip(result["all"]["rules"], COLOURS, strict=False))


def reliability(results):
    """One row per model, one panel per rule."""
    rules = list(results[0]["all"]["rules"])
    parts = []
    for number, result in enumerate(results):
        top = 78 + number * (PANEL + 62)
        parts.append(_text(LEFT - 40, top + PANEL / 2, result["model"]["title"], anchor="end"))
        for column, rule in enumerate(rules):
            parts += _panel(LEFT + column * (PANEL + GAP), top, rule, result["all"]["rules"][rule], colours(result)[rule])
    bottom = 78 + len(results) * (PANEL + 62)
    axes = "right: probability of the decision; up: share of right decisions; area: how many"
    parts.append(_text(LEFT, bottom - 20, axes, "small"))
    width = LEFT + len(rules) * (PANEL + GAP) + 10
    return page(width, bottom, "Do probabilities say how often the decision is right?", parts)


def _panel(x, y, rule, row, colour):
    yield _text(x, y - 8, rule)
    yield _text(x + PANEL, y - 8, f"ECE {row['ece'][0]:.3f}", "small", "end")
    yield f'<rect x="{x}" y="{y}" width="{PANEL}" height="{PANEL}" fill="none" class="axis"/>'
    yield line(x, y + PANEL, x + PANEL, y)
    for total, mean, right in row["bins"]:
        yield dot(x + PANEL * mean, y + PANEL * (1 - right), 2 + 14 * total**0.5, colour)
    for share in (0, 0.5, 1):
        yield _text(x + PANEL * share, y + PANEL + 16, f"{share:g}", "small", "middle")
        yield _text(x - 6, y + PANEL * (1 - share) + 4, f"{share:g}", "small", "end")


def accuracies(results):
    """A block of rules for each task, a column for each model."""
    tasks = [*results[0]["tasks"], "all"]
    rules = list(results[0]["all"]["rules"])
    width, block = 200, ROW * len(rules) + 14
    parts = []
    for column, result in enumerate(results):
        x = LEFT + column * (width + GAP)
        parts.append(_text(x, 58, result["model"]["title"]))
        for number, task in enumerate(tasks):
            part = result["tasks"].get(task, result["all"])
            parts += _block(x, 74 + number * block, width, part, colours(result))
    for number, task in enumerate(tasks):
        parts.append(_text(LEFT - 14, 74 + number * block + block / 2 - 2, task, anchor="end"))
    bottom = 74 + len(tasks) * block
    for number, rule in enumerate(rules):
        parts.append(dot(LEFT + 5 + number * 70, bottom + 30, 5, colours(results[0])[rule]))
        parts.append(_text(LEFT + 16 + number * 70, bottom + 34, rule))
    parts.append(_text(LEFT + 290, bottom + 34, "accuracy from 0 to 1; bars: 95 % of bootstrap samples; line: chance", "small"))
    return page(max(LEFT + len(results) * (width + GAP), 900), bottom + 50, "Which rule wins where", parts)


def _block(x, y, width, part, paint):
    height = ROW * len(paint)
    yield f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="none" class="axis"/>'
    yield line(x + width * part["chance"], y, x + width * part["chance"], y + height)
    for number, (rule, row) in enumerate(part["rules"].items()):
        value, low, high = row["accuracy"]
        middle = y + ROW * (number + 0.5)
        yield line(x + width * low, middle, x + width * high, middle, paint[rule])
        yield dot(x + width * value, middle, 4.5, paint[rule])


def places(results):
    """How often each place is chosen, a block for each model and task with orders, under the first rule."""
    tasks = list(results[0]["orders"])
    rule = next(iter(results[0]["all"]["rules"]))
    width, height = 240, 90
    parts = []
    for row, result in enumerate(results):
        y = 84 + row * (height + 70)
        parts.append(_text(LEFT - 40, y + height / 2, result["model"]["title"], anchor="end"))
        for column, task in enumerate(tasks):
            x = LEFT + column * (width + 2 * GAP)
            found = result["orders"][task][rule]
            parts.append(_text(x, y - 8, task))
            parts += _places(x, y, width, height, found["chosen"])
            words = f"{100 * found['changed'][0]:.0f} % of decisions change with the order"
            parts.append(_text(x, y + height + 34, words, "small"))
    bottom = 84 + len(results) * (height + 70)
    parts.append(_text(LEFT, bottom - 6, "all rotations of each question; line: what a rule without bias would choose", "small"))
    total = LEFT + len(tasks) * (width + 2 * GAP) + 20
    return page(total, bottom + 8, f"Which place of the list is chosen, rule {rule}", parts)


def _places(x, y, width, height, chosen):
    step = width / len(chosen)
    for place, share in enumerate(chosen):
        left, top = x + place * step + 3, y + height * (1 - share)
        yield f'<rect x="{left:.1f}" y="{top:.1f}" width="{step - 6:.1f}" height="{height * share:.1f}" fill="{COLOURS[0]}"/>'
        yield _text(x + (place + 0.5) * step, y + height + 15, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[place], "small", "middle")
    yield line(x, y + height, x + width, y + height)
    yield line(x, y + height * (1 - 1 / len(chosen)), x + width, y + height * (1 - 1 / len(chosen)))


PICTURES = {"decisions-reliability": reliability, "decisions-accuracy": accuracies, "decisions-places": places}


def main():
    results = record.read("decisions-*")
    if not results:
        sys.exit("no bench/results/decisions-*.json; run bench/decisions.py first")
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw(results))
        print(f"wrote docs/{name}.svg", file=sys.stderr)


if __name__ == "__main__":
    main()
