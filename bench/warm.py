"""Prompt and decode speed of a loaded model, next to llama.cpp on the same file with the same threads.

    python bench/warm.py demo
    python bench/warm.py model.gguf --threads 1,2 -n 5 --llama .../xllamacpp.abi3.so

llama.cpp runs as the `xllamacpp` wheel, in this process, with its default settings (weights repacked), and with or without
flash attention, whichever was better in a first round that does not count. One round times every engine once, in turn.
Each of the prompts starts from an empty cache; the decode is one token at a time after a prompt of 32, choosing the most
likely token each time.
With --native, llama.cpp's own llama-bench is another engine: the wheel is compiled for AVX2 and may not use all of this
processor (llama-bench decodes from an empty cache, a small advantage). The results file also says how fast this machine
reads memory, which is the limit of decoding.
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from ctypes import c_bool, c_char_p, c_int32, c_void_p
from math import prod
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import bandwidth, record
from bench.peers import xllamacpp_cold as peer
from reflex import demo

PROMPTS = (32, 128, 512)
DECODED, BEFORE = 64, 32
CONTEXT = 1024
TEXT = "The keepers of the lighthouse on the northern coast wrote down every storm, every ship and every lamp they lit. " * 64


class Engine:
    """One engine with one thread count (and setting) and its raw tokens per second by what was done."""

    def __init__(self, family, threads, setting=""):
        self.family, self.threads, self.rates = family, threads, {}
        self.name = f"{family} t{threads} {setting}".strip()

    def measure(self, ids):
        """{what: tokens per second} of one round."""
        found = {f"prompt {count}": count / timed(self.prompt, ids[:count]) for count in PROMPTS}
        self.prompt(ids[:BEFORE])
        found[f"decode {DECODED}"] = DECODED / timed(self.decode, BEFORE, DECODED)
        return found


class Reflex(Engine):
    """The CPU plan of one thread count; the model file is opened once per plan."""

    def __init__(self, path, threads):
        from reflex.arch import load_spec
        from reflex.backends.cpu import Plan
        from reflex.gguf import reader
        from reflex.program import build

        super().__init__("reflex", threads)
        self.file = reader.open_model(path)
        program = build(load_spec(self.file))
        matrices = {step.weights[0] for step in program.steps if step.op == "linear"}
        self.nbytes = sum(self.file.tensors[name].nbytes for name in matrices)  # read for every decoded token
        self.plan = Plan(self.file, program, CONTEXT, threads)

    def ids(self, text):
        from reflex.tokenizer import load

        return load(self.file).encode(text)

    def prompt(self, ids):
        """Evaluate `ids` from an empty cache; logits of the last one."""
        self._append(ids, 0)

    def decode(self, first, count):
        """`count` greedy tokens behind the `first` ones of the cache."""
        for at in range(first, first + count):
            self._append([self.plan.argmax(0)], at)

    def _append(self, ids, first):
        count = len(ids)
        strands = ((0, count, 0 if first else -1, 0),)
        self.plan.evaluate(ids, first, range(first, first + count), [0] * count, [0] * count, [count - 1], strands=strands)


class Llama(Engine):
    """llama.cpp through its C API, one thread count and one flash attention setting."""

    def __init__(self, library, path, threads, flash):
        super().__init__("llama.cpp", threads, f"fa{flash}")
        self.api, _, self.context, self.vocabulary = peer.load(library, path, threads, CONTEXT, True, flash)
        self.api.llama_get_memory.restype = c_void_p
        self.memory = c_void_p(self.api.llama_get_memory(self.context))
        self.sampler = self._greedy()

    def _greedy(self):
        self.api.llama_sampler_init_greedy.restype = c_void_p
        self.api.llama_sampler_sample.argtypes = (c_void_p, c_void_p, c_int32)
        return self.api.llama_sampler_init_greedy()

    def ids(self, text):
        block, count = peer.encode(self.api, self.vocabulary, text, True)
        return block[:count]

    def prompt(self, ids):
        self.api.llama_memory_clear(self.memory, c_bool(True))
        self._append(ids)

    def decode(self, _, count):
        for _ in range(count):
            self._append([self.api.llama_sampler_sample(self.sampler, self.context, -1)])

    def system(self):
        """What the library says about its instruction sets and options."""
        self.api.llama_print_system_info.restype = c_char_p
        return self.api.llama_print_system_info().decode()

    def _append(self, ids):
        block = (c_int32 * len(ids))(*ids)
        if self.api.llama_decode(self.context, self.api.llama_batch_get_one(block, len(ids))):
            sys.exit("llama_decode failed")
        self.api.llama_synchronize(self.context)


class LlamaBench(Engine):
    """llama.cpp's own benchmark program, compiled for this machine; a process of its own in every round."""

    def __init__(self, program, path, threads, flash):
        super().__init__("native", threads, f"fa{flash}")
        self.words = [program, "-m", path, "-t", str(threads), "-fa", str(flash), "-r", "1", "-o", "json"]
        self.words += ["-p", ",".join(map(str, PROMPTS)), "-n", str(DECODED)]

    def measure(self, _):
        done = subprocess.run(self.words, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{self.words[0]} failed:\n{done.stderr[-2000:]}")
        tests = json.loads(done.stdout)
        return {f"decode {t['n_gen']}" if t["n_gen"] else f"prompt {t['n_prompt']}": t["avg_ts"] for t in tests}


def timed(work, *values):
    start = time.perf_counter()
    work(*values)
    return time.perf_counter() - start


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("-n", type=int, default=5, help="rounds")
    parser.add_argument("--llama", default="", help="the wheel's extension file; default: the installed xllamacpp")
    parser.add_argument("--native", default="", metavar="LLAMA-BENCH", help="llama-bench compiled for this machine, too")
    parser.add_argument("--only", choices=("reflex", "llama"), help="measure one side; llama alone writes no results file")
    parser.add_argument("--realtime", action="store_true", help="SCHED_FIFO: on a busy machine, as root; others wait meanwhile")
    parser.add_argument("--what", default="", help="results file bench/results/warm-WHAT.json; default: its title")
    return parser.parse_args()


def wheel():
    """The extension file of the installed xllamacpp, found without importing it; None where it is not installed."""
    spec = importlib.util.find_spec("xllamacpp")
    return str(next(Path(spec.origin).parent.glob("xllamacpp*.so"))) if spec else None


def open_engines(options, path, threads):
    made = []
    if options.only != "llama":
        made += [Reflex(path, count) for count in threads]
    if options.native:
        made += [LlamaBench(options.native, path, count, flash) for count in threads for flash in (0, 1)]
    if options.only != "reflex":
        library = options.llama or wheel() or sys.exit("xllamacpp is not installed; give --llama or --only reflex")
        made += [Llama(library, path, count, flash) for count in threads for flash in (0, 1)]
    return made


def rounds(everyone, ids, count):
    """Let every engine do everything once; then the better setting of each, `count` times in turn. Returns those engines."""
    first, spent, chosen = {}, {}, {}
    for engine in everyone:
        begun = time.monotonic()
        first[engine] = engine.measure(ids)
        spent[engine] = time.monotonic() - begun
    for engine, rates in first.items():
        rival = chosen.get((engine.family, engine.threads))
        if rival is None or prod(rates.values()) > prod(first[rival].values()):
            chosen[engine.family, engine.threads] = engine
    left = count * sum(spent[engine] for engine in chosen.values())
    print(f"one round of {len(everyone)} settings took {sum(spent.values()):.0f} s; {count} more: {left:.0f} s", file=sys.stderr)
    for _ in range(count):
        for engine in chosen.values():
            for what, rate in engine.measure(ids).items():
                engine.rates.setdefault(what, []).append(rate)
    return chosen


def compare(engines, rates):
    """Rows of what Reflex did: threads, what, its summary, and every other family's with the ratio of the rounds.

    `rates`: bytes per second that so many threads read from memory; decoding is stated as a share of it."""
    for engine in engines.values():
        for what, ours in engine.rates.items() if engine.family == "reflex" else ():
            row = {"threads": engine.threads, "what": what, "reflex": record.summary(ours)}
            if what.startswith("decode"):
                row["share_of_read_rate"] = round(statistics.median(ours) * engine.nbytes / rates[engine.threads], 3)
            for family in ("llama.cpp", "native"):
                other = engines.get((family, engine.threads))
                if other:
                    theirs = other.rates[what]
                    row[family] = record.summary(theirs) | {"setting": other.name, "ratio": record.ratios(theirs, ours)}
            yield row


def main():
    options = arguments()
    path = demo.resolve(options.model)
    threads = [int(word) for word in options.threads.split(",")]
    if options.realtime:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    everyone = open_engines(options, path, threads)
    chosen = rounds(everyone, everyone[-1].ids(TEXT), options.n)
    for engine in chosen.values():
        print(f"{engine.name:<18}", *(f"{what}: {statistics.median(rates):8.1f}" for what, rates in engine.rates.items()))
    if options.only == "llama":
        return
    rates = {count: 1e9 * bandwidth.read_rate(count) for count in threads}
    rows = list(compare(chosen, rates))
    for row in rows:
        ratios = (f"{row[name]['ratio']['median']:6.2f} times {name}" for name in ("llama.cpp", "native") if name in row)
        print(f"t{row['threads']} {row['what']:<11}", *ratios)
    model = record.model(path)
    report = {
        "model": model,
        "realtime": options.realtime,
        "memory_read_gb_per_s": {count: round(rate / 1e9, 1) for count, rate in rates.items()},
        "llama.cpp": next((engine.system() for engine in everyone if isinstance(engine, Llama)), ""),
        "rows": rows,
    }
    record.write(f"warm-{options.what or record.slug(model['title'])}", "tokens per second of a loaded model", report)


if __name__ == "__main__":
    main()
