"""Pictures by matplotlib (extra `lab`), which is imported here only: of a lens and of attention patterns. Each returns its axes."""

import numpy as np

from ..records import needed

INK = 0.55  # share of the scale from which on a cell is dark and its text white


def axes_of(size):
    """Axes of a new figure of `size` inches."""
    needed("matplotlib")
    from matplotlib import pyplot

    return pyplot.subplots(figsize=size, layout="constrained")[1]


def spelled(texts):
    """Texts of tokens as labels: spaces and line breaks are shown, a dollar starts no formula."""
    return [text.replace("$", r"\$").replace(" ", "\u00b7").replace("\n", "\u21b5") for text in texts]


def lens(found, axes=None):
    """A Lens: after each layer (rows, the last on top) and token (columns) the most likely next token, darker if more likely."""
    shares = np.exp(found.top_logprobs[:, :, 0])
    if axes is None:
        axes = axes_of((1.5 + 0.95 * len(found.rows), 1 + 0.27 * len(found.layers)))
    image = axes.imshow(shares, origin="lower", aspect="auto", cmap="Blues", vmin=0, vmax=1)
    for i, row in enumerate(found.top_texts):
        for j, best in enumerate(row):
            color = "white" if shares[i, j] > INK else "black"
            axes.text(j, i, spelled([best[0]])[0], ha="center", va="center", fontsize=8, color=color)
    axes.set_xticks(range(len(found.rows)), spelled([found.texts[row] for row in found.rows]), rotation=30, ha="right")
    step = max(1, len(found.layers) // 15)
    axes.set_yticks(range(0, len(found.layers), step), found.layers[::step])
    axes.set_xlabel("after the token")
    axes.set_ylabel("after layer")
    axes.figure.colorbar(image, ax=axes, label="probability of the most likely next token", fraction=0.03)
    return axes


def attention(pattern, texts, axes=None, title=""):
    """One head's pattern [rows, columns] (or a mean of several) over a text, whose tokens are `texts`."""
    pattern = np.asarray(pattern)
    if axes is None:
        axes = axes_of((1.5 + 0.4 * pattern.shape[1], 1.2 + 0.35 * pattern.shape[0]))
    axes.imshow(pattern, cmap="Blues", vmin=0, vmax=1)
    labels = spelled(texts)
    axes.set_xticks(range(pattern.shape[1]), [*labels, "(sink)"][: pattern.shape[1]], rotation=60, ha="right", fontsize=8)
    axes.set_yticks(range(pattern.shape[0]), labels[-pattern.shape[0] :], fontsize=8)
    axes.set_title(title, fontsize=9)
    return axes
