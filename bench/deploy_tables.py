"""The figures of docs/deploy.md, made of bench/results/cold-*.json and device.json. Called by bench/readme.py."""

from bench import record
from bench.record import MISSING, table

FILE = record.ROOT / "docs" / "deploy.md"


def starts():
    """What a start of Reflex itself takes: the smallest model on a CPU; each shape on a GPU that is awake and one that sleeps."""
    results, devices = record.read("cold-*"), record.read("device")
    if not (results and devices):
        return MISSING
    small, (found,) = min(results, key=lambda result: result["model"]["bytes"]), devices
    bare = [row["cold"]["awake"]["bare_context_ms"]["median"] for row in found["speed"]]
    advice = "`reflex doctor`: a Python that was built with profiles, huge pages, no `site`"
    cpu = f"{small['engines'][0]['first_ms']['median']:.0f} ms ({small['model']['title']})"
    rows = [
        ["on a CPU, one core, page cache warm", cpu, advice],
        ["on a GPU that is awake", _each(found, "awake"), f"of this the CUDA context takes {min(bare):.0f} to {max(bare):.0f} ms"],
        ["on a GPU that is asleep", _each(found, "asleep"), "the persistence daemon (below)"],
    ]
    name = f"cold-{record.slug(small['model']['title'])}.json"
    note = f"\n`bench/results/{name}` ({small['machine']['cpu']}, {small['date'][:10]}) and "
    note += f"`device.json` ({found['device']}, {found['date'][:10]}); shapes are those of Qwen3, the hybrid's of Qwen3.5.\n"
    return table(["Reflex, process start to the first result", "how long", "what it depends on"], rows) + note


def _each(found, state):
    return ", ".join(f"{row['cold'][state]['ms']['median']:.0f} ms ({row['shape']})" for row in found["speed"])


BLOCKS = {"starts": starts}
PAGES = {FILE: BLOCKS}
