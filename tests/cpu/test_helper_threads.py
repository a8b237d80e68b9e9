"""What goes wrong on a thread of the engine is one error of the caller, whatever it was: never a traceback, never nothing."""

import _thread
import json
import re

import numpy as np
import process
import pytest
import tiny

import reflex
from reflex import native, threads
from reflex.errors import InternalError, KernelCacheError, OutOfMemoryError, StateError
from reflex.quant import encoders

TEXT = "the quick brown fox jumps over the lazy dog " * 8
BROKEN = """
import _thread
from reflex import native
here, watch = _thread.get_ident(), native.watch_thread
def broken():
    if _thread.get_ident() != here:
        raise ValueError("injected")
    watch()
native.watch_thread = broken
"""

# Threads fail as soon as they are started, and passes through the model do not look: as if all came late.
LATE = """
from reflex import native, session
def broken():
    raise ValueError("injected")
def start(function, arguments, where, *held):
    watch, native.watch_thread = native.watch_thread, broken
    native._run(function, arguments, where, held)
    native.watch_thread = watch
native.start_thread, session.raise_failed = start, lambda: None
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.write("llama-smollm", tmp_path_factory.mktemp("threads") / "tiny.gguf")


@pytest.fixture(autouse=True)
def none_is_left():
    yield
    native.failed.clear()  # threads that failed behind the last result


@pytest.fixture
def broken(monkeypatch):
    """Every thread but this one fails at once."""
    main, watch = _thread.get_ident(), native.watch_thread

    def fails():
        if _thread.get_ident() != main:
            raise ValueError("injected")
        watch()

    monkeypatch.setattr(native, "watch_thread", fails)


def test_threads_are_started_in_one_place():
    """Whoever starts a thread by itself has to say what becomes of its errors: tools/quantize.py has them in the results."""
    found = {}
    for path in (process.ROOT / "reflex").rglob("*.py"):
        if "kernels" not in path.parts:
            for word in re.findall(r"start_new_thread\(|\bThread\(|ThreadPoolExecutor\(", path.read_text()):
                found.setdefault(path.name, []).append(word)
    assert found == {"native.py": ["start_new_thread("], "quantize.py": ["ThreadPoolExecutor("]}


@pytest.mark.parametrize("kind, category", [(ValueError, InternalError), (MemoryError, MemoryError)])
def test_what_a_thread_raises_is_raised_once(kind, category, capfd):
    def fails():
        raise kind("injected")

    end = _thread.allocate_lock()
    end.acquire()
    native.start_thread(fails, (), "a test", end)
    with end:
        pass
    with pytest.raises(category, match="injected") as caught:
        native.raise_failed()
    if category is InternalError:
        assert caught.value.where == "a thread of: a test" and isinstance(caught.value.__cause__, ValueError)
    native.raise_failed()
    assert capfd.readouterr().err == ""


def ask_until_it_fails(m):
    """Threads may come late, but then the next result does not."""
    for _ in range(10_000):
        m.logits("a text")
    raise AssertionError("no thread failed")


@pytest.mark.parametrize("command", ["system1", "generate", "perplexity"])
def test_a_command_ends_with_one_line(model, tmp_path, command):
    """The thread that reads ahead and the workers of the team, both of which nobody needs for the result."""
    (tmp_path / "text").write_text(TEXT)
    words = {"system1": (TEXT, "--candidate", "-"), "generate": (TEXT, "--max-tokens", "3"), "perplexity": (tmp_path / "text",)}
    done = process.reflex(command, model, *words[command], "--threads", "2", "--backend", "cpu", before=BROKEN)
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 1 and lines[0].startswith("reflex: internal: ValueError: injected; at a thread of: "), lines
    assert "--trace" in lines[0] and done.returncode == 8


def test_behind_its_result_a_command_ends_with_an_error(model):
    done = process.reflex("generate", model, TEXT, "--max-tokens", "3", "--threads", "2", "--backend", "cpu", before=LATE)
    assert done.returncode == 8 and len(done.stdout) > 3
    assert done.stderr.decode().startswith("reflex: internal: ValueError: injected; at a thread of: "), done.stderr


def test_a_worker_says_it_instead_of_the_result(model):
    """Of a request that computes; the next one works."""
    asked = [{"id": i, "command": c, "prompt": TEXT, "candidates": ["a", "b"]} for i, c in enumerate(["system1", "system1"], 1)]
    lines = [{"id": 0, "command": "health"}, *asked]
    given = "".join(json.dumps(line) + "\n" for line in lines).encode()
    done = process.reflex("stdio", model, "--threads", "2", "--backend", "cpu", stdin=given, before=LATE)
    _, *answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(answer["id"], answer["type"]) for answer in answers] == [(0, "result"), (1, "error"), (2, "result")]
    assert "injected" in answers[1]["message"] and done.returncode == 0


def test_a_worker_that_is_asked_nothing_more_ends_with_it(model):
    given = b'{"id": 0, "command": "health"}\n'
    done = process.reflex("stdio", model, "--threads", "2", "--backend", "cpu", stdin=given, before=LATE)
    assert done.returncode == 8 and b"injected" in done.stderr and len(done.stdout.splitlines()) == 2


def test_closing_a_model_raises_what_came_late(model):
    late = ("a test", ValueError("injected"))
    with pytest.raises(InternalError, match="injected"), reflex.load(model, backend="cpu", threads=1) as m:
        m.logits("a text")
        native.failed.append(late)
    with pytest.raises(StateError, match="closed"):
        m.logits("a text")
    m.close()
    with pytest.raises(KeyError, match="of the block"), reflex.load(model, backend="cpu", threads=1):
        native.failed.append(late)
        raise KeyError("of the block")


def test_the_reader_ahead(model, broken):
    expected = pytest.raises(InternalError, match="injected; at a thread of: reading ahead")
    with expected, reflex.load(model, backend="cpu", threads=2) as m:
        process.until(lambda: native.failed)  # before there is a team, which fails too
        m.logits("a text")


def test_the_team(model, monkeypatch, broken):
    monkeypatch.setattr("reflex.gguf.reader.File.read_ahead", lambda self: None)
    with reflex.load(model, backend="cpu", threads=2) as m:
        with pytest.raises(InternalError, match="injected; at a thread of: cpu backend"):
            ask_until_it_fails(m)
        assert np.isfinite(m.logits("a text")).all()  # the caller does all the work then


def test_pieces_of_a_state_and_of_an_encoder(broken, monkeypatch):
    """Those at work here do it alone then; what failed is said with the next result."""
    monkeypatch.setattr(threads, "sched_getaffinity", lambda process: range(4))
    done = []
    threads.together(done.append, 9, "a state file")
    assert sorted(done) == list(range(9))
    assert len(native.failed) == 3
    with pytest.raises(InternalError, match="at a thread of: a state file"):
        native.raise_failed()


@pytest.mark.parametrize("count", [1, 4])
def test_work_that_fails_on_a_thread_fails_here(monkeypatch, count):
    monkeypatch.setattr(threads, "sched_getaffinity", lambda process: range(count))

    def work(number):
        if number >= 3:
            raise OutOfMemoryError(f"no room for {number}")

    with pytest.raises(OutOfMemoryError, match="no room for 3"):
        threads.together(work, 50, "a test")


def test_an_encoder_without_memory(monkeypatch):
    def no_room(size, what="buffer"):
        raise OutOfMemoryError("cannot map", where=what)

    rows = np.ones((64, 4096), np.float32)
    whole = encoders.encode("Q4_0", rows, threads=2)
    monkeypatch.setattr(native, "alloc", no_room)
    with pytest.raises(OutOfMemoryError, match="an encoder's scratch"):
        encoders.encode("Q4_0", rows, threads=2)
    monkeypatch.undo()
    assert np.array_equal(encoders.encode("Q4_0", rows, threads=3), whole)


@pytest.mark.parametrize("kernel, call", [("touch", lambda m: m), ("worker", lambda m: m.logits("a text"))])
def test_a_kernel_that_only_a_thread_calls_is_missed_before(model, monkeypatch, kernel, call):
    """A blob of other sources than the list beside it says."""
    library = native.library()
    monkeypatch.setattr(library, "_listing", library._listing.replace(f"\n{kernel} ".encode(), f"\n{kernel[1:]}_ ".encode()))
    library.__dict__.pop(kernel, None)
    expected = pytest.raises(KernelCacheError, match=f"no kernel named '{kernel}'")
    with expected, reflex.load(model, backend="cpu", threads=2) as m:
        call(m)
