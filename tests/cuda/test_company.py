"""To the bit, a row of a steady batch depends on its own path only: attention and products in the emulator, packed in several ways.

Queries, keys and values are those of a path: whoever computes a path must find the same, wherever it lies and whatever lies beside.
"""

import sys
from copy import copy
from pathlib import Path

import numpy
import pytest
from cases import attention_row, attention_tile, linear_tiles
from pages import Attention
from run import emulate

from reflex import tree
from reflex.session import Session

sys.path.append(str(Path(__file__).resolve().parent.parent / "pure"))
from fakes import FakeTokenizer

PROMPT = [40 + n % 7 for n in range(70)]
TAILS = [[1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 6, 7, 8], [1, 9], [10, 11, 12, 13], [10, 11, 14, 15], [16, 17, 18]]
HEADS, KV_HEADS, DIM = 2, 1, 64


class Recorder:
    """A plan that remembers its batches and computes their attention afterwards."""

    steady, most_outputs, vocabulary = False, 512, 100

    def __init__(self, context):
        self.context = context
        self.batches = []

    def evaluate(self, ids, first, positions, shared, branch, outputs, runs, steady):
        assert steady
        self.batches.append((list(ids), first, list(positions), list(shared), list(branch), list(runs) or [()] * len(ids)))

    def logprobs_of_rows(self, rows, ids):
        return [[-1.0] * len(own) for own in ids]

    def results(self, **words):
        """{tokens of a path: bytes of its row}, of all batches."""
        slots, found = {}, {}  # slot -> path
        for ids, first, positions, shared, branch, runs in self.batches:
            for row, token in enumerate(ids):
                seen = [*range(shared[row])]
                for start, end in runs[row]:
                    seen += range(start, end)
                seen += range(branch[row], first + row)
                slots[first + row] = (*(slots[s][-1] for s in seen), token)
                assert len(slots[first + row]) == positions[row] + 1
            facts = {"shared": shared, "branch": branch, "positions": positions, "runs": runs}
            a = Attention(len(ids), first, HEADS, KV_HEADS, DIM, DIM, tree=facts, **words)
            for slot in range(a.count):
                random = numpy.random.default_rng(abs(hash(slots[slot])))
                a.k[slot], a.v[slot] = random.standard_normal((2, KV_HEADS * DIM))
                if slot >= first:
                    a.q[slot - first] = random.standard_normal(HEADS * DIM)
            plain = emulate(attention_tile.case("plain", a, flags=16, reference=False))[1]
            others = emulate(attention_row.case("tree", a, 1, kind="tree", flags=16, least=16, reference=False))[3]
            for row in range(len(ids)):
                out = plain if row < a.cells[4] else others
                assert not numpy.isnan(out[row]).any()
                assert found.setdefault(slots[first + row], out[row].tobytes()) == out[row].tobytes()
        return found


def packed(tails, context=200, cached=False, **words):
    plan = Recorder(context)
    session = Session(plan, FakeTokenizer())
    if cached:
        tree.evaluate(session, PROMPT, [[3]])
    tree.evaluate(session, PROMPT, tails)
    return plan.results(**words)


@pytest.mark.parametrize("words", [{}, {"window": 9}, {"window": 3}, {"softcap": 5.0}], ids=str)
def test_attention_of_a_path_is_the_same_in_every_company(words):
    want = packed(TAILS, **words)
    assert len(want) == len(PROMPT) + len(tree.Tree(TAILS).rows())
    for tails, context, cached in (
        (TAILS[::-1], 200, True),
        (TAILS[1:2], 200, False),
        ([*TAILS[4:6], [1, 2, 3, 4, 5, 6]], 200, True),
        (TAILS, len(PROMPT) + 5, False),
    ):
        found = packed(tails, context, cached, **words)
        assert len(found) >= len(PROMPT) + 2
        common = found.keys() & want.keys()
        assert len(common) >= len(found) - 3
        assert {path: found[path] for path in common} == {path: want[path] for path in common}


def test_products_of_a_token_are_the_same_in_every_company():
    """linear_tiles_32 and its narrow form, for all tokens, and for some of them in other places."""
    random, want = numpy.random.default_rng(5), {}
    block = next(block for block in linear_tiles.FORMATS if block.elements == 256)
    matrix = linear_tiles.matrix(block, 35, 1280, random)
    for tile in ("32", "32_narrow"):
        case = linear_tiles.case(tile, tile, 40, 1280, [matrix], 0, numpy.random.default_rng(6))
        for tokens in (list(range(40)), [39, 3, 17, 0, 33, 8, 1], [5]):
            some = copy(case)
            some.args = [case.args[0][tokens], case.args[1][tokens], len(tokens), *case.args[3:]]
            some.args[9] = case.args[9][tokens]
            some.grid = (-(-len(tokens) // 32), *case.grid[1:])
            for token, row in zip(tokens, emulate(some)[9], strict=True):
                assert want.setdefault(token, row.tobytes()) == row.tobytes(), (tile, len(tokens), token)
    assert len(want) == 40
