"""Worker threads: the same bits as one thread, with more threads than cores, through many short evaluations."""

import os
import threading

import pytest
from process import until
from tiny import write

from reflex.arch import load_spec
from reflex.backends.cpu import Plan
from reflex.gguf.reader import open_model
from reflex.program import build


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("team") / "tiny.gguf"
    write("llama", path)
    file = open_model(str(path))
    yield file
    file.close()


def run(file, threads, rounds):
    """Logits after every round: prompts of changing length, then single tokens."""
    plan = Plan(file, build(load_spec(file), 256), 256, threads)
    out = []
    for k in range(rounds):
        count = (7, 1, 33, 1, 2)[k % 5]
        ids = [(3 * i + k) % 50 for i in range(count)]
        plan.evaluate(ids, 0, list(range(count)), [0] * count, [0] * count, [count - 1])
        out.append(bytes(plan.logits(0)))
    plan.close()
    return out


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_threads_change_no_bit(file, threads):
    assert run(file, threads, 200) == run(file, 1, 200)


def test_workers_end_when_the_plan_is_closed(file):
    before = threading.active_count(), len(os.listdir("/proc/self/task"))
    for _ in range(20):
        run(file, 4, 3)
    until(lambda: (threading.active_count(), len(os.listdir("/proc/self/task"))) == before)  # the system's part takes a moment


def test_busy_cores_do_not_stop_the_caller(file):
    """With twenty busy threads around, every evaluation still ends: nobody waits for a worker that has no share."""
    stop = threading.Event()
    busy = [threading.Thread(target=lambda: [sum(range(1000)) for _ in iter(stop.is_set, True)]) for _ in range(20)]
    for thread in busy:
        thread.start()
    try:
        assert run(file, 4, 20) == run(file, 1, 20)
    finally:
        stop.set()
        for thread in busy:
            thread.join()
