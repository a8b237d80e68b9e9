"""What every results file holds besides its numbers: machine, commit, date, command; and the summary of raw times.

A speed claim is a file in bench/results/; README and the picture are made from those files and from nothing else.
Refuses to write a file without raw values. Folder names never enter a record: a path is reduced to its last part.
"""

import json
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
MISSING = "*Not measured yet: `make bench` writes this part.*"


def machine():
    """Processor, cores, memory, kernel and Python of this machine."""
    words = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        words.setdefault(key.strip(), value.strip())
    total = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    return {
        "cpu": words.get("model name") or words.get("CPU part", platform.machine()),
        "avx512_vnni": "avx512_vnni" in words.get("flags", "").split(),
        "cores": os.cpu_count(),
        "memory_gib": round(int(total.split()[1]) / 2**20, 1),
        "kernel": platform.release().split("-")[0],
        "python": f"{platform.python_version()} ({'system' if distribution_python() else 'own'} build)",
    }


def distribution_python():
    """Whether this Python belongs to the system: those are built with profiles, and a cold start feels it."""
    return sys.base_prefix == "/usr"


def model(path):
    """What identifies a model file: its title (own name and size label), file name and bytes."""
    from reflex.gguf import reader

    file = reader.open_model(path)
    size = Path(path).stat().st_size
    title = file.s("general.basename", "") or file.s("general.name", "") or Path(path).stem
    label = file.s("general.size_label", "")
    file.close()
    return {"title": f"{title} {label}".strip(), "file": Path(path).name, "bytes": size}


def slug(title):
    """A title as part of a file name: lower case, hyphens."""
    return re.sub(r"[^a-z0-9.]+", "-", title.lower()).strip("-")


def _git(*words):
    try:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def commit():
    """The commit measured, with `+` where product files differ from it; REFLEX_COMMIT names it for a copy of a tree."""
    if os.environ.get("REFLEX_COMMIT"):
        return os.environ["REFLEX_COMMIT"]
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", "reflex", "precompile.py")
    return (_git("rev-parse", "--short=12", "HEAD") or "unknown") + ("+" if changed else "")


def bare(text):
    """`text` with folder names taken off its absolute and home paths: `x=/a/b/model.gguf` -> `x=model.gguf`."""
    return re.sub(r"(?<![^\s=,'\"])~?/(?:[^\s/'\"]+/)*(?=[^\s/'\"])", "", text)


def command(words):
    return " ".join(shlex.quote(bare(word)) for word in words)


def summary(values, digits=2):
    """Median, extremes and count of raw values, with the raw values."""
    if not values:
        raise ValueError("a record without raw values")
    return {
        "median": round(statistics.median(values), digits),
        "min": round(min(values), digits),
        "max": round(max(values), digits),
        "n": len(values),
        "raw": [round(v, digits) for v in values],
    }


def ratios(ours, theirs):
    """Summary of theirs/ours over the pairs measured next to each other."""
    return summary([b / a for a, b in zip(ours, theirs, strict=True)], 3)


def write(name, what, body):
    """Write bench/results/<name>.json and return its path."""
    head = {
        "what": what,
        "command": command(["python", *sys.orig_argv[1:]]),
        "commit": commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": machine(),
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    text = json.dumps(head | body, indent=1, ensure_ascii=False)
    flat = re.sub(r"\[[-\d.,\s]*\]", lambda found: re.sub(r"\s+", " ", found[0]).replace("[ ", "[").replace(" ]", "]"), text)
    path.write_text(flat + "\n")
    print(f"wrote {path.relative_to(ROOT)}", file=sys.stderr)
    return path


def read(pattern):
    """The results whose file name matches `pattern`, smallest model first."""
    found = [json.loads(path.read_text()) for path in sorted(RESULTS.glob(f"{pattern}.json"))]
    return sorted(found, key=lambda result: result.get("model", {}).get("bytes", 0))


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def measured_on(results):
    """One sentence on machine, commit and date of results that belong together."""
    machines = {
        f"{m['cpu']}, {m['cores']} cores, Linux {m['kernel']}, Python {m['python']}" for m in (r["machine"] for r in results)
    }
    commits = ", ".join(sorted({r["commit"] for r in results}))
    dates = sorted({r["date"].split()[0] for r in results})
    return f"Measured on {'; '.join(sorted(machines))}; commit {commits}; {dates[-1]}."
