"""Everything about a GPU in one call: each kernel against its reference, real models against the reference backend, then speed.

    python bench/device.py                                  kernels only
    python bench/device.py --model model.gguf --model ...   and these models
    python bench/device.py --shape 0.6B=big.gguf            and the speed of this file (random weights will do)
    python bench/device.py --shape ... --reflex bin/reflex --llama FOLDER     and llama.cpp's, cold starts in turn with ours
    python bench/device.py --families                       and every family by tiny models (families_device.py)
    python bench/device.py --shape ... --state              and answers behind an imported prefix of 2,000 tokens (state.py)

Builds nothing: cache/ must hold the device's kernels. A short table comes last; bench/results/device.json gets every number.
Refuses nothing and hides nothing: a kernel that fails is in the table, and the exit code is 1.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import gpu, record


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="case files whose name holds this")
    parser.add_argument("--no-kernels", action="store_true")
    parser.add_argument("--model", action="append", default=[], help="a real model to compare and measure")
    parser.add_argument("--shape", action="append", default=[], help="NAME=FILE to measure")
    parser.add_argument("--families", action="store_true", help="compare tiny models of every family")
    parser.add_argument("--state", action="store_true", help="import the state of a prefix of every shape")
    parser.add_argument("--runs", type=int, default=8, help="processes per cold figure")
    parser.add_argument("--reflex", default="", help="the installed reflex command for cold starts")
    parser.add_argument("--llama", default="", help="a folder with llama.cpp's programs: its figures go to device-llama.json")
    options = parser.parse_args()
    if options.llama and not (options.reflex and options.shape):
        parser.error("--llama needs --reflex and --shape")
    return options


def kernels(runner, only):
    """Check and time every kernel; returns (record, number of complaints)."""
    checked = gpu.check_all(runner, only)
    for name, (count, problems) in checked.items():
        print(f"{name:<20} {count:4} cases {len(problems):4} wrong", flush=True)
        for problem in problems[:3]:
            print(f"    {problem}", flush=True)
    timed = gpu.time_all(runner, only)
    for name, label, kernel, spent, bandwidth, work in timed:
        rates = (f" {bandwidth:7.0f} GB/s" if bandwidth else "") + (f" {work:7.1f} TFLOP/s" if work else "")
        print(f"{name:<20} {kernel:<28} {label:<36} {spent:8.2f} us{rates}", flush=True)
    complaints = sum(len(problems) for _, problems in checked.values())
    body = {
        "cases": {name: {"run": count, "wrong": problems} for name, (count, problems) in checked.items()},
        "times": [dict(zip(("file", "case", "kernel", "us", "gb_s", "tflop_s"), row, strict=True)) for row in timed],
    }
    return body, complaints


def models(paths, steps):
    """Each real model on the device beside the float32 reference, teacher-forced; then what the lab shows of it."""
    from bench import gpu_models, lab_device

    rows = []
    for path in paths:
        row = gpu_models.compare(path, steps)
        rows.append(row)
        repeats = "bit-equal" if row["repeats"] else "DIFFER"
        text = f"{row['file']:<40} rms {row['rms_std']:.4f} max {row['max_std']:.4f} std, {row['same']} of {row['steps']} tokens, "
        print(f"{text}{row['clear_wrong']} wrong with a clear margin, repeats {repeats}", flush=True)
        text = f"  decode by {row['decode']}: log-probabilities off by {row['decode_logprob_error']:.4f} at most, chosen within "
        text += f"{row['decode_gap_std']:.4f} std of the best, repeats {'bit-equal' if row['decode_repeats'] else 'DIFFER'}"
        print(text, flush=True)
        row["lab"] = lab_device.check(path)
        print(lab_device.line(row["lab"]), flush=True)
    return rows


def colds(shapes, options):
    """Cold starts of every shape, asleep first: nothing in this process may have touched the device before."""
    from bench import gpu_models
    from bench.peers import device_llama

    peers = {path: device_llama.words(options.llama, path) for _, path in shapes}
    found = {}
    for state in ("asleep", "awake"):
        for name, path in shapes:
            cold = gpu_models.cold(options.reflex, path, options.runs, state == "awake", peers[path])
            found.setdefault(name, {})[state] = cold
    return found


def speeds(shapes, cold):
    """Warm speed, memory and upload of every shape."""
    from bench import gpu_models

    rows = []
    for name, path in shapes:
        row = {"shape": name, **gpu_models.measure(path), "cold": cold.get(name, {})}
        rows.append(row)
        print(gpu_models.line(row), flush=True)
    return rows


def states(shapes, runs, command):
    """Answers behind an imported prefix, of every shape."""
    from bench import state

    rows = []
    for name, path in shapes:
        rows.append({"shape": name, **state.measure(path, "cuda", 2000, runs, command=command or state.OWN)})
        print(state.line(rows[-1]), flush=True)
    return rows


def main():
    options = arguments()
    wrong = 0
    shapes = [tuple(shape.split("=", 1)) for shape in options.shape]
    body = {}
    cold = colds(shapes, options) if options.reflex else {}
    runner = gpu.Runner()
    found = runner.gpu
    print(f"{found.name}, {found.capability}, driver {found.driver}, kernels {runner.images.target}", flush=True)
    body |= {"device": found.name, "driver": found.driver, "kernels_for": runner.images.target}
    if not options.no_kernels:
        body["kernels"], wrong = kernels(runner, options.only)
    found.close()
    body["models"] = models(options.model, 32)
    wrong += sum(row["clear_wrong"] + (not row["repeats"]) + row["lab"]["wrong"] for row in body["models"])
    if options.families:
        from bench import families_device

        wrong += families_device.families()
    body["speed"] = speeds(shapes, cold)
    if options.llama:
        from bench.peers import device_llama

        device_llama.write("device-llama", options.llama, {name: (path, cold[name]) for name, path in shapes})
    if options.state:
        body["states"] = states(shapes, options.runs, options.reflex)
        wrong += sum(not row["bit_equal"] for row in body["states"])
    record.write("device", "kernels and models on a GPU", body)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
