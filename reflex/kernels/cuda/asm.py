"""How PTX instructions become functions that a Numba kernel can call: `op` and `memop`."""

from llvmlite import ir
from numba.cuda import cgutils, types
from numba.cuda.core.errors import RequireLiteralValue
from numba.cuda.extending import intrinsic
from numba.cuda.typing import signature

from .levels import marked

i32, u32, i64, u64 = types.int32, types.uint32, types.int64, types.uint64
f32, f64, u16 = types.float32, types.float64, types.uint16
REGISTERS = {
    i32: ("r", ir.IntType(32)), u32: ("r", ir.IntType(32)), i64: ("l", ir.IntType(64)), u64: ("l", ir.IntType(64)),
    f32: ("f", ir.FloatType()), f64: ("d", ir.DoubleType()), u16: ("h", ir.IntType(16)),
}  # fmt: skip


# ---- calls -----------------------------------------------------------------------------------------------


def _call(builder, text, results, constraints, values, effects, memory):
    """Inline assembly; returns the Numba value: a scalar, a tuple or nothing."""
    constraints = ["=" + REGISTERS[t][0] for t in results] + constraints + (["~{memory}"] if memory else [])
    kinds = [REGISTERS[t][1] for t in results]
    kind = ir.VoidType() if not kinds else kinds[0] if len(kinds) == 1 else ir.LiteralStructType(kinds)
    assembly = ir.InlineAsm(ir.FunctionType(kind, [v.type for v in values]), text, ",".join(constraints), side_effect=effects)
    value = builder.call(assembly, values, attrs=("convergent",) if effects else ())
    if len(results) > 1:
        return cgutils.pack_array(builder, [builder.extract_value(value, i) for i in range(len(results))])
    return value if results else None


def _result(results):
    return types.void if not results else results[0] if len(results) == 1 else types.UniTuple(results[0], len(results))


def _intrinsic(name, count, typing):
    """An intrinsic of `count` arguments; Numba reads the parameter list, so the function is made as text."""
    names = "".join(f", a{i}" for i in range(count))
    scope = {"typing": typing}
    exec(f"def {name}(context{names}):\n    return typing([{names[2:]}])", scope)
    function = scope[name]
    function.__module__ = __name__
    return intrinsic(function)


def _literals(given):
    """Values of arguments that are part of the instruction."""
    for kind in given:
        if not isinstance(kind, types.IntegerLiteral):
            raise RequireLiteralValue(kind)  # Numba tries again with the literal type
    return {f"{{n{i}}}": str(kind.literal_value) for i, kind in enumerate(given)}


def _fill(name, text, literals):
    text = marked(name, text)
    for mark, value in literals.items():
        text = text.replace(mark, value)
    return text


def op(name, text, results=(), arguments=(), effects=False, memory=False, literals=0):
    """A register instruction. `effects`: not moved or merged (collectives); `memory`: nor are loads and stores around it.

    The last `literals` arguments are constants written into the text at {n0}, {n1}.
    """
    results, arguments = list(results), list(arguments)

    def typing(given):
        values = _literals(given[len(arguments) :])

        def codegen(context, builder, sig, operands):
            constraints = [REGISTERS[t][0] for t in arguments]
            operands = list(operands[: len(arguments)])
            value = _call(builder, _fill(name, text, values), results, constraints, operands, effects, memory)
            return value if results else context.get_dummy_value()

        return signature(_result(results), *arguments, *given[len(arguments) :]), codegen

    return _intrinsic(name, len(arguments) + literals, typing)


# ---- addresses -------------------------------------------------------------------------------------------


def _index_type(kind):
    kind = types.unliteral(kind)
    return kind if kind in (i64, u64, u32) else i32


def _global_address(context, builder, kind, value, index_kind, index):
    """Address of an element as i64; an int64 'pointer' is a device address and the index counts bytes."""
    if index_kind in (u32, u64):
        index = builder.zext(index, ir.IntType(64)) if index_kind == u32 else index
    if isinstance(kind, types.Integer):
        return builder.add(value, index if index.type.width == 64 else builder.sext(index, ir.IntType(64)))
    if isinstance(kind, types.CPointer):
        return builder.ptrtoint(builder.gep(value, [index]), ir.IntType(64))
    return builder.ptrtoint(builder.gep(context.make_array(kind)(context, builder, value=value).data, [index]), ir.IntType(64))


def _shared_address(context, builder, kind, value, index_kind, index):
    """Address of an element of a shared array as i32, from a constant base."""
    data = context.make_array(kind)(context, builder, value=value).data
    data = builder.addrspacecast(data, ir.PointerType(data.type.pointee, 3))
    base = builder.trunc(builder.ptrtoint(data, ir.IntType(64)), ir.IntType(32))
    index = builder.trunc(index, ir.IntType(32)) if index.type.width == 64 else index
    return builder.add(base, builder.mul(index, ir.Constant(ir.IntType(32), kind.dtype.bitwidth // 8)))


def _place(kind):
    """The type of a pointer argument as the signature has it."""
    return i64 if isinstance(kind, types.Integer) else kind


def memop(name, text, results=(), spaces="g", arguments=(), effects=False, memory=False, literals=0):
    """An instruction with addresses: one (pointer, element index) pair per letter of `spaces` (g global, s shared) first,
    then scalars. In the text the addresses come first, after the results."""
    results, arguments, pairs = list(results), list(arguments), 2 * len(spaces)
    plain = pairs + len(arguments)

    def typing(given):
        places = [(_place(given[i]), _index_type(given[i + 1])) for i in range(0, pairs, 2)]
        values = _literals(given[plain:])
        sig = signature(_result(results), *(t for place in places for t in place), *arguments, *given[plain:])

        def codegen(context, builder, sig, operands):
            addresses = []
            for i, space in enumerate(spaces):
                address = _shared_address if space == "s" else _global_address
                addresses.append(address(context, builder, places[i][0], operands[2 * i], places[i][1], operands[2 * i + 1]))
            constraints = ["r" if space == "s" else "l" for space in spaces] + [REGISTERS[t][0] for t in arguments]
            operands = addresses + list(operands[pairs:plain])
            value = _call(builder, _fill(name, text, values), results, constraints, operands, effects, memory)
            return value if results else context.get_dummy_value()

        return sig, codegen

    return _intrinsic(name, plain + literals, typing)


def shared_address(name):
    """int32 address of a shared array's element, for descriptors."""

    def typing(given):
        def codegen(context, builder, sig, operands):
            return _shared_address(context, builder, sig.args[0], operands[0], sig.args[1], operands[1])

        return signature(i32, given[0], i32), codegen

    return _intrinsic(name, 2, typing)


def global_address(name):
    """int64 address of a pointer's element."""

    def typing(given):
        def codegen(context, builder, sig, operands):
            return _global_address(context, builder, sig.args[0], operands[0], sig.args[1], operands[1])

        return signature(i64, _place(given[0]), _index_type(given[1])), codegen

    return _intrinsic(name, 2, typing)


def wgmma(name, count, columns):
    """wgmma m64nNk16 of float16 (both operands by shared memory descriptor) into a local array of `count` float32."""
    registers = ",".join(f"${i}" for i in range(count))
    text = f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.f16.f16 {{{registers}}}, ${count}, ${count + 1}, 1, 1, 1, 0, 0;"

    def typing(given):
        def codegen(context, builder, sig, operands):
            data = context.make_array(sig.args[0])(context, builder, value=operands[0]).data
            places = [builder.gep(data, [ir.Constant(ir.IntType(32), i)]) for i in range(count)]
            kind = ir.FunctionType(ir.LiteralStructType([ir.FloatType()] * count), [ir.IntType(64)] * 2 + [ir.FloatType()] * count)
            constraints = ["=f"] * count + ["l", "l"] + [str(i) for i in range(count)] + ["~{memory}"]
            assembly = ir.InlineAsm(kind, text, ",".join(constraints), side_effect=True)
            values = builder.call(assembly, [*operands[1:], *(builder.load(p) for p in places)], attrs=("convergent",))
            for i, place in enumerate(places):
                builder.store(builder.extract_value(values, i), place)
            return context.get_dummy_value()

        return signature(types.void, given[0], u64, u64), codegen

    return _intrinsic(name, 3, typing)
