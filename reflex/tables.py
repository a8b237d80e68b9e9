"""What this engine knows, as tables: model families from the records of arch/, block formats from the files of quant/.

`families()` and `formats()` give plain data with stable names, by enumeration; `render` makes text of them for a person. Reads no
model file and no device. Called by the commands of these names and by bench/support_tables.py, which makes the pages of them.
"""

from inspect import cleandoc

from . import arch, quant
from .arch.spec import FAMILY_DEFAULTS, NORMS
from .quant.types import TYPES

ACTIVATIONS = {"silu": "SiLU", "gelu": "GELU", "relu2": "ReLU squared", "xielu": "xIELU", "swiglu_oai": "clamped SwiGLU"}
GATES = {"split": "gated", "fused": "gated in one matrix", None: "no gate"}
OPERATIONS = {"rmsnorm": "RMS", "layernorm": "LayerNorm"}
HEAD_NORMS = {"rms": "RMS per head", "row rms": "RMS over all heads", "layer": "LayerNorm per head"}
PAIRS = {"norm": "adjacent pairs", "neox": "halves", None: "no rotation"}
ROTATED = {"all": "", "not every 4th": "not in every 4th layer", "windowed": "in windowed layers alone"}
ROTATED |= {"windowed if any": "in windowed layers alone where there are any"}
WINDOWS = {"key": "if a key says so", "always": "always"}
ORDINALS = {2: "2nd", 3: "3rd"}
SHARED = {
    "key": "a shared one if its key is not 0",
    "key or dense": "a shared one",
    "key or routed": "a shared one",
    "routed": "a shared one",
    "count": "shared ones by their count",
    "count of key": "shared ones by their count and width",
}
# What these columns say; every other field that differs from its default is in the last one.
COLUMNS = ("block", "heads", "positions", "feed_forward", "window", "experts")
SAID = {"norm", "parallel", "head_norm", "head_norm_at", "head_norm_if", "positions", "rope", "rope_on"}
SAID |= {"act", "gate"}
SAID |= {"window", "window_if", "window_every", "window_layers", "experts", "gating", "renormalize", "choice_bias", "shared"}
SAID |= {"shared_gate", "latent", "one_part", "chunk", "weight_input", "unit_norm"}


def families():
    """One dict per family: name, models people know it by, what its record covers, the columns above, and the facts of the record
    that differ from the defaults."""
    rows = []
    for name in arch.families():
        module = arch.find(name)
        models, _, covers = cleandoc(module.__doc__).partition("\n")[0].rstrip(".").partition(": ")
        facts = {field: getattr(module.FAMILY, field) for field in FAMILY_DEFAULTS}
        record = {field: value for field, value in facts.items() if value != FAMILY_DEFAULTS[field]}
        rows.append({"name": name, "models": models, "covers": covers, **describe(facts), "record": record})
    return rows


def describe(facts):
    """The columns of a family by all its facts."""
    others = (_said(*fact) for fact in facts.items() if fact[0] not in SAID and fact[1] != FAMILY_DEFAULTS[fact[0]])
    return {column: DESCRIBE[column](facts) for column in COLUMNS} | {"also": "; ".join(others)}


def _said(field, value):
    if value is True:
        return field
    return f"{field} {', '.join(map(str, value)) if isinstance(value, tuple) else value}"


def _block(f):
    before, behind = f["attn_norm"] or f["ffn_norm"], f["attn_out_norm"] or f["ffn_out_norm"]
    place = "before and behind" if before and behind else "before" if before else "behind"
    if f["parallel"] == "always":
        place = "side by side"
    elif f["parallel"] == "key":
        place += ", side by side if a key says so"
    elif f["one_part"]:
        place = "before the one part of a block"
    elif f["attn_norm"] and f["attn_norm"] == f["ffn_norm"]:
        place = "side by side, one norm"
    elif isinstance(f["ffn_norm"], tuple) and f["attn_norm"] in f["ffn_norm"]:
        place += f", side by side without {f['ffn_norm'][0]}"
    operation, _, weight, bias = NORMS[f["norm"]]
    return f"{OPERATIONS[operation]}{' with bias' if bias else '' if weight else ' without weights'}, {place}"


def _heads(f):
    if f["latent"]:
        return "both compressed"
    if f["unit_norm"] == "q and k":
        return "RMS per head without weights, after rope"
    behind = ", values without weights" if f["unit_norm"] == "v" else ""
    if f["head_norm"] is None:
        return ""
    stored = ", where stored" if f["head_norm_if"] == "stored" else ""
    return f"{HEAD_NORMS[f['head_norm']]} {f['head_norm_at']}{stored}{behind}"


def _positions(f):
    words = ["learned"] if f["positions"] else []
    words += [PAIRS[f["rope"]]] if f["rope"] or not words else []
    return ", ".join(filter(None, [*words, ROTATED[f["rope_on"]]]))


def _feed_forward(f):
    return f"{ACTIVATIONS[f['act']]}, {GATES[f['gate']]}"


def _window(f):
    if f["window_if"] == "never":
        return ""
    words = [WINDOWS[f["window_if"]]]
    words += [f"only with {f['window_layers']} layers"] if f["window_layers"] else []
    every = f["window_every"]
    words += [f"not in every {ORDINALS.get(every, f'{every}th')} layer"] if every else []
    words += ["by a key of each layer"] if every is None else []
    words += [f"chunks of {f['chunk']}"] if f["chunk"] else []
    words += [f"{f['window']} if no key says"] if f["window"] else []
    return ", ".join(words)


def _experts(f):
    if f["experts"] == "never":
        return ""
    words = [f["experts"], f["gating"] or "by key", "weights sum to 1" if f["renormalize"] else "weights as they are"]
    words += [f"{f['choice_bias']} choosing bias"] if f["choice_bias"] else []
    words += ["weights of what experts read"] if f["weight_input"] else []
    words += [SHARED[f["shared"]] + (" behind a sigmoid" if f["shared_gate"] else "")] if f["shared"] else []
    return ", ".join(words)


DESCRIBE = {
    "block": _block,
    "heads": _heads,
    "positions": _positions,
    "feed_forward": _feed_forward,
    "window": _window,
    "experts": _experts,
}


def formats():
    """One dict per block format: name, ggml's id, elements and bytes of a block, bits per weight, and what multiplies by it.

    cpu: "vector" | "float32" (both of its own) | "decoded" (row by row); cuda: "dot" (one row, integers) and "tensor cores" (more
    rows), or "decoded". Embedding rows of every format are decoded everywhere."""
    rows = []
    for block in TYPES.values():
        module = quant.load(block.name)
        lanes = getattr(module, "LANES", None)
        cuda = [words for record, words in (("DOT", "dot"), ("FRAGMENT", "tensor cores")) if hasattr(module, record)]
        cpu = "decoded" if lanes is None else "vector" if hasattr(lanes, "group") else "float32"
        bits = round(8 * block.nbytes / block.elements, 4)
        sizes = {"id": block.id, "elements": block.elements, "bytes": block.nbytes, "bits_per_weight": bits}
        rows.append({"name": block.name, **sizes, "cpu": cpu, "cuda": cuda or ["decoded"]})
    return rows


def render(rows, columns):
    """Rows as lines of text, their columns as wide as what is in them."""
    cells = [[column.replace("_", " ") for column in columns], *([_words_of(row[column]) for column in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() + "\n" for line in cells)


def _words_of(value):
    return ", ".join(value) if isinstance(value, list) else str(value)
