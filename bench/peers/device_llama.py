"""llama.cpp on a GPU, measured in turn with Reflex by bench/device.py and bench/experts_device.py (`--llama FOLDER_OF_A_BUILD`).

The folder holds llama-completion and llama-bench, built with CUDA for the card. Default options but for the warm-up, which a cold
start has no use for. What it does not run is said and left out. The record names the build; a file BUILD in the folder, one line of
what it was made for and what it leaves out, goes with it.
"""

import json
import subprocess
from pathlib import Path

from bench import gpu_models, record


def words(folder, path):
    """What makes one token in a process of its own, once that was seen to work; nothing where it does not."""
    if not folder:
        return ()
    made = [f"{folder}/llama-completion", "-m", path, "-p", gpu_models.PROMPT, "-n", "1", "--temp", "0", "--no-warmup"]
    made += ["-no-cnv", "--no-display-prompt", "-ngl", "99"]
    done = subprocess.run(made, capture_output=True, stdin=subprocess.DEVNULL)
    if done.returncode or not done.stdout:
        said = done.stderr.decode(errors="replace").strip().splitlines()[-3:]
        print(f"llama.cpp does not run {path}, left out: exit code {done.returncode}, {' | '.join(said)}", flush=True)
        return ()
    return made


def warm(folder, path):
    """({test: tokens per second} of llama-bench, the build that it says it is of)."""
    words = [f"{folder}/llama-bench", "-m", path, "-p", "32,512", "-n", "128", "-ngl", "99", "-r", "5", "-o", "json"]
    found = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    rows = {}
    for row in found:
        name = f"prompt_{row['n_prompt']}" if row["n_prompt"] else f"decode_{row['n_gen']}"
        rows[name] = record.summary(row["samples_ts"], 1)
    return rows, f"build {found[0]['build_number']} ({found[0]['build_commit']})"


def write(name, folder, shapes):
    """Take what is the peer's out of `shapes`, {shape: (path, {state: what gpu_models.cold found})}, measure its speed, and write
    bench/results/<name>.json."""
    found = {}
    for shape, (path, cold) in shapes.items():
        if any("peer_ms" in one for one in cold.values()):
            found[shape] = {f"{state}_{what}": one.pop(f"peer_{what}") for state, one in cold.items() for what in ("ms", "times")}
            speeds, build = warm(folder, path)
            found[shape] |= speeds
            print("llama.cpp", shape, {key: value["median"] for key, value in found[shape].items()}, flush=True)
    if found:
        told = Path(folder, "BUILD")
        build += f", {told.read_text().strip()}" if told.exists() else ""
        record.write(name, "llama.cpp on the same GPU and files", {"llama.cpp": build, "shapes": found})
