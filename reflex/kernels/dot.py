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
from .vector import LANES, V8F, V16F, Vectors, vector

QUANTIZED_GROUP = 384
SCALES, SUMS = 256, 320


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


def _group(v, record, p, x, accumulators):
    """acc[t] += (scale x codes + minimum) . x[t] over 256 weights."""
    b, lanes = v.b, LANES * v.subs
    group = record.group(v, p)
    minimums = group.minimums
    if record.signed and v.biased:
        minimums = b.fmul(group.scales, v.const(V16F, -128.0))
    scaled = []
    for t, at in enumerate(x):
        scaled.append(b.fmul(group.scales, v.load(v.at(at, SCALES), V16F)))
        if minimums is not None:
            term = v.fit(b.fmul(minimums, v.load(v.at(at, SUMS), V16F)), lanes)
            b.store(b.fadd(b.load(accumulators[t]), term), accumulators[t])
    for i in range(0, 8, v.subs):
        codes = group.codes(i, v.subs)
        for t, at in enumerate(x):
            value = _codes_dot(v, record, codes, v.load(v.at(at, 32 * i), codes.type))
            scale = v.fours(scaled[t], 2 * i, 2 * v.subs)
            b.store(v.fma(value, scale, b.load(accumulators[t])), accumulators[t])


def _codes_dot(v, record, codes, x):
    if not record.signed:
        ints = v.dot_bytes(codes, x)
    elif v.biased:
        ints = v.dot_bytes(v.b.xor(codes, v.const(codes.type, -128)), x)
    else:
        ints = v.dot_signed(codes, x)
    return v.signed_floats(ints)


def _blocks(v, record, p, x, index, count, accumulators):
    """`count` trailing blocks of 32; `index` is the first one's int64 index within the last group."""
    b, lanes = v.b, LANES * v.subs
    blocks = [record.block(v, v.at(p, k * record.nbytes)) for k in range(count)]
    codes = record.codes(v, p, count)
    scale = v.gather([block[0] for block in blocks for _ in (0, 1)])
    minimum = v.gather([block[1] for block in blocks for _ in (0, 1)]) if blocks[0][1] is not None else None
    if record.signed and v.biased:
        minimum = b.fmul(scale, v.const(scale.type, -128.0))
    eight = b.mul(index, ir.Constant(i64, 8))
    for t, at in enumerate(x):
        lane = b.gep(at, [eight])
        value = _codes_dot(v, record, codes, v.load(b.gep(at, [b.mul(index, ir.Constant(i64, 32))]), codes.type))
        d = v.fours(b.fmul(scale, v.load(v.at(lane, SCALES), scale.type)), 0, 2 * count)
        total = v.fma(v.fit(value, lanes), v.fit(d, lanes), b.load(accumulators[t]))
        if minimum is not None:
            total = b.fadd(total, v.fit(b.fmul(minimum, v.load(v.at(lane, SUMS), scale.type)), lanes))
        b.store(total, accumulators[t])


def _trailing(v, record, weights, x, tail, accumulators):
    """All trailing blocks: as many as a byte vector holds at a time, then single ones."""
    b, done = v.b, ir.Constant(i64, 0)
    for size in sorted({v.subs, 1}, reverse=True):
        steps = b.sdiv(b.sub(tail, done), ir.Constant(i64, size))
        with v.loop(steps) as k:
            index = b.add(done, b.mul(k, ir.Constant(i64, size)))
            p = b.gep(weights, [b.mul(index, ir.Constant(i64, record.nbytes))])
            _blocks(v, record, p, x, index, size, accumulators)
        done = b.add(done, b.mul(steps, ir.Constant(i64, size)))


def _finish(v, accumulators, out, stride, bias):
    for accumulator in accumulators:
        v.store(v.b.fadd(v.sum(v.b.load(accumulator)), bias), out)
        out = v.b.gep(out, [stride])


def quantized_dot(record, tokens, name):
    """dot(weights, x, stride, groups, tail, out, out_stride, bias): out[t] = row . x[t] + bias.

    x[t] lies at x + t * stride, out[t] at out + t * out_stride; bias is a float32.

    `groups` whole groups of 256, then `tail` blocks of 32 (formats with blocks of 32 only).
    """

    def codegen(context, builder, signature, arguments):
        v = Vectors(builder)
        weights, x, accumulators = _operands(v, arguments, tokens, LANES * v.subs)
        groups, tail, out = arguments[3], arguments[4], v.pointer(arguments[5])
        with v.loop(groups) as g:
            p = builder.gep(weights, [builder.mul(g, ir.Constant(i64, record.group_bytes))])
            at = builder.mul(g, ir.Constant(i64, QUANTIZED_GROUP))
            _group(v, record, p, [builder.gep(q, [at]) for q in x], accumulators)
        if record.block is not None:
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
