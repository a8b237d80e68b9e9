"""Experts that stay in the file until a router asks for them: which bytes are on the device, when, and what was copied.

Over the stub driver, whose device memory can be read: it computes nothing, so what a router "chose" is what the test wrote. Needs
the sm_90 kernels in cache/.
"""

import json

import pytest
import tiny
from stub import fake

EXPERTS, USED = 16, 2
RUN = """
import json
from reflex import errors, native
from reflex.backends.cuda import asking, fetch
from reflex.open import open_model
from reflex.sample import Sampling
{setup}
file, _, session = open_model({path!r}, "cuda", 1024, experts={experts!r}, expert_memory={most!r})
plan = session.plan
plan._open()
real = plan.device.copy_out
stacks = {{name: t for name, t in file.tensors.items() if name.endswith("_exps.weight")}}
size = {{name: t.nbytes // {count} for name, t in stacks.items()}}
chosen = []  # experts of each row, for every layer
guess = []  # what the next router is said to choose of each row; empty: no expert

def copy_out(target, source, bytes):
    real(target, source, bytes)
    if plan.experts and target in (plan.experts._routes, plan.experts._guesses):
        values = native.view(target, bytes // 4, "f")
        said = chosen if target == plan.experts._routes else guess or [[-1] * {used}]
        for row in range(len(values) // {used} // 2):
            for j in range({used}):
                values[(2 * row + 1) * {used} + j] = said[row % len(said)][j]

plan.device.copy_out = copy_out

def at(name, e):
    return plan.gpu.base + plan.gpu.layout.place(stacks[name].address) + e * size[name]

def same(name, e):
    return native.bytes_at(at(name, e), size[name]) == native.bytes_at(stacks[name].address + e * size[name], size[name])

def here():
    \"\"\"Experts that are whole on the device, in every layer.\"\"\"
    plan.device.synchronize()
    found = [[e for e in range({count}) if same(name, e)] for name in stacks]
    assert all(one == found[0] for one in found), found
    return found[0]

def step(rows, *experts):
    chosen[:] = experts
    plan.evaluate([1] * rows, 0, list(range(rows)), [0] * rows, [0] * rows, list(range(rows)))
    return held() if plan.gpu.slots else here()

def held():
    \"\"\"{{expert: slot}} of every layer, where its bytes lie.\"\"\"
    plan.device.synchronize()
    found = []
    for mixture in plan.experts.mixtures.values():
        for shard, offset, place, bytes in mixture.parts:
            for expert, slot in mixture.here.items():
                source = shard.start + offset + expert * bytes
                assert native.bytes_at(plan.gpu.base + place + slot * bytes, bytes) == native.bytes_at(source, bytes)
        found.append(mixture.here)
    assert all(one == found[0] for one in found), found
    return sorted(found[0])

seen = []  # places of experts in the lists that launches see, of the first layer only

def copy_in(target, source, bytes, real=plan.device.copy_in):
    real(target, source, bytes)
    if plan.experts and source in (plan.experts._seen, plan.experts._routes):
        values = native.view(source, bytes // 4, "f").tolist()
        rows = [values[at : at + {used}] for at in range({used}, len(values), 2 * {used})]
        seen.append([int(value) for row in rows for value in row])

plan.device.copy_in = copy_in

def follow():
    return len(list(plan.follow(1, 3, Sampling(), 1, [1], (5,), 2)))

def facts():
    e = plan.experts
    return e and [e.asked, e.fetched, e.bytes]

def step_only(rows, *experts):
    \"\"\"A step after which only the experts asked for are looked at.\"\"\"
    chosen[:] = experts
    plan.evaluate([1] * rows, 0, list(range(rows)), [0] * rows, [0] * rows, list(range(rows)))
    plan.device.synchronize()
    return all(same(name, e) for name in stacks for row in experts for e in row)

def failure(rows, *experts):
    try:
        step_only(rows, *experts)
    except errors.ReflexError as error:
        return type(error).__name__
    return ""

def every():
    \"\"\"Experts that count as being there, in each layer; each is whole.\"\"\"
    for mixture in plan.experts.mixtures.values():
        for shard, offset, place, bytes in mixture.parts:
            for e in mixture.here:
                source = shard.start + offset + e * bytes
                assert native.bytes_at(plan.gpu.base + place + e * bytes, bytes) == native.bytes_at(source, bytes), e
    return [sorted(mixture.here) for mixture in plan.experts.mixtures.values()]

def remaining():
    return [counter.cell.value for _, counter in plan.experts._lanes]

def guessed():
    e = plan.experts
    return [e.guessed, e.right, e.fetched, e.bytes]

print(json.dumps([{body}]))
plan.close()
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    tiny.write("qwen3moe", path, "Q8_0", width=256, experts=(EXPERTS, USED, 256))
    return path


@pytest.fixture
def run(library, model, tmp_path):
    def run(body, experts="lazy", path=model, most="", setup="", **settings):
        log = tmp_path / "calls.log"
        log.unlink(missing_ok=True)
        code = RUN.format(path=str(path), experts=experts, most=most, count=EXPERTS, used=USED, setup=setup, body=body)
        done = fake.python(code, fake.environment(library, log, **settings))
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout), log.read_text().splitlines()

    return run


def test_experts_come_when_they_are_chosen(run):
    """Each once, whole, in every layer, whatever the rows; those of an earlier batch stay."""
    steps = "here(), step(1, [3, 9]), step(1, [9, 3]), step(3, [15, 0], [3, 0], [9, 1])"
    (start, first, again, more, counts), _ = run(f"{steps}, facts()")
    assert start == [] and first == again == [3, 9] and more == [0, 1, 3, 9, 15]
    layers = counts[1] // 5
    assert counts[0] == layers * (2 + 2 + 5) and counts[1] == layers * 5 and counts[2] > 0


def test_what_is_copied_is_what_was_asked_for(run):
    """Counted: an expert more is its bytes more, and what is there is not copied again."""

    def copied(*experts):
        (*_, counts), lines = run(f"step(1, {list(experts)}), step(1, {list(experts)}), facts()")
        return counts[2], sum(int(line.split()[1]) for line in lines if line.startswith("cuMemcpyHtoDAsync_v2 "))

    (one, all_of_one), (two, all_of_two) = copied(3, 3), copied(3, 9)
    assert one > 0 and two == 2 * one and all_of_two - all_of_one == one


def test_a_batch_that_asks_for_most_experts_finds_all(run):
    (found, counts), _ = run("step(16, [3, 9]), facts()")
    assert found == list(range(EXPERTS)) and counts is None
    (few, all_of_them, counts), _ = run("step(1, [3, 9]), step(16, [3, 9]), facts()")
    assert few == [3, 9] and all_of_them == list(range(EXPERTS)) and counts is None


def test_unattended_decoding_finds_all(run):
    """The rest goes the way of what was asked for: no page of the file is pinned, and what was pinned is given back."""
    (few, count, found, counts), lines = run("step(1, [3, 9]), follow(), here(), facts()")
    assert few == [3, 9] and count == 2 and found == list(range(EXPERTS)) and counts is None
    pins = [line.split() for line in lines if line.startswith("cuMemHostRegister_v2 ")]
    assert len(pins) == 1 and pins[0][3].startswith("rw") and lines.count("cuMemHostUnregister ") == 1


def test_eager_uploads_everything_at_once(run):
    (found, counts), _ = run("step(1, [3, 9]), facts()", experts="eager")
    assert found == list(range(EXPERTS)) and counts is None


@pytest.mark.parametrize("rows", [1, 5])
def test_the_same_launches_whether_experts_are_asked_for_or_there(run, rows):
    """Same kernels in the same order; asking adds what the next router would choose, which no other launch reads, and where one row
    chooses its experts by itself a router's choice."""

    def launches(lines):
        return [line.split() for line in lines if line.startswith("cuLaunchKernelEx ")]

    (_, lazy), (_, eager) = (run(f"step({rows}, [3, 9])", experts=experts) for experts in ("lazy", "eager"))
    lazy, eager, own, guesses = launches(lazy), launches(eager), [], []
    for words in lazy:
        behind = own and own[-1][1] == "route" and len(guesses) % 2 == 0 and words[1].startswith("router_")
        (guesses if behind or (len(guesses) % 2 and words[1] == "route") else own).append(words)
    assert len(guesses) >= 2 * (LAYERS - 1) and len(guesses) % 2 == 0
    names, wanted = [words[1] for words in own], [words[1] for words in eager]
    assert [name for name in names if name != "route"] == [name for name in wanted if name != "route"]
    assert names == wanted or rows == 1


EVERY_PIECE = """
real_end = asking.Experts._end_guess
def end_guess(self, chosen):
    if self._guess:
        self._copier.queued(self._lanes[1][1])  # all that was offered is taken
    return real_end(self, chosen)
asking.Experts._end_guess = end_guess
"""
NO_PIECE = "fetch.GUESSING = 0"  # no thread takes a guess


@pytest.mark.parametrize("setup", ["", EVERY_PIECE, NO_PIECE])
def test_experts_that_were_guessed_are_there_when_they_are_asked_for(run, setup):
    """However many of them were copied in time: whole, each counted once, and all are asked for."""
    steps = "guess.append([3, 9]) or step(1, [3, 9]), guess.append([7, 1]) or step(2, [3, 9], [7, 1])"
    body = f"{steps}, guessed(), facts(), remaining()"
    (found, more, counts, facts, left), _ = run(body, setup=setup)
    assert found == [3, 9] and more == [1, 3, 7, 9] and left == [0, 0]
    assert counts[0] == counts[1] and counts[0] + counts[2] == 4 * LAYERS and counts[3] == 4 * LAYERS * EACH
    assert facts[0] == LAYERS * (2 + 4)
    # no router stands before the first layer
    assert counts[0] == {EVERY_PIECE: 4 * (LAYERS - 1), NO_PIECE: 0}.get(setup, counts[0])


@pytest.mark.parametrize("setup", ["", EVERY_PIECE, NO_PIECE])
def test_a_wrong_guess_is_only_copied_in_vain(run, setup):
    body = "guess.append([5, 6]) or step_only(1, [3, 9]), guessed(), every(), remaining()"
    (whole, counts, there, left), _ = run(body, setup=setup)
    assert whole and counts[1] == 0 and counts[2] == 2 * LAYERS and left[0] == 0
    assert counts[0] == {EVERY_PIECE: 2 * (LAYERS - 1), NO_PIECE: 0}.get(setup, counts[0]) <= 2 * (LAYERS - 1)
    assert there[0] == [3, 9] and all({3, 9} <= set(one) <= {3, 9, 5, 6} for one in there)


@pytest.mark.parametrize("threads", [1, 8])
def test_many_small_pieces(run, threads):
    """More than a lane holds at once, one thread or several: every byte is where it belongs."""
    setup = f"fetch.THREADS, fetch.BUFFER = {threads}, 512"
    body = "step(1, [3, 9]), step(5, [0, 1], [2, 4], [5, 6], [7, 8], [10, 11]), facts()"
    (first, all_of_them, counts), _ = run(body, setup=setup)
    assert first == [3, 9] and len(all_of_them) == 12 and counts[2] == 12 * LAYERS * EACH


def test_the_last_matrix_comes_last(run):
    """Weights are waited for in the order of the layers; what follows them waits alone for the matrix of the logits."""
    setup = "from reflex.backends.cuda import gpu; gpu.LEAST_PART = 4096"
    body = "step(1, [3, 9]), [list(part) for part in next(iter(plan.shapes.values())).parts], len(plan.gpu.arrivals)"
    (_, parts, marks), _ = run(body, setup=setup)
    assert [mark for mark, _, _ in parts] == sorted({mark for mark, _, _ in parts}) and len(parts) > 2 * LAYERS
    assert parts[-1][0] == marks - 1 and parts[-1][2] - parts[-1][1] <= 3  # the norm and the product, then what finds the largest


def test_a_file_that_shrinks_meanwhile_is_one_error(run, model, tmp_path):
    path = tmp_path / "shrinks.gguf"
    path.write_bytes(model.read_bytes())
    body = f"step(1, [3, 9]), __import__('os').truncate({str(path)!r}, 4096), step(1, [1, 2])"
    with pytest.raises(AssertionError, match="ModelFileError: the file cannot be read to its end"):
        run(body, path=path)


@pytest.mark.parametrize("setup", ["", EVERY_PIECE])
def test_what_could_not_be_read_is_never_taken_for_there(run, model, tmp_path, setup):
    """A session that lives on after the error, and is asked for the same experts again."""
    path = tmp_path / "shrinks.gguf"
    path.write_bytes(model.read_bytes())
    cut = f"__import__('os').truncate({str(path)!r}, 4096)"
    body = f"step(1, [3, 9]), {cut}, guess.append([1, 2]), failure(1, [1, 2]), failure(1, [1, 2]), failure(1, [3, 9])"
    (_, _, _, first, again, held), _ = run(body, path=path, setup=setup)
    assert first == again == "ModelFileError" and held in ("", "ModelFileError")


@pytest.mark.parametrize(
    "failing",
    [
        "cuMemHostAlloc:2",
        "cuMemHostRegister_v2:2",
        "cuEventRecord:999",
        "cuMemcpyHtoDAsync_v2:719@5",
        "cuEventSynchronize:700@9",
        "cuCtxSetCurrent:201@4",
    ],
)
def test_a_driver_that_fails_is_one_error(run, failing):
    with pytest.raises(AssertionError, match=r"reflex\.errors"):
        run("step(1, [3, 9])", FAIL=failing)


LAYERS, EACH = 3, 3 * 256 * 272  # of the model; bytes of an expert, in Q8_0


def room(slots):
    return LAYERS * slots * EACH


def test_the_least_used_experts_make_room(run):
    (first, second, third, seen, bytes), _ = run(
        "step(1, [3, 9]), step(1, [9, 5]), step(1, [7, 9]), seen, plan.gpu.layout.size", most=str(room(3))
    )
    assert first == [3, 9] and second == [3, 5, 9] and third == [5, 7, 9]
    each = [[[0, 1], [3, 9]], [[1, 2], [9, 5]], [[0, 1], [7, 9]]]  # slots for the launches, then the experts again
    assert seen == [lists for step in each for _ in range(LAYERS) for lists in step]
    (all_of_them,), _ = run("plan.gpu.layout.size")
    assert all_of_them - bytes > room(EXPERTS - 3) - 65536


def test_more_experts_than_slots_come_in_rounds(run):
    """Pairs of other rounds are -1; every pair is in one round; experts that are there come first."""
    rows = "[0, 1], [2, 3], [4, 5], [1, 0]"
    (first, _, seen, counts), _ = run(f"step(1, [4, 5]), step(4, {rows}), seen, facts()", most=str(room(3)))
    assert first == [4, 5] and seen[:2] == [[0, 1], [4, 5]]
    second = seen[2 * LAYERS :]
    assert second[:3] == [[2, -1, -1, -1, 0, 1, -1, 2], [-1, 0, 1, 2, -1, -1, 0, -1], [0, 1, 2, 3, 4, 5, 1, 0]]
    assert len(second) == 3 * LAYERS and counts[0] == LAYERS * (2 + 6)

    def counted(most):
        names = [line.split()[1] for line in run(f"step(4, {rows})", most=most)[1] if line.startswith("cuLaunchKernelEx ")]
        return names.count("expert_order"), names.count("expert_sum"), sum(name.startswith("expert_tiles") for name in names)

    orders, sums, products = counted("")
    assert counted(str(room(3))) == (2 * orders, sums, 2 * products) and products


def test_a_limit_that_holds_all_changes_nothing(run):
    (found, counts), _ = run("step(16, [3, 9]), facts()", most=str(room(EXPERTS)))
    assert found == list(range(EXPERTS)) and counts is None


def test_a_limit_never_decodes_unattended(run):
    (_, follow), _ = run("step(1, [3, 9]), plan.follow(1, 3, Sampling(), 1, [1], (5,), 2)", most=str(room(4)))
    assert follow is None


@pytest.mark.parametrize("most", ["1", "4K", str(room(2) - 1)])
def test_too_little_for_one_token_is_refused(run, most):
    with pytest.raises(AssertionError, match=rf"too little memory for the experts of one token; expected {room(2)} bytes"):
        run("1", most=most)


@pytest.mark.parametrize("most", ["x", "-1", "0", "b", " ", "G", "nan", "1e99"])
def test_no_amount_of_memory(run, most):
    with pytest.raises(AssertionError, match="this is no amount of memory"):
        run("1", most=most)
