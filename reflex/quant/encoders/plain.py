"""The types without blocks: numpy converts them, values to the nearest that there is, ties to even."""


def _single(rows):
    return rows.view("u1")


def _half(rows):
    import numpy as np

    with np.errstate(over="ignore"):  # beyond 65504: infinity, as ggml has it
        return rows.astype("<f2").view("u1")


def _brain(rows):
    import numpy as np

    bits = rows.view("<u4")
    return ((bits + (np.uint32(0x7FFF) + (bits >> 16 & 1))) >> 16).astype("<u2").view("u1")


CONVERSIONS = {"F32": _single, "F16": _half, "BF16": _brain}  # float32 [rows, columns] -> uint8 [rows, bytes per row]
