"""The sidecar against what it stands in front of: what it adds to a request and to a cold first answer; what happens to
clients that are more than it takes.

    python bench/sidecar.py [MODEL] [--rounds 300] [--starts 25] [--seconds 6]

The programs reflex and reflex-sidecar are those beside this Python. Interleaved are: a request to the worker alone and the
same over HTTP; the bare command and the same question to a sidecar that is just being started. The last part needs `wrk` on the
path. Writes bench/results/sidecar.json, or one by the name of MODEL. Takes some two minutes.
"""

import argparse
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import record, spawn
from reflex import demo
from reflex.client import Client

BIN = Path(sys.executable).parent
PROMPT, LABELS = "The capital of France is", [" Paris", " London"]
QUESTION = {"prompt": PROMPT, "labels": LABELS}
TEXT = {"prompt": PROMPT, "max_tokens": 16, "temperature": 0}
HEAD = {"content-type": "application/json"}
QUEUE = 16
CLIENTS = (1, QUEUE + 1, 50)
PAIR_MS, COLD_MS = 2.0, 60.0  # what is allowed
SCRIPT = """wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{body}'
"""


class Sidecar:
    """A sidecar that was started; `ready()` waits until it answers."""

    def __init__(self, model, *options):
        self.held = socket.socket()  # bound, so that nobody else is given the port, but not listening
        self.held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.held.bind(("127.0.0.1", 0))
        self.port = self.held.getsockname()[1]
        words = [str(BIN / "reflex-sidecar"), str(model), "--port", str(self.port), *options]
        self.begun = time.monotonic_ns()
        nothing = (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)
        self.pid = os.posix_spawn(words[0], words, os.environ, file_actions=[nothing])

    def connect(self):
        """A connection, as soon as there can be one."""
        while True:
            found = socket.socket()
            try:
                found.connect(("127.0.0.1", self.port))
                found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return found
            except OSError:
                found.close()
                time.sleep(0.0005)

    def client(self):
        """The same for http.client."""
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        client.sock = self.connect()
        return client

    def statuses(self):
        """{status: answers so far} of /v1/classify."""
        client = self.client()
        client.request("GET", "/metrics")
        text = client.getresponse().read().decode()
        client.close()
        return {int(s): int(n) for s, n in re.findall(r'requests_total\{path="/v1/classify",status="(\d+)"\} (\d+)', text)}

    def stop(self):
        os.kill(self.pid, signal.SIGTERM)
        _, status, usage = os.wait4(self.pid, 0)
        self.held.close()
        if os.waitstatus_to_exitcode(status):
            raise SystemExit(f"the sidecar ended with {status}")
        return usage.ru_maxrss * 1024


def ask(client, path, body):
    """(milliseconds, the answer)"""
    begun = time.perf_counter_ns()
    client.request("POST", path, body, HEAD)
    response = client.getresponse()
    data = response.read()
    spent = (time.perf_counter_ns() - begun) / 1e6
    if response.status != 200:
        raise SystemExit(f"{path}: {response.status} {data[:300]!r}")
    return spent, data


def over_http(client, path, body):
    """(milliseconds, those of them in which the worker worked)"""
    spent, data = ask(client, path, json.dumps(body))
    return spent, json.loads(data)["timings"]["total"]


def alone(worker, command, **fields):
    """The same of the worker alone."""
    begun = time.perf_counter_ns()
    total = worker.request(command, **fields)["timings"]["total"]
    return (time.perf_counter_ns() - begun) / 1e6, total


def overhead(model, rounds):
    """What a request takes outside the worker's work, over HTTP and by the worker's own lines; interleaved."""
    kinds = {
        "classify": (("/v1/classify", QUESTION), ("system1", {"prompt": PROMPT, "candidates": LABELS})),
        "completion of 16 tokens": (("/v1/completions", TEXT), ("generate", TEXT)),
    }
    found = {}
    sidecar = Sidecar(model)
    with Client([str(BIN / "reflex"), "stdio", str(model)]) as worker:
        client = sidecar.client()
        for name, (http_said, worker_said) in kinds.items():
            rows = []
            for _ in range(rounds + 10):
                rows.append((*over_http(client, *http_said), *alone(worker, worker_said[0], **worker_said[1])))
            rows = rows[10:]
            found[name] = {
                "http_ms": record.summary([row[0] for row in rows], 3),
                "worker_ms": record.summary([row[2] for row in rows], 3),
                "outside_the_work_http_ms": record.summary([row[0] - row[1] for row in rows], 3),
                "outside_the_work_worker_ms": record.summary([row[2] - row[3] for row in rows], 3),
                "overhead_ms": record.summary([row[0] - row[1] - row[2] + row[3] for row in rows], 3),
            }
        client.close()
    found["stream of 64 tokens"] = streaming(sidecar, rounds // 10)
    return found, sidecar.stop()


def streaming(sidecar, rounds):
    """How much longer a stream takes than the worker's work for it."""
    client, extra = sidecar.client(), []
    said = {**TEXT, "max_tokens": 64, "stream": True, "stream_options": {"include_usage": True}}
    for _ in range(rounds + 2):
        spent, data = ask(client, "/v1/completions", json.dumps(said))
        last = json.loads(data.decode().split("\n\n")[-3].removeprefix("data: "))
        extra.append(spent - last["timings"]["total"])
    client.close()
    return {"overhead_ms": record.summary(extra[2:], 3)}


def first_answer(model):
    """Milliseconds from the spawn of a sidecar to its first answer, asked for as soon as it can be, and to the connection."""
    body = json.dumps(QUESTION).encode()
    head = f"POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    sidecar = Sidecar(model)
    with sidecar.connect() as found:
        connected = time.monotonic_ns()
        found.sendall(head.encode() + body)
        data = found.recv(1 << 16)
        answered = time.monotonic_ns()
    if not data.startswith(b"HTTP/1.1 200"):
        raise SystemExit(f"no answer: {data[:200]!r}")
    sidecar.stop()
    return (answered - sidecar.begun) / 1e6, (connected - sidecar.begun) / 1e6


def cold(model, starts):
    """First answers of the bare command and of sidecar and worker, interleaved."""
    words = [str(BIN / "reflex"), "system1", str(model), PROMPT, *[word for label in LABELS for word in ("--candidate", label)]]
    bare, ours, listening = [], [], []
    for _ in range(starts + 2):
        bare.append(spawn.run(words).first)
        first, connected = first_answer(model)
        ours.append(first)
        listening.append(connected)
    bare, ours, listening = bare[2:], ours[2:], listening[2:]
    return {
        "bare_ms": record.summary(bare),
        "sidecar_ms": record.summary(ours),
        "listening_ms": record.summary(listening),
        "more_ms": record.summary([b - a for a, b in zip(bare, ours, strict=True)]),
        "ratio": record.ratios(bare, ours),
    }


def crowd(model, seconds):
    """wrk with one client, with as many as there are places, and with 50."""
    program = shutil.which("wrk")
    if program is None:
        raise SystemExit("no wrk on the path: apt install wrk")
    found, sidecar = {}, Sidecar(model, "--queue", str(QUEUE))
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "classify.lua"
        script.write_text(SCRIPT.format(body=json.dumps(QUESTION)))
        ask(sidecar.client(), "/v1/classify", json.dumps(QUESTION))
        for clients in CLIENTS:
            before = sidecar.statuses()
            words = [
                program,
                "-t1",
                f"-c{clients}",
                f"-d{seconds}s",
                "-s",
                str(script),
                f"http://127.0.0.1:{sidecar.port}/v1/classify",
            ]
            said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
            counts = {status: count - before.get(status, 0) for status, count in sidecar.statuses().items()}
            counts = {status: count for status, count in counts.items() if count and status}  # 0: those that wrk left at its end
            total = sum(counts.values())
            found[named(clients)] = {
                "answers": counts,
                "per_second_of_200": round(counts[200] / seconds, 1),
                "share_of_429": round(counts.get(429, 0) / total, 4),
                "5xx": sum([count for status, count in counts.items() if status >= 500]),
                "socket_errors": re.findall(r"Socket errors: (.*)", said),
            }
    sidecar.stop()
    return found


def named(clients):
    """How many clients, in words."""
    return f"{clients} client{'s' * (clients > 1)}"


def verdict(costs, starts, crowds):
    """What was asked for, and whether it is so."""
    first, full, many = [crowds[named(clients)] for clients in CLIENTS]
    rows = {f"{name}: at most {PAIR_MS:g} ms more": costs[name]["overhead_ms"]["median"] <= PAIR_MS for name in costs}
    rows[f"cold: at most {COLD_MS:g} ms more"] = starts["more_ms"]["median"] <= COLD_MS
    rows["no 5xx, no socket error"] = not any(row["5xx"] or row["socket_errors"] for row in crowds.values())
    rows["as many clients as places: no 429"] = set(full["answers"]) == set(first["answers"]) == {200}
    rows["50 clients: only 200 and 429"] = set(many["answers"]) == {200, 429}
    rows["50 clients: at least 60 % of the answers that one client gets"] = (
        many["per_second_of_200"] >= 0.6 * first["per_second_of_200"]
    )
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="demo")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--starts", type=int, default=25)
    parser.add_argument("--seconds", type=int, default=6)
    options = parser.parse_args()
    model = demo.resolve(options.model)
    costs, peak = overhead(model, options.rounds)
    starts = cold(model, options.starts)
    crowds = crowd(model, options.seconds)
    rows = verdict(costs, starts, crowds)
    body = {"model": record.model(model), "queue": QUEUE, "request": costs, "cold": starts, "crowd": crowds}
    name = "sidecar" if options.model == "demo" else f"sidecar-{record.slug(body['model']['title'])}"
    body |= {"held": rows, "peak_bytes": peak}
    record.write(name, "the sidecar against the worker alone and the bare command; more clients than places", body)
    for name, row in costs.items():
        print(f"{name:<26} over the worker alone {row['overhead_ms']['median']:7.3f} ms")
    first, more = starts["sidecar_ms"]["median"], starts["more_ms"]["median"]
    print(f"cold: bare {starts['bare_ms']['median']} ms, sidecar {first} ms, more {more} ms")
    for name, row in crowds.items():
        print(f"{name}: {row['answers']}, {row['per_second_of_200']} of 200 a second")
    for name, holds in rows.items():
        print(f"{'yes' if holds else 'NO ':<4}{name}")


if __name__ == "__main__":
    main()
