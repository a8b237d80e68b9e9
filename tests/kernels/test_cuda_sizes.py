"""What the run time repeats of the CUDA kernels' files is what those files say: grids, parameters, shared memory, modes, and which
launch reads what another makes. Single numbers are in test_cuda_numbers.py.
"""

import re
import sys
from collections import Counter
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("numba_cuda")
sys.path.append(str(Path(__file__).parents[1] / "cuda"))  # the cases know sizes too, and the emulator holds them to it

import tiny
from cases import attention_row as row_cases
from cases import attention_sums as sums_cases
from cases import attention_tile as tile_cases
from cases import expert_dot as expert_dot_cases
from cases import latent_attention as latent_cases
from cases import linear_dot as linear_dot_cases
from cases import linear_tiles as linear_tiles_cases
from cases import recurrence as recurrence_cases

from reflex.arch import load_spec
from reflex.backends.cuda import (
    attention,
    experts,
    fusion,
    latent,
    launch,
    memory,
    products,
    recurrent,
)
from reflex.backends.cuda.lowering import lowering
from reflex.gguf.reader import open_model
from reflex.kernels.cuda import (
    attention_cache,
    attention_row,
    conv,
    expand,
    expert_dot,
    expert_plain,
    expert_tiles,
    export,
    gated,
    head_transposed,
    linear_dot,
    linear_plain,
    linear_rows,
    linear_tiles_32,
    linear_tiles_32_narrow,
    linear_tiles_64,
    logits,
)
from reflex.kernels.cuda.compile import load_all
from reflex.ops.gated import UNITS
from reflex.program import build
from reflex.quant import load
from reflex.quant.fragment import MANY
from reflex.quant.types import TYPES, by_name

KERNELS = load_all()
MULTIPROCESSORS, REGISTERS, STATIC = 132, 64, 1152  # registers of a thread and static shared memory of any kernel
PAIRED = {f"linear_rows_32_{format.block.name}" for format in linear_rows.TILED}  # whose warps have two tiles each
STREAMED = [block for block in TYPES.values() if hasattr(load(block.name), "STREAM")]
SHAPES = {"64": linear_tiles_64.SHAPE, "32": linear_tiles_32.SHAPE, "32_narrow": linear_tiles_32_narrow.SHAPE}


def ceil(count, size):
    return -(-count // size)


class Images:
    """Every kernel there is, as a device of compute capability 9.0 has them."""

    block_shared_bytes, most_shared_bytes, multiprocessor_shared_bytes = 99 << 10, 227 << 10, 228 << 10

    def __contains__(self, name):
        return name in KERNELS and KERNELS[name].since <= 90 < KERNELS[name].before

    def kernel(self, name):
        assert name in self, name
        found = KERNELS[name]
        return SimpleNamespace(name=name, signature=found.signature, threads=found.threads, registers=REGISTERS, shared=STATIC)


class Turing(Images):
    """The same of compute capability 7.5."""

    block_shared_bytes = most_shared_bytes = multiprocessor_shared_bytes = 64 << 10

    def __contains__(self, name):
        return name in KERNELS and KERNELS[name].since <= 75 < KERNELS[name].before


class Launches(list):
    """A chain that only remembers: (kernel, grid, values, dynamic shared bytes)."""

    def __init__(self):
        self.overlaps = []

    def add(self, kernel, grid, values, shared=0, overlap=True):
        self.append((kernel, (*grid, 1, 1)[:3], list(values), shared))
        self.overlaps.append(overlap)

    def repeat(self, first, last, changes=()):
        start = len(self)
        self.overlaps += self.overlaps[first:last]
        self.extend((kernel, grid, list(values), shared) for kernel, grid, values, shared in self[first:last])
        for row, parameter, value in changes:
            self[start + row - first][2][parameter] = value


class Lowered(list):
    """See `lowered`."""


CHANGES = {"width": 256, "heads": 4, "kv_heads": 2, "head_dim": 64, "feed_forward": 512}
WIDE = ("llama-smollm", CHANGES), ("llama-untied", {**CHANGES, "head_dim": 128})
NARROW = tuple((name, {}) for name in ("llama-biases", "llama-untied", "qwen3", "gemma3"))
OTHERS = "gpt2", "command-r", "stablelm", "olmo2", "apertus", "mistral3", "olmo", "gpt-oss", "qwen2moe", "phimoe"
OTHERS += "qwen35", "mamba2", "gemma3n", "step35", "deepseek2-joined"
OTHER = [(name, {}) for name in OTHERS]
OTHER += (("deepseek2-joined", {"latent": (256, 64, 32), "head_dim": 96}),)  # of sizes that tiles know
MODELS = [*product(WIDE + NARROW, ("F32", "Q8_0")), *product(WIDE, ("Q4_K",)), *product(OTHER, ("F16",))]
MODELS += product([("qwen3moe", {**CHANGES, "experts": (8, 2, 256)})], ("F32", "Q8_0", "Q4_K"))
BATCHES = [(1, 1), (2, 1), (8, 8), (16, 3), (17, 1), (64, 1), (512, 1), (512, 16)]
FEW = 4  # multiprocessors, which the largest tiles keep busy even here
STEADY = [(1, 1, 2048, 0), (9, 1, 2048, 0), (9, 9, 2048, 8), (300, 101, 4096, 128), (512, 400, 16384, 512)]


@pytest.fixture(scope="module", params=MODELS, ids=lambda p: f"{p[0][0]}-{p[0][1].get('head_dim', 'narrow')}-{p[1]}")
def lowered(request, tmp_path_factory):
    """Launches of each of BATCHES and STEADY: a list of (rows, wanted, Launches) that knows its `program`."""
    (name, changes), kind = request.param
    file = open_model(str(tiny.write(name, tmp_path_factory.mktemp("sizes") / "m.gguf", kind, **changes)))
    program = build(load_spec(file))
    places = memory.Memory(memory.Layout(file), program, max(reach for _, _, reach, _ in STEADY))
    found = Lowered()
    found.program = program
    for shape in BATCHES + STEADY:
        chain = Launches()
        count = FEW if shape in STEADY else MULTIPROCESSORS
        lowering(program)(Images(), count, chain, file, program, places, *shape).lower()
        found.append((*shape[:2], chain))
    yield found
    file.close()


def matrices(values, first, words):
    """[(type, rows)] of the matrices among a product's parameters."""
    return [(values[at + 1], values[at + 2]) for at in range(first, first + 3 * words, words) if values[at + 2]]


def tiled(kernel, values):
    shape = SHAPES[kernel.name.removeprefix("linear_tiles_")]
    counts = [count for _, count in matrices(values, 4, 7)]
    if values[-3] == 2:
        counts = [2 * counts[0]]
    return ceil(values[2], shape.tokens), sum(ceil(count, shape.rows) for count in counts)


def few_rows(kernel, values):
    """Pairs with experts: as many in x as keep the device busy, a tile of them each in y."""
    tiles = sum(ceil(count, 16) for _, count in matrices(values, 4, 7))
    if kernel.name in PAIRED:
        tiles = ceil(tiles, 2)
    grid = (ceil(tiles * values[-7], linear_rows.WARPS),)
    return (*grid, "pairs") if values[-6] else grid


def one_row(kernel, values):
    """All units at once, or as many blocks as run at once."""
    units = ceil(sum(ceil(count, 16) for _, count in matrices(values, 5, 6)) * values[-5], kernel.threads // 32)
    shared = stream_of(kernel).shared_bytes(values[4], *values[-5:]) + STATIC + products.RESERVED
    room = Images.multiprocessor_shared_bytes // shared
    return (min(units, MULTIPROCESSORS * min(65536 // (REGISTERS * kernel.threads), room)),)


def stream_of(kernel):
    return load(kernel.name.removeprefix("linear_stream_")).STREAM


def integer_row(kernel, values):
    """No more blocks than there is work for or run at once."""
    found = [count for _, count in matrices(values, 5, 6)]
    units = found[0] if values[-4] == 2 else sum(ceil(count, 2) for count in found)
    return (min(ceil(units * values[-1], linear_dot.STRANDS), 65536 // (REGISTERS * kernel.threads) * MULTIPROCESSORS),)


def experts_of_one(kernel, values):
    """Blocks for all units, a block having as many as its strands hold."""
    down = kernel.name.startswith("expert_down")
    kind = expert_dot.FORMATS[by_name(kernel.name.split("_", 2)[2]).id]
    units = ceil(values[4], expert_dot.held_down(kind)) if down else values[13] * values[8]
    return (ceil(units, kernel.threads // experts.STRAND // values[10 if down else 19]),)


def expert_tiled(kernel, values):
    rows = SHAPES[kernel.name.removeprefix("expert_tiles_")].rows
    counts = [values[9], values[17]] if values[-2] == 0 else [2 * values[9]]
    return "pairs", sum(ceil(count, rows) for count in counts)


# kernel -> its grid by parameters; rows: those of the batch, or the wanted ones
GRIDS = {
    "rope_angles": lambda k, v: (ceil(v[3] * v[4], k.threads),),
    r"embed_\w+": lambda k, v: (ceil(v[3], k.threads), "rows"),
    "(rms|layer)norm|rmsnorm_add|gate_rows": lambda k, v: ("rows",),
    "halves": lambda k, v: ("pairs",),
    "head_layernorm|rope": lambda k, v: (ceil(v[2], k.threads // 32), "rows"),
    "head_rmsnorm": lambda k, v: (ceil(v[3], k.threads // 32), "rows"),
    "select": lambda k, v: (ceil(v[3], 4 * k.threads), "rows"),
    r"gated_\w+|add": lambda k, v: (ceil(v[2], 4 * k.threads),),
    "bias|temper": lambda k, v: (ceil(v[2], 4 * k.threads), "rows"),
    r"unary_\w+|clamp|scale|softcap": lambda k, v: (ceil(v[1], 4 * k.threads),),
    r"expand_\w+": lambda k, v: (ceil(v[2], expand.VALUES),),
    r"linear_plain_\w+": lambda k, v: (ceil(v[5], linear_plain.WARPS),),
    r"linear_stream_\w+": one_row,
    r"linear_dot_\w+": integer_row,
    r"linear_rows_\w+": few_rows,
    r"linear_tiles_\w+": tiled,
    "route": lambda k, v: (ceil(v[10], k.threads // 32),),
    "router_row": lambda k, v: ("experts",),
    "router_rows": lambda k, v: (ceil(v[9], 16), ceil(v[10], 8)),
    "expert_order": lambda k, v: (1,),
    r"expert_plain_\w+": lambda k, v: (ceil(v[8], expert_plain.WARPS), "pairs"),
    r"expert_tiles_\w+": expert_tiled,
    r"expert_(gate|down)_\w+": experts_of_one,
    "expert_sum": lambda k, v: (ceil(v[3], 4 * k.threads), "rows"),
    r"attention_inputs_\d+": lambda k, v: (ceil(v[12] + 2 * v[13], k.threads // 32), "rows"),
    r"attention_tile_\d+": lambda k, v: ("tiles", v[9]),
    r"attention_scores_\d+": lambda k, v: ("seen", v[12], "fragments"),
    r"attention_sums_\d+": lambda k, v: (ceil(v[10], 32), v[13], "fragments"),
    r"attention_(row|tree)_\w+": lambda k, v: (v[19] * ceil(ceil(v[18], v[19]), 8), "splits", "rows or branches"),
    "conv": lambda k, v: (sum(ceil(v[i], k.threads) for i in (5, 11, 17)), "edges and rows"),
    r"recurrence_\w+": lambda k, v: (ceil(v[15], k.threads // v[16]), v[12]),
    r"head_rmsnorm_\w+": lambda k, v: (ceil(v[3], 8), "rows"),
    "group_rmsnorm": lambda k, v: (v[3], "rows"),
    "head_part": lambda k, v: (ceil(v[2] * v[3], k.threads), "rows"),
    "head_join": lambda k, v: (v[3], "rows"),
    "head_transposed": lambda k, v: (ceil(v[7] + v[5] - v[6], k.threads), v[4], ceil(v[3], head_transposed.TOKENS)),
    "head_transposed_many": lambda k, v: (ceil(v[7] + v[5] - v[6], head_transposed.WIDE), v[4], ceil(v[3], head_transposed.MANY)),
    "latent_append": lambda k, v: ("rows",),
    "latent_attention": lambda k, v: (v[11], v[10] if v[8] else 1, "rows"),
    r"latent_attention_tile_\d+_\d+": lambda k, v: (f"rows by {v[11]}", ceil(v[9], v[10]), "latent splits"),
    "latent_attention_join": lambda k, v: ("heads", "rows"),
    "streams_(predict|correct|inject)": lambda k, v: (ceil(v[-1], k.threads), "rows"),
    "streams_level|sparsify": lambda k, v: ("rows",),
    "gate_heads": lambda k, v: ("heads", "rows"),
    "weigh": lambda k, v: (ceil(v[2], k.threads), "rows"),
    "logits_stats": lambda k, v: (ceil(v[4], logits.CHUNK), "rows"),
}


def test_grids_are_those_that_the_kernels_ask_for(lowered):
    for rows, wanted, chain in lowered:
        known = {"edges and rows": {1, 1 + ceil(rows, conv.ROWS)}, "rows": {rows, wanted}}
        known |= {"tiles": {ceil(rows, 64)}, "splits": set(range(1, attention_row.MAX_SPLITS + 1))}
        known |= {f"rows by {tokens}": {ceil(rows, tokens)} for tokens in range(1, latent.QUERIES + 1)}
        known |= {"latent splits": range(1, latent.MOST_SPLITS + 1)}
        known |= {"experts": range(1, experts.MOST_EXPERTS + 1), "heads": {4, 6}, "pairs": range(1, rows * experts.MOST_USED + 1)}
        known |= {"seen": range(1, 16384 // 32 + 1), "fragments": range(1, attention.APART + 1)}
        known |= {"rows or branches": {rows, *(tree for *_, tree in STEADY)}}
        for kernel, grid, values, _ in chain:
            rule = next(rule for pattern, rule in GRIDS.items() if re.fullmatch(pattern, kernel.name))
            for number, goal in zip(grid, (*rule(kernel, values), 1, 1), strict=False):
                assert number in known.get(goal, {goal}), (kernel.name, grid)


def test_parameters_have_the_kinds_of_the_signature(lowered):
    for _, _, chain in lowered:
        for kernel, _, values, _ in chain:
            assert len(values) == len(kernel.signature)
            for letter, value in zip(kernel.signature, values, strict=True):
                if letter in export.POINTERS:
                    assert value == 0 or value >> 56 == launch.TAG >> 8, (kernel.name, letter, value)
                else:
                    assert isinstance(value, float if letter == "f" else int), (kernel.name, letter, value)
                    assert abs(value) < 1 << 31


def test_dynamic_shared_memory(lowered):
    for _, _, chain in lowered:
        for kernel, grid, values, shared in chain:
            if kernel.name.startswith("recurrence"):
                assert shared == recurrence_cases.shared_bytes(kernel.name, *values[16:18])
            elif kernel.name.startswith("latent_attention_tile"):
                assert shared == latent_cases.tile_bytes(int(kernel.name.split("_")[-2]))
            elif kernel.name.startswith("attention_tile"):
                assert shared == tile_cases.shared_bytes(int(kernel.name.split("_")[-1]))
            elif kernel.name.startswith("attention_scores"):
                assert shared == sums_cases.shared_bytes(values[9])[0]
            elif kernel.name.startswith("attention_sums"):
                assert shared == sums_cases.shared_bytes(values[10])[1]
            elif kernel.name.startswith(("attention_row", "attention_tree")):
                assert shared == row_cases.shared_bytes(values[20], values[21], values[25])
            elif kernel.name.startswith("linear_dot_"):
                assert shared == linear_dot_cases.shared_bytes(values[4])
            elif kernel.name.startswith("linear_stream_"):
                assert shared == stream_of(kernel).shared_bytes(values[4], *values[-5:])
            elif re.fullmatch(r"linear_rows_(8|16)_\w+", kernel.name):
                assert shared in (0, Images.multiprocessor_shared_bytes // 2) and (not shared or grid[0] <= MULTIPROCESSORS)
            elif kernel.name.startswith("linear_tiles"):
                assert shared == linear_tiles_cases.SHARED
            elif kernel.name.startswith("expert_tiles"):
                assert shared == expert_tiles.SHARED
            elif kernel.name.startswith(("expert_gate", "expert_down")):
                columns = values[4] if kernel.name.startswith("expert_gate") else values[1] * values[6]
                assert shared == expert_dot_cases.shared(columns)
            elif kernel.name == "expert_order":
                assert shared == 4 * values[1] * values[3]
            else:
                assert shared == 0


@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_no_launch_asks_for_more_shared_memory_than_a_block_has(tmp_path, head_dim):
    file = open_model(str(tiny.write("llama", tmp_path / "m.gguf", "F16", head_dim=head_dim)))
    program = build(load_spec(file))
    places, names = memory.Memory(memory.Layout(file), program, tiny.CONTEXT), set()
    for images in (Images(), Turing()):
        for shape in BATCHES + STEADY:
            chain = Launches()
            lowering(program)(images, MULTIPROCESSORS, chain, file, program, places, *shape).lower()
            for kernel, _, _, shared in chain:
                alone = kernel.name.startswith("linear_rows") and shared == images.multiprocessor_shared_bytes // 2
                assert shared <= (images.most_shared_bytes if alone else images.block_shared_bytes), kernel.name
            names |= {(type(images), kernel.name) for kernel, *_ in chain}
    file.close()
    assert (Images, f"attention_tile_{head_dim}") in names
    assert ((Turing, f"attention_tile_{head_dim}") in names) == (head_dim < 256)


def test_one_token_in_every_format_fits_every_device():
    """What linear_stream is told keeps what it asks for, with as much shared memory as there is, whatever the device has."""
    tables, together = set(), set()
    for (multiprocessors, block, whole), columns, kind in product(
        ((132, 227, 228), (108, 163, 164), (128, 99, 100), (40, 64, 64)), (512, 4096, 9216), STREAMED
    ):
        record, lower = load(kind.name).STREAM, object.__new__(products.Products)
        lower.image, lower.multiprocessors = Images(), multiprocessors
        lower.image.block_shared_bytes = lower.image.most_shared_bytes = block << 10
        lower.image.multiprocessor_shared_bytes = whole << 10
        for rows, paired in product((48, 4096, 12288), (False, True)):
            sizes = [(kind.id, columns, rows)] * (2 if paired else 1)
            (splits, runs, stages, ways, tall), grid, shared = lower._rings(f"linear_stream_{kind.name}", sizes, paired, columns)
            assert shared == record.shared_bytes(columns, splits, runs, stages, ways, tall)
            assert shared + STATIC <= block << 10, (kind.name, columns, block)
            assert splits <= (4 if paired else 8) and runs in (1, 2, 4) and stages in (1, 2) and ways in (1, 4, 8, 16)
            assert tall == 1 or (tall <= min(2 * splits, 8) and splits * runs * record.run >= columns)
            assert 1 <= grid <= ceil(sum(ceil(count, 16) for *_, count in sizes) * splits, 8)
            tables |= {(block, ways)} if record.tables else set()
            together |= {tall}
    assert {(227, 16), (64, 8)} <= tables and {1, 2, 3} <= together


# ---- what launches read and change ------------------------------------------------------------------------


MADE_READERS = "linear_tiles", f"linear_rows_{products.FEW[0]}_{MANY}", f"linear_rows_{products.FEW[1]}_{MANY}"


def test_weights_made_half_floats_are_read_behind_the_launch_that_makes_them(lowered):
    for rows, _, chain in lowered:
        for i, (kernel, _, values, _) in enumerate(chain):
            if kernel.name.startswith(MADE_READERS) and chain[i - 1][0].name.startswith("expand"):
                assert (not chain.overlaps[i] and values[4] == chain[i - 1][2][1]) or values[11] == chain[i - 1][2][1]
            elif kernel.name.startswith("recurrence"):
                assert chain.overlaps[i] is (rows <= recurrent.ROOM)
            elif not kernel.name.startswith(MADE_READERS):
                assert chain.overlaps[i] or not i


def test_modes_and_activations():
    assert (products.LATE, products.BESIDE) == (linear_dot.LATE, linear_dot.BESIDE)
    assert {name: number for number, name in enumerate(gated.FORMULAS)} == fusion.ACTIVATIONS
    assert gated.WHOLE.keys() == UNITS.keys()
    assert products.MODES == {"store": 0, "add": 1, "gated": 2}


ON_TILES = "attention_tile_", "attention_scores_", "attention_sums_"


def attention_on_tiles(args):
    return args["key_dim"] == args["value_dim"] and f"attention_tile_{args['key_dim']}" in Images()


def test_steady_batches_differ_in_nothing_that_changes_bits(lowered):
    """Whatever the number of rows: products of one order of summation, the same kernels of attention, splits of one length. Each
    attention is on tiles where its heads have such a kernel, of few rows by two kernels, and one over runs of slots without it or
    in a tree, where the device chooses between few rows and more."""
    kinds, steps = [], lowered.program.steps
    on_tiles = [attention_on_tiles(step.args) for step in steps if step.op == "attention"]
    states = sum(step.op in ("delta_rule", "state_scan") for step in steps)
    latents = sum(step.op == "latent_attention" for step in steps)
    tiled_latent = any(step.args["key_dim"] == 320 for step in steps if step.op == "latent_attention")
    assert bool(on_tiles or latents) == bool(lowered.program.caches)
    for (rows, _, _, tree), (_, _, chain) in zip(STEADY, lowered[len(BATCHES) :], strict=True):
        found, trees, count = set(), set(), Counter(re.sub(r"_\d+$|_any$", "", kernel.name) for kernel, *_ in chain)
        few = rows <= attention.APART
        assert count["attention_tile"] == (0 if few else sum(on_tiles))
        assert count["attention_scores"] == count["attention_sums"] == (sum(on_tiles) if few or tree else 0)
        assert count["attention_tree"] == sum(bool(tree) or not tiled for tiled in on_tiles)
        assert count["latent_append"] == latents
        assert count["latent_attention"] == (0 if tiled_latent else latents)
        assert count["latent_attention_tile_320"] == (latents * (1 + bool(tree)) if tiled_latent else 0)
        convs = sum(sum(v[i] > 0 for i in (5, 11, 17)) for kernel, _, v, _ in chain if kernel.name == "conv")
        assert convs == sum(step.op == "conv" for step in steps)
        assert sum(number for name, number in count.items() if name.startswith("recurrence")) == states
        for kernel, grid, values, _ in chain:
            if kernel.name.startswith("linear_tiles_"):
                shape = SHAPES[kernel.name.removeprefix("linear_tiles_")]
                assert shape.tokens == 32
                found.add(("products", shape.splits))
            elif kernel.name.startswith("linear_rows_"):
                found.add(("products", values[-7]))
            elif kernel.name.startswith("attention_tree"):
                assert values[26] == attention.LEAST and grid[1] <= attention.MOST_PARTS == attention_cache.MOST_PARTS
                trees.add((kernel.name, values[25]))
            elif kernel.name == "latent_attention":
                found.add(("latent", values[10]))
            elif kernel.name.startswith(ON_TILES):
                found.add("on tiles")
            elif kernel.name != "select":
                found.add(kernel.name.replace("head_transposed_many", "head_transposed"))  # see test_company.py
        assert len(trees) == any(bool(tree) or not tiled for tiled in on_tiles)
        kinds.append(found)
    assert all(found == kinds[0] for found in kinds)
    assert not any(name.startswith(("attention_row", "linear_stream", "linear_dot")) for name in kinds[0] if isinstance(name, str))
