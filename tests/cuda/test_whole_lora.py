"""Adapters on the cuda backend's launches: whole programs with their further steps beside the reference backend, which
tests/cpu/test_lora.py holds to merged weights.
"""

from contextlib import closing

import adapters
import numpy
import pytest
import tiny
from test_whole import bound, follow, off
from whole import Emulated

from reflex.arch import load_spec
from reflex.backends.reference import Plan
from reflex.gguf.reader import open_model
from reflex.lora import Laid
from reflex.program import build

CONTEXT = 256
BATCHES = 7, 1, 1, 30, 64, 1
MODELS = {  # family -> block format of its matrices
    "llama-untied": "F16", "llama-smollm": "Q8_0", "gemma2": "F16", "llama-fused": "Q4_0", "olmoe": "F16", "qwen2moe": "F16",
    "deepseek2-joined": "F16", "gemma3n": "F16",
}  # fmt: skip


def multiplied(path):
    """Names of the tensors that a program without adapters multiplies by."""
    with closing(open_model(str(path))) as file:
        program = build(load_spec(file), CONTEXT)
    return {name for step in program.steps for name in step.weights if step.op != "embed"} | {"token_embd.weight"}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", ["F32", "F16"])
def test_adapters_follow_their_matrices(name, kind, tmp_path):
    path = tiny.write(name, tmp_path / "m.gguf", MODELS[name])
    known = multiplied(path)
    names = [n for n in adapters.matrices(path) if n.endswith(".weight") and n in known]
    for number, (rank, part) in enumerate(((8, names), (32, names[::2]))):
        adapters.write(tmp_path / f"{number}", path, part, rank=rank, seed=number, kind=kind, alpha=rank / 2)
    with closing(open_model(str(path))) as file:
        Laid(file, [(str(tmp_path / "0"), 1.0), (str(tmp_path / "1"), -0.5)], print)
        spec = load_spec(file)
        taken = file.adapters.program()
        program, plain = build(spec, CONTEXT, taken), build(spec, CONTEXT)
        file.adapters.used(taken.taken)
        tested, trusted, without = Emulated(file, program, CONTEXT), Plan(file, program, CONTEXT), Plan(file, plain, CONTEXT)
        random, first, worst, effect = numpy.random.default_rng(5), 0, [], []
        for count in BATCHES:
            ids = random.integers(3, 500, count).tolist()
            wanted = follow(trusted, ids, first)
            worst.append(off(tested.follow(ids, first), wanted))
            effect.append(off(follow(without, ids, first), wanted))
            first += count
        words = list(range(first, first + 9)), [0] * 9, [0] * 9, [8]
        trusted.evaluate(ids[:1] * 9, first, *words)
        worst.append(off(tested.evaluate(ids[:1] * 9, first, *words, reach=2048)[0], numpy.array(trusted.logits(0))))
        assert min(effect) > 0.1
        assert sorted(worst)[len(worst) // 2] < bound(program) * (2 if "moe" in name else 1), worst
