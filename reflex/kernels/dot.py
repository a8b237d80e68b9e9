"""Dot products of one weight row with a tile of tokens, generated from a block format's LANES record.

Activations are rows of 256-element groups, quantized to signed bytes (`QUANTIZED_GROUP` bytes each):
    int8 code[256], float32 scale[8], float32 first_sum[8], float32 second_sum[8]
where scale belongs to 32 codes, and the sums are scale x (sum of the first, of the second 16 codes). The last group
of a row may be partly filled. Every tile size adds the same terms in the same order, so a token's result does not
depend on the tile it is in.
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .intrinsics import I64, f32, i64
from .target import current
from .vector import V8F, V32B, Vectors

QUANTIZED_GROUP = 352
SCALES, FIRST_SUMS, SECOND_SUMS = 256, 288, 320


def tile_sizes():
    """Largest number of tokens whose accumulators stay in registers; kernels exist for 1 to this many."""
    return 8 if current().registers == 32 else 4


def _operands(v, arguments, tokens):
    """Common prologue: weight pointer, token pointers, one zero accumulator per token."""
    weights, x, stride = arguments[0], arguments[1], arguments[2]
    first = v.pointer(x)
    tokens_at = [first]
    for _ in range(1, tokens):
        tokens_at.append(v.b.gep(tokens_at[-1], [stride]))
    zero = v.const(V8F, 0.0)
    return v.pointer(weights), tokens_at, [v.cell(zero) for _ in range(tokens)]


def _group(v, record, p, x, accumulators):
    """acc[t] += (scale x codes + minimum) . x[t] over 256 weights."""
    b = v.b
    group = record.group(v, p)
    minimums = group.minimums
    if record.signed and v.biased:
        minimums = [b.fmul(s, v.const(V8F, -128.0)) for s in group.scales]
    sums, scaled = [], []
    for t, at in enumerate(x):
        d = v.load(v.at(at, SCALES), V8F)
        scaled.append([b.fmul(s, d) for s in group.scales])
        sums.append(b.load(accumulators[t]))
        if minimums:
            first, second = v.load(v.at(at, FIRST_SUMS), V8F), v.load(v.at(at, SECOND_SUMS), V8F)
            parts = (
                [(minimums[0], b.fadd(first, second))] if len(minimums) == 1 else list(zip(minimums, (first, second), strict=True))
            )
            for m, s in parts:
                sums[t] = v.fma(m, s, sums[t])
    totals = [None] * len(x)
    for i in range(8):
        codes = group.codes(i)
        for t, at in enumerate(x):
            value = _codes_dot(v, record, codes, v.load(v.at(at, 32 * i), V32B))
            scale = v.lane(scaled[t][0], i) if len(scaled[t]) == 1 else v.two_lanes(*scaled[t], i)
            totals[t] = b.fmul(value, scale) if totals[t] is None else v.fma(value, scale, totals[t])
    for t in range(len(x)):
        b.store(b.fadd(sums[t], totals[t]), accumulators[t])


def _codes_dot(v, record, codes, x):
    if not record.signed:
        ints = v.dot_bytes(codes, x)
    elif v.biased:
        ints = v.dot_bytes(v.b.xor(codes, v.const(V32B, -128)), x)
    else:
        ints = v.dot_signed(codes, x)
    return v.b.sitofp(ints, V8F)


def _block(v, record, p, x, i, accumulators, extras):
    """One trailing block of 32; `i` is its int64 index within the last group."""
    b = v.b
    scale, minimum, codes = record.block(v, p)
    if record.signed and v.biased:
        minimum = b.fmul(scale, v.const(f32, -128.0))
    four = b.mul(i, ir.Constant(i64, 4))
    for t, at in enumerate(x):
        lane = b.gep(at, [four])
        value = _codes_dot(v, record, codes, v.load(b.gep(at, [b.mul(i, ir.Constant(i64, 32))]), V32B))
        d = v.splat(b.fmul(scale, v.load(v.at(lane, SCALES), f32)))
        b.store(v.fma(value, d, b.load(accumulators[t])), accumulators[t])
        if minimum is not None:
            total = b.fadd(v.load(v.at(lane, FIRST_SUMS), f32), v.load(v.at(lane, SECOND_SUMS), f32))
            b.store(v.fma(minimum, total, b.load(extras[t])), extras[t])


def _finish(v, accumulators, extras, out):
    for t, accumulator in enumerate(accumulators):
        total = v.b.fadd(v.sum(v.b.load(accumulator)), v.b.load(extras[t]))
        v.store(total, v.at(out, 4 * t))


def quantized_dot(record, tokens, name):
    """dot(weights, x, stride, groups, tail, out): out[t] = row . x[t], x[t] at x + t * stride.

    `groups` whole groups of 256, then `tail` blocks of 32 (formats with blocks of 32 only).
    """

    def codegen(context, builder, signature, arguments):
        v = Vectors(builder)
        weights, x, accumulators = _operands(v, arguments, tokens)
        extras = [v.cell(v.const(f32, 0.0)) for _ in range(tokens)]
        groups, tail, out = arguments[3], arguments[4], v.pointer(arguments[5])
        with v.loop(groups) as g:
            p = builder.gep(weights, [builder.mul(g, ir.Constant(i64, record.group_bytes))])
            at = builder.mul(g, ir.Constant(i64, QUANTIZED_GROUP))
            _group(v, record, p, [builder.gep(q, [at]) for q in x], accumulators)
        if record.block is not None:
            w = builder.gep(weights, [builder.mul(groups, ir.Constant(i64, record.group_bytes))])
            at = builder.mul(groups, ir.Constant(i64, QUANTIZED_GROUP))
            rest = [builder.gep(q, [at]) for q in x]
            with v.loop(tail) as i:
                p = builder.gep(w, [builder.mul(i, ir.Constant(i64, record.nbytes))])
                _block(v, record, p, rest, i, accumulators, extras)
        _finish(v, accumulators, extras, out)
        return context.get_dummy_value()

    def typing(typingctx, weights, x, stride, groups, tail, out):
        return types.void(I64, I64, I64, I64, I64, I64), codegen

    typing.__name__ = typing.__qualname__ = name
    return intrinsic(typing)


def plain_dot(record, tokens, name):
    """The same for floating-point weights and float32 activations: `groups` of 64 columns, then `tail` single ones."""

    def codegen(context, builder, signature, arguments):
        v = Vectors(builder)
        weights, x, accumulators = _operands(v, arguments, tokens)
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
        _finish(v, accumulators, extras, out)
        return context.get_dummy_value()

    def typing(typingctx, weights, x, stride, groups, tail, out):
        return types.void(I64, I64, I64, I64, I64, I64), codegen

    typing.__name__ = typing.__qualname__ = name
    return intrinsic(typing)
