"""Which programs the persistent kernel may take, as far as their steps say: never one with an operation that it lacks."""

from itertools import pairwise

import pytest
from tiny import MODELS, write

from reflex.arch import load_spec
from reflex.backends.cuda.dense import Layer, Unfit
from reflex.gguf.reader import open_model
from reflex.program import build

KNOWN = {"rmsnorm", "linear", "head_rmsnorm", "rope", "attention", "select", "add", "gated"}  # operations within its layers


@pytest.mark.parametrize("name", MODELS)
def test_a_layer_with_an_operation_that_the_kernel_lacks_does_not_fit(tmp_path, name):
    file = open_model(str(write(name, tmp_path / "m.gguf")))
    program = build(load_spec(file))
    file.close()
    for first, last in pairwise(program.layers):
        steps = program.steps[first:last]
        missing = {step.op for step in steps} - KNOWN
        head_norms_behind = [a.op == "rope" and b.op == "head_rmsnorm" and a.out == b.out for a, b in pairwise(steps)]
        norms = sum(step.op == "rmsnorm" for step in steps)
        args = next((step.args for step in steps if step.op == "attention"), {"window": 0, "softcap": 0.0})
        try:
            Layer(steps)
        except Unfit as reason:
            assert str(reason)
        else:
            assert not missing
            assert norms == 2
            assert not any(head_norms_behind)
            assert not args["window"]
            assert not args["softcap"]
