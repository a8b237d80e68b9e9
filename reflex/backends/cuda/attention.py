"""Launches of attention: inputs to the cache, then few rows split over the slots, or many rows in tiles on tensor cores.

Part of the Lowering (lowering.py); flags and sizes repeat those of the kernel files attention_*.py.
"""

from ...quant.types import by_id
from .batch import Batch
from .memory import SLOTS
from .parameters import Own, blocks

Q_NORM, K_NORM, NORM_AFTER, NEOX, PARTED, INPUTS, EARLY, SINKS, REST = 1, 2, 4, 8, 16, 32, 64, 128, 256  # flags
RING = 1024  # slots of the ring of what float16 leave of keys and values
LAYER_UNIT = 512  # bytes
SHARED_BYTES = 96 << 10  # of shared memory that attention of few rows may take, where a block may have it
STATIC_BYTES = 1 << 10  # what its kernels have beside that, at most
LEAST_TILE = 32  # slots
MOST_SPLITS = 64
FEW = 16  # up to this many tokens are split over the slots
APART = 32  # rows of a steady batch up to which scores and sums on tensor cores are kernels of their own; 0: never
PAIRS, WIDTH = 16, 32  # of a row and a head that a block of those takes, dimensions that one of the latter does
SCORES_BYTES = 32 << 20  # of scores, at most
LEAST_REACH = 2048  # slots
LEAST, MOST_PARTS = 2, 64  # tiles of slots that a part of a branch has at least, and parts


def slot_tile_bytes(tile, key_dim, value_dim):
    """Dynamic shared memory of attention_row for tiles of `tile` slots."""
    key_words, value_words = 16 * blocks(key_dim, 32) + 4, 4 * (blocks(value_dim, 8) | 1)
    return 4 * (tile * (key_words + value_words) + 16 * key_words + max(16 * (tile // 2 + 4), 8 * max(key_dim, value_dim)))


def tile_bytes(dim):
    """Dynamic shared memory of attention_tile."""
    pitch = 2 * dim + 16
    return 128 * pitch if dim < 256 else (64 + 64) * pitch


def slots_of(dim):
    """Slots of a tile on tensor cores."""
    return 64 if dim <= 128 else 32


def apart_bytes(dim):
    """Dynamic shared memory of attention_scores and of attention_sums."""
    slots = slots_of(dim)
    return (slots + PAIRS) * (2 * dim + 16), 2 * PAIRS * 4 * (2 * slots + 4) + 80 * 4 * slots * 3


def least_shared_bytes(step):
    """Shared memory without which attention of few rows does not run."""
    return slot_tile_bytes(LEAST_TILE, step.args["key_dim"], step.args["value_dim"]) + STATIC_BYTES


def reach_of(slots):
    """Slots of a cache that steady batches are made for: few sizes, so that their launches are used again."""
    return max(LEAST_REACH, 1 << (slots - 1).bit_length())


def tree_of(branch):
    """Rows from the first in a branch on, or some more: few sizes too. 0: there is none."""
    plain = next((row for row, start in enumerate(branch) if start), len(branch))
    return 1 << (len(branch) - plain - 1).bit_length() if plain < len(branch) else 0


class AttentionLaunches(Batch):
    """Methods of Lowering for Attention records."""

    def _attention(self, record):
        step, args = record.step, record.step.args
        owns = len(step.ins) > 1  # else the cache is another layer's
        q, k, v = [self._at(name)[0] for name in step.ins] if owns else (self._at(step.ins[0])[0], 0, 0)
        m, eps = self.memory, next((n.args["eps"] for n in (record.q_norm, record.k_norm) if n), 0.0)
        norms = self._floats(record.q_norm), self._floats(record.k_norm)
        flags = Q_NORM * bool(record.q_norm) + K_NORM * bool(record.k_norm) + NORM_AFTER * (not record.norm_first)
        angles, pairs = 0, 0
        if record.table is not None:
            rope = self.program.ropes[record.table]
            angles, pairs = self._angles(record.table), len(rope.frequencies)
            flags += NEOX * (rope.style == "neox")
        sinks = self._floats(step) if step.weights else 0
        flags += SINKS * bool(step.weights)
        strides = tuple(self._width(name) for name in step.ins) if owns else (self._width(step.ins[0]), 0, 0)
        heads = args["heads"], args["kv_heads"], args["key_dim"], args["value_dim"]
        layer = Own(self._layer_at, step)
        out = self._to(step.out, self.rows)
        mask = m.positions, m.shared, m.branch, m.pages
        cap, scale, window = float(args["softcap"] or 0.0), float(args["scale"]), args["window"] or -args.get("chunk", 0)
        name = f"attention_tile_{heads[2]}" if heads[2] == heads[3] else ""
        fits = name in self.image and tile_bytes(heads[2]) <= self.image.block_shared_bytes
        on_tiles, rest = (self.rows > FEW or self.reach) and fits, 0
        if self.rows > 1 and not self.reach and not on_tiles and owns and self.exact():
            size = 2 * RING * heads[1] * (heads[2] + heads[3])
            rest = m.named("rest of keys and values {} {} {}".format(*heads[1:]), size)
            flags += REST
        if self.rows > 1 or self.reach or not owns:
            limit = 128 if max(heads[2:]) <= 128 else 512
            sizes = heads if owns else (heads[0], 0, *heads[2:])
            values = (q, k, v, *norms, angles, m.cells, m.pages, rest, *strides, *sizes, pairs, layer, flags, float(eps))
            self._add(f"attention_inputs_{limit}", (blocks(heads[0] + 2 * heads[1] * owns, 4), self.rows), values)
        if on_tiles:
            parted = PARTED if self.tree else 0
            places = strides[0], heads[:3], layer, window, flags & SINKS | parted
            self._on_tiles(q, out, sinks, (m.cells, *mask), *places, scale, cap)
            if not self.tree:
                return
            flags += parted
        numbers, floats = (pairs, layer, window), (scale, cap, float(eps))
        self._attention_row((q, k, v, out), (*norms, angles, sinks), (*mask, rest), strides[0], heads, numbers, flags, floats)

    def _on_tiles(self, q, out, sinks, mask, stride, heads, layer, window, flags, scale, cap):
        """Attention on tensor cores. Few rows of a steady batch, whose tiles would leave most of a card idle, are split over slots,
        then over dimensions, in the same order of sums. Where there are branches, the device sees how few other rows there are."""
        count, kv_heads, dim = heads
        facts = *heads[:2], layer, window
        few, tiles, scores = self._apart(count, kv_heads, dim, window)
        if few:
            fragments, held = self._fragments(few, count // kv_heads)
            tops = self.memory.named(f"tops {count}", self._most_scores(count) // slots_of(dim))
            shared, facts = apart_bytes(dim), (dim, held, *facts)
            values = (q, scores, tops, *mask, stride, *facts, few, flags, scale, cap)
            self._add(f"attention_scores_{slots_of(dim)}", (tiles, kv_heads, fragments), values, shared[0])
            values = (scores, tops, out, sinks, *mask, tiles, *facts, few, flags)
            self._add(f"attention_sums_{slots_of(dim)}", (blocks(dim, WIDTH), kv_heads, fragments), values, shared[1])
        if self.rows > few:
            values = (q, out, sinks, *mask, stride, count, kv_heads, layer, window, few if self.tree else 0, flags, scale, cap)
            self._add(f"attention_tile_{dim}", (blocks(self.rows, 64), count), values, tile_bytes(dim))

    def _apart(self, count, kv_heads, dim, window):
        """(up to how many rows scores and sums are kernels of their own, tiles of slots that so many rows may see, the scores)."""
        fits = f"attention_sums_{slots_of(dim)}" in self.image and max(apart_bytes(dim)) + 4096 <= self.image.block_shared_bytes
        if not (self.reach and APART and fits and (self.tree or self.rows <= APART)):
            return 0, 0, 0
        most = self._most_scores(count)
        scores = self.memory.named(f"scores {count}", most)
        few = APART if self.rows <= APART else max(1, PAIRS * kv_heads // count)  # no more blocks than one row needs
        tiles = blocks(self.reach, slots_of(dim))
        if window:
            tiles = min(tiles, blocks(abs(window) + few, slots_of(dim)) + 1)
        fragments, held = self._fragments(few, count // kv_heads)
        fits = 4 * fragments * held * kv_heads * tiles * slots_of(dim) <= most
        return (few, tiles, scores) if fits else (0, 0, 0)

    def _fragments(self, few, group):
        """(blocks for the pairs of a key head, pairs of a block)."""
        pairs = min(few, self.rows) * group
        return blocks(pairs, PAIRS), min(pairs, PAIRS)

    def _most_scores(self, count):
        """Bytes of the scores of any batch: one buffer serves all."""
        return min(SCORES_BYTES, 4 * count * (APART + PAIRS) * reach_of(self.memory.page_count * SLOTS))

    def exact(self):
        """Whether the matrices are numbers proper, so that the rounding of keys and values is the largest of errors."""
        if self.memory.exact is None:
            products = [step for step in self.program.steps if step.op in ("linear", "expert_linear")]
            kinds = {self.memory.layout.kind(self.file.tensors[step.weights[0]]) for step in products}
            self.memory.exact = all(by_id(kind).elements == 1 for kind in kinds)
        return self.memory.exact

    def _layer_at(self, step):
        """Where a layer lies in a page of the cache, in the unit that kernels count it in."""
        return self.memory.layer_places[step.args["layer"]] // LAYER_UNIT

    def _attention_row(self, buffers, facts, mask, stride, heads, numbers, flags, floats):
        """Attention split over the visible slots; with one row it also does the work of attention_inputs, where it may."""
        m = self.memory
        count, kv_heads, key_dim, value_dim = heads
        width = kv_heads * blocks(blocks(count, kv_heads), 8)
        most_shared = min(SHARED_BYTES, self.image.block_shared_bytes - STATIC_BYTES)
        tile = next((t for t in (128, 64) if slot_tile_bytes(t, key_dim, value_dim) <= most_shared), LEAST_TILE)
        if self.reach:  # which slots a part has depends on the position alone; a row's are in one block, or in one each
            kernel, least, parts = "attention_tree", LEAST, min(MOST_PARTS, blocks(self.reach, LEAST * tile))
            rows = min(self.tree, self.rows) if flags & PARTED else self.rows
            splits = parts if width * rows <= self.multiprocessors else 1
            most = min(MOST_PARTS, blocks(reach_of(m.page_count * SLOTS), LEAST * tile))
            blocks_at_once = self.multiprocessors * most  # of any batch: one buffer serves all
        else:
            rows = self.rows
            places = self.multiprocessors * (2 if self.rows > 1 and not flags & REST else 1)  # two blocks fit beside each other
            kernel, least, splits = "attention_row", 1, max(1, min(MOST_SPLITS, places // (width * self.rows)))
            most = m.rows if self.rows > FEW else FEW
            blocks_at_once = max(2 * self.multiprocessors, width * most)  # rows x width x splits is never more
            flags += INPUTS + EARLY if self.rows == 1 and buffers[1] else 0
        partials = m.named(f"partials {width}.{blocks_at_once}.{value_dim}", 4 * blocks_at_once * (8 * value_dim + 16))
        counters = m.zeros(f"counters {width}", 4 * m.rows * width)
        pairs, layer, window = numbers
        values = (
            *buffers, partials, counters, *facts, m.cells, m.lists, *mask, stride, *heads, pairs, layer, window,
            tile, least, flags, *floats,
        )  # fmt: skip
        special = key_dim == value_dim and f"{kernel}_{key_dim}" in self.image and not flags & REST
        kind = key_dim if special else "any"
        self._add(f"{kernel}_{kind}", (width, splits, rows), values, slot_tile_bytes(tile, key_dim, value_dim))
