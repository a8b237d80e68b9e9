"""Uses made-up inputs in processes of their own, where a crash, a hang or much memory is seen; keeps such inputs, made small.

    python tests/fuzz/fuzz.py [TARGET ...] [--seconds S] [--workers N] [--count N] [--seed K] [--guided] [--record FILE]

Without TARGET all of them, each with its share of the workers' time. A target is a file target_NAME.py with a class Target:
make(random) gives an input (bytes), again(data, random) changes one, and run(data) uses it and returns the outcome in a word; any
exception is a finding, and so is more than a second of processor time or 200 MiB beyond what the target needs by itself. A process
that ends by a finding is followed by another. `--guided` keeps the inputs that reach lines of reflex/ or outcomes that no other has
reached, and goes on from them; `--corpus` writes some of those into corpus/. `--record` appends what was done to a file.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from pathlib import Path

import child

ROOT = child.ROOT
FOUND = ROOT / "build" / "fuzz"  # inputs of findings
KEPT, KEPT_BYTES = 24, 4000  # inputs of a recorded corpus, and characters of each
MOST_FINDINGS = 20  # of one target, then it is left alone
SHARES = {"walk": 1, "header": 2, "tokenizer": 6, "template": 2, "argv": 1, "request": 2, "lines": 2, "load": 4}  # of the time
SHORTEST = 2.0  # seconds that are worth a process
WHAT = "Made-up inputs per target of tests/fuzz. peak_bytes: more memory than at the start; lines: of reflex/ that were reached"


def spawn(name, *more):
    command = [sys.executable, str(Path(__file__).resolve()), name, *map(str, more)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def run(name, count=1 << 62, seconds=1e9, seed=1, guided=False):
    """One process after the other until `count` executions or `seconds` are reached; what they did, added up."""
    total, start = {"executions": 0, "outcomes": {}, "findings": []}, time.monotonic()
    while True:
        left = seconds - (time.monotonic() - start)
        found = once(name, count - total["executions"], left, seed + len(total["findings"]), guided)
        add(total, found)
        if "not_run" in found:
            return total
        over = total["executions"] >= count or time.monotonic() - start > seconds - SHORTEST
        if over or not found["findings"] or len(total["findings"]) >= MOST_FINDINGS:
            return total | {"seconds": round(time.monotonic() - start, 1)}


def once(name, count, seconds, seed, guided):
    """One process; a finding ends it: how, its last words, and the input, kept under build/fuzz."""
    with tempfile.NamedTemporaryFile() as file:
        file.truncate(child.SHARED)
        more = ["--guided"] if guided else []
        done = spawn(name, "--child", file.name, "--count", count, "--seconds", seconds, "--seed", seed, *more)
        data = Path(file.name).read_bytes()
    if done.returncode == 0:
        return {**json.loads(done.stdout), "findings": []}
    words = (done.stderr.strip().splitlines() or [""])[-1]
    if done.returncode == child.UNUSABLE:
        return {"executions": 0, "outcomes": {}, "findings": [], "not_run": words}
    executions, spent, size = (int.from_bytes(data[i : i + 8], "little") for i in (0, 8, 16))
    finding = keep(name, done.returncode, words, data[child.HEAD : child.HEAD + size])
    return {"executions": executions, "outcomes": {}, "findings": [finding], "processor_seconds": round(spent / 1e9, 1)}


def keep(name, code, words, data):
    data = minimized(name, data, code)
    FOUND.mkdir(parents=True, exist_ok=True)
    path = FOUND / f"{name}-{zlib.crc32(data):08x}.bin"
    path.write_bytes(data)
    return {"code": code, "words": words, "input": str(path.relative_to(ROOT)), "bytes": len(data)}


def minimized(name, data, code, tries=60):
    """The input with pieces left out for as long as the process still ends the same way."""
    with tempfile.NamedTemporaryFile() as shared, tempfile.NamedTemporaryFile() as one:
        shared.truncate(child.SHARED)

        def fails(data):
            Path(one.name).write_bytes(data)
            return spawn(name, "--child", shared.name, "--one", one.name).returncode == code

        piece = len(data) // 2
        while piece and tries:
            at = 0
            while at < len(data) and tries:
                tries -= 1
                shorter = data[:at] + data[at + piece :]
                if fails(shorter):
                    data = shorter
                else:
                    at += piece
            piece //= 2
    return data


def add(total, found):
    """Put what a process did to what others did."""
    for name, value in found.items():
        if name == "outcomes":
            for outcome, times in value.items():
                total[name][outcome] = total[name].get(outcome, 0) + times
        elif name in ("peak_bytes", "lines"):
            total[name] = max(total.get(name, 0), value)
        elif name in ("findings", "kept"):
            total[name] = total.get(name, []) + value
        else:
            total[name] = value if isinstance(value, str) else round(total.get(name, 0) + value, 1)


# ---- several workers -------------------------------------------------------------------------------------


def schedule(shares, workers, seconds):
    """Per worker a list of (target, seconds): the shares end to end over all workers' time, cut where a worker's is used up."""
    plans, left = [[] for _ in range(workers)], seconds
    whole, at = workers * seconds / sum(shares.values()), 0
    for name, share in shares.items():
        wanted = share * whole
        while wanted > SHORTEST / 2 and at < workers:
            some = min(wanted, left)
            if some >= SHORTEST:
                plans[at].append((name, some))
            wanted, left = wanted - some, left - some
            if left < SHORTEST:
                at, left = at + 1, seconds
    return plans


def together(names, workers, seconds, seed, guided):
    """{target: what was done} of all workers."""
    totals = {name: {"executions": 0, "outcomes": {}, "findings": []} for name in names}
    lock = threading.Lock()

    def work(number, plan):
        for name, some in plan:
            found = run(name, seconds=some, seed=seed + 1000 * number, guided=guided)
            with lock:
                add(totals[name], found)

    plans = schedule({name: SHARES[name] for name in names}, workers, seconds)
    threads = [threading.Thread(target=work, args=each) for each in enumerate(plans)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return totals


# ---- what stays ------------------------------------------------------------------------------------------


def write_corpus(name, kept):
    """Of the short inputs that reached something new, those that reached most, in the order in which they did."""
    child.CORPUS.mkdir(exist_ok=True)
    short = [(reached, text) for reached, text in kept if len(text) <= KEPT_BYTES]
    best = sorted(range(len(short)), key=lambda i: -short[i][0])[:KEPT]
    if best:
        (child.CORPUS / f"{name}.json").write_text(json.dumps([short[i][1] for i in sorted(best)], indent=0) + "\n")


def record(path, entry, targets):
    """Append one run to a file of runs, whose head is that of the last."""
    from bench import record as records

    path = Path(path)
    runs = json.loads(path.read_text())["runs"] if path.exists() else []
    for done in targets.values():
        for finding in done["findings"]:
            finding["words"] = records.bare(finding["words"])
    date, command = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), records.command(["python", *sys.orig_argv[1:]])
    head = {"command": command, "commit": records.commit(), "date": date, "machine": records.machine()}
    runs.append({**head, **entry, "targets": targets})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"what": WHAT, **head, "runs": runs}, indent=1) + "\n")


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", default=list(SHARES), metavar="TARGET")
    parser.add_argument("--seconds", type=float, default=60, help="of each worker")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--count", type=int, default=1 << 62, help="executions of each target; one worker")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--guided", action="store_true")
    parser.add_argument("--corpus", action="store_true", help="write what --guided kept into corpus/")
    parser.add_argument("--record", metavar="FILE")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    arguments = parsed()
    if arguments.child:
        return child.main(arguments)
    start = time.monotonic()
    if arguments.count < 1 << 62:
        found = {n: run(n, arguments.count, arguments.seconds, arguments.seed, arguments.guided) for n in arguments.targets}
    else:
        found = together(arguments.targets, arguments.workers, arguments.seconds, arguments.seed, arguments.guided)
    for name, done in found.items():
        kept = done.pop("kept", [])
        if arguments.corpus:
            write_corpus(name, kept)
    print(json.dumps(found, indent=1))
    if arguments.record:
        entry = {"seconds": round(time.monotonic() - start, 1), "workers": arguments.workers, "seed": arguments.seed}
        record(arguments.record, entry | {"guided": arguments.guided}, found)
    return int(any(done["findings"] for done in found.values()))


if __name__ == "__main__":
    sys.exit(main())
