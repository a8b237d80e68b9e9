"""Dot products of one weight row with a tile of tokens, generated from a block format's LANES record.

Activations are rows of 256-element groups, quantized to signed bytes (`QUANTIZED_GROUP` bytes each):
    int8 code[256], float32 scale[16], float32 sum[16]
where a scale belongs to 16 codes and a sum is scale x (sum of those codes). The last group of a row may be partly
filled. Every tile size adds the same terms in the same order, so a token's result does not depend on the tile it is in.
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .intrinsics import F32, I64, f32, i64
from .target import current
from .vector import LANES, V8F, Vectors, vector

QUANTIZED_GROUP = 384
SCALES, SUMS = 256, 320
LINE = 64  # bytes of a cache line
AHEAD = 4096  # bytes: the hardware does not look beyond a page of 4096, and a row is often shorter
FEW = 4  # tokens; with more, arithmetic takes longer than memory


def tile_sizes():
    """Largest number of tokens whose accumulators stay in registers; kernels exist for 1 to this many."""
    return 8 if current().registers == 32 else 4


def _operands(v, arguments, tokens, lanes):
    """Common prologue: weight pointer, token pointers, one zero accumulator per token."""
    weights, x, stride = arguments[0], arguments[1], arguments[2]
    tokens_at = [v.pointer(x)]
    for _ in range(1, tokens):
        tokens_at.append(v.b.gep(tokens_at[-1], [stride]))
    zero = v.const(vector(f32, lanes), 0.0)
    return v.pointer(weights), tokens_at, [v.cell(zero) for _ in range(tokens)]


def _part(v, record, group, count, x, lane, accumulators):
    """acc[t] += (scale x codes + minimum) . x[t] over `count` sub-blocks: their activations at x[t], scales and sums at lane[t]."""
    b, lanes = v.b, LANES * v.subs
    kind, minimums = group.scales.type, group.minimums
    if record.signed and v.biased:
        minimums = b.fmul(group.scales, v.const(kind, -128.0))
    scaled = []
    for t, at in enumerate(lane):
        scaled.append(b.fmul(group.scales, v.load(v.at(at, SCALES), kind)))
        if minimums is not None:
            term = v.fit(b.fmul(minimums, v.load(v.at(at, SUMS), kind)), lanes)
            b.store(b.fadd(b.load(accumulators[t]), term), accumulators[t])
    for i in range(0, count, v.subs):
        width = min(v.subs, count)
        codes = group.codes(i, width)
        for t, at in enumerate(x):
            value = v.fit(_codes_dot(v, record, codes, v.load(v.at(at, 32 * i), codes.type)), lanes)
            scale = v.fit(v.fours(scaled[t], 2 * i, 2 * width), lanes)
            b.store(v.fma(value, scale, b.load(accumulators[t])), accumulators[t])


def _codes_dot(v, record, codes, x):
    if not record.signed:
        ints = v.dot_bytes(codes, x)
    elif v.biased:
        ints = v.dot_bytes(v.b.xor(codes, v.const(codes.type, -128)), x)
    else:
        ints = v.dot_signed(codes, x)
    return v.signed_floats(ints)


def _trailing(v, record, weights, x, tail, accumulators):
    """All trailing blocks: as many as a byte vector holds at a time, then single ones."""
    b, done, width = v.b, ir.Constant(i64, 0), record.width
    for size in sorted({max(v.subs, width), width}, reverse=True):
        steps = b.sdiv(b.sub(tail, done), ir.Constant(i64, size))
        with v.loop(steps) as k:
            index = b.add(done, b.mul(k, ir.Constant(i64, size)))
            p = b.gep(weights, [b.mul(b.sdiv(index, ir.Constant(i64, width)), ir.Constant(i64, record.nbytes))])
            codes_at = [b.gep(at, [b.mul(index, ir.Constant(i64, 32))]) for at in x]
            lane = [b.gep(at, [b.mul(index, ir.Constant(i64, 8))]) for at in x]
            _part(v, record, record.part(v, p, size), size, codes_at, lane, accumulators)
        done = b.add(done, b.mul(steps, ir.Constant(i64, size)))


def _ask_ahead(v, p, nbytes, tokens):
    """With few tokens weights are read as fast as memory gives them: ask for those that come after the next ones."""
    if tokens <= FEW:
        for line in range(0, nbytes, LINE):
            v.prefetch(v.at(p, AHEAD + line))


def _finish(v, accumulators, out, stride, bias):
    for accumulator in accumulators:
        v.store(v.b.fadd(v.sum(v.b.load(accumulator)), bias), out)
        out = v.b.gep(out, [stride])


def quantized_dot(record, tokens, name):
    """dot(weights, x, stride, groups, tail, out, out_stride, bias): out[t] = row . x[t] + bias.

    x[t] lies at x + t * stride, out[t] at out + t * out_stride; bias is a float32.

    `groups` whole groups of 256, then `tail` sub-blocks of 32 (formats whose blocks are narrower than a group only).
    """

    def codegen(context, builder, signature, arguments):
        v = Vectors(builder)
        weights, x, accumulators = _operands(v, arguments, tokens, LANES * v.subs)
        groups, tail, out = arguments[3], arguments[4], v.pointer(arguments[5])
        with v.loop(groups) as g:
            p = builder.gep(weights, [builder.mul(g, ir.Constant(i64, record.group_bytes))])
            at = builder.mul(g, ir.Constant(i64, QUANTIZED_GROUP))
            rows = [builder.gep(q, [at]) for q in x]
            _ask_ahead(v, p, record.group_bytes, tokens)
            _part(v, record, record.group(v, p), 8, rows, rows, accumulators)
        if record.width < 8:
            w = builder.gep(weights, [builder.mul(groups, ir.Constant(i64, record.group_bytes))])
            at = builder.mul(groups, ir.Constant(i64, QUANTIZED_GROUP))
            rest = [builder.gep(q, [at]) for q in x]
            _trailing(v, record, w, rest, tail, accumulators)
        _finish(v, accumulators, out, arguments[6], arguments[7])
        return context.get_dummy_value()

    def typing(typingctx, weights, x, stride, groups, tail, out, out_stride, bias):
        return types.void(I64, I64, I64, I64, I64, I64, I64, F32), codegen

    typing.__name__ = typing.__qualname__ = name
    return intrinsic(typing)


def plain_dot(record, tokens, name):
    """The same for floating-point weights and float32 activations: `groups` of 64 columns, then `tail` single ones."""

    def codegen(context, builder, signature, arguments):
        v = Vectors(builder)
        weights, x, accumulators = _operands(v, arguments, tokens, LANES)
        extras = [v.cell(v.const(f32, 0.0)) for _ in range(tokens)]
        groups, tail, out = arguments[3], arguments[4], v.pointer(arguments[5])
        with v.loop(groups) as g:
            p = builder.gep(weights, [builder.mul(g, ir.Constant(i64, 64 * record.nbytes))])
            at = builder.mul(g, ir.Constant(i64, 256))
            rows = [builder.gep(q, [at]) for q in x]
            totals = [None] * tokens
            _ask_ahead(v, p, 64 * record.nbytes, tokens)
            for i in range(8):
                w = record.load(v, v.at(p, 8 * i * record.nbytes))
                for t in range(tokens):
                    value = v.load(v.at(rows[t], 32 * i), V8F)
                    totals[t] = builder.fmul(w, value) if totals[t] is None else v.fma(w, value, totals[t])
            for t in range(tokens):
                builder.store(builder.fadd(builder.load(accumulators[t]), totals[t]), accumulators[t])
        w = builder.gep(weights, [builder.mul(groups, ir.Constant(i64, 64 * record.nbytes))])
        at = builder.mul(groups, ir.Constant(i64, 256))
        rest = [builder.gep(q, [at]) for q in x]
        with v.loop(tail) as i:
            value = record.load_one(v, builder.gep(w, [builder.mul(i, ir.Constant(i64, record.nbytes))]))
            four = builder.mul(i, ir.Constant(i64, 4))
            for t in range(tokens):
                builder.store(v.fma(value, v.load(builder.gep(rest[t], [four]), f32), builder.load(extras[t])), extras[t])
        for accumulator, extra in zip(accumulators, extras, strict=True):
            total = v.fit(v.gather([builder.load(extra)]), LANES)
            builder.store(builder.fadd(builder.load(accumulator), total), accumulator)
        _finish(v, accumulators, out, arguments[6], arguments[7])
        return context.get_dummy_value()

    def typing(typingctx, weights, x, stride, groups, tail, out, out_stride, bias):
        return types.void(I64, I64, I64, I64, I64, I64, I64, F32), codegen

    typing.__name__ = typing.__qualname__ = name
    return intrinsic(typing)
