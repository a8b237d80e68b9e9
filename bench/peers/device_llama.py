"""llama.cpp on a GPU: cold starts asleep and awake, prompt and decode speed, for the files that bench/device.py measured.

    python bench/peers/device_llama.py FOLDER_OF_A_BUILD COMMIT 0.6B=a.gguf 8B=b.gguf

FOLDER_OF_A_BUILD holds llama-completion and llama-bench, built with CUDA for this card. Default options but for the warm-up,
which a cold start has no use for. Writes bench/results/device-llama.json.
"""

import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench import gpu_models, record, spawn

RUNS = 8


def cold(folder, path, awake):
    """Milliseconds from spawn to exit of one token."""
    words = [f"{folder}/llama-completion", "-m", path, "-p", gpu_models.PROMPT, "-n", "1", "--temp", "0", "--no-warmup"]
    words += ["-no-cnv", "--no-display-prompt", "-ngl", "99"]
    holder = None
    if awake:
        holder = subprocess.Popen(
            [sys.executable, "-c", gpu_models.HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=record.ROOT
        )
        holder.stdout.readline()
    times = [spawn.run(words).exit for _ in range(RUNS + 1)][1:]
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
    folder, commit, *shapes = sys.argv[1:]
    body = {"commit": commit, "shapes": {}}
    for shape in shapes:
        name, path = shape.split("=", 1)
        row = {"asleep_ms": cold(folder, path, False), "awake_ms": cold(folder, path, True), **warm(folder, path)}
        body["shapes"][name] = row
        print(name, {key: value["median"] for key, value in row.items()}, flush=True)
    record.write("device-llama", "llama.cpp on the same GPU and files", body)


if __name__ == "__main__":
    main()
