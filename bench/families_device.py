"""Every family on a GPU: tiny random models of tests/tiny.py, in F16 and F32, beside the float32 reference on the same machine and,
in F16, beside llama.cpp's CPU code (package `xllamacpp`, where it is there), whose activations are half floats too.

    python bench/families_device.py [--only llama,gpt2] [--kinds F16,F32] [--workers 8] [--seed 0]

Needs the packages `gguf` and `libgguf` or files that need neither type; cache/ must hold the device's kernels. Workers write the
models and compute the reference; one process has the device, and a new one follows it where it failed, so that a family that
fails is a line and not the end. Each model runs whole prompts of LENGTHS tokens, the longest one token by token too, and makes
FOLLOWED tokens by itself. bench/results/families.json gets every number. Exit code 1: something failed or is too far off.
"""

import argparse
import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the workers are the threads

LENGTHS = 1, 7, 64, 100  # tokens; the last is the longest
FOLLOWED = 4
CONTEXT = 512
GOAL = 0.01  # standard deviations
SECONDS = 60  # that one model may take on the device
HELD = []  # the device of this process


def tokens(vocabulary, seed):
    """The longest prompt: with seed 0 the text of tests/pure/test_families.py."""
    import numpy

    return numpy.random.default_rng(7 + seed).integers(0, vocabulary, LENGTHS[-1]).tolist()


def peer(path, ids):
    """llama.cpp's logits behind the prompts of LENGTHS tokens: float32 [LENGTHS, vocabulary]; None without its library."""
    import numpy
    from llama import Llama

    model = Llama(path, CONTEXT)
    found = numpy.array([model.logits(ids[:length])[-1] for length in LENGTHS])
    model.close()
    return found


def make(name, kind, folder, seed):
    """Write a model and compute what is expected: (path, {who: float32 [LENGTHS, vocabulary]}, largest difference of llama.cpp's
    logits from the reference's in standard deviations, or None)."""
    import numpy
    import tiny

    from reflex.open import open_model

    path = str(tiny.write(name, Path(folder) / f"{name}.{kind}.gguf", kind, seed=seed))
    _, _, session = open_model(path, "reference", CONTEXT)
    ids = tokens(session.plan.vocabulary, seed)
    found = numpy.array([whole(session, ids[:length]) for length in LENGTHS])
    session.close()
    wanted, theirs = {"reference": found}, None
    if kind == "F16" and find_spec("xllamacpp"):
        try:
            wanted["llama.cpp"] = peer(path, ids)
            theirs = max(map(off, wanted["llama.cpp"], found))
        except RuntimeError:  # an architecture that llama.cpp does not have
            theirs = None
    return path, wanted, theirs


def off(found, wanted):
    """Largest difference in standard deviations; NaN counts as infinite."""
    import numpy

    value = float(numpy.abs(found - wanted).max() / wanted.std())
    return value if value == value else float("inf")


def run(path, wanted, seed):
    """One model on the device: {who: {what: largest difference in standard deviations}}, and how it decodes."""
    from reflex.backends.cuda import device
    from reflex.open import open_model
    from reflex.sample import Sampling

    if not HELD:
        HELD.append(device.start())  # keeps the context between models
    _, _, session = open_model(path, "cuda", CONTEXT)
    plan, errors = session.plan, {who: {} for who in wanted}
    ids = tokens(plan.vocabulary, seed)
    for row, length in enumerate(LENGTHS):
        found = whole(session, ids[:length])
        for who, expected in wanted.items():
            errors[who][f"whole {length}"] = off(found, expected[row])
    whole(session, ids[:1])
    for at in range(len(ids)):
        found = logits(session, ids[: at + 1])
        if at + 1 in LENGTHS:
            for who, expected in wanted.items():
                errors[who][f"step {at + 1}"] = off(found, expected[LENGTHS.index(at + 1)])
    session.sync(ids)
    chosen = [plan.argmax(0)]
    for _ in range(FOLLOWED):
        chosen.append(int(logits(session, ids + chosen).argmax()))
    session.sync(ids)
    steps = session.follow(chosen[0], Sampling(), 1, (), FOLLOWED)
    if steps is None:  # of recurrent layers, whose state cannot run ahead: each text at once instead
        followed = []
        for count in range(1, FOLLOWED + 1):
            session.forget()
            session.sync([*ids, *chosen[:count]])
            followed.append(plan.argmax(0))
    else:
        followed = [following for following, _ in steps]
    how = (plan.decoder.why or "one kernel") if plan.decoder else "token by token"
    result = {"errors": errors, "follows": followed == chosen[1:], "decode": how}
    session.close()
    return result


def whole(session, ids):
    """The logits behind `ids`, computed from their first token on: what the session holds is of another text."""
    session.sync([(ids[0] + 1) % session.plan.vocabulary])
    return logits(session, ids)


def logits(session, ids):
    """A copy of the logits behind the last of `ids`; of those that the session holds none is computed again."""
    import numpy

    session.sync(ids)
    return numpy.array(session.plan.logits(0), numpy.float32)


class Device:
    """The process that has the device."""

    def __init__(self):
        self.pool = None

    def __call__(self, path, wanted, seed):
        if self.pool is None:
            self.pool = ProcessPoolExecutor(1, get_context("spawn"))
        try:
            return self.pool.submit(run, path, wanted, seed).result(SECONDS)
        except Exception as error:
            self.stop()
            what = "the process ended" if isinstance(error, BrokenProcessPool) else f"{type(error).__name__}: {error}"
            return {"failed": " ".join(what.split())[:300]}

    def stop(self):
        if self.pool is not None:
            for process in list(self.pool._processes.values()):
                process.kill()
            self.pool.shutdown(wait=False, cancel_futures=True)
            self.pool = None


def line(name, kinds):
    """One family as text."""
    parts = []
    for kind, row in sorted(kinds.items()):
        if "failed" in row:
            parts.append(f"{kind} FAILED: {row['failed']}")
            continue
        far = "" if good(row) else "  FAR" if row["follows"] else "  FOLLOWS OTHERWISE"
        if far and row["llama.cpp from reference"]:
            far += f" (llama.cpp from reference {row['llama.cpp from reference']:.4f})"
        parts.append(f"{kind} {', '.join(f'{who} {value:.4f}' for who, value in largest(row).items())}{far}")
    return f"{name:<28} " + "   ".join(parts)


def largest(row):
    """{who: largest difference}, the reference first."""
    return {who: max(some.values()) for who, some in row["errors"].items()}


def good(row):
    """Near enough to llama.cpp, where that was asked, else to the reference."""
    return "failed" not in row and row["follows"] and [*largest(row).values()][-1] < GOAL


def collect(names, kinds, workers, seed):
    """{name: {kind: row}} of every model; prints a line when all kinds of a name are there."""
    found, device = {name: {} for name in names}, Device()
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        jobs = {pool.submit(make, name, kind, folder, seed): (name, kind) for name in names for kind in kinds}
        for job in as_completed(jobs):
            name, kind = jobs[job]
            try:
                path, wanted, theirs = job.result()
                found[name][kind] = {**device(path, wanted, seed), "llama.cpp from reference": theirs}
                Path(path).unlink()
            except Exception as error:
                found[name][kind] = {"failed": f"no model: {type(error).__name__}: {error}".replace(folder, "")[:300]}
            if len(found[name]) == len(kinds):
                print(line(name, found[name]), flush=True)
        device.stop()
    return found


def families(only=(), kinds=("F16", "F32"), workers=8, seed=0):
    """Run all (or `only` these) and write the results; returns how many models are not good."""
    import tiny

    from bench import record

    started = time.perf_counter()
    found = collect([name for name in sorted(tiny.MODELS) if not only or name in only], kinds, workers, seed)
    bad = sum(not good(row) for rows in found.values() for row in rows.values())
    for kind in kinds:
        rows = [row[kind] for row in found.values() if "errors" in row.get(kind, {})]
        for who in dict.fromkeys(who for row in rows for who in row["errors"]):
            values = [largest(row)[who] for row in rows if who in row["errors"]]
            far = sum(value >= GOAL for value in values)
            print(f"{kind}, {who}: {len(values)} models, largest {max(values):.4f} standard deviations, {far} beyond {GOAL}")
    seconds = round(time.perf_counter() - started, 1)
    print(f"{sum(map(len, found.values()))} runs, {bad} not good, {seconds} s", flush=True)
    facts = {"seconds": seconds, "goal": GOAL, "seed": seed, "models": found}
    record.write(f"families-{seed}" if seed else "families", "tiny models of every family on a GPU", facts)
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names of models, comma separated")
    parser.add_argument("--kinds", default="F16,F32")
    parser.add_argument("--workers", type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument("--seed", type=int, default=0, help="of weights and text")
    options = parser.parse_args()
    some = tuple(filter(None, options.only.split(",")))
    return 1 if families(some, tuple(options.kinds.split(",")), options.workers, options.seed) else 0


if __name__ == "__main__":
    sys.exit(main())
