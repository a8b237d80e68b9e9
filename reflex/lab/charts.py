"""Charts of comparisons and scans by matplotlib (extra `lab`). Each returns its axes, like those of pictures.py.

Owns what `--picture` writes. Refuses, before any work, file names whose ending is no picture's.
"""

import re
from io import BytesIO

import numpy as np

from ..errors import InvalidInputError
from ..output_file import write
from ..records import needed
from .pictures import axes_of

ENDINGS = (".png", ".svg", ".pdf")
SHOWN = 40  # most bars
WIDE = 30  # times the least: from there on bars are drawn to a logarithmic scale
LEAST = 1e-12  # nats; less is drawn as this where the scale is logarithmic
GREY, BLUE = "0.45", "#4e79a7"


def check(path):
    """Refuse a picture that could not be made."""
    if not path.lower().endswith(ENDINGS):
        raise InvalidInputError("this is no kind of picture", f"a name that ends in {', '.join(ENDINGS)}", repr(path), "--picture")
    needed("matplotlib")


def save(axes, path):
    """Write the figure of some axes."""
    check(path)
    made = BytesIO()
    axes.figure.savefig(made, dpi=150, format=path.rpartition(".")[2].lower())
    write(path, made.getvalue(), "the picture")


def place(name):
    """(layer number or None, kind) of a tensor's name."""
    found = re.match(r"blk\.(\d+)\.(.*)", name)
    layer, kind = (int(found[1]), found[2]) if found else (None, name)
    return layer, kind.removesuffix(".weight")


def comparison(compared, axes=None):
    """Relative error of every changed tensor: a line over the layers per kind; tensors outside the layers as lines across."""
    axes = axes or axes_of((9, 5))
    lines = {}
    for tensor in compared.changed:
        layer, kind = place(tensor.name)
        lines.setdefault(kind, []).append((layer, tensor.error))
    for kind, points in sorted(lines.items()):
        if points[0][0] is None:
            axes.axhline(points[0][1], color=GREY, linestyle=":", label=kind)
        else:
            axes.plot(*zip(*sorted(points), strict=True), marker="o", markersize=3, linewidth=1, label=kind)
    if lines:
        axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    axes.set(xlabel="layer", ylabel="relative error of the weights (RMS)", ylim=(0, None))
    text = compared.text
    title = f"{len(compared.changed)} of {len(compared.tensors)} tensors differ" if lines else "no tensor differs"
    if text:
        title += f"\nKL {text.kl:.4g} ± {text.kl_error or 0:.2g} nats, same top token {text.same_top:.1%}"
        title += f", perplexity {text.perplexity_a:.2f} → {text.perplexity_b:.2f}"
    axes.set_title(title, fontsize="medium")
    return axes


def sensitivity(found, axes=None):
    """KL divergence of every row: bars, or by tensor a map of layers and kinds."""
    subject = f"KL divergence from the unmodified model, nats per token ({found.scored} tokens)"
    title = f"What hurts in {found.tried}: one {found.by} at a time"
    if found.by == "tensor" and len({place(row.name)[0] for row in found.rows}) > 2:
        return layers_and_kinds(found, title, subject, axes)
    kept = found.rows[:SHOWN]
    axes = axes or axes_of((8, 1.2 + 0.28 * len(kept)))
    wide = kept and kept[0].kl > WIDE * max(kept[-1].kl, LEAST)
    axes.barh(range(len(kept)), [max(row.kl, LEAST) for row in kept], xerr=[row.kl_error or 0 for row in kept], color=BLUE,
              ecolor=GREY, height=0.7, log=bool(wide))  # fmt: skip
    labels = [f"{row.name}  ({', '.join(row.types_before)} → {', '.join(row.types_after)})" for row in kept]
    axes.set_yticks(range(len(kept)), labels)
    axes.invert_yaxis()
    axes.set_xlabel(subject)
    axes.set_title(title, fontsize="medium")
    return axes


def layers_and_kinds(found, title, subject, axes=None):
    """A map: a row per kind, a column per layer, dark where it hurts; what is in no layer is left to the table."""
    from matplotlib.colors import LogNorm

    values = {place(row.name): max(row.kl, LEAST) for row in found.rows if place(row.name)[0] is not None}
    kinds, count = sorted({kind for _, kind in values}), 1 + max(layer for layer, _ in values)
    grid = np.full((len(kinds), count), np.nan)
    for (layer, kind), value in values.items():
        grid[kinds.index(kind), layer] = value
    axes = axes or axes_of((2.5 + 0.3 * count, 1.8 + 0.35 * len(kinds)))
    image = axes.imshow(grid, norm=LogNorm(), cmap="magma_r", aspect="auto")
    axes.set_yticks(range(len(kinds)), kinds)
    axes.set_xlabel("layer")
    axes.set_title(title, fontsize="medium")
    axes.figure.colorbar(image, ax=axes).set_label(subject.replace(", ", ",\n"), fontsize="small")
    return axes
