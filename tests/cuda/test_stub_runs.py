"""What whole runs ask of the driver: unattended decoding, expanded weights, candidates, long prompts, a cache that grows.

Over the stub driver, which computes nothing: counts of launches, copies and allocations. Needs the sm_90 kernels in cache/.
"""

import json
import re
from itertools import takewhile

import process
import pytest
import tiny
from stub import fake

from reflex.backends.cuda.decode import BLOCK

SLOTS, ROWS = 256, 512  # of a page of the cache; of the largest batch
RUN = """
import json
from reflex.open import open_model
from reflex.generate import Generation
from reflex.sample import Sampling
_, _, session = open_model({path!r}, "cuda", 1024, weights={weights!r})
plan = session.plan

def step(count, at):
    plan.evaluate([1] * count, at, list(range(at, at + count)), [0] * count, [0] * count, [count - 1])
    return plan.argmax(0)

def decode(most, at, ends=(5,), **settings):
    step(1, at)
    return [token for token, _ in plan.follow(1, at + 1, Sampling(**settings), 1, [1] * at, ends, most)]

print(json.dumps([{body}, plan.memory.page_bytes]))
plan.close()
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Quantized, with heads that the kernels of many rows take."""
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    tiny.write("llama-smollm", path, "Q8_0", width=128, heads=2, kv_heads=1, head_dim=64)
    return path


class Calls:
    """Lines of the stub's log, without those that only wait or give back."""

    def __init__(self, lines, result, page_bytes):
        self.lines, self.result, self.page_bytes = lines, result, page_bytes
        self.names = [line.split()[0] for line in lines]

    def count(self, name):
        return self.names.count(name)

    def kernels(self, captured=False):
        """Names of the kernels launched one by one, or into a graph."""
        launches = [line.split() for line in self.lines if line.startswith("cuLaunchKernelEx ")]
        return [words[1] for words in launches if (words[-1] == "captured") is captured]

    @property
    def pages(self):
        return self.lines.count(f"cuMemAlloc_v2 {self.page_bytes}")


@pytest.fixture
def calls(library, model, tmp_path):
    def run(body, weights="quantized"):
        log = tmp_path / "calls.log"
        log.unlink(missing_ok=True)
        done = fake.python(RUN.format(path=str(model), body=body, weights=weights), fake.environment(library, log))
        assert done.returncode == 0, done.stderr
        return Calls(log.read_text().splitlines(), *json.loads(done.stdout))

    return run


CHOICES = [
    ({}, []),
    ({"temperature": 0.8}, ["sample_bins", "sample"]),
    ({"repeat_penalty": 1.2}, ["penalize", "logits_stats"]),
    ({"temperature": 0.8, "repeat_penalty": 1.2}, ["penalize", "logits_stats", "sample_bins", "sample"]),
]


@pytest.mark.parametrize(("settings", "choosing"), CHOICES, ids=lambda value: "-".join(value) or "greedy")
def test_a_decode_run_is_one_graph_and_nothing_else(calls, settings, choosing):
    few, many = (calls(f"decode({most}, 3, **{settings})") for most in (10, 50))
    assert len(many.result) == 50
    assert many.kernels(captured=True)[-len(choosing) - 2 :] == ["logits_stats", *choosing, "advance"]
    assert many.count("cuGraphInstantiateWithFlags") == few.count("cuGraphInstantiateWithFlags") == 1
    more = {name: many.count(name) - few.count(name) for name in set(many.names)}
    more.pop("cuStreamQuery", 0)  # whoever waits long asks whether the device still runs
    assert {name: count for name, count in more.items() if count} == {"cuGraphLaunch": 40}


@pytest.mark.parametrize(("kind", "first"), [("Q8_0", "persistent_narrow"), ("F16", "rope_angles")])
def test_a_dense_model_decodes_by_one_kernel(library, tmp_path, kind, first):
    """A token is the kernel, the statistics of its logits and the step to the next one; other models have a launch per product."""
    path, log = tmp_path / "tiny.gguf", tmp_path / "calls.log"
    tiny.write("llama-smollm", path, kind, width=128, heads=2, kv_heads=1, head_dim=64)
    words = ("--max-tokens", "9", "--temperature", "0.8", "--repeat-penalty", "1.2", "--seed", "3", "--timings")
    done = process.reflex("generate", path, "hello", *words, "--backend", "cuda", env=fake.environment(library, log))
    assert done.returncode == 0, done.stderr
    captured = Calls(log.read_text().splitlines(), None, 0).kernels(captured=True)
    assert captured[0] == first
    choosing = ["logits_stats", "penalize", "logits_stats", "sample_bins", "sample", "advance"]
    assert (captured == [first, *choosing]) is (kind == "Q8_0")
    assert ("decode by one kernel" in done.stderr.decode()) is (kind == "Q8_0")


def test_a_cache_beyond_the_one_kernels_reach(library, tmp_path):
    """Its attention sees a limited number of slots; a run that may go further takes separate kernels; both may be there."""
    path, log = tmp_path / "tiny.gguf", tmp_path / "calls.log"
    tiny.write("llama-smollm", path, "Q8_0", width=128, heads=2, kv_heads=1, head_dim=64)
    body = "[decode(2, 3), setattr(type(plan.decoder.dense.sizes), 'reach', lambda self: 40), decode(2, 9), decode(2, 90)]"
    done = fake.python(RUN.format(path=str(path), body=body, weights="quantized"), fake.environment(library, log))
    assert done.returncode == 0, done.stderr
    captured = Calls(log.read_text().splitlines(), None, 0).kernels(captured=True)
    assert captured.count("persistent_narrow") == 1 and captured[0] == "persistent_narrow"
    assert captured.count("advance") == 2


def test_the_command_decodes_on_the_device(library, model, tmp_path):
    log = tmp_path / "calls.log"
    words = ("--max-tokens", "9", "--temperature", "0.8", "--repeat-penalty", "1.2", "--seed", "3", "--backend", "cuda")
    done = process.reflex("generate", model, "hello", *words, env=fake.environment(library, log))
    assert done.returncode == 0, done.stderr
    run = Calls(log.read_text().splitlines(), None, 0)
    assert run.kernels(captured=True)[-5:] == ["penalize", "logits_stats", "sample_bins", "sample", "advance"]
    assert 1 <= run.count("cuGraphLaunch") <= 8


@pytest.mark.parametrize("settings", [(), ("--temperature", "0.8", "--top-k", "5", "--seed", "3")])
def test_a_constraint_chooses_on_the_host(library, model, tmp_path, settings):
    """Whatever the device computes (here nothing), the text is one of the choices, and no decode graph is made."""
    log = tmp_path / "calls.log"
    words = ("--choices", " fox jumps", "--choices", " dog", "--max-tokens", "12", "--backend", "cuda", *settings)
    done = process.reflex("generate", model, "hello", *words, env=fake.environment(library, log))
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode()[:-1] in (" fox jumps", " dog")
    assert "sample_bins" not in Calls(log.read_text().splitlines(), None, 0).kernels(captured=True)


def test_one_graph_serves_every_run_of_its_kind(calls):
    once, thrice = calls("decode(5, 3)"), calls("[decode(5, 3), decode(5, 9), decode(5, 20)]")
    assert [len(tokens) for tokens in thrice.result] == [5, 5, 5]
    assert thrice.count("cuGraphInstantiateWithFlags") == once.count("cuGraphInstantiateWithFlags") + 1  # of evaluate itself
    assert thrice.kernels(captured=True).count("advance") == 1


@pytest.mark.parametrize(("rows", "graphs"), [(2, 1), (16, 1), (17, 0)])
def test_steady_batches_of_few_rows_become_a_graph(calls, rows, graphs):
    """At their third run; longer ones are worth launching one by one."""
    few = f"plan.evaluate([1] * {rows}, 9, [*range(9, 9 + {rows})], [0] * {rows}, [0] * {rows}, [0], steady=True)"
    found = calls(f"[{few} for _ in range(5)]")
    assert found.count("cuGraphInstantiateWithFlags") == graphs and found.count("cuGraphLaunch") == 3 * graphs


def test_whoever_wants_no_more_tokens_just_stops(calls):
    body = "[[next(run) for _ in range(2)] for run in [plan.follow(1, step(1, 0) + 1, Sampling(), 1, [1], (5,), 40)]]"
    stopped = calls(body)
    assert 2 <= stopped.count("cuGraphLaunch") <= 2 + 4


STREAM = (  # the stub's tokens are all 0, which would end the text
    "(lambda g: [setattr(g, '_ends', ()), *[[next(g).index, between()][0] for _ in range(6)]][1:])"
    "(Generation(session.fork(), [1, 2, 3], 20))"
)


@pytest.mark.parametrize(("between", "runs"), [("None", 1), ("session.fork().sync([9, 8])", 5)])
def test_a_stream_begins_a_new_run_after_other_work(calls, between, runs):
    """Six tokens: one by the host, five by runs on the device, whose facts are sent once each."""
    lines = calls(f"(between := lambda: {between}) and {STREAM}").lines
    assert sum(line.startswith(f"cuMemcpyHtoDAsync_v2 {BLOCK} ") for line in lines) == runs
    assert sum(line.startswith("cuGraphInstantiate") for line in lines) <= 2, "the graph is the same one"


def test_expanded_weights_are_made_once(calls):
    plain, wide = calls("decode(10, 3)"), calls("decode(10, 3)", "f16")
    matrices = 7 * tiny.Model("llama-smollm").layers + 1
    assert wide.kernels()[:matrices] == ["expand_Q8_0"] * matrices
    assert len([name for name in wide.kernels() if name.startswith("expand_")]) == matrices
    assert not any(name.startswith("expand_") for name in plain.kernels())
    products = {name for name in wide.kernels(captured=True) if name.startswith("linear_")}
    assert products and all("F16" in name or name.startswith("linear_tiles") for name in products)


def test_candidates_are_one_batch(library, model, tmp_path):
    def launches(candidates):
        log = tmp_path / f"{len(candidates)}.log"
        words = [word for text in candidates for word in ("--candidate", text)]
        done = process.reflex("system1", model, "hello", *words, "--backend", "cuda", env=fake.environment(library, log))
        assert done.returncode == 0, done.stderr
        return Calls(log.read_text().splitlines(), None, 0)

    two, many = launches([" a", " quick fox"]), launches([" quick fox", *(f" the {letter}" for letter in "bdefghijkm")])
    for run in (two, many):
        assert len([name for name in run.kernels() if name.startswith("embed_")]) == 1
        assert run.kernels().count("logprobs") == 1
        assert run.count("cuMemcpyDtoHAsync_v2") == 1
        assert run.kernels().count("attention_tree_64") == tiny.Model("llama-smollm").layers
    single = launches([" a", " b", " q"])
    assert not any(name.startswith("attention_tree") for name in single.kernels())
    for run in (two, many, single):
        products = {name for name in run.kernels() if name.startswith("linear")}
        assert products <= {"linear_tiles_32", "linear_tiles_32_narrow", "linear_rows_8_Q8_0", "linear_rows_16_Q8_0"}


FEW_LOGITS = """
import json, reflex.backends.cuda.memory as memory
memory.LOGITS_BYTES = {rows} * 4 * 512
from reflex.open import open_model
from reflex.tree import evaluate
_, _, session = open_model({path!r}, "cuda", 1024)
plan = session.plan
found = evaluate(session, [7] * 20, [[8, n, 9] for n in range(10, 50)])
print(json.dumps([[plan.wanted, plan.memory.wanted_rows], 0]))
plan.close()
"""


@pytest.mark.parametrize("rows", [4, 60])
def test_more_logits_than_usual_get_room_of_their_own(library, model, tmp_path, rows):
    log = tmp_path / "calls.log"
    done = fake.python(FEW_LOGITS.format(path=str(model), rows=rows), fake.environment(library, log))
    assert done.returncode == 0, done.stderr
    run = Calls(log.read_text().splitlines(), *json.loads(done.stdout))
    assert run.result == [42, rows]
    assert len([name for name in run.kernels() if name.startswith("embed_")]) == 1, "one pass"


def test_a_long_prompt_goes_in_batches(calls):
    long = calls("[session.sync([1] * 700), step(1, 700)]")
    tall = [line for line in long.lines if re.match(r"cuLaunchKernelEx embed_\w+ ", line)]
    rows = [int(re.search(r"grid=\d+,(\d+),", line)[1]) for line in tall]
    assert rows == [ROWS, 700 - ROWS, 1]
    assert {"linear_tiles_32", "linear_tiles_32_narrow", "linear_tiles_64"} & set(long.kernels())
    assert "attention_tile_64" in long.kernels()
    assert long.pages == -(-701 // SLOTS)


@pytest.mark.parametrize(("slots", "pages"), [(SLOTS, 1), (SLOTS + 1, 2), (3 * SLOTS - 1, 3)])
def test_pages_come_when_their_first_slot_does(calls, slots, pages):
    assert calls(f"step(1, {slots - 1})").pages == pages


def test_a_decode_run_grows_over_a_page(calls):
    inside, across = calls("decode(8, 240)"), calls("decode(12, 248)")
    assert len(across.result) == 12
    assert (inside.pages, across.pages) == (1, 2)
    launches = [i for i, name in enumerate(across.names) if name == "cuGraphLaunch"]
    page = [i for i, line in enumerate(across.lines) if line == f"cuMemAlloc_v2 {across.page_bytes}"][1]
    assert launches[0] < page < launches[-1]
    after = list(takewhile(lambda name: name != "cuGraphLaunch", across.names[page:]))
    assert after == ["cuMemAlloc_v2", "cuMemsetD32Async", "cuMemcpyHtoDAsync_v2", "cuStreamSynchronize"]


STOPS = [
    ({"TOKENS": 6}, "DeviceError: the device stopped before the next token"),
    ({"FAIL": "cuGraphLaunch:719@6"}, "CUDA_ERROR_LAUNCH_FAILED"),
    ({"FAIL": "cuStreamQuery:700", "TOKENS": 6}, "CUDA_ERROR_ILLEGAL_ADDRESS"),
    ({"FAIL": "cuMemAlloc_v2:2@5"}, "OutOfMemoryError"),
]


@pytest.mark.parametrize(("settings", "said"), STOPS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_decode_run_that_stops_is_an_error(library, model, settings, said):
    code = RUN.format(path=str(model), body="decode(300, 10)", weights="quantized")
    done = fake.python(code, fake.environment(library, **settings))
    assert done.returncode != 0
    assert said in done.stderr.splitlines()[-1]
