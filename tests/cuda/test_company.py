"""To the bit, a row of a steady batch depends on its own path only: attention, layers with a state and products in the emulator,
packed in several ways.

Queries, keys and values are those of a path: whoever computes a path must find the same, wherever it lies and whatever lies beside.
"""

import sys
from copy import copy
from pathlib import Path

import numpy
import pytest
from cases import (
    attention_row,
    attention_sums,
    attention_tile,
    conv,
    expert_order,
    expert_plain,
    expert_tiles,
    head_transposed,
    latent_attention,
    linear_rows,
    linear_tiles,
    recurrence,
    router,
)
from pages import Attention
from run import Addresses, emulate
from strands import BEFORE

from reflex import quant, tree
from reflex.backends.cuda import products
from reflex.ops import delta_rule, state_scan
from reflex.session import Session

sys.path.append(str(Path(__file__).resolve().parent.parent / "pure"))
from fakes import FakeTokenizer

PROMPT = [40 + n % 7 for n in range(70)]
TAILS = [[1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 6, 7, 8], [1, 9], [10, 11, 12, 13], [10, 11, 14, 15], [16, 17, 18]]
HEADS, KV_HEADS, DIM = 2, 1, 64
FEW = 8  # rows


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

    def results(self, compute, **words):
        """{tokens of a path: bytes of its row}, of all batches. `compute(paths, first, facts, **words)`: the rows of a batch."""
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
            paths = [slots[slot] for slot in range(first + len(ids))]
            for path, out in zip(paths[first:], compute(paths, first, facts, **words), strict=True):
                assert not numpy.isnan(out).any()
                assert found.setdefault(path, out.tobytes()) == out.tobytes()
        return found


def numbers(path, count):
    """What belongs to a path, whoever computes it."""
    return numpy.random.default_rng(abs(hash(path))).standard_normal(count, "float32")


def heads_attend(paths, first, facts, **words):
    """On tiles and on the kernel of branches, as a batch divides its rows, and few of them otherwise than many."""
    a = Attention(len(paths) - first, first, HEADS, KV_HEADS, DIM, DIM, tree=facts, **words)
    for slot, path in enumerate(paths):
        made = numbers(path, 2 * KV_HEADS * DIM + HEADS * DIM)
        a.k[slot], a.v[slot] = made[: 2 * KV_HEADS * DIM].reshape(2, -1)
        if slot >= first:
            a.q[slot - first] = made[2 * KV_HEADS * DIM :]
    if a.cells[4] <= FEW:
        plain = emulate(attention_sums.case("plain", a, flags=16, reference=False, beside=False))[3]
    else:
        plain = emulate(attention_tile.case("plain", a, flags=16, reference=False))[1]
    splits = 2 if a.rows <= FEW else 1
    others = emulate(attention_row.case("tree", a, splits, tile=64, kind="tree", flags=16, reference=False))[3]
    return [(plain if row < a.cells[4] else others)[row] for row in range(len(paths) - first)]


def latent_attend(paths, first, facts):
    a = latent_attention.Latent(len(paths) - first, first, 2, 24, 16, tree=facts)
    for slot, path in enumerate(paths):
        made = numbers(path, 3 * 24)
        a.k[slot] = made[:24]
        if slot >= first:
            a.q[slot - first] = made[24:]
    return emulate(latent_attention.attend("tree", a))[1]


def latent_attend_on_tiles(paths, first, facts, tokens):
    """As a batch divides its rows, `tokens` of the plain ones to a block."""
    a = latent_attention.Latent(len(paths) - first, first, 3, 320, 256, tree=facts)
    for slot, path in enumerate(paths):
        made = numbers(path, 4 * 320)
        a.k[slot] = made[:320]
        if slot >= first:
            a.q[slot - first] = made[320:]
    plain, others = (
        emulate(latent_attention.on_tiles("", a, each, flags, reference=False))[1] for each, flags in ((tokens, 16), (1, 1))
    )
    return [(plain if row < a.cells[4] else others)[row] for row in range(len(paths) - first)]


def packed(tails, context=200, cached=False, prompt=PROMPT, compute=heads_attend, **words):
    plan = Recorder(context)
    session = Session(plan, FakeTokenizer())
    if cached:
        tree.evaluate(session, prompt, [[3]])
    tree.evaluate(session, prompt, tails)
    return plan.results(compute, **words)


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


def few_of(case, block, tokens):
    """The products of a case by linear_rows, as steady batches launch it."""
    some = copy(case)
    some.kernel, some.shared = f"linear_rows_{tokens}_{block.name}", 0
    some.args = [*case.args, products.GROUPS, *linear_rows.UNROUTED]
    tiles = sum(-(-case.args[at] // products.TILE) for at in (6, 13, 20))
    some.grid = (-(-tiles * products.GROUPS // 8), 1, 1)
    return some


@pytest.mark.parametrize("block", linear_tiles.FORMATS, ids=lambda block: block.name)
def test_products_of_few_tokens_are_those_of_many(block):
    """linear_rows and linear_tiles_32: every format; steps that the groups of warps do not share evenly."""
    step, random = quant.load(block.name).FRAGMENT.elements, numpy.random.default_rng(block.id)
    for mode, columns, rows, tokens, count in ((block.id & 1, 5 * step, (17,), 8, 5), (2, step, (3, 3), 16, 9)):
        columns = -(-columns // block.elements) * block.elements + (32 if block.elements <= 32 else 0)
        matrices = [linear_tiles.matrix(block, number, columns, random) for number in rows]
        case = linear_tiles.case("few", "32_narrow", count, columns, matrices, mode, random, act=mode >> 1)
        want, found = emulate(case), emulate(few_of(case, block, tokens))
        for at in case.wanted:
            assert found[at].tobytes() == want[at].tobytes(), (mode, tokens)


def test_matrices_of_heads_the_other_way_round_add_up_the_same_for_few_rows_and_many():
    one = {"rows": 5, "heads": 2, "in": 130, "out": 37, "rest": 5}
    few, many = (head_transposed.case(one, numpy.random.default_rng(4), f"head_transposed{kind}") for kind in ("", "_many"))
    assert emulate(few)[2].tobytes() == emulate(many)[2].tobytes()


def test_latent_attention_of_a_path_is_the_same_in_every_company():
    prompt, found = PROMPT[:9], {}
    for tails, context, cached in ((TAILS, 40, False), (TAILS[4:1:-1], 40, True), (TAILS[1:2], 40, False), (TAILS[:4], 13, False)):
        for path, row in packed(tails, context, cached, prompt, latent_attend).items():
            assert found.setdefault(path, row) == row
    assert len(found) == len(prompt) + len(tree.Tree(TAILS).rows())


def test_latent_attention_on_tiles_is_the_same_in_every_company():
    prompt, found = PROMPT[:67], {}
    ways = (TAILS, 110, False, 21), (TAILS[4:1:-1], 110, True, 8), (TAILS[1:2], 110, False, 5)
    for tails, context, cached, tokens in ways:
        for path, row in packed(tails, context, cached, prompt, latent_attend_on_tiles, tokens=tokens).items():
            assert found.setdefault(path, row) == row
    assert len(found) == len(prompt) + len(tree.Tree(TAILS).rows())


# ---- layers with a state: a text at once, token by token, and with others beside it ------------------------------

STRANDS = [  # ways to compute the text of rows 0 to 4, and behind its third token that of rows 5 and 6
    [[(0, 5, -1, 0)], [(0, 3, -1, 1), (5, 2, 1, 2)]],
    [[(0, 3, -1, 0), (3, 2, 0, 1), (5, 2, 0, 2)]],
    [[(0, 1, -1, 0)], [(1, 2, 0, 0)], [(3, 2, 0, 1)], [(5, 1, 0, 2)], [(6, 1, 2, 2)]],
    [[(0, 3, -1, 2)], [(5, 2, 2, 1), (3, 2, 2, -1)]],
]


def cut(case, at, rows, places, ways):
    """{row: bytes} of a case's results, the same for all `ways`; `at`: (arguments with a line per row, places, strands)."""
    (*lines, out), places_at, strands_at = at
    found = {}
    for batches in ways:
        memory = Addresses([numpy.full(places, numpy.nan, "float32") for _ in range(3)])
        for strands in batches:
            chosen = [row for first, count, *_ in strands for row in range(first, first + count)]
            own, start = copy(case), 0
            own.args = list(case.args)
            for line in (*lines, out):
                own.args[line] = case.args[line].reshape(rows, -1)[chosen].copy()
            moved = []
            for _, count, source, destination in strands:
                moved += start, count, source, destination
                start += count
            own.args[places_at], own.args[strands_at] = memory, numpy.array([len(strands), *moved], "int32")
            after = emulate(own)
            memory = Addresses([array.copy() for array in after[places_at].arrays])
            for row, values in zip(chosen, after[out].reshape(len(chosen), -1), strict=True):
                assert not numpy.isnan(values).any()
                assert found.setdefault(row, values.tobytes()) == values.tobytes(), (row, strands)
    assert len(found) == rows


def test_filters_do_not_show_how_a_text_was_cut():
    one = {"rows": 7, "n": 31, "channels": 40, "first": 5, "taps": 4, "bias": True}
    case = conv.case([one], numpy.random.default_rng(2))
    cut(case, ((0, 3), 18, 19), 7, BEFORE + 3 * 31, STRANDS)


@pytest.mark.parametrize("kind", ["delta", "delta of channels", "scan"])
def test_states_do_not_show_how_a_text_was_cut(kind):
    random = numpy.random.default_rng(3)
    if kind == "scan":
        one = state_scan.CASES[1] | {"rows": 7, "heads": 2, "groups": 1, "state_dim": 9, "head_dim": 35}
        case, state, lines = recurrence.scan(one, random, True), 2 * 9 * 35, (0, 1, 2, 3, 6)
    else:
        one = delta_rule.CASES[1] | {"rows": 7, "heads": 2, "key_heads": 1, "key_dim": 9, "value_dim": 35}
        one["channels"] = kind != "delta"
        case, state, lines = recurrence.delta(one, random, True), 2 * 9 * 35, (0, 1, 2, 3, 4, 6)
    cut(case, (lines, 9, 10), 7, BEFORE + state, STRANDS)


# ---- mixtures ----------------------------------------------------------------------------------------------------


def chosen_of(order, tiles):
    """The expert of every pair."""
    ids = numpy.empty(len(order), int)
    for expert, first, pairs, _ in tiles:
        ids[order[first : first + pairs]] = expert
    return ids


COMPANIES = list(range(9)), [8, 3, 0, 5], [3], [5, 8]


def same_in_all(case, used, tokens_of_tile, out_at, experts):
    ids, want = chosen_of(*case.args[4:6]).reshape(9, used), {}
    for tokens in COMPANIES:
        some = copy(case)
        order, tiles = expert_order.arranged(ids[tokens], experts, tokens_of_tile)
        some.args = [case.args[0][tokens], case.args[1][tokens], *case.args[2:4], order, tiles, *case.args[6:]]
        some.args[out_at] = numpy.full((len(order), case.args[out_at].shape[1]), numpy.nan, "f4")
        grid = (len(tiles), case.grid[1]) if case.grid[0] == len(case.args[5]) else (case.grid[0], len(tiles))
        some.grid = grid
        for token, rows in zip(tokens, emulate(some)[out_at].reshape(len(tokens), -1), strict=True):
            assert want.setdefault(token, rows.tobytes()) == rows.tobytes(), (tokens, token)
    assert len(want) == 9


def test_experts_of_a_token_are_the_same_in_every_company():
    random = numpy.random.default_rng(7)
    block = next(block for block in expert_tiles.FORMATS if block.elements == 32)
    stack = expert_tiles.stack(block, 5, 96, random)
    same_in_all(expert_tiles.case("all", "32", 9, 2, 96, [stack], 0, random), 2, 32, 13, expert_tiles.EXPERTS)
    plain = expert_plain.case(expert_plain.BLOCKS[0], 9, 2, 5, 36, False, True, random)
    same_in_all(plain, 2, expert_plain.TOKENS, 12, expert_plain.EXPERTS)


def test_routers_of_a_token_are_the_same_in_every_company():
    case, want = router.case(9, 5, 260, numpy.random.default_rng(8)), {}
    for tokens in COMPANIES:
        some = copy(case)
        some.args = [case.args[0][tokens], *case.args[1:8], case.args[8][tokens], 5, len(tokens)]
        some.grid = (1, -(-len(tokens) // 8))
        for token, row in zip(tokens, emulate(some)[8], strict=True):
            assert want.setdefault(token, row.tobytes()) == row.tobytes()


def test_parts_of_latent_attention_add_up_the_same_in_one_block_and_in_several():
    row = latent_attention.Latent(1, 600, 1, 8, 6)
    found = [emulate(latent_attention.attend("", row, 3, apart))[1] for apart in (False, True)]
    assert found[0].tobytes() == found[1].tobytes()
