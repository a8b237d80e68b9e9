"""The figures of docs/state.md, made of bench/results/state-cpu-*.json and device.json. Called by bench/readme.py."""

from bench import record
from bench.record import MISSING, table

FILE = record.ROOT / "docs" / "state.md"


def saved():
    """What an answer behind a long prefix takes with its state imported and without, loaded and from the start of a process."""
    cpus, devices = record.read("state-cpu-*"), record.read("device")
    if not (cpus and devices):
        return MISSING
    found = [(found["model"]["title"], found["machine"]["cpu"], found) for found in cpus]
    found += [(row["shape"], devices[0]["device"], row) for row in devices[0]["states"]]
    rows = [[name, where, f"{row['prefix_tokens']}", f"{row['state_bytes'] / 1e6:.0f}", *_times(row)] for name, where, row in found]
    head = ["model", "on", "tokens", "MB", "imported", "computed", "prefix held", "cold: imported", "computed"]
    counts = sorted({row["warm"]["imported_ms"]["n"] for _, _, row in found})
    note = "\nMilliseconds to the scores of two candidates: in a process whose model is loaded, and from its start; in brackets "
    note += "the share of computing the prefix; held: it lies in the cache already, which no import can undercut. What an import "
    note += "to a GPU takes longer is the bus and reading the file. Files in the page cache; shapes are those of Qwen3, the "
    note += f"hybrid's of Qwen3.5; medians of {' or '.join(map(str, counts))}. "
    names = [f"state-cpu-{record.slug(one['model']['title'])}.json" for one in cpus]
    note += " and ".join(f"`bench/results/{name}`" for name in names) + f" ({cpus[0]['date'][:10]}), `device.json` "
    return table(head, rows) + note + f"({devices[0]['date'][:10]}).\n"


def _times(row):
    warm, cold = row["warm"], row["cold"]
    first = f"**{_ms(warm, 'imported'):.1f}** ({100 * warm['share']['median']:.1f} %)"
    last = f"{_ms(cold, 'imported'):.0f} ({100 * cold['share']['median']:.0f} %)"
    return first, f"{_ms(warm, 'computed'):.1f}", f"{_ms(warm, 'held'):.1f}", last, f"{_ms(cold, 'computed'):.0f}"


def _ms(found, name):
    return found[f"{name}_ms"]["median"]


BLOCKS = {"saved": saved}
PAGES = {FILE: BLOCKS}
