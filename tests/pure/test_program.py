"""Programs: the order of steps, the rows that the last layer keeps, rotary tables, and what building one costs a cold start."""

import subprocess
import sys
from math import log, pi
from pathlib import Path

import numpy as np
import pytest
from tiny import MODELS, write

from reflex import ops
from reflex.arch import load_spec
from reflex.arch.spec import Rotation
from reflex.gguf.reader import open_model
from reflex.ops import rope
from reflex.program import build
from reflex.program.rope import rope_table

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def program(tmp_path):
    def make(name, **changes):
        file = open_model(str(write(name, tmp_path / "m.gguf", **changes)))
        made = build(load_spec(file))
        file.close()
        return made

    return make


def layer_steps(program, index):
    """The (op, out) pairs between the attention of layer index-1 and that of layer index, both included."""
    at = [i for i, step in enumerate(program.steps) if step.op == "attention"]
    return [(step.op, step.out) for step in program.steps[at[index - 1] if index else 0 : at[index] + 1]]


REST = [
    ("linear", "y"),
    ("add", "x"),
    ("rmsnorm", "h"),
    ("linear", "g"),
    ("linear", "u"),
    ("gated", "g"),
    ("linear", "y"),
    ("add", "x"),
]


def test_a_plain_layer_and_the_last_one(program):
    p = program("llama")
    qkv = [("rmsnorm", "h"), ("linear", "q"), ("linear", "k"), ("linear", "v"), ("rope", "q"), ("rope", "k"), ("attention", "a")]
    assert layer_steps(p, 0) == [("embed", "x"), *qkv]
    assert layer_steps(p, 1) == [("attention", "a"), *REST, *qkv]
    last = [("rmsnorm", "h"), ("linear", "k"), ("linear", "v"), ("rope", "k"), ("select", "h"), ("select", "x")]
    last += [("linear", "q"), ("rope", "q"), ("attention", "a")]
    assert layer_steps(p, 2) == [("attention", "a"), *REST, *last]
    assert [(step.op, step.out) for step in p.steps[-2:]] == [("rmsnorm", "h"), ("linear", "logits")]
    assert p.caches == [(2, 24, 24)] * 3
    assert p.widths == {"x": 64, "h": 64, "q": 96, "k": 48, "v": 48, "a": 96, "y": 64, "g": 96, "u": 96, "logits": 512}
    assert (p.vocabulary, p.context_length, p.width, p.architecture) == (512, 1024, 64, "llama")


def test_sandwich_norms_head_norms_and_windows(program):
    p = program("gemma3")
    head = [("head_rmsnorm", "q"), ("rope", "q"), ("head_rmsnorm", "k"), ("rope", "k"), ("attention", "a")]
    assert layer_steps(p, 1)[-5:] == head
    assert layer_steps(p, 1)[1:4] == [("linear", "y"), ("rmsnorm", "y"), ("add", "x")]
    assert p.steps[0].args["scale"] == 8.0
    attention = [step.args for step in p.steps if step.op == "attention"]
    assert [args["window"] for args in attention] == [16] * 5 + [0, 16]
    tables = [step.args["table"] for step in p.steps if step.op == "rope" and step.out == "k"]
    assert tables == [0] * 5 + [1, 0]
    assert p.ropes[0].frequencies[1] == pytest.approx(10000 ** (-1 / 16))
    assert p.ropes[1].frequencies[1] == pytest.approx(1e6 ** (-1 / 16) / 4)


def test_scores_of_62_layers_scale_by_the_width_of_a_head(program):
    for name, width in (("gemma3", 32), ("gemma3-62-layers", 16)):
        scales = [step.args["scale"] for step in program(name).steps if step.op == "attention"]
        assert scales == pytest.approx([width**-0.5] * len(scales))


def test_parts_of_fused_tensors_carry_their_rows(program):
    steps = {step.out: step for step in program("qwen2-fused").steps[:8] if step.op == "linear"}
    assert {step.weights[0] for step in steps.values()} == {"blk.0.attn_qkv.weight"}
    assert [steps[n].args for n in "qkv"] == [
        {"rows": (0, 64), "bias_row": 0},
        {"rows": (64, 32), "bias_row": 0},
        {"rows": (96, 32), "bias_row": 0},
    ]
    assert steps["k"].weights[1] == "blk.0.attn_k.bias"
    steps = {step.out: step for step in program("qwen2-fused-bias").steps[:8] if step.op == "linear"}
    assert steps["v"].args == {"rows": (96, 32), "bias_row": 96}
    assert steps["v"].weights[1] == "blk.0.attn_qkv.bias"
    assert all(step.args == {} for step in program("llama").steps if step.op == "linear")


@pytest.mark.parametrize("name", MODELS)
def test_every_step_uses_declared_operations_and_known_buffers(program, name):
    p, known = program(name), set()
    for step in p.steps:
        operands = ops.find(step.op).OPERANDS
        assert len([text for text in operands["ins"] if not text.endswith("optional")]) <= len(step.ins) <= len(operands["ins"])
        required = [text for text in operands["weights"] if not text.endswith("optional")]
        assert len(required) <= len(step.weights) <= len(operands["weights"])
        declared = {text.split(":")[0] for text in operands["args"]}
        optional = {text.split(":")[0] for text in operands["args"] if text.endswith("optional")}
        assert declared - optional <= set(step.args) <= declared
        assert known.issuperset(step.ins)
        known.add(step.out)
        assert step.out in p.widths


def test_text_of_a_program(program):
    lines = str(program("qwen2")).splitlines()
    assert lines[0] == "qwen2: 50 steps, 3 layers, vocabulary 512"
    assert lines[1].startswith("buffers: x[64], h[64], q[64], k[32]")
    assert lines[2] == "rope 0: 16 dims neox, 1 to 5.62341e-06 rad, magnitude 1"
    assert "   2 q = linear(h, blk.0.attn_q.weight, blk.0.attn_q.bias)" in lines
    assert lines[-1] == "  49 logits = linear(h, token_embd.weight)"


# ---- rotary tables -----------------------------------------------------------------------------------------


def rotation(**facts):
    made = Rotation("neox", facts.pop("dims", 64), facts.pop("base", 10000.0))
    for name, value in facts.items():
        setattr(made, name, value)
    return made


def test_plain_and_linear_frequencies():
    plain = rope_table(rotation(), 100)
    assert plain.frequencies == pytest.approx([10000 ** (-i / 32) for i in range(32)])
    assert plain.magnitude == 1.0
    linear = rope_table(rotation(type="linear", factor=4.0, attn_factor=1.5), 100)
    assert linear.frequencies == pytest.approx([f / 4 for f in plain.frequencies])
    assert linear.magnitude == 1.5


def test_divisors_and_the_context_that_chooses_them():
    made = rotation(dims=4, original=64, long=[2.0, 8.0], short=[1.0, 4.0])
    assert rope_table(made, 64).frequencies == pytest.approx([1, 0.01 / 4])
    assert rope_table(made, 65).frequencies == pytest.approx([1 / 2, 0.01 / 8])
    assert rope_table(rotation(dims=4, freqs=[1.0, 5.0]), 1).frequencies == pytest.approx([1, 0.01 / 5])


def test_yarn_keeps_fast_pairs_and_interpolates_slow_ones():
    made = rotation(type="yarn", factor=4.0, original=4096)
    table, plain = rope_table(made, 100), rope_table(rotation(), 100).frequencies
    ratio = [a / b for a, b in zip(table.frequencies, plain, strict=True)]
    turns = [4096 * f / (2 * pi) for f in plain]  # of each pair within the trained context
    assert all(r == pytest.approx(1.0) for r, t in zip(ratio, turns, strict=True) if t > 40)
    assert all(r == pytest.approx(0.25) for r, t in zip(ratio, turns, strict=True) if t < 0.8)
    assert ratio == sorted(ratio, reverse=True)
    assert any(0.3 < r < 0.9 for r in ratio)
    assert table.magnitude == pytest.approx(1 + 0.1 * log(4))
    assert rope_table(rotation(type="yarn", factor=4.0, original=4096, log_multiplier=1.0), 1).magnitude == pytest.approx(1.0)


@pytest.mark.parametrize("position", [4095, 4097, 20000])
def test_yarn_far_beyond_the_trained_context(position):
    """Cosines and sines by the formula of the paper, in float64: a ramp over the pairs between 32 and 1 turns."""
    n, base, factor, original = 64, 10000.0, 64.0, 4096
    made = rotation(type="yarn", factor=factor, original=original, dims=n)
    plain = base ** (-2 * np.arange(n // 2) / n)
    bound = [n * np.log(original / (turns * 2 * np.pi)) / (2 * np.log(base)) for turns in (32, 1)]
    low, high = max(np.floor(bound[0]), 0), min(np.ceil(bound[1]), n - 1)
    ramp = np.clip((np.arange(n // 2) - low) / (high - low), 0, 1)
    angle = position * (plain / factor * ramp + plain * (1 - ramp))
    magnitude = 0.1 * np.log(factor) + 1
    x = np.zeros((1, n), np.float32)
    x[0, : n // 2] = 1  # cosines come out in front, sines behind
    found = rope.reference(x, heads=1, head_dim=n, positions=[position], rope=rope_table(made, position + 1))
    np.testing.assert_allclose(found[0], magnitude * np.concatenate([np.cos(angle), np.sin(angle)]), rtol=0, atol=1e-6)


# ---- cold start --------------------------------------------------------------------------------------------


def test_building_needs_no_module_that_a_cold_start_should_not_pay_for(tmp_path):
    path = write("gemma3", tmp_path / "m.gguf")
    script = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
before = set(sys.modules)
from reflex.gguf.reader import open_model
from reflex.arch import load_spec
from reflex.program import build
print(len(build(load_spec(open_model({str(path)!r}))).steps))
print(*sorted(name for name in set(sys.modules) - before if not name.startswith("reflex")))
"""
    run = subprocess.run([sys.executable, "-IS", "-c", script], capture_output=True, text=True, check=True)
    steps, extra = run.stdout.splitlines()
    assert int(steps) > 100
    assert set(extra.split()) <= {"math", "_ctypes", "binascii", "_struct"}
