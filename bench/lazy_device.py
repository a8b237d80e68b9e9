"""Experts that stay in the file against all uploaded at once, on a GPU: the same bits, and the time to a first token.

    python bench/shapes.py qwen3moe-30b-a3b big.gguf; python bench/lazy_device.py big.gguf --reflex $(which reflex) --runs 5

Builds nothing: cache/ must hold the device's kernels. Cold: spawn to exit of `generate --max-tokens 1`, lazy and eager in turn, on
prompts of a few tokens and on one of 600. Bits: logits behind prompts of several lengths, each in a process that has asked for
nothing before, and behind some more tokens one by one; also with memory for a quarter of the experts. A short table comes last.
"""

import argparse
import statistics
import subprocess
import sys
from pathlib import Path

import numpy

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import gpu_models, record, spawn
from reflex.gguf import reader
from reflex.open import open_model
from reflex.tokenizer import load

WORDS = "The capital of France is"
SENTENCE = " The quick brown fox jumps over the lazy dog and runs away from the river."
LENGTHS = 1, 2, 5, 9, 20, 100
STEPS = 4
PROMPTS = 2, 5, 9, 16, 600  # tokens
WAYS = "lazy", "eager"


def logits(path, experts, most=""):
    """([logits of every length and step], facts of the lazy way)."""
    found, facts = [], []
    for length in LENGTHS:
        file, _, session = open_model(path, "cuda", 2048, experts=experts, expert_memory=most)
        ids = (session.encode(WORDS) * 20)[:length]
        for step in range(STEPS):
            found.append(gpu_models.rows_of(session, ids) if not step else following(session, ids))
            ids.append(int(found[-1].argmax()))
        asking = session.plan.experts
        counts = {"device_bytes": session.plan.device_bytes} if most else {}
        counts |= {name: getattr(asking, name) for name in ("asked", "fetched", "bytes") if asking}
        facts.append({"tokens": length, **counts})
        session.close()
        file.close()
    return found, facts


def following(session, ids):
    session.sync(ids)
    return numpy.array(session.plan.logits(0), numpy.float32)


def cold(command, path, prompt, runs):
    """{way: {ms, phases, device_thread}}, interleaved; another process holds a context."""
    hold = [sys.executable, "-c", gpu_models.HOLD]
    holder = subprocess.Popen(hold, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=record.ROOT)
    holder.stdout.readline()
    first, spent = {way: [] for way in WAYS}, {way: [] for way in WAYS}
    reports = {way: [] for way in WAYS}
    for number in range(runs + 1):
        for way in WAYS:
            words = [command, "generate", path, prompt, "--max-tokens=1", "--backend=cuda", "--json", "--timings"]
            run = spawn.run([*words, f"--experts={way}"])
            if number:
                first[way].append(run.first)
                spent[way].append(run.exit)
                reports[way].append((run.phases(), run.beside("device thread")))
    holder.stdin.close()
    holder.wait()
    found = {}
    for way in WAYS:
        names = "phases", "device_thread"
        rows = [{name: statistics.median(r[i][name] for r in reports[way]) for name in reports[way][0][i]} for i in range(2)]
        found[way] = {"ms": record.summary(spent[way]), "first_ms": record.summary(first[way])}
        found[way].update(zip(names, rows, strict=True))
    return found


def text_of(tokenizer, tokens):
    """The shortest beginning of a text that has so many tokens."""
    text = WORDS + SENTENCE * (tokens // 8)
    size = next(size for size in range(1, len(text) + 1) if len(tokenizer.encode(text[:size])) >= tokens)
    return text[:size]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--reflex", default="", help="the installed reflex command, for cold starts")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    body = {"model": {"file": Path(options.model).name, "bytes": Path(options.model).stat().st_size}}
    lazy, facts = logits(options.model, "lazy")
    eager, _ = logits(options.model, "eager")
    file = reader.open_model(options.model)
    quarter = sum(tensor.nbytes for name, tensor in file.tensors.items() if "_exps." in name) // 4
    file.close()
    limited, body["asked_with_a_quarter"] = logits(options.model, "lazy", quarter)
    body["equal_with_a_quarter"] = [bool((a == b).all()) for a, b in zip(limited, eager, strict=True)]
    print("with a quarter:", sum(body["equal_with_a_quarter"]), body["asked_with_a_quarter"], flush=True)
    body["equal"] = [bool((a == b).all()) for a, b in zip(lazy, eager, strict=True)]
    body["asked"] = facts
    print("logits equal:", sum(body["equal"]), "of", len(body["equal"]), facts, flush=True)
    if options.reflex:
        file = reader.open_model(options.model)
        tokenizer = load(file)
        body["cold"] = {}
        for length in PROMPTS:
            prompt = text_of(tokenizer, length)
            tokens = len(tokenizer.encode(prompt))
            body["cold"][str(tokens)] = cold(options.reflex, options.model, prompt, options.runs)
        file.close()
    record.write("lazy-device", "experts asked for against experts uploaded at once", body)
    number, limited = sum(body["equal"]), sum(body["equal_with_a_quarter"])
    print(f"logits: {number} of {len(body['equal'])} equal to the bit, with memory for a quarter of the experts {limited}")
    for name, ways in body.get("cold", {}).items():
        print(f"prompt of {name} tokens:")
        for what, key in (("first token", "first_ms"), ("whole process", "ms")):
            lazy, eager = (ways[way][key]["median"] for way in WAYS)
            print(f"  {what}: lazy {lazy:.0f} ms, eager {eager:.0f} ms, {eager / lazy:.2f} times")
        for way in WAYS:
            print(f"  {way} {ways[way]['phases']} {ways[way]['device_thread']}")


if __name__ == "__main__":
    main()
