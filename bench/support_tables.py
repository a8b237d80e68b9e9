"""The tables of docs/families.md and docs/formats.md: what reflex/tables.py lists, which tests hold it, and what was measured.

Families come from reflex/arch, formats from reflex/quant, the figures from bench/results/formats*.json, families*.json and
bits.json where there are such. bench/readme.py puts the tables into the pages.
"""

import sys
import tempfile
from functools import cache
from pathlib import Path

from bench import families_device, record
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


def on_card(name, measured):
    """What cards gave for a family's models: the largest distance of F16 and of F32 files from llama.cpp with the cache that each
    run is nearest to, of all files from the reference; and what was refused, failed or lies behind a choice near a tie."""
    owners, rows = tests("tiny").MODELS, {}
    for result in measured:
        for model, kinds in result["models"].items():
            if owners.get(model, ("",))[0] == name:
                for kind, row in kinds.items():
                    rows.setdefault(kind, []).append((model, row))
    theirs = [_largest(rows.get(kind, ()), families_device.PEERS) for kind in ("F16", "F32")]
    every = [found for some in rows.values() for found in some]
    return [*theirs, _largest(every, ("reference",)), "; ".join(dict.fromkeys(filter(None, (_remark(*found) for found in every))))]


def _settled(row):
    """Runs that differ by choices near a tie alone."""
    return [key for key, found in row.get("turned over", {}).items() if found["distance"] < families_device.GOAL]


def _largest(rows, who):
    """Of the distances from the nearest of `who`, over all runs that no choice near a tie explains; nothing where there is none."""
    values = []
    for _, row in rows:
        found = [row["errors"][one] for one in who if one in row.get("errors", {})]
        values += [min(errors[key] for errors in found) for key in (found[0] if found else ()) if key not in _settled(row)]
    return f"{max(values):.4f}" if values else ""


def _remark(model, row):
    """What a reader must know of a model besides distances."""
    if "errors" not in row:
        return f"`{model}` {'refused' if 'refused' in row else 'failed'}"
    gaps = [gap for key in _settled(row) for gap in row["turned over"][key]["gaps"]]
    return f"`{model}` but for choices of experts with gaps up to {max(gaps):.4f}" if gaps else ""


def models():
    """Every family with the models people know it by and what runs it."""
    measured = record.read("families*")
    owners = [owner for owner, _ in tests("tiny").MODELS.values()]
    rows = []
    for family in tables.families():
        name = family["name"]
        cells = [f"`{name}`", family["models"], family["covers"], pre_tokenizer(name), " ".join(backends(name))]
        rows.append([*cells, str(owners.count(name)), *(on_card(name, measured) if measured else ())])
    measures = ["card, F16, from llama.cpp", "F32, from llama.cpp", "all, from the reference", "remarks"] if measured else []
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
  of {lengths} tokens, from F32 files at each of their tokens and from F16 files at the last; or by choices of experts alone that
  are within {t.AGAINST_LLAMA} of a tie (below): `tests/pure/test_families.py`.
- Every fact of a record is missed by some model when it is changed (`tests/pure/test_record_fields.py`).
- The cpu backend against the reference: `tests/cpu/test_families_on_cpu.py`.
- The cuda backend's launches against the reference, by twins of its kernels, which are held to the emulated kernels:
  `tests/cuda/test_whole.py`.
"""
    text += to_the_bit()
    measured = record.read("families*")
    if not measured:
        return text + "- On a card: *not measured yet*.\n"
    where, goal = " ".join(dict.fromkeys(measured_on([result]) for result in measured)), measured[0]["goal"]
    return (
        text
        + f"""- On a card: prompts of those lengths whole, and the longest token by token, of F16 and F32 files with weights of
  {len(measured)} seeds (`bench/families_device.py`); at most {goal} is good.
  {where}

llama.cpp rounds activations to half floats beside F16 weights, and keys and values to half floats in its usual cache; here the
cache on a GPU is of half floats too. With its float32 cache it differs from itself with its usual one by {_apart(measured)}
in these models, so a run counts by the one that it is nearer to. Where experts are chosen, rounding decides between two that are as
good: the gap is the smallest number, in standard deviations of the layer's router logits, that added to one of them turns a choice
over. A run beyond {goal} that comes within {goal} of the reference with such choices turned over, all of gaps below {goal}, differs
by those alone (`tests/ties.py`); the remarks name it.
"""
    )


def to_the_bit():
    """What bench/bits_device.py found."""
    results = record.read("bits")
    if not results:
        return "- On a card, to the bit: *not measured yet* (`bench/bits_device.py`).\n"
    found = results[0]
    models = [row for kinds in found["models"].values() for row in kinds.values()]
    furthest = max(pair["distance"] for row in models for pair in row.get("adapters", ()))
    return f"""- On a card, to the bit (`bench/bits_device.py`): a process that did much else, failed requests among it, answers as
  one that did nothing else; packed candidates as one at a time; behind a prefix in pieces and behind a state from its file as
  behind one that was computed. Adapters of every matrix: within {found["goal"]} standard deviations of the reference, at most
  {furthest:.4f}. {found["checked"]} comparisons of {len(found["models"])} models, {found["wrong"]} not right,
  {found["left_out"]} left out. {measured_on(results)}
"""


def _apart(measured):
    """How far llama.cpp's two caches are from each other: the median and the largest of all F16 files."""
    rows = [row["F16"] for result in measured for row in result["models"].values()]
    values = sorted(row["llama.cpp's caches apart"] for row in rows if row.get("llama.cpp's caches apart") is not None)
    return f"{values[len(values) // 2]:.4f} (median) to {values[-1]:.4f}" if values else "an unknown amount"


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
    found = [(where, result) for where, name in (("cuda", "formats"), ("cpu", "formats-cpu")) for result in record.read(name)]
    if not found:
        return "*Speeds: not measured yet.*\n"
    text = f"Speeds are beside {BASELINE}'s: bytes of weights per second for one token, products per second for more. "
    return text + " ".join(f"{where}: {measured_on([result]).lstrip()}" for where, result in found)


PAGES = {
    FAMILIES: {"models": models, "blocks": blocks, "experts": experts, "checks": checks},
    FORMATS: {"formats": formats, "speeds": speeds},
}
