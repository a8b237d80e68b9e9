"""Comparisons of many neighbours in memory at once, each result a bit of an int64. Nothing here needs an alignment."""

from llvmlite import ir
from numba.extending import intrinsic

from .intrinsics import I64, i8, i32, i64


def _loaded(builder, address, kind):
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=1)


def _splat(builder, value, kind):
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), builder.trunc(value, kind.element), ir.Constant(i32, 0))
    return builder.shuffle_vector(
        one, ir.Constant(kind, ir.Undefined), ir.Constant(ir.VectorType(i32, kind.count), [0] * kind.count)
    )


def _bits(builder, lanes):
    found = builder.bitcast(lanes, ir.IntType(lanes.type.count))
    return found if lanes.type.count == 64 else builder.zext(found, i64)


@intrinsic
def entries_matching(typingctx, address, wanted, bits):
    """A bit for each of 64 u32 at `address` that equals `wanted` above its low `bits` bits, which are 0 in `wanted`."""

    def codegen(context, builder, signature, arguments):
        kind = ir.VectorType(i32, 64)
        ones = builder.shl(ir.Constant(i64, -1), arguments[2])
        high = builder.and_(_loaded(builder, arguments[0], kind), _splat(builder, ones, kind))
        return _bits(builder, builder.icmp_unsigned("==", high, _splat(builder, arguments[1], kind)))

    return I64(I64, I64, I64), codegen


@intrinsic
def lanes_other(typingctx, address, value):
    """A bit for each of 16 u32 at `address` that is not `value`."""

    def codegen(context, builder, signature, arguments):
        kind = ir.VectorType(i32, 16)
        return _bits(
            builder, builder.icmp_unsigned("!=", _loaded(builder, arguments[0], kind), _splat(builder, arguments[1], kind))
        )

    return I64(I64, I64), codegen


@intrinsic
def bytes_other(typingctx, a, b):
    """A bit for each of the 32 bytes at `a` that is not the byte at its place at `b`."""

    def codegen(context, builder, signature, arguments):
        kind = ir.VectorType(i8, 32)
        return _bits(builder, builder.icmp_unsigned("!=", *(_loaded(builder, address, kind) for address in arguments)))

    return I64(I64, I64), codegen
