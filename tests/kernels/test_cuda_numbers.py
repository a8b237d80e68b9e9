"""Numbers that the cuda backend shares with kernels: the run time never imports kernel files, so each of them is written twice."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("numba_cuda")
sys.path.append(str(Path(__file__).parents[1] / "cuda"))  # the cases know sizes too, and the emulator holds them to it

from cases import attention_row as row_cases
from cases import attention_sums as sums_cases

from reflex.backends.cuda import (
    attention,
    backend,
    decode,
    experts,
    memory,
    parameters,
    persistent,
    products,
)
from reflex.kernels.cuda import (
    advance,
    attention_cache,
    attention_inputs,
    attention_join,
    attention_row,
    attention_scores,
    attention_sums,
    expand,
    expert_dot,
    expert_plain,
    expert_tiles,
    expert_tiles_32,
    expert_tiles_64,
    linear_rows,
    linear_tiles,
    linear_tiles_32,
    linear_tiles_32_narrow,
    linear_tiles_64,
    logits,
    penalize,
    route,
    sample,
)
from reflex.kernels.cuda.compile import load_all
from reflex.program.records import BATCH
from reflex.quant import load
from reflex.quant.fragment import MANY
from reflex.quant.types import TYPES, by_name

KERNELS = load_all()
SHAPES = {"64": linear_tiles_64.SHAPE, "32": linear_tiles_32.SHAPE, "32_narrow": linear_tiles_32_narrow.SHAPE}


def test_token_tiles():
    assert {name: (tokens, rows) for name, tokens, rows, _ in products.TOKEN_TILES} == {
        name: (shape.tokens, shape.rows) for name, shape in SHAPES.items()
    }
    for shape in SHAPES.values():
        stages = 4 * shape.tokens * linear_tiles.STAGE_WORDS * shape.stages * shape.splits
        results = 4 * shape.tokens * linear_tiles.LINE * shape.row_warps * shape.splits
        assert max(stages, results) <= products.TOKEN_TILE_BYTES


def test_experts():
    gatings = {"softmax": route.SOFTMAX, "sigmoid": route.SIGMOID, "softmax of chosen": route.OF_CHOSEN}
    gatings["sigmoid of chosen"] = route.OF_CHOSEN | route.SIGMOID
    assert gatings == experts.GATINGS
    assert (experts.MOST_EXPERTS, experts.SIMPLE_EXPERTS, experts.PLAIN_TOKENS) == (route.MOST, route.NARROW, expert_plain.TOKENS)
    assert experts.MOST_USED == expert_dot.MOST_USED
    shapes = {"32": expert_tiles_32.SHAPE, "64": expert_tiles_64.SHAPE}
    assert tuple((name, shape.tokens, shape.rows) for name, shape in shapes.items()) == experts.TILES
    for shape in shapes.values():
        assert shape.tokens * linear_tiles.STAGE_WORDS * shape.stages * shape.splits <= expert_tiles.INPUT_AT
        assert shape.tokens * linear_tiles.LINE * shape.row_warps * shape.splits <= expert_tiles.INPUT_AT
    assert experts.TILE_BYTES == expert_tiles.SHARED <= 64 << 10
    for found in expert_dot.FORMATS.values():
        assert expert_dot.held_down(found) == (2 if 2 * found.record.words < experts.ROOMY else 1)


def test_every_format_has_its_kernels():
    assert products.UNTILED == linear_rows.UNTILED
    for block in TYPES.values():
        name = block.name
        record = products.fragment_of(block.id)
        tokens = () if record is None else products.FEW if record.tiled else (products.UNTILED,)
        assert (f"linear_stream_{name}" in KERNELS) == (bool(record) and not hasattr(load(name), "DOT")), name
        assert {most for most in products.FEW if f"linear_rows_{most}_{name}" in KERNELS} == set(tokens), name
        assert (f"linear_plain_{name}" in KERNELS) == (record is None or block.elements == 1), name
        assert (f"expert_plain_{name}" in KERNELS) == (record is None or block.elements == 1), name
        assert f"embed_{name}" in KERNELS and f"expand_{name}" in KERNELS
    assert products.fragment_of(by_name(MANY).id).tiled


def test_words_of_the_request():
    assert attention_cache.PLAIN < memory.CELLS and attention_cache.PLAIN not in (advance.FIRST_SLOT, advance.STOP)
    own = ((3, 5), (9, 10))
    assert parameters.lists_of_runs([(), own, own, ((7, 8),)], 6) == [0, 6, 6, 10, 0, 0, 3, 2, 9, 1, 7, 1]
    assert [attention.reach_of(n) for n in (1, 2048, 2049, 16384, 16385)] == [2048, 2048, 4096, 16384, 32768]


def test_flags_of_attention():
    names = ("Q_NORM", "K_NORM", "NORM_AFTER", "NEOX")
    assert [getattr(attention, n) for n in names] == [getattr(attention_inputs, n) for n in names]
    assert attention.PARTED == attention_cache.PARTED
    assert (attention.INPUTS, attention.EARLY) == (attention_row.INPUTS, attention_row.EARLY)
    assert (attention.REST, attention.RING) == (attention_cache.REST, attention_cache.RING) and attention.RING >= BATCH
    assert attention.SINKS == attention_join.SINKS
    assert attention.MOST_SPLITS <= attention_row.MAX_SPLITS


def test_attention_of_few_rows():
    assert [attention.tree_of(branch) for branch in ([], [0, 0], [0, 7, 7], [0, 5, 5, 0])] == [0, 0, 2, 4]
    assert attention.PAIRS == attention_scores.PAIRS == attention_sums.TURN * 4
    assert attention.APART >= 16 and attention.apart_bytes(128) == sums_cases.shared_bytes(128)
    assert (sums_cases.TURN, sums_cases.STAGES) == (attention_sums.TURN, attention_sums.STAGES)


def test_pages():
    import pages

    assert memory.SLOTS == pages.PAGE
    assert row_cases.LAYER_AT * attention.LAYER_UNIT == pages.LAYER_AT * 512
    assert max(advance.FIRST_SLOT, advance.STOP) < memory.CELLS


def test_expansion():
    assert memory.EXPANDED_AT_ONCE == expand.VALUES


def test_logits():
    assert backend.ROW_STATS == 4 * 4
    assert parameters.COLUMNS == logits.CHUNK == sample.CHUNK
    assert KERNELS["logprobs"].threads == 128


def test_state_of_a_decode_run():
    assert decode.SETTINGS == penalize.PENALTY + 1 == sample.RANDOM + 2
    assert decode.STATE == advance.PLACE + 1
    assert decode.STOP_NO_NUMBER == advance.NO_NUMBER
    assert decode.RING > decode.AHEAD and decode.RING & (decode.RING - 1) == 0
    assert parameters.COLUMNS >= sample.SCRATCH_WORDS  # int64 words of the scratch
    assert decode.MOST_SORTED == sample.MOST
    assert decode.ENTRIES == advance.ENTRIES


def test_persistent():
    declared = KERNELS["persistent"]
    assert (declared.signature, declared.threads) == (persistent.PARAMETERS, persistent.THREADS)
