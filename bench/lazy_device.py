"""Experts that stay in the file against all uploaded at once, on a GPU: the same bits, and the time to a first token.

    python bench/lazy_device.py qwen3moe-30b-a3b kolibri1-78b --folder /mnt/ram --reflex $(which reflex) --runs 5

Each model is a file, or a shape of bench/shapes.py: such a file is made in --folder and removed behind its measurements (a
tmpfs holds 47.5 GB sooner than a disk takes them: mount -t tmpfs -o size=60g,huge=always tmpfs /mnt/ram). Builds nothing:
cache/ must hold the device's kernels. Cold: spawn to the first byte and to the exit of `generate --max-tokens 1`, lazy and
eager in turn, on prompts of a few tokens and on one of 600, while another process holds a context. Bits: logits behind prompts
of several lengths, each in a session that has asked for nothing before, and behind some more tokens one by one; also with
memory for a quarter of the experts. A short table comes last.
"""

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import gpu_models, record, shapes, spawn
from reflex.gguf import reader
from reflex.open import open_model
from reflex.tokenizer import load

WORDS = "The capital of France is"
SENTENCE = " The quick brown fox jumps over the lazy dog and runs away from the river."
LENGTHS = 1, 2, 5, 9, 20, 100
STEPS = 4
PROMPTS = 2, 5, 9, 600  # tokens
WAYS = "lazy", "eager"
COUNTS = "asked", "fetched", "guessed", "right", "bytes"  # of reflex.backends.cuda.asking.Experts


def logits(path, experts, most=""):
    """([logits of every length and step], facts of the lazy way)."""
    found, facts = [], []
    for length in LENGTHS:  # one that holds part of a prompt would compute fewer rows, by other kernels
        file, _, session = open_model(path, "cuda", 2048, experts=experts, expert_memory=most)
        ids = (session.encode(WORDS) * 20)[:length]
        for step in range(STEPS):
            found.append(gpu_models.rows_of(session, ids) if not step else following(session, ids))
            ids.append(int(found[-1].argmax()))
        asking = session.plan.experts
        counts = {"device_bytes": session.plan.device_bytes} if most else {}
        counts |= {name: getattr(asking, name) for name in COUNTS if asking}
        facts.append({"tokens": length, **counts})
        session.close()
        file.close()
    return found, facts


def following(session, ids):
    session.sync(ids)
    return numpy.array(session.plan.logits(0), numpy.float32)


def cold(command, path, prompt, runs):
    """{way: {ms, first_ms, phases, device_thread}}, interleaved, and how many times as long eager ones took, pair by pair."""
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
    found = {"times": record.ratios(first["lazy"], first["eager"])}
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


def starts(command, path, runs):
    """{tokens: what `cold` finds} of every prompt; another process holds a context."""
    file = reader.open_model(path)
    prompts = [text_of(load(file), length) for length in PROMPTS]
    tokens = [len(load(file).encode(prompt)) for prompt in prompts]
    file.close()
    hold = [sys.executable, "-c", gpu_models.HOLD]
    holder = subprocess.Popen(hold, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=record.ROOT)
    holder.stdout.readline()
    found = {str(count): cold(command, path, prompt, runs) for count, prompt in zip(tokens, prompts, strict=True)}
    holder.stdin.close()
    holder.wait()
    return found


def measure(name, path, options):
    """All facts of one model."""
    file = reader.open_model(path)
    stacks = sum(tensor.nbytes for tensor_name, tensor in file.tensors.items() if "_exps." in tensor_name)
    body = {"name": name, "file": Path(path).name, "bytes": file.size, "expert_bytes": stacks}
    file.close()
    if options.reflex:
        body["cold"] = starts(options.reflex, path, options.runs)
    eager, _ = logits(path, "eager")
    for key, most in (("", ""), ("_with_a_quarter", stacks // 4)):
        found, body["asked" + key] = logits(path, "lazy", most)
        body["equal" + key] = sum(bool((a == b).all()) for a, b in zip(found, eager, strict=True))
    return body | {"compared": len(eager)}


def made(name, folder):
    """(path, seconds it took) of a shape's file."""
    path, began = Path(folder) / f"{name}.gguf", time.perf_counter()
    vocabulary = shapes.made_up(shapes.SHAPES[name][0])
    shapes.write(name, str(path), vocabulary, shapes.THREADS)
    return path, time.perf_counter() - began


def report(body):
    number, limited, count = body["equal"], body["equal_with_a_quarter"], body["compared"]
    print(f"{body['name']}: {number} of {count} logits equal to the bit, with memory for a quarter of the experts {limited}")
    for facts in body["asked"]:
        print("  asked", facts)
    for tokens, found in body.get("cold", {}).items():
        print(f"  prompt of {tokens} tokens:")
        for what, key in (("first token", "first_ms"), ("whole process", "ms")):
            lazy, eager = (found[way][key]["median"] for way in WAYS)
            print(f"    {what}: lazy {lazy:.0f} ms, eager {eager:.0f} ms, {eager / lazy:.2f} times")
        print(f"    pair by pair: {found['times']['min']:.2f} to {found['times']['max']:.2f} times")
        for way in WAYS:
            rounded = [{name: round(at) for name, at in found[way][part].items()} for part in ("phases", "device_thread")]
            print(f"    {way} {rounded}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help=f"files, or shapes: {', '.join(shapes.SHAPES)}")
    parser.add_argument("--folder", default=".", help="where files of shapes are made")
    parser.add_argument("--reflex", default="", help="the installed reflex command, for cold starts")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    bodies = []
    for model in options.models:
        if model not in shapes.SHAPES:
            bodies.append(measure(Path(model).stem, model, options))
        else:
            path, seconds = made(model, options.folder)
            try:
                bodies.append(measure(model, str(path), options) | {"made_in_s": round(seconds, 1)})
            finally:
                path.unlink()
        report(bodies[-1])
        record.write("lazy-device", "experts asked for against experts uploaded at once", {"models": bodies})


if __name__ == "__main__":
    main()
