"""A worker under fire: requests one after the other, among them cancelled, cut, broken, huge and abandoned ones, such that take and
leave state files, all over a model with an adapter, while worker and clients are killed. Run by bench/worker.py and by the tests.

Every answer, token by token where it is streamed, is compared to the bit with that of a worker which was started for this one
request. Linux only.
"""

import collections
import itertools
import json
import random
import signal
import socket
import statistics
import subprocess
import time
from pathlib import Path

from bench import record

ENGINE = ("--threads", "1", "--ctx", "512", "--backend", "cpu")
OPTIONS = ("--stall", "1", "--idle", "5")
TEXT = "the quick brown fox jumps over a lazy dog while that other animal sings about things which were here before"
CANDIDATES = [" fox", " dog", " over a lazy dog", " the quick"]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"enum": ["x", "yy"]}}}
SCHEMA |= {"required": ["a", "b"], "additionalProperties": False}
VARIED = {"temperature": 1.5, "top_k": 40, "seed": 7}
LIKELY = {"logprobs": True, "top_logprobs": 5}  # the latter in token answers
FIXED = [  # requests whose answers are known, beside those of state files
    {"command": "system1", "prompt": TEXT[:50], "candidates": CANDIDATES},
    {"command": "system1", "prompt": TEXT[:50], "candidates": CANDIDATES[::-1], "rule": "pmi"},
    {"command": "system1", "prompt": TEXT[:90], "candidates": [f" {word}" for word in TEXT.split()], "rule": "mean"},
    {"command": "system1", "prompt": TEXT, "candidates": CANDIDATES, "rule": "byte", "terminator": ".", "temperature": 0.5},
    {"command": "system1", "prompt": TEXT[10:60], "candidates": ["\udcff raw", ""], "prior": "so"},
    {"command": "system1", "messages": [{"role": "user", "content": "fox?"}], "candidates": ["yes", "no"]},
    {"command": "generate", "prompt": TEXT[:50], "max_tokens": 12},
    {"command": "generate", "prompt": TEXT[:50], "max_tokens": 12, **LIKELY},
    {"command": "generate", "prompt": TEXT[:50], "max_tokens": 30, **LIKELY, **VARIED},
    {"command": "generate", "prompt": TEXT[:51], "max_tokens": 30, "repeat_penalty": 1.3, **VARIED},
    {"command": "generate", "prompt": TEXT * 3, "max_tokens": 5, "top_p": 0.9, **VARIED},
    {"command": "generate", "prompt": [5, 6, 7, 8], "max_tokens": 9},
    {"command": "generate", "prompt": TEXT[:50], "max_tokens": 40, "stop": ["e", "zz"], **VARIED},
    {"command": "generate", "prompt": TEXT, "max_tokens": 8, "choices": [" fox", " dog"]},
    {"command": "generate", "prompt": TEXT, "max_tokens": 8, "regex": "[0-9]{2}-[a-f]", "top_logprobs": 20},
    {"command": "generate", "prompt": TEXT, "max_tokens": 40, "json_schema": SCHEMA},
    {"command": "generate", "messages": [{"role": "user", "content": "fox?"}], "max_tokens": 6},
    {"command": "tokenize", "text": TEXT},
    {"command": "detokenize", "token_ids": list(range(300))},
]
MADE, KEPT, SPOILED = "made.state", "kept.state", "spoiled.state"  # read; written again and again; damaged
KEEPING = {"command": "system1", "prompt": TEXT[:50], "candidates": CANDIDATES, "export_state": MADE}
STATES = [  # the same, with names of files in place of paths
    {**KEEPING, "export_state": KEPT},
    {"command": "system1", "prompt": TEXT, "candidates": CANDIDATES, "import_state": MADE},
    {"command": "system1", "prompt": TEXT[:30] + "z", "candidates": CANDIDATES, "import_state": MADE},
    {"command": "generate", "prompt": TEXT[:80], "max_tokens": 9, "import_state": MADE, **LIKELY},
    {"command": "generate", "prompt": TEXT[:50], "max_tokens": 5, "import_state": MADE, "export_state": KEPT},
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
    {"command": "generate", "prompt": "a", "top_logprobs": 21},
    {"command": "generate", "prompt": TEXT, "import_state": SPOILED},
    {"command": "system1", "prompt": TEXT, "candidates": CANDIDATES, "import_state": "/none.state"},
    {"command": "system1", "prompt": TEXT, "candidates": CANDIDATES, "export_state": "here.state"},
]
STEPS = {"ask": 100, "stream": 24, "several": 16, "cancel": 20, "cancel_waiting": 8, "leave": 12, "cut": 12, "broken": 28}
STEPS |= {"huge": 1, "large": 1, "deaf": 1}
WARM_UP = 1000  # quick steps, and then one of each, before memory is looked at: they take the last arena of the interpreter
QUICK = ("ask", "stream", "several", "cancel_waiting", "broken")
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

    def __init__(self, words, model, adapter, folder, seed):
        self.words = words
        self.model = model
        self.engine = (*ENGINE, "--lora", adapter)
        self.path = Path(folder) / "worker.sock"
        self.states = Path(folder) / "states"
        self.states.mkdir()
        self.random = random.Random(seed)
        self.counts = collections.Counter()
        self.process, self.client = None, None
        self.starts = []
        self.alone(self.placed(KEEPING))
        self.kept = (self.states / MADE).read_bytes()
        (self.states / SPOILED).write_bytes(self.kept[:-1] + bytes([self.kept[-1] ^ 1]))
        self.known = [self.placed(said) for said in FIXED + STATES]
        self.expected = [self.alone({**said, "stream": True} if said["command"] == "generate" else said) for said in self.known]
        _, self.whole = self.alone({**LONG, "stream": False})
        self.longest = 0.0  # seconds that a step took

    def placed(self, said):
        """A request with paths in place of the names of state files."""
        return {name: str(self.states / value) if value in (MADE, KEPT, SPOILED) else value for name, value in said.items()}

    def alone(self, said):
        """(tokens, the last answer) of a worker that was started for this request."""
        words = self.words("stdio", self.model, *self.engine)
        done = subprocess.run(words, input=line(said), stdout=subprocess.PIPE, check=True, timeout=120)
        ready, *tokens, answer = map(json.loads, done.stdout.splitlines())
        self.check(ready["type"] == "ready", "a fresh worker is ready", ready)
        self.check(answer["type"] == "result" or "id" in said, "and answers", answer)
        return [lasting(token) for token in tokens], lasting(answer)

    def check(self, holds, what, seen=None):
        if not holds:
            raise AssertionError(f"{what}: {str(seen)[:600]} (after {sum(self.counts.values())} steps: {dict(self.counts)})")

    # ---- the worker's life ----

    def begin(self):
        self.process, took = start(self.words("uds", self.model, self.path, *self.engine, *OPTIONS), self.path)
        self.starts.append(took)
        self.client = Raw(self.path)

    def kill(self):
        """The worker ends without a word; its socket stays and the next one takes it over."""
        if self.random.random() < 0.7:
            self.client.send(line({**self.random.choice([LONG, self.known[-1]]), "id": 0}))
            time.sleep(self.random.random() * 0.02)
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.client.close()
        self.check(self.path.is_socket(), "a killed worker leaves its socket")
        self.check((self.states / KEPT).read_bytes() == self.kept, "and a state file is whole")
        self.begin()

    def end(self):
        self.client.close()
        self.process.send_signal(signal.SIGTERM)
        self.check(self.process.wait(30) == 0, "exit code after SIGTERM", self.process.returncode)
        self.check(not self.path.exists(), "the socket is removed")
        self.check((self.states / KEPT).read_bytes() == self.kept, "the state is what a fresh worker writes")
        self.process.stdout.close()

    def again(self):
        self.client.close()
        self.client = Raw(self.path)

    def health(self):
        self.client.send(line({"command": "health"}))
        return self.client.answer()

    # ---- steps ----

    def any_known(self):
        number = self.random.randrange(len(self.known))
        return number, {**self.known[number], "id": self.random.choice([f"id {number}", number])}

    def same(self, number, said, answer):
        self.check(answer is not None and answer["type"] == "result", "a known request is answered", answer)
        self.check(answer["id"] == said["id"], "the id is repeated", answer)
        self.check(lasting(answer) == self.expected[number][1], f"the answer of a fresh worker to request {number}", answer)

    def ask(self):
        number, said = self.any_known()
        self.client.send(line(said))
        self.same(number, said, self.client.answer())

    def stream(self):
        number = self.random.choice([n for n, said in enumerate(self.known) if said["command"] == "generate"])
        said = {**self.known[number], "id": number, "stream": True}
        self.client.send(line(said))
        tokens, answer = self.client.last()
        self.same(number, said, answer)
        self.check([lasting(token) for token in tokens] == self.expected[number][0], "and the tokens are its tokens", tokens)
        self.check("".join([token["text"] for token in tokens]) == answer["text"], "the tokens make up the text", answer)
        most = self.known[number].get("top_logprobs", 0)
        for token in tokens:
            wanted = most if token["token_id"] is not None else 0
            self.check(len(token.get("top_logprobs", ())) == wanted, "as many likely tokens as were asked for", token)
        ids = [token["token_id"] for token in tokens if token["token_id"] is not None]
        self.check(ids == answer["token_ids"] and answer["completion_tokens"] == len(ids), "tokens are counted", answer)

    def several(self):
        """More than one request in one piece, cut anywhere."""
        chosen = [self.any_known() for _ in range(self.random.randrange(2, 6))]
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
        number, said = self.any_known()
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
        data = line(self.any_known()[1])
        self.client.send(data[: self.random.randrange(len(data))])
        self.again()

    def broken(self):
        """A line that was damaged, or is refused."""
        if self.random.random() < 0.4:
            data = line({**self.placed(self.random.choice(REFUSED)), "id": 3})
        elif self.random.random() < 0.3:
            data = bytes(self.random.choices([b for b in range(256) if b != 10], k=self.random.randrange(1, 200))) + b"\n"
        else:
            data = bytearray(line(self.random.choice(FIXED)))  # no path of a file to write
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

    def steps(self, among=tuple(STEPS)):
        """Names of steps, without an end."""
        while True:
            yield self.random.choices(among, [STEPS[name] for name in among])[0]

    def step(self, name):
        begun = time.perf_counter()
        getattr(self, name)()
        self.longest = max(self.longest, time.perf_counter() - begun)
        self.counts[name] += 1

    def run(self, requests, kills):
        """A warm-up and `requests` steps in the life of one worker, then some between each of `kills` of it. What was counted and
        measured."""
        try:
            return self._run(requests, kills)
        finally:
            if self.process:
                self.process.kill()

    def _run(self, requests, kills):
        self.begin()
        names = self.steps()
        for name in (*itertools.islice(self.steps(QUICK), WARM_UP), *STEPS):
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


def tiny_model(folder):
    import tiny

    return tiny.write("llama-smollm", Path(folder) / "tiny.gguf", template=TEMPLATE)


def adapter_of(model, folder):
    """A random adapter for queries, feed-forwards and embeddings of a model."""
    import adapters

    path = Path(folder) / "adapter.gguf"
    adapters.write(path, model, [name for name in adapters.matrices(model) if any(part in name for part in ADAPTED)])
    return path


ADAPTED = ("attn_q.", "ffn_down.", "token_embd.")
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}"
