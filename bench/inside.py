"""What looking inside costs: processor time of taps, patches and a lens beside the same text computed plainly, on one thread.

    python bench/inside.py demo

Medians of several runs, milliseconds. Nothing is recorded: the figures are ratios to the first row.
"""

import argparse
import sys
from pathlib import Path
from statistics import median
from time import process_time

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import reflex

TEXT = "The quick brown fox jumps over the lazy dog and runs on. " * 60


def uses(model, ids):
    """{what: a function that does it}; none of them reuses what another has cached."""

    def plain():
        model.trace(ids[:1], ())  # forgets
        model.session(ids).logits()

    return {
        "plain": plain,
        "hidden states, last row": lambda: model.trace(ids, "layers.*.residual_out", rows=-1),
        "hidden states": lambda: model.trace(ids, "layers.*.residual_out"),
        "attention": lambda: model.trace(ids, "layers.*.attention"),
        "one head patched": lambda: model.patch(ids, {"layers.0.heads": (slice(0, 1), 0)}, rows=-1),
        "lens, last row": lambda: model.lens(ids, rows=-1),
    }


def milliseconds(use, count):
    use()
    found = []
    for _ in range(count):
        start = process_time()
        use()
        found.append(1e3 * (process_time() - start))
    return median(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, nargs="+", default=[5, 128, 512])
    parser.add_argument("--repeat", type=int, default=7)
    options = parser.parse_args()
    with reflex.load(options.model, backend="cpu", threads=1) as model:
        for count in options.tokens:
            found = {name: milliseconds(use, options.repeat) for name, use in uses(model, model.tokenize(TEXT)[:count]).items()}
            print(f"{count} tokens:", ", ".join(f"{name} {value:.1f}" for name, value in found.items()))


if __name__ == "__main__":
    main()
