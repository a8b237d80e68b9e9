"""Parameters of launches that differ from layer to layer, and the arithmetic of grids."""

COLUMNS = 4096  # logits per block of the kernels that read them: logits_stats, sample, sample_bins


class Own:
    """A parameter that differs from layer to layer: `word(step)` gives it for the step in the same place of another layer."""

    __slots__ = ("step", "word")

    def __init__(self, word, step):
        self.word = word
        self.step = step


def blocks(count, size):
    """How many blocks of `size` hold `count`."""
    return (count + size - 1) // size
