"""llama.cpp on a GPU: cold starts asleep and awake, prompt and decode speed, for the files that bench/device.py measured.

    python bench/peers/device_llama.py FOLDER_OF_A_BUILD 0.6B=a.gguf 8B=b.gguf [--runs 8] [--results device-llama]

FOLDER_OF_A_BUILD holds llama-completion and llama-bench, built with CUDA for this card. Default options but for the warm-up,
which a cold start has no use for. Writes bench/results/device-llama.json, or the name given.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench import gpu_models, record, spawn


def cold(folder, path, awake, runs):
    """Milliseconds from spawn to exit of one token."""
    words = [f"{folder}/llama-completion", "-m", path, "-p", gpu_models.PROMPT, "-n", "1", "--temp", "0", "--no-warmup"]
    words += ["-no-cnv", "--no-display-prompt", "-ngl", "99"]
    holder = None
    if awake:
        holder = subprocess.Popen(
            [sys.executable, "-c", gpu_models.HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=record.ROOT
        )
        holder.stdout.readline()
    times = [spawn.run(words).exit for _ in range(runs + 1)][1:]
    if holder:
        holder.stdin.close()
        holder.wait()
    return record.summary(times)


def warm(folder, path):
    """{test: tokens per second} of llama-bench."""
    words = [f"{folder}/llama-bench", "-m", path, "-p", "32,512", "-n", "128", "-ngl", "99", "-r", "8", "-o", "json"]
    found = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    rows = {}
    for row in found:
        name = f"prompt_{row['n_prompt']}" if row["n_prompt"] else f"decode_{row['n_gen']}"
        rows[name] = record.summary(row["samples_ts"], 1)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("shapes", nargs="+", help="NAME=FILE")
    parser.add_argument("--runs", type=int, default=8, help="cold starts of each kind")
    parser.add_argument("--results", default="device-llama")
    options = parser.parse_args()
    found = {}
    for shape in options.shapes:
        name, path = shape.split("=", 1)
        row = {f"{state}_ms": cold(options.folder, path, state == "awake", options.runs) for state in ("asleep", "awake")}
        row |= warm(options.folder, path)
        found[name] = row
        print(name, {key: value["median"] for key, value in row.items()}, flush=True)
    record.write(options.results, "llama.cpp on the same GPU and files", {"shapes": found})


if __name__ == "__main__":
    main()
