"""Fusion loses no step, repeats none, and keeps every value that a later step reads."""

from itertools import pairwise

import pytest
from tiny import MODELS, write

from reflex.arch import load_spec
from reflex.backends.cuda.fusion import ACTIVATIONS, Attention, Experts, Linear, NormAdd, Plain, fuse
from reflex.gguf.reader import open_model
from reflex.program import build


@pytest.fixture(params=sorted(MODELS))
def program(request, tmp_path):
    file = open_model(str(write(request.param, tmp_path / "m.gguf")))
    made = build(load_spec(file))
    file.close()
    return made


def parts(record, steps):
    """The program's steps that a record does."""
    if isinstance(record, Plain):
        return [record.step]
    if isinstance(record, NormAdd):
        return [record.norm, record.add]
    if isinstance(record, Experts):
        own = [record.router, record.route, record.gate, record.up, record.down, record.sum]
        own += [step for step in steps if step.op == "gated" and step.out == record.gate.out][:1]
        own += [step for step in steps if record.mode == "add" and step.op == "add" and step.ins[1] == record.sum.out]
        return [*([record.norm] if record.norm else []), *own]
    if isinstance(record, Linear):
        rest = [step for step in steps if record.mode != "store" and step.op in ("gated", "add") and step.out == record.out]
        return [*([record.norm] if record.norm else []), *record.steps, *rest[:1]]
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


# Operations that are launches of their own; none of them stands between those that are fused.
APART = {"layernorm", "bias", "clamp", "temper", "head_layernorm", "unary", "scale"}


def test_a_layer_is_five_records(program):
    """What a decode step launches: products with their norm, attention, output, feed-forward in two; and what stands APART."""
    for first, last in pairwise(program.layers[:-1]):  # the last layer's queries come behind its selection
        steps = program.steps[first:last]
        ops = {step.op for step in steps}
        gated = any(step.args.get("act") == "sigmoid" or (step.op == "head_rmsnorm" and not step.weights[0]) for step in steps)
        apart = ops & {"route", "gate_heads", "weigh", "streams_predict", "head_part", "conv"}
        if "attention" not in ops or gated or apart or not ops & {"gated", "unary"}:
            continue  # what else such layers have stands in between, or there is no feed-forward
        records = fuse(steps, False)
        kinds = [type(record) for record in records if not isinstance(record, NormAdd | Plain)]
        assert kinds == [Linear, Attention, Linear, Linear, Linear]
        for record in records:
            step = record.step if isinstance(record, Plain) else None
            if step is None or step.op in APART:
                continue
            if step.op == "gated":
                assert step.args["act"] not in ACTIVATIONS
            else:  # a norm of a whole row, with a bias or of a parallel block; the residual behind a LayerNorm
                assert step.op == "rmsnorm" or (step.op == "add" and "layernorm" in ops), step


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
