"""What a state file saves: the time to score two candidates behind a long prefix, with its state imported and computed.

    python bench/state.py MODEL [--backend cpu|cuda] [--tokens 2000] [--threads N] [-n ROUNDS]

In one process, whose model is loaded, and by processes of their own (`--reflex COMMAND`: how reflex is started; the interpreter and
this tree by default). A round does each once, in turn, from an empty cache; ratios are of the same round. The text is of random
tokens; `bit_equal`: whether answers with a state are those without. `held_ms`: the answer where the cache holds the prefix, which
no import can undercut; `first_ms`: the first import of the process, which makes threads, buffers and pages. Also: bytes of the
file, and the times of its parts. Writes bench/results/state-BACKEND-TITLE.json.
"""

import argparse
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import record
from reflex import demo, native
from reflex.open import open_model
from reflex.score import score
from reflex.state import export_state, identity, import_state, layout

FIRST_ID = 300  # ids below are bytes and special tokens in many vocabularies
CANDIDATES = [" yes", " no"]
BOOT = f'import sys; sys.path.append("{record.ROOT}"); from reflex.cli.front import main; main()'
OWN = shlex.join([sys.executable, "-IS", "-c", BOOT])


def text_of(session, count, seed):
    """A text that is `count` tokens, or a few more or less, when it is tokenized again."""
    draw, tokenizer = random.Random(seed), session.tokenizer
    ids = [draw.randrange(FIRST_ID, session.plan.vocabulary - FIRST_ID) for _ in range(count)]
    text = tokenizer.decode([token for token in ids if not tokenizer.is_control(token)]).decode("utf-8", "ignore")
    return text.replace("\0", "").strip()


def timed(work):
    """(milliseconds, result)."""
    started = time.perf_counter_ns()
    result = work()
    return (time.perf_counter_ns() - started) / 1e6, result


def inside(session, ids, folder, rounds):
    """Rows of a loaded model: milliseconds of the answer after import, of the answer after computing, and of the parts."""
    names = "imported", "computed", "held", "export", "fingerprints", "digests"
    path, rows = f"{folder}/state", {name: [] for name in names}

    equal = True

    def answer():
        return score(session, ids, CANDIDATES).candidates

    for _ in range(rounds):
        session.forget()
        spent, wanted = timed(answer)
        rows["computed"].append(spent)
        rows["export"].append(timed(lambda: export_state(session, ids, path))[0])
        session.forget()
        spent, found = timed(lambda: (import_state(session, path, ids, wait=False), answer())[1])
        rows["imported"].append(spent)
        rows["held"].append(timed(answer)[0])
        equal = equal and [c.logprobs for c in found] == [c.logprobs for c in wanted]
        rows["fingerprints"].append(timed(lambda: fingerprints(session.plan))[0])
        rows["digests"].append(timed(lambda: digests(path))[0])
    return path, rows, equal


def fingerprints(plan):
    plan.file.identity = None
    return identity.of(plan.file, plan.program, plan.store())


def digests(path):
    """Every byte of a state file through the checksum, on one core."""
    with layout.open_state(path) as found:
        native.library().digest(found.mapping.address, found.size, 0)


def processes(command, options, text, path, rounds):
    """Milliseconds of whole processes, with the state and without."""
    rows = {"imported": [], "computed": []}
    for _ in range(rounds):
        for name, more in (("computed", []), ("imported", ["--import-state", path])):
            words = [*command, *options, *more]
            rows[name].append(timed(lambda words=words: subprocess.run(words, input=text, capture_output=True, check=True))[0])
    return rows


def measure(model, backend, tokens, rounds, threads=None, command=OWN, device=""):
    """The record of one model."""
    path = demo.resolve(model)
    session = open_model(path, backend, threads=threads, device=device)[2]
    text = text_of(session, tokens, 1)
    ids = session.encode(text)
    with tempfile.TemporaryDirectory() as folder:
        kept, warm, equal = inside(session, ids, folder, rounds)
        size = os.path.getsize(kept)
        session.close()
        options = ["system1", str(path), "-", "--backend", backend, *(["--threads", str(threads)] if threads else [])]
        options += [word for text in CANDIDATES for word in ("--candidate", text)]
        cold = processes(shlex.split(command), options, text.encode(), kept, rounds)
    found = {"backend": backend, "prefix_tokens": len(ids), "state_bytes": size, "bit_equal": equal}
    for name, rows in (("warm", warm), ("cold", cold)):
        found[name] = {f"{what}_ms": record.summary(values) for what, values in rows.items()}
        found[name]["share"] = record.ratios(rows["computed"], rows["imported"])
    found["warm"]["first_ms"] = round(warm["imported"][0], 2)
    return {"model": record.model(path), **found}


def line(row):
    warm, cold = row["warm"], row["cold"]
    said = "" if row["bit_equal"] else ", ANSWERS DIFFER"
    parts = [f"{row['model']['title']}, {row['prefix_tokens']} tokens, {row['state_bytes'] / 1e6:.0f} MB of state: "]
    for name, found in (("loaded", warm), (", cold", cold)):
        spent, computed = found["imported_ms"]["median"], found["computed_ms"]["median"]
        parts.append(f"{name} {spent:.1f} ms instead of {computed:.1f} ({found['share']['median']:.1%})")
    parts.append(f"; with the prefix in the cache {warm['held_ms']['median']:.1f} ms, the first import {warm['first_ms']:.1f}")
    return "".join(parts) + said


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--reflex", default=OWN)
    parser.add_argument("-n", type=int, default=5, help="rounds")
    options = parser.parse_args()
    row = measure(options.model, options.backend, options.tokens, options.n, options.threads, options.reflex)
    print(line(row))
    record.write(f"state-{options.backend}-{record.slug(row['model']['title'])}", "answers behind an imported prefix", row)


if __name__ == "__main__":
    main()
