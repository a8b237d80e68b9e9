"""The lab on a GPU: taps beside those of the reference and the cpu backend, patching, and a tensor in another type. Part of
bench/device.py.
"""

import numpy as np

import reflex
from reflex.lab import TEXT
from reflex.quant.types import by_name

TOKENS = 48
# Standard deviations of a tap. In a Q4_1 file, whose products round their inputs to 8 bits, the residual stream of the last layers
# is off by 0.36 (the cpu backend: 0.87) where the logits are within 0.02; a wrong buffer is far above.
LIMIT = 0.5
SWAPPED = "Q8_0", "Q4_0"  # the first that the tensor has not


def off(found, wanted):
    """Largest difference in standard deviations."""
    return float(np.abs(found - wanted).max() / max(float(wanted.std()), 1e-9))


def check(path, backend="cuda"):
    """{what: figure}; `wrong`: how many of them are beyond the limit."""
    with reflex.load(path, backend=backend) as model:
        ids = model.tokenize(TEXT)[:TOKENS]
        names = [tap.name for tap in model.taps() if "cuda" in tap.backends]
        found = model.trace(ids, names)
        row = {"file": model.path.rpartition("/")[2], "tokens": len(ids), "taps": len(names)}
        for other in ("reference", "cpu"):
            wanted = model.trace(ids, names, backend=other)
            errors = {name: off(found[name], wanted[name]) for name in names}
            worst = max(errors, key=lambda name: errors[name] if errors[name] == errors[name] else np.inf)
            row[other] = {"worst_tap": worst, "worst_std": errors[worst], "logits_std": errors["logits"]}
        tap = next(name for name in names if name.endswith("1.residual_out"))
        same = model.patch(ids, {tap: lambda x: x}, ["logits", tap])
        row["own_value_changes_nothing"] = bool((same["logits"] == model.trace(ids, "logits")["logits"]).all())
        row["swap"] = swap(model, ids, found["logits"])
    numbers = [row["reference"]["worst_std"], row["swap"]["reference_std"]]
    row["wrong"] = sum(not value < LIMIT for value in numbers) + (not row["own_value_changes_nothing"]) + (not row["swap"]["moves"])
    return row


def swap(model, ids, before):
    """One matrix in another type in memory, here and on the reference backend."""
    fit = [t for name, t in model.file.tensors.items() if name.endswith("ffn_down.weight") and t.shape[0] % 32 == 0]
    tensor = fit[-1]
    kind = next(kind for kind in SWAPPED if by_name(kind).id != tensor.type)
    with model.with_types({tensor.name: kind}) as changed, reflex.load(model.path, backend="reference") as trusted:
        logits = changed.logits(ids, every=True)
        with trusted.with_types({tensor.name: kind}) as wanted:
            error = off(logits, wanted.logits(ids, every=True))
    return {"tensor": tensor.name, "type": kind, "reference_std": error, "moves": bool((logits != before).any())}


def line(row):
    """The row as one line of text."""
    sides = ", ".join(f"{other} {row[other]['worst_std']:.4f} at {row[other]['worst_tap']}" for other in ("reference", "cpu"))
    swapped = f"{row['swap']['tensor']} as {row['swap']['type']} {row['swap']['reference_std']:.4f}"
    own = "own value changes nothing" if row["own_value_changes_nothing"] else "OWN VALUE CHANGES LOGITS"
    return f"  {row['taps']} taps, std off at most: {sides}; {own}; {swapped}; {row['wrong']} wrong"
