"""Draws docs/lens.svg: what every second layer of the demo model would say, by matplotlib.

python bench/lens_picture.py
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import reflex
from bench import record

FILE = record.ROOT / "docs" / "lens.svg"
TEXT, LAYERS = "The capital of France is", range(1, 30, 2)


def main():
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "reflex"}
    with reflex.load("demo", backend="reference") as model:
        axes = model.lens(TEXT, layers=LAYERS).plot()
    axes.figure.savefig(FILE, metadata={"Date": None})
    FILE.write_text("".join(line.rstrip() + "\n" for line in FILE.read_text().splitlines()))


if __name__ == "__main__":
    main()
