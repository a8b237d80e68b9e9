"""Draws where the time of a cold start goes: docs/cold-start.svg, from the smallest model's bench/results/cold-*.json.

    python bench/picture.py

Upper part: every engine's time to its first result on one scale. Lower part: Reflex alone, widened, by phase. Plain SVG
written by hand, so that it is text in the repository, follows a dark page, and needs no plotting package.
Called by `make bench`; a test compares the file with the results.
"""

import sys
from pathlib import Path
from xml.sax.saxutils import escape

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import record

FILE = record.ROOT / "docs" / "cold-start.svg"
WIDTH, LABELS, RIGHT = 880, 230, 90  # px: the picture, room for names on the left, room for numbers on the right
BAR, ROW = 22, 34  # px: height of a bar, distance between bars
COLOURS = ("#4e79a7", "#76b7b2", "#edc948", "#59a14f", "#b07aa1", "#9c755f", "#e15759", "#ff9da7", "#bab0ac")
MEANING = {
    "launch": "interpreter start",
    "arguments": "command line and its module",
    "imports": "Reflex's own modules",
    "header": "map the file, walk its header",
    "tokenizer": "token tables, prompt to ids",
    "program": "family record to steps",
    "kernels": "map the code, plan the buffers",
    "encode": "prompt and candidates to ids",
    "prefill": "forward pass, scores",
    "score": "log-probabilities",
    "result": "print the result",
    "exit": "first byte seen by the caller",
}
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.small { font-size: 12px; fill: #59636e }
.head { font-size: 15px; font-weight: 600 }
.peer { fill: #8c959f }
.axis { stroke: #d1d9e0; stroke-width: 1 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc }
  .small { fill: #9198a1 }
  .peer { fill: #656c76 }
  .axis { stroke: #3d444d }
}
"""


def _text(x, y, words, kind="", anchor="start"):
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def _bar(x, y, width, colour):
    """`colour` is a class name or a colour."""
    paint = f'fill="{colour}"' if colour.startswith("#") else f'class="{colour}"'
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{BAR}" {paint}/>'


def phases(engine):
    """[(name, milliseconds)] of the engine's medians; what is missing to the first byte is the last."""
    spent = [(name, found["median"]) for name, found in engine["phases_ms"].items()]
    rest = engine["first_ms"]["median"] - sum(ms for _, ms in spent)
    return [*spent, ("exit", rest)] if rest > 0.05 else spent


def _stack(spent, x, y, scale):
    for (_, ms), colour in zip(spent, COLOURS, strict=False):
        yield _bar(x, y, ms * scale, colour)
        x += ms * scale


def _engines(result, y):
    """The upper part: one bar for each engine, Reflex's in the colours of its phases."""
    longest = max(engine["first_ms"]["median"] for engine in result["engines"])
    scale = (WIDTH - LABELS - RIGHT) / longest
    for engine in result["engines"]:
        ms = engine["first_ms"]["median"]
        yield _text(LABELS - 12, y + 16, engine["name"], anchor="end")
        if "phases_ms" in engine:
            yield from _stack(phases(engine), LABELS, y, scale)
        else:
            yield _bar(LABELS, y, ms * scale, "peer")
        yield _text(LABELS + ms * scale + 8, y + 16, f"{ms:.0f} ms")
        y += ROW


def _widened(engine, y):
    """The lower part: Reflex's phases over the whole width, then what each colour means."""
    spent = phases(engine)
    scale = (WIDTH - 48) / sum(ms for _, ms in spent)
    yield from _stack(spent, 24, y, scale)
    y += BAR + 26
    for number, ((name, ms), colour) in enumerate(zip(spent, COLOURS, strict=False)):
        x, row = 24 + number % 2 * (WIDTH / 2), y + number // 2 * 24
        yield f'<rect x="{x:.1f}" y="{row - 11:.1f}" width="12" height="12" fill="{colour}"/>'
        yield _text(x + 72, row, f"{ms:.1f} ms", anchor="end")
        yield _text(x + 82, row, name)
        yield _text(x + 160, row, MEANING.get(name, ""), "small")


def draw(result):
    """The SVG text of one cold-start result."""
    reflex = result["engines"][0]
    cores = "one core" if len(result["cpus"]) == 1 else f"{len(result['cpus'])} cores"
    lower = 70 + ROW * len(result["engines"]) + 40
    height = lower + 14 + BAR + 26 + (len(phases(reflex)) + 1) // 2 * 24
    title = f"Process start to first result: {result['model']['title']}, {cores}, page cache warm"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        _text(24, 30, title, "head"),
        _text(24, 50, f"prompt “{result['prompt']}”, medians of {reflex['first_ms']['n']} interleaved runs", "small"),
        *_engines(result, 70),
        f'<line x1="24" x2="{WIDTH - 24}" y1="{lower - 28}" y2="{lower - 28}" class="axis"/>',
        _text(24, lower, f"Where Reflex's {reflex['first_ms']['median']:.1f} ms go", "head"),
        *_widened(reflex, lower + 14),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def main():
    results = record.read("cold-*")
    if not results:
        sys.exit("no bench/results/cold-*.json; run bench/cold.py first")
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(draw(results[0]))
    print(f"wrote {FILE.relative_to(record.ROOT)}", file=sys.stderr)


if __name__ == "__main__":
    main()
