"""Runs sidecars for tests, as processes of their own over the worker of the source tree, and speaks plain HTTP with them."""

import contextlib
import http.client
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import sysconfig

import process
import tiny
from process import until as until

TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}{{ extra }}"
ENGINE = ("--threads", "1", "--ctx", "512", "--backend", "cpu")
JSON = {"content-type": "application/json"}
TEXT = "the quick brown fox jumps over a lazy dog "
BOOT = """
import sys
sys.path += [{root!r}, {packages!r}]
sys.argv[0] = "reflex-sidecar"
{before}
from reflex.sidecar.main import main
main()
"""


def tiny_model(folder):
    return tiny.write("llama-smollm", folder / "tiny.gguf", template=TEMPLATE, ends=False)


def worker_program(folder, name="reflex", before=""):
    """An executable file that is `reflex` of the source tree; `before`: Python that runs first."""
    path = folder / name
    path.write_text(f'#!/bin/sh\nexec {shlex.join(process.words(before=before))} "$@"\n')
    path.chmod(0o755)
    return path


def held_program(folder):
    """The same, but every request stops after some tokens until it is cancelled, its sidecar gone, or some minutes are over."""
    return worker_program(folder, "held", process.HELD.format(at=40))


def words(*argv, before=""):
    """The command that runs reflex-sidecar with `argv` from the source tree; `before`: Python that runs first."""
    boot = BOOT.format(root=str(process.ROOT), packages=sysconfig.get_path("purelib"), before=before)
    return [sys.executable, "-IS", "-c", boot, *map(str, argv)]


class Answer:
    """An answer: `status`, `headers`, `body` (bytes)."""

    def __init__(self, response):
        self.status, self.headers, self.body = response.status, response.headers, response.read()

    @property
    def said(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.said["error"]


class Running:
    """A sidecar that listens. `port`; `path` of its local socket, if it has one."""

    def __init__(self, folder, model, *argv, wait=True, worker=None, before="", engine=ENGINE, environment=None):
        options = ["--json", "--worker", worker or worker_program(folder), *engine, *argv]
        where = [] if {"--port", "--uds"} & set(argv) else ["--port", "0"]
        environment = {**os.environ, **(environment or {})}
        command = words(model, *where, *options, before=before)
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        self.listening = self.event()
        self.url = self.listening.get("url", "")
        self.path = self.url.removeprefix("unix:") if self.url.startswith("unix:") else None
        self.port = None if self.path else int(self.url.rpartition(":")[2])
        self.ready = self.event() if wait else None

    def event(self):
        """The next line of stdout."""
        return json.loads(self.process.stdout.readline())

    def connect(self, seconds=process.SECONDS):
        """A socket to it."""
        if self.path:
            made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            made.settimeout(seconds)
            made.connect(self.path)
            return made
        made = socket.create_connection(("127.0.0.1", self.port), seconds)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    def client(self):
        """An http.client connection."""
        client = http.client.HTTPConnection("sidecar", timeout=300)
        client.sock = self.connect()
        return client

    def send(self, method, path, body=None, headers=JSON):
        """(client, after a request was sent)"""
        client = self.client()
        client.request(method, path, body if body is None or isinstance(body, bytes) else json.dumps(body), headers)
        return client

    def ask(self, path, body=None, headers=JSON, method=None):
        """An Answer to one request."""
        client = self.send(method or ("GET" if body is None else "POST"), path, body, headers)
        with contextlib.closing(client):
            return Answer(client.getresponse())

    def events(self, path, body):
        """The events of a stream, and its status."""
        answer = self.ask(path, {**body, "stream": True})
        parts = answer.body.decode().split("\n\n")
        assert parts[-1] == "" and all(part.startswith("data: ") for part in parts[:-1])
        return [part.removeprefix("data: ") for part in parts[:-1]]

    def worker(self):
        """The process id of its worker."""
        return int(open(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read().split()[0])

    def gauge(self, name, headers=JSON):
        """A number of /metrics."""
        lines = self.ask("/metrics", headers=headers).body.decode().splitlines()
        return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"reflex_{name} "))

    @contextlib.contextmanager
    def held(self):
        """The worker does nothing meanwhile."""
        pid = self.worker()
        os.kill(pid, signal.SIGSTOP)
        try:
            yield pid
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def stop(self, number=signal.SIGTERM):
        """(exit code, stderr) after a signal."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=300)
        return self.process.returncode, said.decode()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.communicate(timeout=300)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.stdout.close()
        self.process.stderr.close()
