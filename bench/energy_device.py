"""What a GPU takes for a cold call and per prompt and token, by the command itself (`--energy`), for files of several shapes.

    python bench/energy_device.py --reflex $(which reflex) --shape 0.6B=a.gguf --shape 8B=b.gguf

Needs nvidia-ml-py where the command runs, and a device that nobody else uses: what an idle one takes is measured before each call
and subtracted. Writes bench/results/energy-device.json.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import record

ENGINE = "--backend", "cuda", "--json", "--energy"


def printed(*words):
    """The last JSON object of each type that a command prints."""
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    objects = [json.loads(line) for line in done.stdout.splitlines()]
    return {said["type"]: said for said in objects}


def joules(command, path):
    """For one cold call, and on average of many in a process."""
    call = printed(command, "system1", path, "The capital of France is", "--candidate", " Paris", *ENGINE)
    many = printed(command, "bench", path, "--runs", "1", *ENGINE)
    return {"one_call": call["phases"]["energy"], **many["result"]["energy"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", action="append", required=True, help="NAME=FILE")
    parser.add_argument("--reflex", required=True, help="the installed reflex command")
    options = parser.parse_args()
    found = {}
    for name, path in (shape.split("=", 1) for shape in options.shape):
        found[name] = joules(options.reflex, path)
        for what, row in found[name].items():
            if what != "one_call":
                text = f"{row['each_joules']:.4f} J per {what} (n {row['count']}), beside {row['idle_watts']:.1f} W"
                print(f"{name:<20} {text}; {row['method']}", flush=True)
        print(f"{name:<20} {found[name]['one_call']['joules']:.2f} J for one cold call", flush=True)
    record.write("energy-device", "energy of calls on a GPU", {"shapes": found})


if __name__ == "__main__":
    main()
