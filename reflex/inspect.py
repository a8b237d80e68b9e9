"""What is in a model file and what it needs to run: `describe(path)` as plain data, `render(...)` as text for a person.

Reads the header only: never the weights, never a device. A file of an architecture or vocabulary that this engine does not
run is described all the same, with the reason. Refuses only what the reader refuses. Called by the `inspect` command.

The data, all names stable: schema_version, type "result", command, model, file, architecture, name, parameters, run,
memory, tokenizer, types, tensors, keys, notes.
"""

from .arch import load_spec
from .errors import ReflexError
from .fits import fits
from .fits import lines as fits_lines
from .gguf.layout import ARRAY, STRING, type_name
from .gguf.reader import open_model
from .program import build
from .program.records import PLACES
from .quant.types import TYPES

SCHEMA_VERSION = 1
SHOWN_ITEMS = 4  # of an array
SHOWN_CHARACTERS = 200  # of a string
SPECIAL_IDS = (
    "bos",
    "eos",
    "eot",
    "eom",
    "unknown",
    "separator",
    "padding",
    "cls",
    "mask",
    "fim_pre",
    "fim_suf",
    "fim_mid",
    "fim_pad",
)
TOKEN_KINDS = {1: "normal", 2: "unknown", 3: "control", 4: "user defined", 5: "unused", 6: "byte"}


def describe(path):
    """Everything about a model file that its header says, as dicts, lists, numbers and text. Raises what the reader raises."""
    file = open_model(path)
    try:
        return {
            "schema_version": SCHEMA_VERSION,
            "type": "result",
            "command": "inspect",
            "model": path,
            "file": _file(file),
            "architecture": _text(file, "general.architecture"),
            "name": _text(file, "general.name"),
            "parameters": sum(t.elements for t in file.tensors.values()),
            **_run(file),
            "tokenizer": _tokenizer(file),
            "types": _types(file),
            "tensors": [_tensor(t) for t in file.tensors.values()],
            "keys": [_key(file, key) for key in file.metadata],
            "notes": _notes(file),
        }
    finally:
        file.close()


# ---- parts of the description -----------------------------------------------------------------------------


def _text(file, key):
    """A string of the metadata for show: None where it is absent or no string, bad bytes replaced."""
    if file.metadata.type(key) != STRING:
        return None
    return str(file.bytes(key), "utf-8", "replace")


def _file(file):
    shards = [
        {"path": s.path, "bytes": s.size, "tensors": len(s.tensors), "data_offset": s.data_start, "trailing_bytes": _trailing(s)}
        for s in file.shards
    ]
    return {"version": file.version, "alignment": file.alignment, "bytes": file.size, "shards": shards}


def _trailing(shard):
    """Bytes after the last tensor and its padding."""
    return max(0, shard.size - (shard.data_end + shard.alignment - 1) // shard.alignment * shard.alignment)


def _run(file):
    """The parts `run` and `memory`: whether this engine runs the file, as what, and the bytes it takes."""
    weights = sum(t.nbytes for t in file.tensors.values())
    memory = {"weights_bytes": weights, "active_bytes": None, "cache_values_per_token": None, "cache_bytes_per_token": None}
    memory |= {"context_length": None, "state_bytes": None, "state_places": None, "fits": None}
    try:
        spec = load_spec(file)
        program = build(spec)
    except ReflexError as error:
        return {"run": {"supported": False, "reason": str(error), "backends": []}, "memory": memory}
    values = sum(heads * (key + value) for heads, key, value in program.caches)
    memory["active_bytes"] = _active(file, program)
    memory["cache_values_per_token"] = values
    memory["cache_bytes_per_token"] = {"f32": 4 * values, "f16": 2 * values}
    memory["context_length"] = program.context_length
    memory["state_bytes"] = 4 * sum(program.states)
    memory["state_places"] = PLACES if program.states else 0
    memory["fits"] = fits(file, program, weights)
    run = {
        "supported": True,
        "reason": None,
        "backends": ["cpu", *(["cuda"] if memory["fits"]["cuda"]["supported"] else []), "reference"],
        "layers": len(program.layers) - 1,
        "width": program.width,
        "vocabulary": program.vocabulary,
        "steps": len(program.steps),
        "experts": _experts(spec),
    }
    return {"run": run, "memory": memory}


def _experts(spec):
    """The mixture of experts, as its first layer has it; None for a model without."""
    mixed = [layer.experts for layer in spec.layers if layer.experts]
    if not mixed:
        return None
    first, shared = mixed[0], mixed[0].shared
    sizes = {name: getattr(first, name) for name in ("count", "used", "width")}
    return {"layers": len(mixed), **sizes, "shared_width": shared.feed_forward if shared else 0}


def _active(file, program):
    """Bytes of the weights that one token is computed with: rows of tables, the experts that it is routed to, all the rest."""
    shares = {}  # of every tensor that is used; a table that is also a matrix counts whole
    for step in program.steps:
        for name in step.weights:
            if name:
                read = {"embed": 1, "add_position": 1, "expert_linear": step.args.get("used")}.get(step.op)  # None: all of it
                shares[name] = max(read / file.tensors[name].shape[-1] if read else 1, shares.get(name, 0))
    return round(sum(share * file.tensors[name].nbytes for name, share in shares.items()))


def _tokenizer(file):
    """What the vocabulary is; None for a file without one. Whether this engine can use it, and the reason if not."""
    prefix = "tokenizer.ggml."
    if not file.has(prefix + "model"):
        return None
    tokens, merges = (_count(file, prefix + key) for key in ("tokens", "merges"))
    ids = {}
    for name in SPECIAL_IDS:
        try:
            value = file.u(f"{prefix}{name}_token_id", None)
        except ReflexError:
            continue  # of another type: the check below words it
        if value is not None:
            ids[name] = value
    template = file.metadata.type("tokenizer.chat_template") == STRING
    return {
        "model": _text(file, prefix + "model"),
        "pre": _text(file, prefix + "pre"),
        "size": tokens,
        "merges": merges,
        "special_ids": ids,
        "kinds": _kinds(file, prefix + "token_type"),
        "chat_template_bytes": len(file.bytes("tokenizer.chat_template")) if template else 0,
        **_usable(file),
    }


def _usable(file):
    from .tokenizer import load

    try:
        tokenizer = load(file)
    except ReflexError as error:
        return {"supported": False, "reason": str(error)}
    return {
        "supported": True,
        "reason": None,
        "adds_bos": bool(tokenizer.add_bos),
        "adds_eos": bool(tokenizer.add_eos),
        "end_ids": sorted(tokenizer.eog),
    }


def _count(file, key):
    return file.array(key).count if file.metadata.type(key) == ARRAY else 0


def _kinds(file, key):
    """How many tokens of each kind."""
    try:
        values = file.ints(key, [])
    except ReflexError:
        return {}
    counts = {kind: values.count(kind) for kind in set(values)}
    return {TOKEN_KINDS.get(kind, f"kind {kind}"): counts[kind] for kind in sorted(counts)}


def _types(file):
    """One row per tensor type, the largest first."""
    rows = {}
    for t in file.tensors.values():
        row = rows.setdefault(t.type, {"type": TYPES[t.type].name, "tensors": 0, "elements": 0, "bytes": 0})
        row["tensors"] += 1
        row["elements"] += t.elements
        row["bytes"] += t.nbytes
    for row in rows.values():
        row["bits_per_weight"] = round(8 * row["bytes"] / row["elements"], 3) if row["elements"] else None
    return sorted(rows.values(), key=lambda row: -row["bytes"])


def _tensor(tensor):
    return {"name": tensor.name, "type": TYPES[tensor.type].name, "shape": list(tensor.shape), "bytes": tensor.nbytes}


def _clip(data):
    text = str(data[: 4 * SHOWN_CHARACTERS], "utf-8", "replace")
    return text[:SHOWN_CHARACTERS]


def _key(file, key):
    """A key with its value: strings clipped (`bytes` says how long they are), arrays by their first items."""
    kind = file.metadata.type(key)
    row = {"key": key, "type": type_name(kind)}
    if kind == ARRAY:
        array = file.array(key)
        first = file.metadata.value(key, SHOWN_ITEMS)
        first = first and [_clip(item) if isinstance(item, bytes) else item for item in first]
        return {**row, "element": type_name(array.type), "count": array.count, "first": first}
    if kind == STRING:
        data = file.bytes(key)
        return {**row, "bytes": len(data), "value": _clip(data)}
    return {**row, "value": file.metadata.value(key)}


def _notes(file):
    """Oddities that do not stop the file from loading."""
    notes = []
    for shard in file.shards:
        if trailing := _trailing(shard):
            notes.append(f"{trailing} bytes after the last tensor of {shard.path} are ignored")
        if shard.tensors and shard.size < (shard.data_end + shard.alignment - 1) // shard.alignment * shard.alignment:
            notes.append(f"{shard.path} ends without the padding of its last tensor; harmless")
    empty = [name for name, t in file.tensors.items() if not t.elements]
    if empty:
        notes.append(f"{len(empty)} tensors are empty: {', '.join(empty[:SHOWN_ITEMS])}")
    if not file.tensors:
        notes.append("the file holds no tensors: a vocabulary or metadata only")
    return notes


# ---- text -------------------------------------------------------------------------------------------------


def size(count):
    """Bytes in the unit a person would use."""
    value, unit = float(count), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{count} bytes" if unit == "bytes" else f"{value:.1f} {unit}"


def amount(count):
    """A number of parameters in the unit a person would use."""
    for unit, factor in (("T", 10**12), ("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if count >= factor:
            return f"{count / factor:.1f}{unit}"
    return str(count)


def _printable(text):
    """One line without control codes: the text comes from a file."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _rows(rows):
    """Left-aligned columns, two spaces apart."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]


def render(description):
    """The text of a description, lines ending in a newline."""
    d = description
    lines = _head(d) + _run_lines(d) + _tokenizer_lines(d["tokenizer"])
    if d["types"]:
        head = ("type", "tensors", "parameters", "size", "bits per weight")
        rows = [(r["type"], str(r["tensors"]), amount(r["elements"]), size(r["bytes"]), _bits(r)) for r in d["types"]]
        lines += ["", "tensors", *_rows([head, *rows])]
    if d["keys"]:
        lines += ["", "keys", *_rows([(_printable(k["key"]), _shown_type(k), _shown_value(k)) for k in d["keys"]])]
    if d["notes"]:
        lines += ["", "notes", *(f"  {_printable(note)}" for note in d["notes"])]
    return "\n".join(lines) + "\n"


def _bits(row):
    return "" if row["bits_per_weight"] is None else f"{row['bits_per_weight']:.2f}"


def _head(d):
    file = d["file"]
    title = _printable(d["name"] or d["model"])
    lines = [f"{title}: {_printable(d['architecture'] or 'no architecture')}, {amount(d['parameters'])} parameters"]
    lines.append(
        f"  file       {_printable(d['model'])}: GGUF {file['version']}, {size(file['bytes'])}, alignment {file['alignment']}"
    )
    if len(file["shards"]) > 1:
        lines += [f"  shard      {_printable(s['path'])}: {s['tensors']} tensors, {size(s['bytes'])}" for s in file["shards"]]
    return lines


def _run_lines(d):
    run, memory = d["run"], d["memory"]
    if not run["supported"]:
        return [f"  runs       no: {_printable(run['reason'])}", f"  memory     weights {size(memory['weights_bytes'])}"]
    context, each = memory["context_length"], memory["cache_bytes_per_token"]["f32"]
    experts, active = [], ""
    if e := run["experts"]:
        shared = f", one of width {e['shared_width']} for all" if e["shared_width"] else ""
        experts = [f"  experts    {e['count']} of width {e['width']} in {e['layers']} layers, {e['used']} used per token{shared}"]
        active = f", {size(memory['active_bytes'])} of them per token"
    return [
        f"  runs       on {', '.join(run['backends'])}: {run['layers']} layers, width {run['width']}, {run['steps']} steps",
        *experts,
        f"  memory     weights {size(memory['weights_bytes'])}{active}; cache {size(each)} per token in f32, "
        f"{size(each * context)} for all {context} tokens of context",
        *_state_lines(memory),
        *fits_lines(memory["fits"], size),
    ]


def _state_lines(memory):
    """What recurrent layers keep of a text, however long it is; a plan has room for a few such states."""
    each, places = memory["state_bytes"], memory["state_places"]
    return [f"  states     {size(each)} of recurrent layers, at most {places} at a time: {size(each * places)}"] if each else []


def _tokenizer_lines(t):
    if t is None:
        return ["  tokenizer  none"]
    pre = f"/{_printable(t['pre'])}" if t["pre"] else ""
    kinds = ", ".join(f"{count} {kind}" for kind, count in t["kinds"].items() if kind != "normal")
    lines = [f"  tokenizer  {_printable(t['model'] or '?')}{pre}: {t['size']} tokens" + (f" ({kinds})" if kinds else "")]
    if t["merges"]:
        lines[0] += f", {t['merges']} merges"
    facts = [f"{name} {value}" for name, value in t["special_ids"].items()]
    if t["supported"]:
        facts += [rule for rule, on in (("adds bos", t["adds_bos"]), ("adds eos", t["adds_eos"])) if on]
        facts.append(f"ends on {' '.join(map(str, t['end_ids'])) or 'nothing'}")
    else:
        lines.append(f"             not usable: {_printable(t['reason'])}")
    facts.append(f"chat template of {t['chat_template_bytes']} bytes" if t["chat_template_bytes"] else "no chat template")
    return [*lines, f"             {', '.join(facts)}"]


def _shown_type(k):
    return f"{k['element']}[{k['count']}]" if k["type"] == "array" else k["type"]


def _shown_value(k):
    if k["type"] == "array":
        if k["first"] is None:
            return "..."
        items = ", ".join(ascii(i) if isinstance(i, str) and not i.isprintable() else str(i) for i in k["first"])
        return f"{items}{', ...' if k['count'] > len(k['first']) else ''}"
    if k["type"] == "string":
        text = _printable(k["value"][:80])
        return text if k["bytes"] <= 80 else f"{text}... ({k['bytes']} bytes)"
    return f"{k['value']:.6g}" if isinstance(k["value"], float) else str(k["value"])
