"""The `memory` that block formats are unpacked from inside CUDA kernels: accessors over int64 addresses in device memory.

`reflex.quant.plain.Memory` says what each name means. `ptx.address(pointer, index)` makes such an address. Loads go
through the read-only cache: what they read must not be written by the same launch. The emulator knows the accessors by
name and the tables by their `data`.
"""

from hashlib import sha256

from llvmlite import ir
from numba.cuda import cgutils, types
from numba.cuda.extending import intrinsic

from .export import device

function = device

_I64, _F32 = types.int64, types.float32
_i16, _i32, _i64 = (ir.IntType(n) for n in (16, 32, 64))
_single = ir.FloatType()
DEVICE_SPACE, SHARED_SPACE = 1, 3


def _loader(name, kind, align, conversion, result):
    """Read a `kind` at an address. Four-byte words of blocks may lie at even addresses: LLVM reads their halves."""
    goal = _i64 if result is _I64 else _single

    def codegen(context, builder, signature, arguments):
        place = builder.inttoptr(arguments[0], kind.as_pointer(DEVICE_SPACE))
        value = builder.load(place, align=align)
        value.set_metadata("invariant.load", builder.module.add_metadata([]))
        return getattr(builder, conversion)(value, goal) if conversion else value

    def typing(typingctx, address):
        return result(_I64), codegen

    typing.__name__ = typing.__qualname__ = name
    return intrinsic(typing)


u8 = _loader("u8", ir.IntType(8), 1, "zext", _I64)
i8 = _loader("i8", ir.IntType(8), 1, "sext", _I64)
u16 = _loader("u16", _i16, 2, "zext", _I64)
i16 = _loader("i16", _i16, 2, "sext", _I64)
u32 = _loader("u32", _i32, 2, "zext", _I64)
i32 = _loader("i32", _i32, 4, "sext", _I64)
i64 = _loader("i64", _i64, 8, "sitofp", _F32)
f16 = _loader("f16", ir.HalfType(), 2, "fpext", _F32)
f32 = _loader("f32", _single, 4, None, _F32)
f64 = _loader("f64", ir.DoubleType(), 8, "fptrunc", _F32)


def _float_of(name, code):
    """An intrinsic integer -> float32 from `code(builder, 64-bit value)`."""

    def codegen(context, builder, signature, arguments):
        return code(builder, arguments[0])

    def typing(typingctx, value):
        return _F32(_I64), codegen

    typing.__name__ = typing.__qualname__ = name
    return intrinsic(typing)


float32 = _float_of("float32", lambda b, v: b.sitofp(b.trunc(v, _i32), _single))  # integers of at most 32 bits
float_of_bits = _float_of("float_of_bits", lambda b, v: b.bitcast(b.trunc(v, _i32), _single))
half_of_bits = _float_of("half_of_bits", lambda b, v: b.fpext(b.bitcast(b.trunc(v, _i16), ir.HalfType()), _single))


@device
def bf16(address):
    return float_of_bits(u16(address) << 16)


def _constant(builder, data):
    """The bytes of a table, which a module holds once."""
    name = _name(data)
    constant = builder.module.globals.get(name)
    if constant is None:
        kind = ir.ArrayType(ir.IntType(8), len(data))
        constant = ir.GlobalVariable(builder.module, kind, name, addrspace=DEVICE_SPACE)
        constant.initializer = ir.Constant(kind, bytearray(data))
        constant.global_constant = True
        constant.linkage = "internal"
        constant.align = 16
    return constant


def _name(data):
    return f"table_{sha256(data).hexdigest()[:16]}"


def _lookup(data, typing, count=0):
    typing.__name__ = typing.__qualname__ = f"{_name(data)}_{count}"
    entry = intrinsic(typing)
    entry.data, entry.words = data, count
    return entry


def table(data):
    """Function index -> signed byte `index` of `data`; the bytes are a constant of the module. No bounds check."""

    def codegen(context, builder, signature, arguments):
        place = builder.gep(_constant(builder, data), [ir.Constant(_i64, 0), arguments[0]])
        value = builder.load(place, align=1)
        value.set_metadata("invariant.load", builder.module.add_metadata([]))
        return builder.sext(value, _i64)

    def typing(typingctx, index):
        return _I64(_I64), codegen

    return _lookup(data, typing)


def _copy(builder, data):
    """The place of a table's copy in shared memory, which `staging` defines and `words` only names: they meet when the modules
    of a kernel are linked. Called like Numba's own arrays, so that each kernel gets one of its own (compile.py)."""
    name = f"_cudapy_tmem_{int(sha256(data).hexdigest()[:12], 16)}"
    place = builder.module.globals.get(name)
    if place is None:
        place = ir.GlobalVariable(builder.module, ir.ArrayType(ir.IntType(8), len(data)), name, addrspace=SHARED_SPACE)
        place.align = 16
    return place


def staging(data):
    """Function uint32 index: copies 16 bytes of a table to shared memory. All of it must be there, and the threads have met,
    before `words` is used."""
    kind = ir.VectorType(_i32, 4)

    def codegen(context, builder, signature, arguments):
        copy = _copy(builder, data)
        copy.initializer = ir.Constant(copy.value_type, ir.Undefined)
        at = [ir.Constant(_i64, 0), builder.mul(builder.zext(arguments[0], _i64), ir.Constant(_i64, 16))]
        value = builder.load(builder.bitcast(builder.gep(_constant(builder, data), at), kind.as_pointer(DEVICE_SPACE)), align=16)
        builder.store(value, builder.bitcast(builder.gep(copy, at), kind.as_pointer(SHARED_SPACE)), align=16)
        return context.get_dummy_value()

    def typing(typingctx, index):
        return types.void(types.uint32), codegen

    return _lookup(data, typing, -1)


def words(data, count):
    """Function uint32 index -> entry `index` of a table in shared memory, of `count` words: uint32, or a tuple of 2."""
    kind = ir.VectorType(_i32, count) if count > 1 else _i32
    result = types.UniTuple(types.uint32, count) if count > 1 else types.uint32

    def codegen(context, builder, signature, arguments):
        at = builder.mul(builder.zext(arguments[0], _i64), ir.Constant(_i64, 4 * count))
        place = builder.gep(_copy(builder, data), [ir.Constant(_i64, 0), at])
        value = builder.load(builder.bitcast(place, kind.as_pointer(SHARED_SPACE)), align=4 * count)
        if count == 1:
            return value
        return cgutils.pack_array(builder, [builder.extract_element(value, _i32(i)) for i in range(count)])

    def typing(typingctx, index):
        return result(types.uint32), codegen

    return _lookup(data, typing, count)
