"""The tables of docs/quantization.md: what each recipe gives to which tensor, and how fast each encoder is.

Recipes come from reflex/quant/recipes, encoders from reflex/quant/encoders, figures from bench/results/encoders.json.
bench/readme.py puts the tables into the page.
"""

from bench import record
from bench.record import MISSING, measured_on, table
from reflex.quant import encoders, recipes
from reflex.quant.types import by_name, row_bytes

FILE = record.ROOT / "docs" / "quantization.md"
LAYERS, WIDTH, INNER, WORDS, HEADS, KV_HEADS = 32, 4096, 14336, 128256, 32, 8  # of the model that the table of recipes is about
COLUMNS = {
    "token embedding": ("token_embd",),
    "logits": ("output",),
    "attn_v": ("attn_v",),
    "attn_output": ("attn_output",),
    "ffn_down": ("ffn_down",),
    "other matrices": ("attn_q", "attn_k", "ffn_up", "ffn_gate"),
}


def tensors():
    """(name, shape) of every matrix of the model."""
    shapes = {"attn_q": (WIDTH, WIDTH), "attn_k": (WIDTH, WIDTH * KV_HEADS // HEADS), "attn_output": (WIDTH, WIDTH)}
    shapes |= {"attn_v": shapes["attn_k"], "ffn_up": (WIDTH, INNER), "ffn_gate": (WIDTH, INNER), "ffn_down": (INNER, WIDTH)}
    rows = [("token_embd.weight", (WIDTH, WORDS)), ("output.weight", (WIDTH, WORDS))]
    return rows + [(f"blk.{i}.{part}.weight", shape) for i in range(LAYERS) for part, shape in shapes.items()]


def recipe_table():
    """What each recipe gives to the matrices of a model of eight billion values."""
    rows, all_tensors = [], [(name, "F32", shape) for name, shape in tensors()]
    values = sum(a * b for _, _, (a, b) in all_tensors)
    for name, (number, _) in recipes.RECIPES.items():
        model = recipes.Model("", LAYERS, HEADS, KV_HEADS, 0, importance=True)
        plans = recipes.choose(all_tensors, model, name)
        size = sum(row_bytes(by_name(p.type).id, shape[0]) * shape[1] for p, (_, _, shape) in zip(plans, all_tensors, strict=True))
        cells = [_types(plans, parts) for parts in COLUMNS.values()]
        rows.append([f"`{name}`", str(number), f"{8 * size / values:.2f}", *cells])
    return table(["recipe", "file_type", "bits per weight", *COLUMNS], rows)


def _types(plans, parts):
    """The types of some tensors, the most frequent first."""
    found = [p.type for p in plans if p.name.removesuffix(".weight").rpartition(".")[2] in parts]
    counts = sorted({kind: found.count(kind) for kind in found}.items(), key=lambda pair: -pair[1])
    return ", ".join(kind if len(counts) == 1 else f"{kind} {count}" for kind, count in counts)


def _needs(name):
    return getattr(encoders.load(name), "NEEDED", False)


USES = {None: "does not use it", "as it is": "importance"}


def encoder_table():
    """Every encoder: how it weighs values, and its speed beside libgguf's."""
    results = record.read("encoders")
    measured = results[0]["formats"] if results else {}
    rows = []
    for name in (one for one in encoders.encodable() if one not in encoders.CONVERSIONS):
        kind = encoders.load(name).IMPORTANCE
        uses = USES.get(kind, f"importance x sqrt({kind} + square)") + (", needed" if _needs(name) else "")
        cells = []
        for how in ("none", "importance"):
            row = measured.get(name, {}).get(how)
            cells += [f"{row['ns']['median']:.1f}", f"{row['ratio']['median']:.1f}"] if row else ["", ""]
        rows.append([f"`{name}`", uses, *cells])
    head = ["format", "weight of a value", "ns a value", "times libgguf", "with importance, ns a value", "times libgguf"]
    if not results:
        return table(head, rows) + "\n" + MISSING
    return table(head, rows) + f"\nOne thread, processor time, libgguf {results[0]['libgguf']} in turn. {measured_on(results)}"


BLOCKS = {"recipes": recipe_table, "encoders": encoder_table}
