"""Parameters of launches that differ from layer to layer, the arithmetic of grids, and the words of a batch's runs."""

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


def lists_of_runs(runs, rows):
    """Words of `lists` (kernels/cuda/attention_tree.py): a place for each of `rows`, then the lists; neighbours share one."""
    places, lists, at, last = [0] * rows, [], 0, ()
    for row, own in enumerate(runs):
        if own and own is not last:
            at = rows + len(lists)
            for first, end in own:
                lists += first, end - first
            last = own
        places[row] = at if own else 0
    return places + lists
