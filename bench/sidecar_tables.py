"""The figures of docs/sidecar.md, made of bench/results/sidecar.json. Called by bench/readme.py."""

from bench import record
from bench.record import MISSING, measured_on, table

FILE = record.ROOT / "docs" / "sidecar.md"


def sidecar():
    """What the sidecar adds, and what becomes of more clients than it takes."""
    found = record.read("sidecar")
    if not found:
        return MISSING
    (result,) = found
    rows = [
        [f"{name}, more than the worker alone", f"{row['overhead_ms']['median']:.2f} ms"] for name, row in result["request"].items()
    ]
    cold = result["cold"]
    first = (
        f"{cold['sidecar_ms']['median']:.0f} ms, bare command {cold['bare_ms']['median']:.0f}: {cold['more_ms']['median']:.0f} more"
    )
    rows.append(["first answer of sidecar and worker from their start", first])
    for name, row in result["crowd"].items():
        shares = f"{row['per_second_of_200']:.0f} answers a second, {100 * row['share_of_429']:.1f} % are 429, {row['5xx']} are 5xx"
        rows.append([f"{name} at a queue of {result['queue']}, asking again at once", shares])
    starts, requests = cold["more_ms"]["n"], result["request"]["classify"]["overhead_ms"]["n"]
    note = f"\n{result['model']['title']}; medians of {starts} starts and {requests}"
    return table(["", ""], rows) + note + " requests, interleaved with what they are compared with. " + measured_on(found)


BLOCKS = {"sidecar": sidecar}
PAGES = {FILE: BLOCKS}
