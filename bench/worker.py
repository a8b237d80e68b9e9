"""A worker under fire: thousands of requests one after the other, among them cancelled, cut, broken, huge and abandoned ones, while
worker and clients are killed; then what a request costs beside the engine's own call.

    python bench/worker.py [MODEL] [--requests 10000] [--seed 1]

Every answer is compared, to the bit, with that of a worker which was started for this one request. Writes
bench/results/worker.json, or one by the name of MODEL. That is a tiny random one by default. The tests use the soak too, with fewer
requests. Linux only.
"""

import argparse
import collections
import json
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import record
from reflex import demo
from reflex.client import Client

ENGINE = ("--threads", "1", "--ctx", "512", "--backend", "cpu")
OPTIONS = (*ENGINE, "--stall", "1", "--idle", "5")
TEXT = "the quick brown fox jumps over a lazy dog while that other animal sings about things which were here before"
CANDIDATES = [" fox", " dog", " over a lazy dog", " the quick"]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"enum": ["x", "yy"]}}}
SCHEMA |= {"required": ["a", "b"], "additionalProperties": False}
VARIED = {"temperature": 1.5, "top_k": 40, "seed": 7}
FIXED = [  # requests whose answers are known
    {"command": "system1", "prompt": TEXT[:50], "candidates": CANDIDATES},
    {"command": "system1", "prompt": TEXT[:50], "candidates": CANDIDATES[::-1], "rule": "pmi"},
    {"command": "system1", "prompt": TEXT[:90], "candidates": [f" {word}" for word in TEXT.split()], "rule": "mean"},
    {"command": "system1", "prompt": TEXT, "candidates": CANDIDATES, "rule": "byte", "terminator": ".", "temperature": 0.5},
    {"command": "system1", "prompt": TEXT[10:60], "candidates": ["\udcff raw", ""], "prior": "so"},
    {"command": "system1", "messages": [{"role": "user", "content": "fox?"}], "candidates": ["yes", "no"]},
    {"command": "generate", "prompt": TEXT[:50], "max_tokens": 12},
    {"command": "generate", "prompt": TEXT[:50], "max_tokens": 12, "logprobs": True},
    {"command": "generate", "prompt": TEXT[:50], "max_tokens": 30, "logprobs": True, **VARIED},
    {"command": "generate", "prompt": TEXT[:51], "max_tokens": 30, "repeat_penalty": 1.3, **VARIED},
    {"command": "generate", "prompt": TEXT * 3, "max_tokens": 5, "top_p": 0.9, **VARIED},
    {"command": "generate", "prompt": [5, 6, 7, 8], "max_tokens": 9},
    {"command": "generate", "prompt": TEXT[:50], "max_tokens": 40, "stop": ["e", "zz"], **VARIED},
    {"command": "generate", "prompt": TEXT, "max_tokens": 8, "choices": [" fox", " dog"]},
    {"command": "generate", "prompt": TEXT, "max_tokens": 8, "regex": "[0-9]{2}-[a-f]"},
    {"command": "generate", "prompt": TEXT, "max_tokens": 40, "json_schema": SCHEMA},
    {"command": "generate", "messages": [{"role": "user", "content": "fox?"}], "max_tokens": 6},
    {"command": "tokenize", "text": TEXT},
    {"command": "detokenize", "token_ids": list(range(300))},
]
LONG = {"command": "generate", "prompt": TEXT[:40], "max_tokens": 380, "stream": True, "temperature": 2.0, "seed": 11}
REFUSED = [
    {"command": "system1", "prompt": "a", "candidates": []},
    {"command": "generate", "prompt": TEXT * 40},
    {"command": "generate", "prompt": "a", "max_tokens": 10**6},
    {"command": "generate", "prompt": "a", "temperature": -1},
    {"command": "generate", "prompt": [10**9]},
    {"command": "generate", "prompt": "a", "regex": "("},
    {"command": "generate", "prompt": "a", "choices": ["x"], "regex": "x"},
    {"command": "detokenize", "token_ids": [-1]},
    {"command": "generat", "prompt": "a"},
    {"command": "generate", "prompt": "a", "max_token": 1},
]
STEPS = {"ask": 100, "stream": 24, "several": 16, "cancel": 20, "cancel_waiting": 8, "leave": 12, "cut": 12, "broken": 28}
STEPS |= {"huge": 1, "large": 1, "deaf": 1}
CHANGING = ("id", "timings")  # fields of an answer that are not the same each time


def line(said):
    return json.dumps(said).encode() + b"\n"


def lasting(answer):
    return {name: value for name, value in answer.items() if name not in CHANGING}


class Raw:
    """A client without manners."""

    def __init__(self, path, seconds=60.0):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(seconds)
        self.socket.connect(str(path))
        self._parts = []  # of a line without an end
        self._lines = collections.deque()

    def send(self, data):
        self.socket.sendall(data)

    def answer(self):
        """The next line as an object; None at the end."""
        while not self._lines:
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionError:
                return None
            if not data:
                return None
            first, *more = data.split(b"\n")
            self._parts.append(first)
            for piece in more:
                self._lines.append(b"".join(self._parts))
                self._parts = [piece]
        return json.loads(self._lines.popleft())

    def last(self):
        """(tokens, the last answer) of a request."""
        tokens = []
        while (said := self.answer()) is not None and said["type"] == "token":
            tokens.append(said)
        return tokens, said

    def close(self):
        self.socket.close()


def start(words, path):
    """A worker at the socket `path` that is ready: (process, seconds it took)."""
    begun = time.perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.PIPE)
    said = json.loads(process.stdout.readline())
    if said["type"] != "ready":
        raise SystemExit(f"the worker does not start: {said}")
    return process, time.perf_counter() - begun


class Soak:
    """`words(command, *argv)` gives the command line of reflex. Each step below is a way of use, or of misuse."""

    def __init__(self, words, model, folder, seed):
        self.words = words
        self.model = model
        self.path = Path(folder) / "worker.sock"
        self.random = random.Random(seed)
        self.counts = collections.Counter()
        self.process, self.client = None, None
        self.starts = []
        self.expected = [lasting(self.alone(said)) for said in FIXED]
        self.whole = self.alone({**LONG, "stream": False})
        self.longest = 0.0  # seconds that a step took

    def alone(self, said):
        """The answer of a worker that was started for this request."""
        words = self.words("stdio", self.model, *ENGINE)
        done = subprocess.run(words, input=line(said), stdout=subprocess.PIPE, check=True, timeout=120)
        ready, answer = map(json.loads, done.stdout.splitlines())
        self.check(ready["type"] == "ready", "a fresh worker is ready", ready)
        return answer

    def check(self, holds, what, seen=None):
        if not holds:
            raise AssertionError(f"{what}: {str(seen)[:600]} (after {sum(self.counts.values())} steps: {dict(self.counts)})")

    # ---- the worker's life ----

    def begin(self):
        self.process, took = start(self.words("uds", self.model, self.path, *OPTIONS), self.path)
        self.starts.append(took)
        self.client = Raw(self.path)

    def kill(self):
        """The worker ends without a word; its socket stays and the next one takes it over."""
        if self.random.random() < 0.7:
            self.client.send(line({**LONG, "id": 0}))
            time.sleep(self.random.random() * 0.02)
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.client.close()
        self.check(self.path.is_socket(), "a killed worker leaves its socket")
        self.begin()

    def end(self):
        self.client.close()
        self.process.send_signal(signal.SIGTERM)
        self.check(self.process.wait(30) == 0, "exit code after SIGTERM", self.process.returncode)
        self.check(not self.path.exists(), "the socket is removed")
        self.process.stdout.close()

    def again(self):
        self.client.close()
        self.client = Raw(self.path)

    def health(self):
        self.client.send(line({"command": "health"}))
        return self.client.answer()

    # ---- steps ----

    def known(self):
        number = self.random.randrange(len(FIXED))
        return number, {**FIXED[number], "id": self.random.choice([f"id {number}", number])}

    def same(self, number, said, answer):
        self.check(answer is not None and answer["type"] == "result", "a known request is answered", answer)
        self.check(answer["id"] == said["id"], "the id is repeated", answer)
        self.check(lasting(answer) == self.expected[number], f"the answer of a fresh worker to request {number}", answer)

    def ask(self):
        number, said = self.known()
        self.client.send(line(said))
        self.same(number, said, self.client.answer())

    def stream(self):
        number = self.random.choice([n for n, said in enumerate(FIXED) if said["command"] == "generate"])
        said = {**FIXED[number], "id": number, "stream": True}
        self.client.send(line(said))
        tokens, answer = self.client.last()
        self.same(number, said, answer)
        self.check("".join([token["text"] for token in tokens]) == answer["text"], "the tokens make up the text", answer)
        ids = [token["token_id"] for token in tokens if token["token_id"] is not None]
        self.check(ids == answer["token_ids"] and answer["completion_tokens"] == len(ids), "tokens are counted", answer)

    def several(self):
        """More than one request in one piece, cut anywhere."""
        chosen = [self.known() for _ in range(self.random.randrange(2, 6))]
        data = b"".join([line(said) for _, said in chosen])
        at = self.random.randrange(len(data))
        self.client.send(data[:at])
        self.client.send(data[at:])
        for number, said in chosen:
            self.same(number, said, self.client.answer())

    def cancel(self):
        self.client.send(line({**LONG, "id": "long"}))
        tokens = [self.client.answer() for _ in range(self.random.randrange(20))]
        self.client.send(line({"command": "cancel", "id": "stop it"}))
        more, answer = self.client.last()
        done = self.client.answer()
        self.check(answer["id"] == "long" and done["id"] == "stop it", "both are answered in order", (answer, done))
        if "token_ids" in answer:
            ids = answer["token_ids"]
            self.check(ids == self.whole["token_ids"][: len(ids)], "a cancelled answer is a beginning", answer)
            text = "".join([token["text"] for token in tokens + more])
            self.check(text == answer["text"] and len(ids) == answer["completion_tokens"], "and it is told whole", answer)
        hit = answer["finish_reason"] == "cancelled"
        self.check(hit == done["cancelled"] or not hit, "the cancel knows", done)
        self.counts["  of these ended early"] += hit

    def cancel_waiting(self):
        number, said = self.known()
        waiting = {**LONG, "id": "waits"}
        self.client.send(line(said) + line(waiting) + line({"command": "cancel", "id": 5, "target": "waits"}) + line(said))
        self.same(number, said, self.client.answer())
        tokens, answer = self.client.last()
        self.check(answer["id"] == "waits" and (answer["finish_reason"] == "cancelled"), "cancelled before its turn", answer)
        self.check(not tokens and self.client.answer()["cancelled"] is True, "without a token")
        self.same(number, said, self.client.answer())

    def leave(self):
        """The client dies while it is answered."""
        self.client.send(line({**LONG, "id": 1}))
        for _ in range(self.random.randrange(6)):
            self.client.answer()
        self.again()

    def cut(self):
        """The client dies at any byte of a request."""
        data = line(self.known()[1])
        self.client.send(data[: self.random.randrange(len(data))])
        self.again()

    def broken(self):
        """A line that was damaged, or is refused."""
        if self.random.random() < 0.4:
            data = line({**self.random.choice(REFUSED), "id": 3})
        elif self.random.random() < 0.3:
            data = bytes(self.random.choices([b for b in range(256) if b != 10], k=self.random.randrange(1, 200))) + b"\n"
        else:
            data = bytearray(line(self.known()[1]))
            for _ in range(self.random.randrange(1, 4)):
                data[self.random.randrange(len(data) - 1)] = self.random.choice([b for b in range(256) if b != 10])
            data = bytes(data)
        self.client.send(data)
        if not data.strip():
            return
        _, answer = self.client.last()
        self.check(answer is not None and answer["type"] in ("error", "result"), "a damaged line is answered", (data, answer))
        self.check(answer.get("category") != "internal", "and never by a mistake of ours", (data, answer))
        self.counts["  of these refused"] += answer["type"] == "error"

    def huge(self):
        self.client.send(b'{"command": "generate", "prompt": "')
        for _ in range(9):
            self.client.send(b"a " * (1 << 19))
        self.client.send(b'"}\n')
        answer = self.client.answer()
        self.check(answer["type"] == "error" and answer["category"] == "invalid_input", "a huge line is refused", answer)
        self.ask()

    def large(self):
        """A line just within the limit."""
        self.client.send(line({"command": "generate", "prompt": "the " * (2 * (1 << 20) - 50)}))
        answer = self.client.answer()
        self.check(answer["type"] == "error" and answer["category"] == "context_overflow", "a large line is understood", answer)

    def deaf(self):
        """A client that never reads is given up, and the next one is served."""
        self.client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.client.send(line({"command": "tokenize", "text": "the " * 60_000}) * 4)
        deaf, self.client = self.client, Raw(self.path)
        self.ask()
        deaf.close()

    def steps(self):
        """Names of steps, without an end."""
        while True:
            yield self.random.choices(list(STEPS), STEPS.values())[0]

    def step(self, name):
        begun = time.perf_counter()
        getattr(self, name)()
        self.longest = max(self.longest, time.perf_counter() - begun)
        self.counts[name] += 1

    def run(self, requests, kills):
        """`requests` steps in the life of one worker, then some between each of `kills` of it. What was counted and measured."""
        try:
            return self._run(requests, kills)
        finally:
            if self.process:
                self.process.kill()

    def _run(self, requests, kills):
        self.begin()
        names = self.steps()
        for name in STEPS:
            self.step(name)
        memory, begun = [], time.perf_counter()
        for number in range(requests):
            self.step(next(names))
            if number % max(1, requests // 50) == 0:
                memory.append(self.health()["resident_bytes"])
        spent = time.perf_counter() - begun
        memory.append(self.health()["resident_bytes"])
        for _ in range(kills):
            for _ in range(self.random.randrange(10)):
                self.step(next(names))
            self.step("kill")
        self.ask()
        self.end()
        return {
            "steps": sum(count for name, count in self.counts.items() if name[0] != " "),
            "counts": {name.strip(): count for name, count in sorted(self.counts.items())},
            "steps_per_second": round(requests / spent, 1),
            "longest_step_seconds": round(self.longest, 3),
            "resident_bytes": memory,
            **grown(memory),
            "start_seconds": record.summary(self.starts, 4),
        }


def grown(memory):
    """How much more memory the last third of the time takes than the first, on average, a first tenth aside; and how far it strays:
    a tiny model's process goes up and down by the size of one arena of the interpreter."""
    settled = memory[len(memory) // 10 :]
    third = len(settled) // 3
    early, late = statistics.mean(settled[:third]), statistics.mean(settled[-third:])
    spread = (max(settled) - min(settled)) / min(settled)
    return {"grown_percent": round(100 * (late - early) / early, 3), "spread_percent": round(100 * spread, 3)}


# ---- what a request costs --------------------------------------------------------------------------------


def overhead(words, model, rounds=15, most=100):
    """Microseconds of processor time of a request in the worker, beside the same call in this process, interleaved: medians over
    rounds of means; and of wall clock as its client sees it."""
    import reflex

    prompt, candidates = TEXT[:50], CANDIDATES[:2]
    cases = {
        "health": (lambda m: None, lambda c: c.health()),
        "system1": (lambda m: m.system1(prompt, candidates), lambda c: c.system1(prompt, candidates)),
        "generate, 4 tokens": (
            lambda m: m.generate(prompt, max_tokens=4),
            lambda c: c.request("generate", prompt=prompt, max_tokens=4),
        ),
        "generate, 4 tokens streamed": (
            lambda m: list(m.generate(prompt, max_tokens=4, stream=True)),
            lambda c: c.generate(prompt, max_tokens=4).rest(),
        ),
    }
    found = {}
    with (
        reflex.load(model, backend="cpu", context=512, threads=1) as inside,
        Client(words("stdio", model, *ENGINE)) as worker,
    ):
        for name, (call, ask) in cases.items():
            call(inside)
            begun = time.perf_counter()
            call(inside)
            repeats = max(2, min(most, int(0.1 / (time.perf_counter() - begun))))  # a tenth of a second
            rows = []
            for _ in range(rounds + 2):
                ours, _ = mean(call, inside, repeats, time.process_time_ns)
                theirs, wall = mean(ask, worker, repeats, lambda: processor_ns(worker.process.pid))
                rows.append((ours, theirs, theirs - ours, wall))
            columns = zip(*rows[2:], strict=True)
            titles = ("in_process_us", "worker_us", "overhead_us", "wall_us")
            found[name] = {title: record.summary(column, 1) for title, column in zip(titles, columns, strict=True)}
    return found


def mean(call, argument, repeats, clock):
    """(us by `clock`, us of wall clock) of a call, over some."""
    begun, spent = time.perf_counter_ns(), clock()
    for _ in range(repeats):
        call(argument)
    return (clock() - spent) / repeats / 1000, (time.perf_counter_ns() - begun) / repeats / 1000


def processor_ns(pid):
    """Processor time of the main thread of a process."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


STOP = """
import reflex.cli.output as output, time, posix
def mark(self, name):
    if name == "kernels":
        posix.write(2, b"%d" % time.process_time_ns())
        posix._exit(0)
output.Output.mark = mark
"""


def until_loaded(words, model, folder, runs=21):
    """Milliseconds of processor time from exec until the model is loaded, which for a worker is `ready`, interleaved."""
    commands = {
        "system1": words("system1", model, "a", "--candidate", "b", *ENGINE, "--json", "--timings", before=STOP),
        "stdio": words("stdio", model, *ENGINE, before=STOP),
        "uds": words("uds", model, f"{folder}/cold.sock", *ENGINE, before=STOP),
    }
    found = {name: [] for name in commands}
    for _ in range(runs + 2):
        for name, command in commands.items():
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True)
            found[name].append(int(done.stderr) / 1e6)
    return {f"{name}_ms": record.summary(values[2:]) for name, values in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=demo.resolve)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    sys.path.append(str(record.ROOT / "tests"))
    import process

    with tempfile.TemporaryDirectory() as folder:
        model = options.model or tiny_model(folder)
        soak = Soak(process.words, model, folder, options.seed).run(options.requests, options.kills)
        print(json.dumps(soak | {"resident_bytes": "..."}, indent=1))
        costs = overhead(process.words, model)
        cold = until_loaded(process.words, model, folder)
        body = {"model": record.model(model), "options": OPTIONS, "soak": soak, "request": costs, "cold": cold}
    name = f"worker-{record.slug(body['model']['title'])}" if options.model else "worker"
    record.write(name, "the worker under fire, and what a request costs beside the engine's own call", body)
    for name, row in costs.items():
        inside, more = row["in_process_us"]["median"], row["overhead_us"]["median"]
        print(f"{name:<28} in process {inside:9.1f} us, more in the worker {more:8.1f}")
    print({name: row["median"] for name, row in cold.items()})


def tiny_model(folder):
    import tiny

    return tiny.write("llama-smollm", Path(folder) / "tiny.gguf", template=TEMPLATE)


TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}"

if __name__ == "__main__":
    main()
