"""Writes what is generated of README.md and docs/: tables and figures within pages, and whole the pages of commands and of Python.

    python bench/readme.py            rewrite the pages
    python bench/readme.py --check    exit 1 when a page is not what the results say

A block runs from `<!-- numbers: NAME -->` to `<!-- /numbers -->`; NAME is a function of the page's blocks. A block without
results says so. Called by `make pages` and `make bench`; a test runs the check.
"""

import ast
import re
import sys
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import (
    decision_tables,
    deploy_tables,
    error_tables,
    picture,
    quantize_tables,
    record,
    sidecar_tables,
    state_tables,
    support_tables,
)
from bench.record import MISSING, measured_on, table
from reflex import arch
from reflex.quant.types import TYPES

FILE = record.ROOT / "README.md"
UNSAID = {  # folders whose __init__ stays empty, because its bytes count as a source of every kernel
    "reflex/kernels": "The source of the compiled code: intrinsics, the export mark, the linker; never imported at run time",
    "reflex/kernels/host": "Kernels for processors, one file per subject",
}
BLOCK = re.compile(r"(<!-- numbers: (\w+) -->\n).*?(<!-- /numbers -->)", re.DOTALL)


def cold():
    """Time to the first result, one row per model, one column per engine."""
    results = record.read("cold-*")
    if not results:
        return MISSING
    names = list(dict.fromkeys(engine["name"] for result in results for engine in result["engines"]))
    rows = []
    for result in results:
        found = {engine["name"]: engine["first_ms"]["median"] for engine in result["engines"]}
        cells = [_cell(found.get(name), result["ratios"].get(name)) for name in names]
        rows.append([f"{result['model']['title']}, {result['model']['bytes'] / 1e6:.0f} MB", *cells])
    rounds, words = result["engines"][0]["first_ms"]["n"], len(results[0]["prompt"].split())
    cores = "one core" if len(results[0]["cpus"]) == 1 else f"{len(results[0]['cpus'])} cores"
    note = (
        f"\nMilliseconds from spawn to the first byte of the result, {cores}, page cache warm, prompt of {words} words; medians of "
    )
    note += f"{rounds} interleaved runs, in brackets the median ratio to Reflex. "
    return table(["model", *names], rows) + note + measured_on(results)


def _cell(ms, ratio):
    if ms is None:
        return ""
    return f"{ms:.0f} ({ratio['median']:.1f}x)" if ratio else f"**{ms:.1f}**"


def warm():
    """Tokens per second of a loaded model, Reflex against llama.cpp."""
    results = record.read("warm-*")
    if not results:
        return MISSING
    names = list(dict.fromkeys(row["what"] for result in results for row in result["rows"]))
    rows = []
    for result in results:
        for threads in dict.fromkeys(row["threads"] for row in result["rows"]):
            mine = {row["what"]: row for row in result["rows"] if row["threads"] == threads}
            rows.append([result["model"]["title"], str(threads), *(_speeds(mine.get(name)) for name in names)])
    note = f"\nTokens per second, medians of {results[0]['rows'][0]['reflex']['n']} interleaved rounds; in brackets Reflex's "
    note += "speed divided by llama.cpp's: the xllamacpp wheel (AVX2), then a build for this very processor where one was given. "
    note += "llama.cpp has its default settings, and flash attention on or off, whichever is better. "
    shares = [row["share_of_read_rate"] for result in results for row in result["rows"] if "share_of_read_rate" in row]
    note += (
        f"Decoding reads the weights at {100 * min(shares):.0f} to {100 * max(shares):.0f} % of the rate at which as many threads "
    )
    note += "read this machine's memory. "
    return table(["model", "threads", *names], rows) + note + measured_on(results)


def _speeds(row):
    if row is None:
        return ""
    ratios = [f"{row[name]['ratio']['median']:.2f}" for name in ("llama.cpp", "native") if name in row]
    return f"**{row['reflex']['median']:.0f}**" + (f" ({', '.join(ratios)})" if ratios else "")


def memory():
    """Peak memory of a cold system1."""
    results = record.read("memory")
    if not results:
        return MISSING
    rows = []
    for row in results[0]["rows"]:
        sizes = (row["model"]["bytes"], row["touched"], row["peak"], row["peak"] - row["touched"])
        rows.append([row["model"]["title"], *(f"{size / 1e6:.0f}" for size in sizes)])
    head = ["model", "file, MB", "touched part of it", "peak", "peak beyond the file"]
    return table(head, rows) + "\n" + measured_on(results)


def device():
    """The same on a GPU, beside llama.cpp on the same card and files."""
    results, peers = record.read("device"), record.read("device-llama")
    if not results or not peers:
        return MISSING
    ours, theirs = results[0], peers[0]["shapes"]
    rows = []
    for row in ours["speed"]:
        if row["shape"] not in theirs:
            continue
        other = theirs[row["shape"]]
        pairs = [(row["cold"][state]["ms"]["median"], other[f"{state}_ms"]["median"]) for state in ("awake", "asleep")]
        bare = [row["cold"][state]["bare_context_ms"]["median"] for state in ("awake", "asleep")]
        cells = [f"**{mine:.0f}**, context {context:.0f} ({peer:.0f})" for (mine, peer), context in zip(pairs, bare, strict=True)]
        names = ("decode_100", "decode_128"), ("prompt_512", "prompt_512"), ("prompt_32", "prompt_32")
        cells += [f"**{row[mine]['median']:.0f}** ({other[peer]['median']:.0f})" for mine, peer in names]
        rows.append([row["shape"], *cells])
    speeds = "decode, tok/s", "prompt 512, tok/s", "prompt 32, tok/s"
    head = ["Q4_K_M shapes of Qwen3", "cold system1, awake, ms", "asleep, ms", *speeds]
    count = ours["speed"][0]["cold"]["awake"]["ms"]["n"]
    note = f"\n{ours['device']}; in brackets llama.cpp on the same card and files (llama-completion for one token without warm-up, "
    apart = another_run(ours, peers[0])
    note += f"llama-bench; {peers[0]['llama.cpp']}; default options{apart}); the hybrid's shapes are those of Qwen3.5. Cold: whole "
    note += "process, spawn to exit, and what a process takes that only makes a context. Awake: another process holds a context on "
    note += f"the card. Medians of {count} processes and runs. Random weights: "
    note += "they cost what real ones do. "
    rates = [row["weight_bytes"] * row["decode_100"]["median"] / 1e12 for row in ours["speed"] if row["shape"] in theirs]
    note += f"Decoding reads the weights at {min(rates):.1f} to {max(rates):.1f} TB/s; the card's data sheet has 4.8. "
    for row in (row for row in ours["speed"] if row["shape"] not in theirs):
        speeds = [f"{row[name]['median']:.0f}" for name in ("decode_100", "prompt_512", "prompt_32")]
        note += f"{row['shape']}, not measured with llama.cpp: decode {speeds[0]}, prompt 512 {speeds[1]}, prompt 32 {speeds[2]}. "
    errors = "; ".join(f"{row['file'].partition('.')[0]} {row['max_std']:.3f}" for row in ours["models"])
    note += f"Logits of real models differ from float32 arithmetic by at most, in standard deviations: {errors}. "
    return table(head, rows) + note + measured_on([ours])


def another_run(ours, theirs):
    """What to say of a peer that was not measured together with us."""
    return "" if theirs["commit"] == ours["commit"] else f", measured in another run, {theirs['date'][:10]}"


def mixture():
    """A mixture of experts on a GPU, beside llama.cpp on the same card and file; what its first token takes lazily and eagerly."""
    results, peers, lazy = (record.read(name) for name in ("experts-device", "experts-device-llama", "lazy-device"))
    if not (results and peers and lazy):
        return MISSING
    ours, theirs = results[0], peers[0]["shapes"]["30B-A3B"]
    pairs = (ours["cold"]["awake"]["ms"], "awake_ms"), (ours["decode_100"], "decode_128"), (ours["prompt_512"], "prompt_512")
    cold, decode, prompt = (f"**{mine['median']:.0f}** ({theirs[peer]['median']:.0f})" for mine, peer in pairs)
    text = f"A mixture, Qwen3 30B-A3B shapes: cold system1, awake, {cold} ms, decode {decode} tokens/s, prompt 512 {prompt}. "
    text += f"In brackets llama.cpp{another_run(results[0], peers[0])}. Experts stay in the file until a router asks for them, "
    text += "where a prompt asks for few (`--experts lazy`, the default); "
    text += "else all are uploaded at once:\n\n"
    rows = []
    for model in lazy[0]["models"]:
        for tokens, found in model["cold"].items():
            mine, other = (found[way]["first_ms"]["median"] for way in ("lazy", "eager"))
            rows.append([f"{model['name']}, {model['bytes'] / 1e9:.1f} GB", tokens, f"**{mine:.0f}**", f"{other:.0f}"])
            rows[-1].append(f"{other / mine:.2f}")
    text += table(["shapes", "tokens of the prompt", "lazy: first token, ms", "eager, ms", "times"], rows)
    count = lazy[0]["models"][0]["cold"]["5"]["lazy"]["first_ms"]["n"]
    text += f"\nFirst token: process start to the first byte of `generate`, awake; medians of {count}, in turn. The logits are the "
    text += "same to the bit, also with device memory for a quarter of the experts (`--expert-memory`). Files in memory (tmpfs). "
    return text + measured_on(lazy) + "\n"


def drawing():
    """The picture of the cold start, where there is one."""
    if not record.read("cold-*"):
        return MISSING
    return f"![Process start to first result, by engine and by phase]({picture.FILE.relative_to(record.ROOT)})"


def _says(path):
    """The first line of a module's docstring, without its full stop."""
    return (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0].rstrip(".")


def tree():
    """Folders, each with the first line of its own docstring."""
    rows = []
    for init in sorted((record.ROOT / "reflex").glob("*/**/__init__.py")):
        name = str(init.parent.relative_to(record.ROOT))
        rows.append([f"`{name}/`", _says(init) or UNSAID[name]])
    rows += [["`precompile.py`", _says(record.ROOT / "precompile.py")], ["`bench/`", _says(record.ROOT / "bench" / "__init__.py")]]
    return table(["where", "what"], rows)


def families():
    """How many families and formats there are, and where to read on."""
    text = f"{len(arch.families())} architectures run, dense and with experts: [docs/families.md](docs/families.md). All "
    return text + f"{len(TYPES)} block formats of ggml are read: [docs/formats.md](docs/formats.md).\n"


BLOCKS = {
    "cold": cold,
    "warm": warm,
    "memory": memory,
    "device": device,
    "mixture": mixture,
    "picture": drawing,
    "tree": tree,
    "families": families,
}


WHOLE = {"api": "reflex.lab.page", "constrain": "reflex.constrain.page", "help": "reflex.cli.page", "worker": "reflex.worker.page"}
PAGES = {FILE: BLOCKS, decision_tables.FILE: decision_tables.BLOCKS, quantize_tables.FILE: quantize_tables.BLOCKS}
PAGES |= deploy_tables.PAGES | error_tables.PAGES | support_tables.PAGES | sidecar_tables.PAGES | state_tables.PAGES


def fill(text, blocks=BLOCKS):
    """A page's text with every block made anew."""
    unknown = {name for _, name, _ in BLOCK.findall(text)} - set(blocks)
    if unknown:
        sys.exit(f"no block named {', '.join(sorted(unknown))}; known: {', '.join(blocks)}")
    return BLOCK.sub(lambda found: f"{found[1]}{blocks[found[2]]().rstrip()}\n{found[3]}", text)


def texts():
    """{page: the text that it should have} of every generated page."""
    made = {page: fill(page.read_text(), blocks) for page, blocks in PAGES.items()}
    return made | {record.ROOT / "docs" / f"{name}.md": import_module(module).text() for name, module in WHOLE.items()}


def main():
    made = texts()
    stale = [page for page, text in made.items() if page.read_text() != text]
    if "--check" in sys.argv[1:]:
        names = ", ".join(page.name for page in stale)
        sys.exit(f"not as it is made: {names}; run: python bench/readme.py" if stale else 0)
    for page in stale:
        page.write_text(made[page])
        print(f"wrote {page.name}", file=sys.stderr)


if __name__ == "__main__":
    main()
