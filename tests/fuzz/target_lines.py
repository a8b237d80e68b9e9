"""Lines said to a worker: requests of every kind with fields of every kind, with damage, over a model without weights.

A line is answered by one JSON object or more, the last of which is no token; nothing that is said may be an internal error, and a
sound request after it works.
"""

import json
import os

import fakes
from changes import damage

from reflex.worker import protocol
from reflex.worker.loop import Worker

SOUND = b'{"command": "tokenize", "text": "the aa", "id": "sound"}\n'
VALUES = (
    None,
    True,
    False,
    0,
    1,
    -1,
    3,
    2.5,
    1e308,
    1 << 62,
    1 << 70,
    "",
    "a",
    "the aa b is",
    "sum",
    "\ud800",
    "\u00e9",
    "x" * 3000,
)
VALUES += ([], [""], ["a", " b"], [1, 2], [-1], [1 << 40], [None], {}, {"type": "integer"}, {"a": {"b": [1]}}, ["a"] * 200)
VALUES += ([{"role": "user", "content": "hi"}], [{"role": 3}], [[[[[]]]]])


class Quiet:
    """Signals of which none comes."""

    number = 0

    def __init__(self):
        self.wake, self.end = os.pipe()


class File:
    """A model file that nobody writes to, without a template."""

    path = "model"

    def rewritten(self):
        return []

    def s(self, key, default=None):
        return default


class Target:
    def __init__(self):
        self.fields = {name: [row[0] for row in protocol.command(name).FIELDS] for name in protocol.names()}
        self.session = fakes.session()
        self.worker = Worker(File(), self.session.tokenizer, self.session, Quiet(), 5.0)

    def make(self, random):
        lines = []
        for _ in range(random.randrange(1, 4)):
            name = random.choice(list(self.fields))
            said = {"command": name, "id": random.choice(VALUES)} if random.random() < 0.3 else {"command": name}
            for field in self.fields[name]:
                if random.random() < 0.5:
                    said[field] = random.choice(VALUES)
            if random.random() < 0.6 and "prompt" in self.fields[name]:
                said |= {"prompt": "the aa b is"}
                said.pop("messages", None)
            lines.append(json.dumps(said).encode())
        data = b"\n".join(lines)
        return data if random.random() < 0.7 else damage(data, random)

    def again(self, data, random):
        return damage(data, random)

    def run(self, data):
        source, sink = os.memfd_create("source"), os.memfd_create("sink")
        try:
            os.write(source, data + b"\n" + SOUND)
            os.lseek(source, 0, os.SEEK_SET)
            self.worker.serve(source, sink)
            answers = [json.loads(line) for line in os.pread(sink, 1 << 26, 0).splitlines()]
        finally:
            os.close(source)
            os.close(sink)
        kinds = {answer["category"] for answer in answers if answer["type"] == "error"}
        if answers[-1].get("id") != "sound" or answers[-1]["type"] == "error":
            raise AssertionError(f"the sound line is answered by {answers[-1]}")
        if kinds & {"internal", "kernel_cache", "device", "state"}:
            raise AssertionError(next(answer for answer in answers if answer.get("category") in kinds))
        return " ".join(sorted(kinds)) or "answers"
