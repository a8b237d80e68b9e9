"""Every family on a GPU: tiny random models of tests/tiny.py, in F16 and F32, beside the float32 reference on the same machine and
beside llama.cpp's CPU code (package `xllamacpp`, where it is there) with a float32 cache and with its usual one.

    python bench/families_device.py [--only llama,gpt2] [--kinds F16,F32] [--workers 8] [--seed 0]

Needs the packages `gguf` and `libgguf` or files that need neither type; cache/ must hold the device's kernels. Workers write the
models and compute what is expected; one process has the device, and a new one follows it where it failed, so that a family that
fails is a line and not the end. Each model runs whole prompts of LENGTHS tokens, the longest one token by token too, and makes
FOLLOWED tokens by itself. Logits are good within GOAL of llama.cpp's with either cache, of the reference's where llama.cpp does not
know the architecture; or within GOAL of the reference's with choices of experts turned over that are nearer to a tie than GOAL
(tests/ties.py): those are listed with their gaps. bench/results/families.json gets every number. Exit code 1: something failed or
is too far off; what this backend refuses is neither.
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
PEERS = "llama.cpp", "llama.cpp, cache F16"
HELD = []  # the device of this process


def tokens(vocabulary, seed):
    """The longest prompt: with seed 0 the text of tests/pure/test_families.py."""
    import numpy

    return numpy.random.default_rng(7 + seed).integers(0, vocabulary, LENGTHS[-1]).tolist()


def peers(path, ids):
    """{who: llama.cpp's logits behind the prompts of LENGTHS tokens}, float32 [LENGTHS, vocabulary] each; none where it is not
    there or does not know the architecture."""
    import numpy

    if not find_spec("xllamacpp"):
        return {}
    from llama import Llama

    found = {}
    for who, own in zip(PEERS, (False, True), strict=True):
        try:
            model = Llama(path, CONTEXT, own_cache=own)
        except RuntimeError:
            return {}
        found[who] = numpy.array([model.logits(ids[:length])[-1] for length in LENGTHS])
        model.close()
    return found


def make(name, kind, folder, seed):
    """Write a model and compute what is expected: (path, {who: float32 [LENGTHS, vocabulary]}, facts of it as in results)."""
    import numpy
    import tiny
    from ties import off, smallest

    from reflex.open import open_model

    path = str(tiny.write(name, Path(folder) / f"{name}.{kind}.gguf", kind, seed=seed))
    _, _, session = open_model(path, "reference", CONTEXT)
    ids = tokens(session.plan.vocabulary, seed)
    found = numpy.array([whole(session, ids[:length]) for length in LENGTHS])
    gap = smallest(session.plan.file, session.plan.program, CONTEXT, ids)
    session.close()
    theirs = peers(path, ids)
    apart = [max(map(off, theirs[PEERS[0]], rows)) for rows in (found, theirs[PEERS[1]])] if theirs else [None, None]
    facts = {"llama.cpp from reference": apart[0], "llama.cpp's caches apart": apart[1], "smallest gap": gap}
    return path, {"reference": found} | theirs, facts


def judge(path, wanted, found, seed):
    """What results say of the logits {what: [of each of LENGTHS]} that a device found."""
    from ties import explain, off

    from reflex.open import open_model

    errors = {who: {} for who in wanted}
    turned, trusted = {}, [who for who in PEERS if who in wanted] or ["reference"]
    for what, rows in found.items():
        for row, length in enumerate(LENGTHS):
            key = f"{what} {length}"
            for who, expected in wanted.items():
                errors[who][key] = off(rows[row], expected[row])
            if min(errors[who][key] for who in trusted) >= GOAL:
                _, _, session = open_model(path, "reference", CONTEXT)
                ids = tokens(session.plan.vocabulary, seed)[:length]
                distance, gaps = explain(session.plan.file, session.plan.program, CONTEXT, ids, rows[row], GOAL)
                session.close()
                turned[key] = {"distance": distance, "gaps": gaps}
    Path(path).unlink()
    return {"errors": errors, "turned over": turned}


def run(path, seed):
    """One model on the device: ({what: float32 [LENGTHS, vocabulary]}, facts of it as in results)."""
    import numpy

    from reflex.backends.cuda import device
    from reflex.open import open_model
    from reflex.sample import Sampling

    if not HELD:
        HELD.append(device.start())  # keeps the context between models
    _, _, session = open_model(path, "cuda", CONTEXT)
    plan = session.plan
    ids = tokens(plan.vocabulary, seed)
    found = {"whole": [whole(session, ids[:length]) for length in LENGTHS], "step": [whole(session, ids[:1])]}
    for at in range(1, len(ids)):
        made = logits(session, ids[: at + 1])
        if at + 1 in LENGTHS:
            found["step"].append(made)
    session.sync(ids)
    chosen = [plan.argmax(0)]
    for _ in range(FOLLOWED):
        chosen.append(int(logits(session, ids + chosen).argmax()))
    session.sync(ids)
    steps = session.follow(chosen[0], Sampling(), 1, (), FOLLOWED)
    followed = [following for following, _ in steps]
    how = (plan.decoder.why or "one kernel") if plan.decoder else "token by token"
    session.close()
    return {what: numpy.array(rows) for what, rows in found.items()}, {"follows": followed == chosen[1:], "decode": how}


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
    """A process that has the device, and a new one where it failed."""

    def __init__(self, work):
        self.work, self.pool = work, None

    def __call__(self, *words):
        """What `work` returns of these words; where that fails or takes too long, a dictionary that says so."""
        from reflex.errors import UnsupportedError

        if self.pool is None:
            self.pool = ProcessPoolExecutor(1, get_context("spawn"))
        try:
            return self.pool.submit(self.work, *words).result(SECONDS)
        except Exception as error:
            self.stop()
            what = "the process ended" if isinstance(error, BrokenProcessPool) else f"{type(error).__name__}: {error}"
            how = "refused" if isinstance(error, UnsupportedError) else "failed"
            return {how: " ".join(what.split())[:300]}

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
        if "errors" not in row:
            parts.append(f"{kind} " + " ".join(f"{how.upper()}: {why}" for how, why in row.items()))
            continue
        text = f"{kind} reference {max(row['errors']['reference'].values()):.4f}, nearest {nearest(row):.4f}"
        for key, found in row["turned over"].items():
            gaps = " ".join(f"{gap:.4f}" for gap in found["gaps"])
            text += f" ({key}: {found['distance']:.4f} with choices turned over whose gaps are {gaps or 'none'})"
        parts.append(text + ("" if good(row) else "  FAR" if row["follows"] else "  FOLLOWS OTHERWISE"))
    return f"{name:<28} " + "   ".join(parts)


def nearest(row):
    """The largest distance of a model's runs from what each is nearest to: llama.cpp with either cache, or the reference where
    there is no llama.cpp."""
    theirs = [row["errors"][who] for who in PEERS if who in row["errors"]] or [row["errors"]["reference"]]
    return max(min(found[key] for found in theirs) for key in theirs[0])


def good(row):
    """Near enough, or explained by near ties."""
    far = (found["distance"] for found in row.get("turned over", {}).values())
    return "refused" in row or ("errors" in row and row["follows"] and all(distance < GOAL for distance in far))


def collect(names, kinds, workers, seed):
    """{name: {kind: row}} of every model; prints a line when all kinds of a name are there."""
    found, device, judged = {name: {} for name in names}, Device(run), {}

    def note(name, kind, row):
        found[name][kind] = row
        if len(found[name]) == len(kinds):
            print(line(name, found[name]), flush=True)

    def settle(wait):
        for key in [key for key, (verdict, _) in judged.items() if wait or verdict.done()]:
            verdict, facts = judged.pop(key)
            note(*key, verdict.result() | facts)

    pools = (ProcessPoolExecutor(some, get_context("spawn")) for some in (workers, 2))
    with tempfile.TemporaryDirectory() as folder, next(pools) as pool, next(pools) as judges:
        jobs = {pool.submit(make, name, kind, folder, seed): (name, kind) for name in names for kind in kinds}
        for job in as_completed(jobs):
            name, kind = jobs[job]
            try:
                path, wanted, facts = job.result()
                made = device(path, seed)
                if isinstance(made, dict):
                    note(name, kind, made)
                else:
                    judged[name, kind] = judges.submit(judge, path, wanted, made[0], seed), made[1] | facts
            except Exception as error:
                note(name, kind, {"failed": f"no model: {type(error).__name__}: {error}".replace(folder, "")[:300]})
            settle(False)
        device.stop()
        settle(True)
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
        values, ties = list(map(nearest, rows)), sum(bool(row["turned over"]) for row in rows)
        print(f"{kind}: {len(rows)} models, largest {max(values, default=0):.4f} standard deviations, {ties} beyond {GOAL}")
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
