"""A mixture of experts on a GPU: results against the reference, speed of prompts and of decoding, and where a token's time goes.

    python bench/shapes.py qwen3moe-30b-a3b big.gguf; python bench/shapes.py qwen3moe-tiny tiny.gguf
    python bench/experts_device.py big.gguf --check tiny.gguf --reflex $(which reflex) [--llama FOLDER_OF_A_BUILD]

Builds nothing: cache/ must hold the device's kernels. Bytes of a token: all matrices, of stacks of experts the share that is used.
A kernel's time is that of a graph of its launches in all layers and nothing else, so each reads weights that no cache holds; what
the whole graph takes beyond their sum, or less, is what launches cost or save behind each other. --runs: processes per cold start.
A short table comes last.
"""

import argparse
import sys
from _ctypes import addressof
from pathlib import Path

import numpy

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import gpu_models, record
from bench.peers import device_llama
from reflex import native
from reflex.backends.cuda import driver, launch
from reflex.open import open_model
from reflex.sample import Sampling

BANDWIDTH = 4560.0  # GB/s that a kernel reads on an H200
CONTEXT, TOKENS, REPEATS = 100, 200, 20
GOAL = 35  # % of BANDWIDTH


def bytes_of_token(file, used):
    """(bytes read for a token, of them experts): every matrix but the embedding's, one row of that."""
    whole = chosen = 0
    for name, tensor in file.tensors.items():
        if name.startswith("token_embd") and any(n.startswith("output.") for n in file.tensors):
            continue
        if len(tensor.shape) == 3:
            chosen += tensor.nbytes * used // tensor.shape[2]
        else:
            whole += tensor.nbytes
    return whole + chosen, chosen


def captured(chain, rows):
    """A graph of some rows of a chain."""
    stream, cell = chain.device.stream, native.Int64()
    driver.call("cuStreamBeginCapture_v2", stream, 2)
    for row in rows:
        chain.run(row, row + 1)
    if driver.function("cuStreamEndCapture")(stream, addressof(cell)):
        raise SystemExit("a capture failed")
    return launch.Graph(cell.value, stream)


def microseconds(plan, action, count):
    """Median over some rounds of the device's time for one of `count` calls."""
    spent = []
    for _ in range(6):
        events = [driver.word("cuEventCreate", 0) for _ in range(2)]
        driver.call("cuEventRecord", events[0], plan.device.stream)
        for _ in range(count):
            action()
        driver.call("cuEventRecord", events[1], plan.device.stream)
        driver.call("cuEventSynchronize", events[1])
        cell = (native.Int64 * 1)()
        driver.call("cuEventElapsedTime", addressof(cell), *events)
        spent.append(float(numpy.frombuffer(bytes(cell), numpy.float32)[0]) * 1000 / count)
    return sorted(spent[1:])[len(spent[1:]) // 2]


def kernels_of_token(plan):
    """[(kernel, blocks, launches, microseconds of one)] of a decode step, in order of their first launch."""
    _, chain = plan.decoder.graphs[False, False, False]
    groups = {}
    for row, kernel in enumerate(chain.kernels):
        words = chain._table[row * launch.ROW_WORDS]
        if kernel.name != "advance":  # would be a step to the next token
            groups.setdefault((kernel.name, words & 0xFFFFFFFF, words >> 32), []).append(row)
    found = []
    for (name, x, y), rows in groups.items():
        graph = captured(chain, rows)
        found.append((name, f"{x}x{y}", len(rows), microseconds(plan, graph.launch, REPEATS) / len(rows)))
        graph.close()
    return found


def decode(session, ids):
    """Tokens per second behind CONTEXT tokens, several runs."""
    rates = []
    for _ in range(6):
        session.rewind(0)
        session.sync((ids * 2)[:CONTEXT])
        token = session.plan.argmax(0)

        def follow(token=token):
            for following, _ in session.follow(token, Sampling(), 1, (), TOKENS):
                session.accept(token)
                token = following

        rates.append(TOKENS / gpu_models.timed(follow, seconds=0, least=1)[0])
    return record.summary(rates[1:], 1)


def prompt(session, ids, count):
    def action():
        session.rewind(0)
        session._slots.ids.clear()
        session.sync(ids[:count])
        session.plan.argmax(0)

    action()
    return record.summary([count / spent for spent in gpu_models.timed(action)], 1)


def measure(path):
    """Everything about one file; prints as it goes."""
    file, _, session = open_model(path, "cuda", 2048)
    plan = session.plan
    steps = plan.program.steps
    used = next(step.args["used"] for step in steps if step.op == "route")
    ids = (session.encode(gpu_models.PROMPT) * 600)[:512]
    body = {"prompt_512": prompt(session, ids, 512), "prompt_32": prompt(session, ids, 32), "decode_100": decode(session, ids)}
    body["decode_by"] = plan.decoder.why or "one kernel"
    body["token_bytes"], body["expert_bytes"] = bytes_of_token(file, used)
    body["graph_us"] = gpu_models.graph_microseconds(plan, CONTEXT)
    body["kernels"] = kernels_of_token(plan)
    body["device_bytes"], body["phases"] = plan.device_bytes, gpu_models.phases(plan.device)
    session.close()
    file.close()
    return body


def table(body):
    layers = max(count for _, _, count, _ in body["kernels"])
    total = 0.0
    for name, grid, count, spent in body["kernels"]:
        total += count * spent
        print(f"{name:<28} {grid:>9} x {count:3}  {spent:7.2f} us  {count * spent:8.1f} us per token")
    graph = body["graph_us"]["median"]
    share = body["token_bytes"] / graph / 1e3 / BANDWIDTH * 100
    print(f"kernels by themselves {total:.0f} us; graph {graph:.0f} us; {layers} layers")
    print(f"decode: {body['decode_by']}; {body['token_bytes'] / 1e6:.0f} MB per token, {body['expert_bytes'] / 1e6:.0f} of experts")
    rate = body["decode_100"]["median"]
    print(f"decode {rate:.0f} tok/s at {CONTEXT}; the graph reads at {share:.1f} % of {BANDWIDTH:.0f} GB/s (goal: {GOAL})")
    print(f"prompt 512: {body['prompt_512']['median']:.0f} tok/s, 32: {body['prompt_32']['median']:.0f}")
    for state, found in body.get("cold", {}).items():
        bare = found["bare_context_ms"]["median"]
        print(f"cold {state}: {found['ms']['median']:.0f} ms, bare context {bare:.0f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--check", default="", help="a small file to compare with the reference")
    parser.add_argument("--reflex", default="", help="the installed reflex command, for cold starts")
    parser.add_argument("--llama", default="", help="a folder with llama.cpp's programs, for experts-device-llama.json")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    cold = {}
    if options.reflex:
        peer = device_llama.words(options.llama, options.model)
        for state in ("asleep", "awake"):
            cold[state] = gpu_models.cold(options.reflex, options.model, options.runs, state == "awake", peer)
    checked = {}
    if options.check:
        checked = gpu_models.compare(options.check, 12)
        facts = ("rms_std", "max_std", "same", "steps", "repeats", "decode", "decode_logprob_error", "decode_repeats")
        print("check:", {name: checked[name] for name in facts}, flush=True)
    body = measure(options.model) | {"check": checked, "cold": cold}
    if options.llama:
        device_llama.write("experts-device-llama", options.llama, {"30B-A3B": (options.model, cold)})
    record.write("experts-device", "a mixture of experts on a GPU", body)
    table(body)


if __name__ == "__main__":
    main()
