"""A process whose surroundings are poor: no home, a folder that cannot be written, little memory, a fork, two threads at once, a
model file that is written to under it. Each is told in one line, or does not matter."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import process
import pytest
import tiny

import reflex
from reflex.errors import StateError

SYSTEM1 = ("The capital", "--candidate", " Paris", "--candidate", " London")
SPOIL = """
import reflex.cli.output as output
inner = output.Output.settle
def settle(self, file):
    {change}
    inner(self, file)
output.Output.settle = settle
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    tiny.write("llama-smollm", path)
    return path


@pytest.fixture(scope="module")
def answer(model):
    done = process.reflex("system1", model, *SYSTEM1)
    return done.returncode, done.stdout, done.stderr


def test_no_home_no_environment_and_a_folder_that_cannot_be_written(model, answer, tmp_path):
    """Nothing is compiled, so nothing need be kept anywhere: not even a user without a name or a writable folder matters."""
    folder = tmp_path / "read only"
    folder.mkdir(mode=0o555)
    argv = process.words("system1", model, *SYSTEM1)
    done = subprocess.run(argv, capture_output=True, cwd=folder, env={})
    assert (done.returncode, done.stdout, done.stderr) == answer
    assert list(folder.iterdir()) == []


def test_little_memory_is_one_line(model):
    limit = "import resource; resource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20))\n"
    large = ("--ctx", "1024", "--threads", "1")
    assert process.reflex("system1", model, *SYSTEM1, *large, before=limit).returncode == 0
    tight = "import math, resource, reflex.backends.cpu; resource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20))\n"
    done = process.reflex("system1", model, *SYSTEM1, *large, before=tight)
    (line,) = done.stderr.decode().splitlines()
    assert done.returncode == 5 and line.startswith("reflex: out_of_memory: "), line


def test_no_more_descriptors_is_one_line(model):
    limit = "import resource, reflex.cli.system1; resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
    done = process.reflex("system1", model, *SYSTEM1, before=limit)
    assert done.returncode in (3, 7, 8) and done.stderr.count(b"\n") == 1 and b"Too many open files" in done.stderr


@pytest.mark.parametrize("change", ["f.write(b'x')", "f.truncate(os.path.getsize(path) - 100)"])
def test_a_model_that_is_written_to_is_said(model, tmp_path, change):
    path = tmp_path / "m.gguf"
    path.write_bytes(model.read_bytes())
    code = f"import os; path = {str(path)!r}; f = open(path, 'r+b'); f.seek(0, 2); {change}; f.close()"
    done = process.reflex("system1", path, *SYSTEM1, before=SPOIL.format(change=code))
    assert done.returncode == 0 and b"was written to while it was used" in done.stderr


def test_a_model_that_is_replaced_by_another_file_stays_what_it_was(model, tmp_path, answer):
    path = tmp_path / "m.gguf"
    path.write_bytes(model.read_bytes())
    (tmp_path / "new.gguf").write_bytes(b"something else")
    code = f"import os; os.rename({str(tmp_path / 'new.gguf')!r}, {str(path)!r})"
    done = process.reflex("system1", path, *SYSTEM1, before=SPOIL.format(change=code))
    assert (done.returncode, done.stdout, done.stderr) == answer


LOSE = """
import os
import reflex.open as module
inner = module.open_model
def open_model(*words, **named):
    done = inner(*words, **named)
    os.truncate({path!r}, {size})
    return done
module.open_model = open_model
"""


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("command", [("generate", "hello", "--max-tokens", "3"), ("system1", *SYSTEM1)])
def test_a_model_that_shrinks_while_it_is_used_is_one_line(model, tmp_path, command, threads):
    """The page that is gone is read by native code, on any thread; what is said there was prepared when the file was mapped."""
    path = tmp_path / "m.gguf"
    path.write_bytes(model.read_bytes())
    words = (command[0], path, *command[1:], "--threads", threads)
    for more in ((), ("--json",)):
        path.write_bytes(model.read_bytes())
        done = process.reflex(*words, *more, before=LOSE.format(path=str(path), size=16384))
        (line,) = done.stderr.decode().splitlines()
        assert done.returncode == 3
        assert (
            line.startswith("reflex: model_file: the file became shorter while it was read")
            and str(path) in line
            and "renaming" in line
        )
        if more:
            (error,) = map(json.loads, done.stdout.splitlines())
            assert (error["type"], error["category"], error["where"]) == ("error", "model_file", str(path))
        else:
            assert done.stdout == b""


@pytest.mark.parametrize("size", [0, 4096])
def test_a_model_that_shrinks_while_python_reads_it(model, tmp_path, size):
    path = tmp_path / "m.gguf"
    path.write_bytes(model.read_bytes())
    code = (
        LOSE.format(path=str(path), size=size)
        + "from reflex.tokenizer import Tokenizer; Tokenizer.stem = lambda self, *words: self.piece(400)\n"
    )
    done = process.reflex("system1", path, *SYSTEM1, before=code)
    (line,) = done.stderr.decode().splitlines()
    assert done.returncode == 3 and "became shorter" in line and done.stdout == b""


OTHER = """
import os
def open_model(*words, **named):
    from reflex import native
    inner(*words, **named)
    path = {path!r}
    descriptor = os.open(path, os.O_RDONLY)
    mapping = native.map_descriptor(descriptor, 8192, path)
    os.truncate(path, 0)
    native.bytes_at(mapping.address, 10)
import reflex.open as module
inner, module.open_model = module.open_model, open_model
"""


def test_a_lost_page_of_anything_else_ends_the_process_as_ever(model, tmp_path):
    path = tmp_path / "other"
    path.write_bytes(bytes(8192))
    done = process.reflex("system1", model, *SYSTEM1, before=OTHER.format(path=str(path)))
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGBUS, b"", b"")


SHRINK = """
import os, sys
sys.path.insert(0, sys.argv[1])
import reflex
with reflex.load(sys.argv[2], context=64, threads=1) as model:
    os.truncate(sys.argv[2], 8192)
    print(model.system1("The capital", [" Paris", " London"]).best_text)
"""


def test_from_python_a_model_that_shrinks_ends_the_process_and_gives_no_result(model, tmp_path):
    """A library does not take a signal of the program that it is part of."""
    path = tmp_path / "m.gguf"
    path.write_bytes(model.read_bytes())
    done = subprocess.run([sys.executable, "-c", SHRINK, str(process.ROOT), str(path)], capture_output=True, timeout=300)
    assert done.returncode == -signal.SIGBUS and done.stdout == b""


@pytest.mark.parametrize("threads", [1, 2])
def test_a_model_after_a_fork_answers_or_says_why_not(model, threads):
    with reflex.load(model, backend="cpu", context=64, threads=threads) as loaded:
        logits = list(loaded.logits("The capital"))
        child = os.fork()
        if not child:
            code = 9
            try:
                code = 0 if list(loaded.logits("The capital of")) and threads == 1 else 1
            except StateError as error:
                code = 2 if "fork" in str(error) and error.remedy == "load it in the child" else 3
            finally:
                os._exit(code)
        assert ended(child) == (0 if threads == 1 else 2)
        assert list(loaded.logits("The capital")) == logits


def ended(child, seconds=process.SECONDS):
    """Exit code of a child that must end by itself."""
    for _ in range(10 * seconds):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError("the child hangs")


def test_two_threads_at_once_are_told(model):
    """The engine computes for one thread at a time; another that comes meanwhile gets an error, not another's numbers."""
    with reflex.load(model, backend="cpu", context=64, threads=1) as loaded:
        plan = loaded._session.plan
        plan.team.turn.acquire()
        found = []

        def ask():
            try:
                loaded.logits("The capital")
            except StateError as error:
                found.append(str(error))

        other = threading.Thread(target=ask)
        other.start()
        other.join()
        plan.team.turn.release()
        assert len(found) == 1 and "another thread is computing" in found[0]
        assert len(loaded.logits("The capital"))
