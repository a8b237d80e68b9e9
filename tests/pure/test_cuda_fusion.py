"""Fusion loses no step, repeats none, and keeps every value that a later step reads."""

from itertools import pairwise

import pytest
from tiny import MODELS, write

from reflex.arch import load_spec
from reflex.backends.cuda.expert_patterns import ORDER
from reflex.backends.cuda.fusion import (
    ACTIVATIONS,
    MOST_NORMED,
    MOST_SEGMENTS,
    Attention,
    Experts,
    Linear,
    NormAdd,
    Plain,
    arranged,
    fuse,
    fused,
    unit_of,
)
from reflex.backends.cuda.latent import LatentLowering
from reflex.backends.cuda.lowering import IN_RECORDS, lowering
from reflex.backends.cuda.recurrent import Recurrent
from reflex.backends.cuda.recurrent_patterns import Convs, GatedNorm, NormedGate, Recurrence
from reflex.backends.cuda.residual_streams import ResidualStreams
from reflex.errors import UnsupportedError
from reflex.gguf.reader import open_model
from reflex.ops import operations
from reflex.program import build
from reflex.program.records import Program


@pytest.fixture(scope="module", params=sorted(MODELS))
def program(request, tmp_path_factory):
    file = open_model(str(write(request.param, tmp_path_factory.mktemp("program") / "m.gguf")))
    made = build(load_spec(file))
    file.close()
    return made


def joined(record, steps):
    """What a recurrence does before its own step."""
    dt, kinds = record.step.ins[3], [("head_l2norm", name) for name in record.step.ins[:2] if record.norm]
    kinds += [("bias", dt), ("unary", dt)] if record.bias else []
    kinds += [("unary", record.step.ins[4])] if record.sigmoid else []
    return [step for step in steps if (step.op, step.out) in kinds]


def parts(record, steps):
    """The program's steps that a record does."""
    if isinstance(record, Plain):
        return [record.step]
    if isinstance(record, Convs):
        acts = [step for step in steps if step.op == "unary" and step.out in record.buffers()[1]]
        return record.steps + acts[: len(record.steps) * record.silu]
    if isinstance(record, Recurrence):
        return [*(joined(record, steps)), record.step]
    if isinstance(record, (GatedNorm, NormedGate)):
        return [record.norm, record.gate]
    if isinstance(record, NormAdd):
        return [record.norm, record.add]
    if isinstance(record, Experts):
        own = [record.router, record.route, record.gate, record.up, record.down, record.sum]
        own += [step for step in steps if step.op == "gated" and step.out == record.gate.out][:1]
        own += [step for step in steps if record.mode == "add" and step.op == "add" and step.ins[1] == record.sum.out]
        return [*([record.norm] if record.norm else []), *own]
    if isinstance(record, Linear):
        rest = [step for step in steps if record.mode != "store" and step.op in ("gated", "add") and step.out == record.out]
        return [*(step for step in steps if step is record.norm), *record.steps, *rest[:1]]
    before = steps[: steps.index(record.step)]
    turned = [step for step in before if step.op in ("head_rmsnorm", "rope") and step.out in record.step.ins[:2]]
    return [*turned[-len(turned) :], record.step]


@pytest.mark.parametrize("selecting", [False, True])
def test_every_step_is_done_once(program, selecting):
    bounds = [0, *program.layers, len(program.steps)]
    for first, last in pairwise(bounds):
        steps = [step for step in program.steps[first:last] if step.op != "select"]
        left = list(steps)
        for record in fuse(program.steps[first:last], selecting):
            if isinstance(record, Plain) and record.step.op == "select":
                assert selecting
                continue
            for step in parts(record, left):
                left.remove(step)
        assert not left


class Flow:
    """Which step of a segment makes the value that another reads: what fusion has to keep, without its patterns."""

    def __init__(self, steps):
        self.steps, newest = steps, {}
        self.made = []  # of each step, for each input the number of the step that made it; None: it was there before
        for number, step in enumerate(steps):
            self.made.append([newest.get(name) for name in step.ins])
            newest[step.out] = number

    def users(self, number):
        return [i for i, made in enumerate(self.made) if number in made]

    def op(self, number):
        return None if number is None else self.steps[number].op

    def history(self, attention, side):
        """Rotations and head norms with weights that the query or key of a step goes through last, latest first."""
        found, at = [], self.made[attention][side]
        while at is not None and (self.op(at) == "rope" or (self.op(at) == "head_rmsnorm" and self.steps[at].weights[0])):
            found.append(at)
            at = self.made[at][0]
        return found

    def joined(self, attention):
        """The steps that attention does: the histories of query and key, where they are alike and do nothing twice."""
        both = [self.history(attention, side) for side in range(min(2, len(self.steps[attention].ins)))]
        kinds = [[self.op(at) for at in side] for side in both]
        tables = {tuple(self.steps[at].args["table"] for at in side if self.op(at) == "rope") for side in both}
        once = all(len(set(side)) == len(side) for side in kinds)
        alike = len({tuple(side) for side in kinds if len(side) == 2}) < 2 and len(tables) == 1
        return {at for side in both for at in side} if once and alike else set()


def could_join(flow, at, group):
    """Why step `at`, which runs by itself, belongs into a record with others; None where nothing says so. `group`: the numbers of
    the steps of the record that does a step."""
    step, made, users = flow.steps[at], flow.made[at], flow.users(at)
    own = users == [at + 1] and flow.op(at + 1) == "add" and flow.made[at + 1][1] == at
    residual = own and flow.steps[at + 1].out == flow.steps[at + 1].ins[0] != step.out
    if step.op in ("linear", "attention"):
        return "always of a record"
    if step.op == "rmsnorm" and step.out == step.ins[0]:
        return "a norm before a residual" if residual else None
    if step.op == "rmsnorm":
        between = [flow.steps[i] for i in range(at + 1, users[-1])]
        few = len(users) <= MOST_NORMED and len({flow.steps[i].out for i in users}) == len(users)
        few = few and all(flow.op(i) == "linear" for i in users)
        if few and not any(other.out == step.ins[0] for other in between):
            return "a norm of products"
        return "a norm of experts" if set(users) < group(users[0]) and flow.op(users[0] + 1) == "route" else None
    if step.op == "gated":
        gate, up = at - 2, at - 1
        pair = made == [gate, up] and flow.op(gate) == flow.op(up) == "linear" and flow.users(gate) == flow.users(up) == [at]
        only = pair and group(gate) == group(up) and sum(flow.op(number) == "linear" for number in group(gate)) == 2
        return "the activation of two products" if only and unit_of(step)[0] in ACTIVATIONS else None
    if step.op == "add":
        y = made[1]
        if y != at - 1 or flow.users(y) != [at] or step.out != step.ins[0]:
            return None
        if flow.op(y) == "linear" and group(y) == {y}:
            return "a product and its residual"
        return "experts and their residual" if flow.op(y) == "expert_sum" and len(group(y)) > 1 else None
    if step.op in ("head_rmsnorm", "rope"):
        asking = [i for i, other in enumerate(flow.steps) if other.op == "attention" and at in flow.joined(i)]
        return "what attention does with queries and keys" if asking else None
    if step.op == "route":
        ops = [other.op for other in flow.steps[at - 1 : at + 6]]
        return "experts with gate and up" if ops == list(ORDER) and flow.steps[at + 3].args["act"] in ACTIVATIONS else None
    return None


@pytest.mark.parametrize("selecting", [False, True])
def test_nothing_runs_by_itself_that_a_record_could_do(program, selecting):
    """Every step of every segment; and products of one input, one behind the other, share records as far as these hold them."""
    bounds = [0, *program.layers, len(program.steps)]
    for first, last in pairwise(bounds):
        steps = arranged(program.steps[first:last], selecting)
        flow, left, groups = Flow(steps), list(range(len(steps))), {}
        alone = set()
        for _, record in fused(steps, set()):
            done = parts(record, [steps[n] for n in left])
            numbers = {next(n for n in left if steps[n] is part) for part in done}
            left = [n for n in left if n not in numbers]
            groups.update((number, numbers) for number in numbers)
            alone |= numbers if isinstance(record, Plain) else set()
        assert not left
        for number, own in groups.items():
            if number in alone:
                assert could_join(flow, number, groups.get) is None, (program.architecture, steps[number], number)
            beside = flow.op(number) == flow.op(number + 1 if number + 1 < len(steps) else None) == "linear"
            if beside and steps[number].ins == steps[number + 1].ins and flow.made[number] == flow.made[number + 1]:
                products = [n for n in own if flow.op(n) == "linear"]
                assert groups[number + 1] is own or len(products) == MOST_SEGMENTS, (program.architecture, steps[number])


def test_a_layer_is_five_records(program):
    """What a decode step launches where a layer has nothing but attention and a gated feed-forward, with their norms."""
    usual = {"rmsnorm", "linear", "head_rmsnorm", "rope", "attention", "gated", "add"}
    for first, last in pairwise(program.layers[:-1]):  # the last layer's queries come behind its selection
        steps = program.steps[first:last]
        extra = [step for step in steps if step.op not in usual or (step.op == "gated" and unit_of(step)[0] not in ACTIVATIONS)]
        weightless = any(step.op == "head_rmsnorm" and not step.weights[0] for step in steps)
        if {step.op for step in steps} >= usual - {"head_rmsnorm", "rope"} and not extra and not weightless:
            kinds = [type(record) for record in fuse(steps, False) if not isinstance(record, NormAdd)]
            whole = [Plain] * sum(step.op == "rmsnorm" and step.out in ("q", "k") for step in steps)
            assert kinds == [Linear, *whole, Attention, Linear, Linear, Linear]


def test_rows_are_selected_behind_attention(program):
    first, last = program.layers[-2], program.layers[-1]
    records = fuse(program.steps[first:last], True)
    kinds = [record.step.op if isinstance(record, Plain) else type(record).__name__ for record in records]
    chosen = {record.step.out for record in records if isinstance(record, Plain) and record.step.op == "select"}
    if "latent_attention" in kinds:
        assert kinds.index("select") == kinds.index("latent_attention") + 1
        assert "x" in chosen
        return
    if "Attention" not in kinds:
        assert chosen == {step.out for step in program.steps[first:last] if step.op == "select"}
        return
    assert kinds.index("select") == kinds.index("Attention") + 1
    assert "x" in chosen and next(r for r in records if isinstance(r, Attention)).step.out in chosen


def test_every_operation_has_launches_and_others_are_refused_by_name():
    class Everything(ResidualStreams, Recurrent, LatentLowering):
        pass

    names = operations()
    assert len(names) >= 40
    alone = [name for name in names if name not in (*IN_RECORDS, *Recurrent.in_records)]
    assert [name for name in alone if not hasattr(Everything, "_step_" + name)] == []
    unknown = Program("gpt2", 5, 16, 8)
    unknown.emit("embed", unknown.buffer("x", 8), (), ("token_embd.weight",), {"scale": 1.0})
    unknown.emit("unheard_of", "x", ("x",))
    with pytest.raises(UnsupportedError, match=r"gpt2.*unheard_of.*--backend cpu"):
        lowering(unknown)


@pytest.mark.parametrize(
    ("op", "ins", "args", "found"),
    [
        ("route", ("r",), {"used": 33}, "33 of 8 in 0"),
        ("route", ("r",), {"used": 2, "groups": 33}, "2 of 8 in 33"),
        ("route", ("many",), {"used": 2}, "2 of 513 in 0"),
        ("latent_attention", ("q", "c"), {"key_dim": 1026, "value_dim": 512}, "1026 and 512"),
        ("latent_attention", ("q", "c"), {"key_dim": 96, "value_dim": 33}, "96 and 33"),
    ],
)
def test_sizes_that_kernels_do_not_have_are_refused_before_anything_runs(op, ins, args, found):
    program = Program("gpt2", 5, 16, 8)
    for name, width in (("r", 8), ("many", 513)):
        program.buffer(name, width)
    program.emit(op, "out", ins, (None,), args)
    program.emit("head_linear", "out", ("q",), ("w",), {"heads": 1, "head_dim": 2})
    with pytest.raises(UnsupportedError, match=f"{found}.*--backend cpu"):
        lowering(program)
