"""What holds to the bit on a GPU, for tiny models of every family: a process that has done much else answers as one that does
nothing else; packed candidates are those of one at a time; a prefix may come in pieces; a state comes back from its file.

    python bench/bits_device.py [--only llama,gpt2] [--workers 10] [--seconds 75]

Needs the package `gguf`; cache/ must hold the device's kernels. Several processes share the device. Each takes one model after
another, with NaN in all device memory before it is used, and has a process of its own made for each to say what is expected. Then
adapters of every matrix that the program multiplies by, beside the reference backend on this machine: logits differ by less than
GOAL, or by choices of experts nearer to a tie than GOAL alone (tests/ties.py). tests/bits.py says what comes before a request.
bench/results/bits.json gets every number; models that --seconds leaves no time for are counted as left out. The last line sums up;
exit code 1: something was not right.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the workers are the threads

GOAL = 0.02  # standard deviations, of logits with adapters
EFFECT = 0.1  # that adapters have at least
GARBAGE = 0x7BFF7BFF  # the largest half floats, for slots that nobody wrote: zeros are promised there (memory.new_page), no NaN
NAN = 0xFFFFFFFF
PIECES = 1, 2, 9, 40, 59  # tokens of a prefix that is computed in pieces
STATES = 1, 255, 300  # tokens of a state: a page and its edges
LORA, RANK = 40, 4  # tokens of a text for adapters
# Of the adapters together; four times as strong ones change logits by hardly more, and rounding of the model so made by 0.05.
STRENGTHS = [0.25], [-0.5, 0.5]
HELD = []  # the device of this process


def fresh(path):
    """Print what a process that has done nothing else answers, as `told` has it."""
    import bits

    with bits.opened(path, "cuda") as model:
        print(json.dumps(told(bits.answers(model))))


def told(answers):
    """Answers as JSON keeps them to the bit."""
    *scores, logits = answers
    return [*scores, logits.hex()]


def dirty():
    """From now on device memory of this process begins as NaN."""
    from reflex.backends.cuda.device import Device

    allocate = Device.allocate

    def filled(self, size, what):
        address = allocate(self, size, what)
        self.fill(address, NAN, size // 4)
        self.synchronize()
        return address

    Device.allocate = filled


def poison(model):
    """What requests leave on the device becomes NaN or garbage; nothing of the timeline is held any more."""
    session, plan = model._session, model._session.plan
    session.forget()
    for page in plan.page_addresses:
        plan.device.fill(page, GARBAGE, plan.memory.page_bytes // 4)
    for place in plan.place_addresses:
        plan.device.fill(place, NAN, sum(plan.program.states))
    for name in plan.program.widths:
        if name in plan.memory.places:
            plan.device.fill(plan.address(plan.memory.places[name]), NAN, plan.memory._bytes(name) // 4)


class Checks:
    """What was looked at and what was wrong of it."""

    def __init__(self):
        self.count, self.wrong = 0, []

    def __call__(self, what, right):
        self.count += 1
        if not right:
            self.wrong.append(what)


def check(name, kind):
    """One model on the device, as a row of the results."""
    import bits
    import tiny

    from reflex.backends.cuda import device

    if not HELD:
        dirty()
        HELD.append(device.start())  # keeps the context between models
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        path = tiny.write(name, folder / "m.gguf", kind)
        alone = subprocess.run([sys.executable, __file__, "--fresh", path], capture_output=True, text=True)
        if alone.returncode:
            raise RuntimeError(" ".join(alone.stderr.split())[-300:])
        expected = json.loads(alone.stdout)
        with bits.opened(path, "cuda") as model:
            requests(checks, model, expected)
            for before in bits.BEFORE:
                before(model, folder)
                checks(f"behind {before.__name__}", told(bits.answers(model)) == expected)
            distances = adapters_of(checks, model, folder)
            checks("behind adapters", told(bits.answers(model)) == expected)
            states(checks, model, folder)
    return {"checked": checks.count, "wrong": checks.wrong, "adapters": distances}


def requests(checks, model, expected):
    """The same answers again, from poisoned memory, one at a time, in another order and in pieces."""
    import bits

    from reflex.tree import evaluate

    session = model._session
    checks("a used process", told(bits.answers(model)) == expected)
    checks("again", told(bits.answers(model)) == expected)
    poison(model)
    checks("memory of another request", told(bits.answers(model)) == expected)
    wanted = expected[0]
    checks("one at a time", [evaluate(session, bits.PREFIX, [tail])[0] for tail in bits.TAILS] == wanted)
    checks("the other way round", evaluate(session, bits.PREFIX, bits.TAILS[::-1]) == wanted[::-1])
    session.forget()
    for end in PIECES:
        session.settle(bits.PREFIX[:end])
    checks("a prefix in pieces", evaluate(session, bits.PREFIX, bits.TAILS) == wanted)


def states(checks, model, folder):
    """What comes back from a file is what was computed, and goes to the same file again."""
    import bits

    from reflex.tree import evaluate

    session = model._session
    for count in STATES:
        ids = bits.TEXT[:count]
        poison(model)
        model.session(ids).export_state(folder / "state")
        wanted = evaluate(session, ids, bits.TAILS)
        with bits.opened(model.file.path, "cuda") as other:
            timeline = other.import_state(folder / "state")
            timeline.export_state(folder / "again")
            checks(f"state of {count}, again", (folder / "again").read_bytes() == (folder / "state").read_bytes())
            poison(other)
            other.import_state(folder / "state")
            checks(f"state of {count}", evaluate(other._session, ids, bits.TAILS) == wanted)
        model.import_state(folder / "state")
        checks(f"state of {count}, used session", evaluate(session, ids, bits.TAILS) == wanted)


def adapters_of(checks, model, folder):
    """Adapters of all matrices, and of every other one beside them: how far logits are from the reference's, and the gaps of
    choices that were turned over for it."""
    import adapters
    import bits
    from ties import explain, last_logits, off

    path, ids = model.file.path, bits.TEXT[:LORA]
    program = model._session.plan.program
    read = {step.weights[0] for step in program.steps if step.op in ("linear", "expert_linear", "head_linear", "embed")}
    names = [name for name in adapters.matrices(path) if name in read and not name.startswith("per_layer")]
    plain, rows = model.logits(ids), []
    for number, some in enumerate((names, names[::2])):
        adapters.write(folder / f"lora{number}", path, some, rank=RANK * (1 + number), seed=number)
    for scales in STRENGTHS:
        given = [(folder / f"lora{number}", scale) for number, scale in enumerate(scales)]
        with bits.opened(path, "cuda", lora=given) as other:
            found = other.logits(ids)
        with bits.opened(path, "reference", lora=given) as trusted:
            plan = trusted._session.plan
            distance, gaps = off(found, last_logits(plan, ids)), []
            if distance >= GOAL:
                distance, gaps = explain(plan.file, plan.program, bits.CONTEXT, ids, found, GOAL)
        effect = off(plain, found)
        checks(f"{len(given)} adapters", distance < GOAL and effect > EFFECT)
        rows.append({"tensors": len(names), "distance": distance, "gaps": gaps, "effect": effect})
    return rows


def line(name, kind, row):
    """One model as text."""
    if "checked" not in row:
        return f"{name:<28} {kind} " + " ".join(f"{how.upper()}: {why}" for how, why in row.items())
    distances = [f"{found['distance']:.4f}{' (ties)' * bool(found['gaps'])}" for found in row["adapters"]]
    text = f"{name:<28} {kind} {row['checked']} checked, adapters {' '.join(distances)}"
    return text + ("  NOT RIGHT: " + "; ".join(row["wrong"]) if row["wrong"] else "")


def collect(jobs, workers, seconds):
    """{name: {kind: row}} of every model that there was time for; prints a line for each."""
    from families_device import Device

    found, idle, until = {}, SimpleQueue(), time.monotonic() + seconds
    for _ in range(workers):
        idle.put(Device(check))

    def one(job):
        if time.monotonic() > until:
            return job, {"left out": "no time was left"}
        device = idle.get()
        try:
            return job, device(*job)
        finally:
            idle.put(device)

    with ThreadPoolExecutor(workers) as pool:
        for (name, kind), row in pool.map(one, jobs):
            found.setdefault(name, {})[kind] = row
            print(line(name, kind, row), flush=True)
    for _ in range(workers):
        idle.get().stop()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names of models, comma separated")
    parser.add_argument("--workers", type=int, default=min(10, os.cpu_count() or 1))
    parser.add_argument("--seconds", type=float, default=75)
    parser.add_argument("--fresh", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fresh:
        fresh(options.fresh)
        return 0
    import bits
    import tiny

    from bench import record

    some = tuple(filter(None, options.only.split(",")))
    names = [name for name in sorted(tiny.MODELS) if not some or name in some]
    started = time.perf_counter()
    jobs = [(name, "F16") for name in names] + [(name, "Q8_0") for name in names if name in bits.ROUNDED]
    found = collect(jobs, options.workers, options.seconds)
    rows = [row for kinds in found.values() for row in kinds.values()]
    checked, left = sum(row.get("checked", 0) for row in rows), sum("left out" in row for row in rows)
    wrong = sum(len(row.get("wrong", [])) + ("failed" in row or "refused" in row) for row in rows)
    seconds = round(time.perf_counter() - started, 1)
    body = {"seconds": seconds, "checked": checked, "wrong": wrong, "left_out": left, "goal": GOAL, "models": found}
    record.write("bits", "what holds to the bit on a GPU, and adapters", body)
    print(f"{len(rows)} models in {seconds} s: {checked} checked, {wrong} not right, {left} left out")
    return 1 if wrong or left else 0


if __name__ == "__main__":
    sys.exit(main())
