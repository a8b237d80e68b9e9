"""The tables of docs/families.md and docs/formats.md: what reflex/tables.py lists, which tests hold it, and what was measured.

Families come from reflex/arch, formats from reflex/quant, the figures from bench/results/formats*.json and families.json where
there are such. bench/readme.py puts the tables into the pages.
"""

import sys
import tempfile
from functools import cache
from pathlib import Path

from bench import record
from bench.record import measured_on, table
from reflex import tables
from reflex.arch import load_spec
from reflex.backends import lowering
from reflex.backends.cuda import lowering as cuda_lowering
from reflex.errors import UnsupportedError
from reflex.gguf.reader import open_model
from reflex.program import build

FAMILIES, FORMATS = record.ROOT / "docs" / "families.md", record.ROOT / "docs" / "formats.md"
BASELINE = "Q4_K"
CONTEXT = 256


@cache
def tests(name):
    """A module of tests/ or tests/pure/."""
    for folder in ("tests", "tests/pure"):
        if str(record.ROOT / folder) not in sys.path:
            sys.path.append(str(record.ROOT / folder))
    return __import__(name)


# ---- families --------------------------------------------------------------------------------------------


@cache
def program(name):
    """The Program of a family's TINY model."""
    with tempfile.TemporaryDirectory() as folder:
        file = open_model(str(tests("tiny").write(name, Path(folder) / "tiny.gguf")))
        made = build(load_spec(file), CONTEXT)
        file.close()
    return made


def _on_cpu(step):
    try:
        return getattr(lowering.Lowering, "_" + step.op, None) or lowering.elsewhere(step.op)
    except UnsupportedError:
        return None


def backends(name):
    """Which backends have every operation of a family's TINY model."""
    made = program(name)
    try:
        cuda = [cuda_lowering.lowering(made) and "cuda"]
    except UnsupportedError:
        cuda = []
    return ["reference", *(["cpu"] if all(map(_on_cpu, made.steps)) else []), *cuda]


def pre_tokenizer(name):
    """Model and pre-tokenizer of a family's TINY vocabulary."""
    tiny = tests("tiny")
    model, pre = tiny.TOKENIZERS[tiny.Model(name).tokenizer][:2]
    return f"`{pre}`" if model == "gpt2" else f"`{model}` (unigrams)"


def on_card(name, found):
    """The largest difference of a family's half-precision models on a card: from llama.cpp, from the reference; how many failed."""
    owners = tests("tiny").MODELS
    rows = [kinds["F16"] for model, kinds in found.items() if owners.get(model, ("",))[0] == name and "F16" in kinds]
    cells = []
    for who in ("llama.cpp", "reference"):
        values = [value for row in rows for value in row.get("errors", {}).get(who, {}).values()]
        cells.append(f"{max(values):.4f}" if values else "")
    failed = sum("failed" in row for row in rows)
    return [*cells[:-1], ", ".join(filter(None, (cells[-1], f"{failed} of {len(rows)} failed" if failed else "")))]


def models():
    """Every family with the models people know it by and what runs it."""
    measured = record.read("families")
    owners = [owner for owner, _ in tests("tiny").MODELS.values()]
    rows = []
    for family in tables.families():
        name = family["name"]
        cells = [f"`{name}`", family["models"], family["covers"], pre_tokenizer(name), " ".join(backends(name))]
        rows.append([*cells, str(owners.count(name)), *(cell for result in measured for cell in on_card(name, result["models"]))])
    measures = ["on a card, from llama.cpp", "from the reference"] * len(measured)
    return table(["architecture", "models", "", "pre-tokenizer", "backends", "files", *measures], rows)


def blocks():
    """What a block of each family is made of."""
    rows = [[f"`{f['name']}`", *(f[c] for c in (*tables.COLUMNS[:-1], "also"))] for f in tables.families()]
    return table(["architecture", "norms", "q and k", "positions", "feed-forward", "window", "also"], rows)


def experts():
    """The families with experts."""
    rows = [[f"`{f['name']}`", f["experts"]] for f in tables.families() if f["experts"]]
    return table(["architecture", "experts"], rows)


def checks():
    """How every family is held to llama.cpp, in the words of the tests themselves."""
    t, count = tests("test_families"), len(tests("tiny").MODELS)
    lengths = f"{', '.join(map(str, t.LENGTHS[:-1]))} and {t.LENGTHS[-1]}"
    text = f"""{count} tiny random models with the keys and tensor names of real files.

- The reference backend against llama.cpp, run live: logits differ by at most {t.AGAINST_LLAMA} standard deviations, after prompts
  of {lengths} tokens, from F32 and from F16 files: `tests/pure/test_families.py`.
- Every fact of a record is missed by some model when it is changed (`tests/pure/test_record_fields.py`).
- The cpu backend against the reference: `tests/cpu/test_families_on_cpu.py`.
- The cuda backend's launches against the reference, by twins of its kernels, which are held to the emulated kernels:
  `tests/cuda/test_whole.py`.
"""
    measured = record.read("families")
    if not measured:
        return text + "- On a card: *not measured yet*.\n"
    text += """- On a card: the largest difference in standard deviations of all F16 files, whole and token by token, from
  llama.cpp on a CPU and from the float32 reference. Where rounding chooses another of two nearly equal experts, it jumps;
"""
    return text + f"  at most {measured[0]['goal']} is good. {measured_on(measured)}\n"


# ---- formats ---------------------------------------------------------------------------------------------


def _exact(name):
    """Which independent decoders give the same bits."""
    t = tests("test_quant_decode")
    return " ".join(oracle for oracle in t.ORACLES if name not in t.WITHOUT[oracle]) or "numpy records"


def _shares(name, products, tokens):
    """A format's speed over the baseline's: bytes of weights per second for one token, else products per second."""
    found = {row["format"]: row for row in products if row["tokens"] == tokens}
    if name not in found or BASELINE not in found:
        return ""
    mine, usual = found[name], found[BASELINE]
    size = mine["bits"] / usual["bits"] if tokens == 1 else 1
    return f"{size * usual['us'] / mine['us']:.2f}"


def _cpu_share(name, measured, tokens):
    row = measured.get(name, {}).get(tokens)
    return f"{row['share']['median']:.2f}" if row else ""


def formats():
    """Every block format: sizes, oracles, kernels, and speed beside the baseline's where it was measured."""
    cuda, cpu = record.read("formats"), record.read("formats-cpu")
    products = cuda[0]["products"] if cuda else ()
    measured = cpu[0]["formats"] if cpu else {}
    head = ["format", "id", "values", "bytes", "bits per weight", "same bits as", "cpu", "cuda"]
    head += [f"cpu, {n} tokens" if n != "1" else "cpu, 1 token" for n in ("1", "64")] if cpu else []
    head += ["cuda, 1 token", "cuda, 512 tokens"] if cuda else []
    rows = []
    for f in tables.formats():
        sizes = [str(f[key]) for key in ("id", "elements", "bytes")]
        cells = [f"`{f['name']}`", *sizes, f"{f['bits_per_weight']:g}", _exact(f["name"]), f["cpu"], ", ".join(f["cuda"])]
        cells += [_cpu_share(f["name"], measured, n) for n in ("1", "64")] if cpu else []
        cells += [_shares(f["name"], products, n) for n in (1, 512)] if cuda else []
        rows.append(cells)
    return table(head, rows)


def speeds():
    """Where the speeds of the formats come from."""
    found = [*record.read("formats"), *record.read("formats-cpu")]
    if not found:
        return "*Speeds: not measured yet.*\n"
    text = f"Speeds are beside {BASELINE}'s: bytes of weights per second for one token, products per second for more. "
    return text + " ".join(measured_on([result]) for result in found)


PAGES = {
    FAMILIES: {"models": models, "blocks": blocks, "experts": experts, "checks": checks},
    FORMATS: {"formats": formats, "speeds": speeds},
}
