"""Requests on the cuda backend's launches, done by twins in numpy: to the bit, candidates that are packed are those of one at a
time, and a plan that was used answers as a new one, whose memory is NaN.

What kernels do with a row in another company: test_company.py. Which kernels steady batches take: tests/kernels/test_cuda_sizes.py.
"""

import numpy
import pytest
from test_whole import opened
from whole import Emulated

from reflex.arch import load_spec
from reflex.backends.cuda.attention import reach_of, tree_of
from reflex.program import build
from reflex.session import Session
from reflex.tree import evaluate

CONTEXT = 128
TEXT = numpy.random.default_rng(3).integers(3, 500, 90).tolist()
PREFIX = TEXT[:21]  # longer than the windows of tiny models
TAILS = [[40, 41, 42], [40, 41, 43], [44, 45, 46, 47], [40, 48]]
# of attention with windows, caches of two sizes that are shared, latent ones, states of each kind, experts
MODELS = (
    "gemma3",
    "gemma4",
    "gemma3n",
    "llama4",
    "kolibri1",
    "deepseek2",
    "kimi-linear",
    "qwen35",
    "lfm2moe",
    "mamba2",
    "falcon-h1",
)


class Requests:
    """What a Session asks of a plan."""

    steady = False

    def __init__(self, file, program, context):
        self.emulated, self.context, self.vocabulary = Emulated(file, program, context), context, program.vocabulary
        self.places, self.most_outputs = len(self.emulated.places), self.emulated.memory.most_wanted

    def evaluate(self, ids, first, positions, shared, branch, outputs, runs=(), steady=False, strands=()):
        reach = reach_of(first + len(ids)) if steady or runs else 0
        words = {"reach": reach, "tree": tree_of(branch) if reach else 0, "strands": strands, "runs": runs}
        self.rows = self.emulated.evaluate(ids, first, positions, shared, branch, list(outputs) or [0], **words)

    def logprobs_of_rows(self, rows, ids):
        found = []
        for row, own in zip(rows, ids, strict=True):
            x = self.rows[row].astype(float)
            found.append((x[own] - x.max() - numpy.log(numpy.exp(x - x.max()).sum())).tolist())
        return found


@pytest.mark.parametrize("name", MODELS)
def test_no_company_and_nothing_before_changes_a_bit(name, tmp_path):
    with opened(name, tmp_path) as file:
        program = build(load_spec(file), CONTEXT)
        session = Session(Requests(file, program, CONTEXT), None)
        wanted = evaluate(session, PREFIX, TAILS)
        assert all(numpy.isfinite(values).all() for values in wanted)
        for tail, values in zip(TAILS, wanted, strict=True):
            assert evaluate(session, PREFIX, [tail]) == [values], "one at a time"
        session.sync(TEXT)  # not steady, and longer
        assert evaluate(session, PREFIX, TAILS[::-1]) == wanted[::-1], "a used plan"
        evaluate(session, TEXT[5:40], TAILS[:2])
        session.sync(TEXT[:30])
        session.append(7)
        assert evaluate(session, PREFIX, TAILS) == wanted
        other = Session(Requests(file, program, CONTEXT), None)
        assert evaluate(other, PREFIX, TAILS[1:3]) == wanted[1:3], "a new plan"
