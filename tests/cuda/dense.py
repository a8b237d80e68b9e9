"""A random dense model for the persistent decode kernel: blocks in mixed formats and a float32 step over them."""

import numpy

from reflex import quant
from reflex.ops.gated import UNITS
from reflex.quant.types import TYPES

PAGE = 256
Q4, Q6, Q8 = 12, 14, 8


def blocks_of(type_id, rows, columns, random, deviation):
    """uint8[rows, bytes]: random blocks whose values have mean 0 and about the given deviation."""
    if type_id == Q8:
        blocks = random.integers(0, 256, (rows, columns // 32, 34), numpy.uint8)
        blocks[..., :2] = numpy.float16(deviation / 73.9).reshape(1).view(numpy.uint8)
    elif type_id == Q6:
        blocks = random.integers(0, 256, (rows, columns // 256, 210), numpy.uint8)
        scales = random.integers(40, 128, (rows, columns // 256, 16)) * random.choice((-1, 1), (rows, columns // 256, 16))
        blocks[..., 192:208] = scales.astype(numpy.int8).view(numpy.uint8)
        blocks[..., 208:] = numpy.float16(deviation / (18.5 * 88)).reshape(1).view(numpy.uint8)
    else:
        blocks = random.integers(0, 256, (rows, columns // 256, 144), numpy.uint8)
        blocks[..., 8:12] = blocks[..., 4:8]  # minima = scales, dmin = 7.5 d: mean 0
        blocks[..., 12:16] = (blocks[..., 12:16] & 15) * 17
        step = numpy.float16(deviation / (36 * 4.6))
        blocks[..., :2] = step.reshape(1).view(numpy.uint8)
        blocks[..., 2:4] = numpy.float16(7.5 * numpy.float32(step)).reshape(1).view(numpy.uint8)
    return blocks.reshape(rows, -1)


def decoded(blocks, type_id):
    block = TYPES[type_id]
    return quant.load(block.name).decode(blocks.reshape(-1, block.nbytes)).reshape(len(blocks), -1)


class Dense:
    """sizes: reflex.backends.cuda.persistent.Sizes; types: of q, k, v, o, gate, up, down for a layer, by layer number."""

    def __init__(self, sizes, types, output_type, style="neox", act="silu", head_norms=True, biases=False, dims=None, seed=0):
        self.sizes, self.style, self.act, self.eps = sizes, style, act, 1e-6
        self.random = random = numpy.random.default_rng(seed)
        s = sizes
        self.pairs = (dims or s.size) // 2
        self.frequencies = 10000.0 ** (-numpy.arange(self.pairs) / self.pairs)
        shapes = ((s.heads * s.size, s.width), (s.kv_heads * s.size, s.width), (s.kv_heads * s.size, s.width),
                  (s.width, s.heads * s.size), (s.hidden, s.width), (s.hidden, s.width), (s.width, s.hidden))  # fmt: skip
        self.types = [types(layer) for layer in range(s.layers)] + [output_type]
        self.blocks = [
            [blocks_of(t, r, c, random, c**-0.5) for t, (r, c) in zip(self.types[i], shapes, strict=True)] for i in range(s.layers)
        ]
        self.output = blocks_of(output_type, s.vocabulary, s.width, random, s.width**-0.5)
        self.matrices = [[decoded(b, t) for b, t in zip(row, self.types[i], strict=True)] for i, row in enumerate(self.blocks)]
        self.head = decoded(self.output, output_type)
        norm = lambda n: (0.5 + random.random(n)).astype(numpy.float32)  # noqa: E731
        self.norms = [(norm(s.width), norm(s.width)) for _ in range(s.layers)]
        self.output_norm = norm(s.width)
        self.head_norms = [(norm(s.size), norm(s.size)) if head_norms else (None, None) for _ in range(s.layers)]
        rows = (s.heads * s.size, s.kv_heads * s.size, s.kv_heads * s.size)
        self.biases = [tuple(random.standard_normal(n, numpy.float32) if biases else None for n in rows) for _ in range(s.layers)]

    def cache(self, slots):
        """float16 keys and values [layers, 2, kv_heads, slots, size]."""
        s = self.sizes
        shape = (s.layers, 2, s.kv_heads, slots, s.size)
        return numpy.random.default_rng(2).standard_normal(shape, numpy.float32).astype(numpy.float16)

    def turn(self, x, position):
        """Rotate heads [n, size]."""
        p, out = self.pairs, x.copy()
        angle = position * self.frequencies
        c, s = numpy.cos(angle).astype(numpy.float32), numpy.sin(angle).astype(numpy.float32)
        a, b = (slice(0, p), slice(p, 2 * p)) if self.style == "neox" else (slice(0, 2 * p, 2), slice(1, 2 * p, 2))
        out[:, a], out[:, b] = x[:, a] * c - x[:, b] * s, x[:, b] * c + x[:, a] * s
        return out

    def step(self, token, slot, position, cache, seen=None):
        """Logits; cache[:, :, :, slot] is written. seen: slots before this one that are visible (all)."""
        s = self.sizes

        def normed(x, w):
            return x if w is None else x * w / numpy.sqrt((x * x).mean(-1, keepdims=True) + numpy.float32(self.eps))

        visible = numpy.arange(slot + 1) if seen is None else numpy.append(numpy.asarray(seen), slot)
        x = self.head[token].copy()
        for layer in range(s.layers):
            q, k, v, o, gate, up, down = self.matrices[layer]
            y = normed(x, self.norms[layer][0])
            q, k, v = (m @ y + (0 if b is None else b) for m, b in zip((q, k, v), self.biases[layer], strict=True))
            q, k, v = (m.reshape(-1, s.size) for m in (q, k, v))
            q, k = (self.turn(normed(m, w), position) for m, w in zip((q, k), self.head_norms[layer], strict=True))
            cache[layer, 0, :, slot], cache[layer, 1, :, slot] = k.astype(numpy.float16), v.astype(numpy.float16)
            heads = []
            for h in range(s.heads):
                keys, values = cache[layer, :, h * s.kv_heads // s.heads][:, visible].astype(numpy.float32)
                score = keys @ q[h] * numpy.float32(s.size**-0.5)
                p = numpy.exp(score - score.max())
                heads.append((p / p.sum()) @ values)
            x = x + o @ numpy.concatenate(heads)
            y = normed(x, self.norms[layer][1])
            x = x + down @ (UNITS[self.act](gate @ y, up @ y))
        return self.head @ normed(x, self.output_norm)

    def pages(self, cache):
        """uint16 pages of the cache: the layers one after the other, and their byte offsets."""
        s = self.sizes
        count = -(-cache.shape[3] // PAGE)
        full = numpy.full((s.layers, 2, s.kv_heads, count * PAGE, s.size), 60000.0, numpy.float16)
        full[:, :, :, : cache.shape[3]] = cache
        split = full.reshape(s.layers, 2, s.kv_heads, count, PAGE, s.size).transpose(3, 0, 1, 2, 4, 5)
        layer_bytes = 2 * s.kv_heads * PAGE * s.size * 2
        pages = [numpy.ascontiguousarray(p).reshape(-1).view(numpy.uint16) for p in split]
        return pages, [i * layer_bytes for i in range(s.layers)]

    def cache_of(self, pages):
        """The inverse of `pages`."""
        s = self.sizes
        shape = (s.layers, 2, s.kv_heads, PAGE, s.size)
        return numpy.concatenate([p.view(numpy.float16).reshape(shape) for p in pages], axis=3)

    def arrays(self):
        """Every weight array, in the order of `table`."""
        flat = [b for row in self.blocks for b in row] + [self.output]
        groups = zip(self.norms, self.head_norms, self.biases, strict=True)
        vectors = [v for n, h, b in groups for v in (*n, *h, *b) if v is not None]
        padded = [numpy.append(a.reshape(-1), numpy.zeros(-a.nbytes % 16 + 16, numpy.uint8)) for a in flat]
        return [*padded, *vectors, self.output_norm]

    def table(self, addresses, cache_at):
        """The kernel's table for arrays() at these addresses, and how many segments it lists."""
        from reflex.backends.cuda.persistent import table

        at = iter(addresses)
        matrices = [[(next(at), t) for t in self.types[i]] for i in range(self.sizes.layers)]
        output = next(at)
        layers = []
        for i, pairs in enumerate(matrices):
            take = lambda group: [0 if v is None else next(at) for v in group]  # noqa: E731
            names = ("norms", "head_norms", "biases")
            layers.append({"matrices": pairs} | {name: take(getattr(self, name)[i]) for name in names})
        final = (output, self.types[-1])
        words, listed = table(self.sizes, layers, final, final, next(at), cache_at)
        return numpy.array(words, numpy.int64), listed
