"""Eight numbers side by side as one value of Numba code: floats, ints and masks with operators, for encoders of blocks.

An encoder (reflex/quant/encoders) is written as for one block and computes eight, one per lane. Nothing ever crosses lanes and
nothing is reordered or contracted, so a lane has the bits that scalar code in the written order has. A branch is a `select`.
A plain number beside lanes is spread over them, in single precision; ints beside floats become floats.
"""

import operator

from llvmlite import ir
from numba import types
from numba.core import typing
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.extending import intrinsic, models, register_model

from .export import helper, inline
from .intrinsics import I64, declare, f16, f32, half_to_single, has_halves, i8, i16, i32, i64, single_to_half, to_float

COUNT = 8
STRIDE = 4 * COUNT  # bytes of one value in memory
KINDS = {"float": f32, "int": i32, "mask": ir.IntType(1)}
SCALARS = {"float": types.float32, "int": types.int32}
MAGIC = 12582912.0  # 1.5 * 2**23: adding it leaves the nearest integer, ties to even, in the last bits

function, number = helper, to_float


class Lanes(types.Type):
    def __init__(self, kind):
        self.kind = kind
        super().__init__(name=f"lanes of {kind}")


@register_model(Lanes)
class _Model(models.PrimitiveModel):
    def __init__(self, manager, lanes):
        super().__init__(manager, lanes, ir.VectorType(KINDS[lanes.kind], COUNT))


FLOATS, INTS, MASK = Lanes("float"), Lanes("int"), Lanes("mask")


def _constant(kind, value):
    element = KINDS[kind]
    return ir.Constant(ir.VectorType(element, COUNT), [ir.Constant(element, value)] * COUNT)


def _splat(builder, value):
    kind = ir.VectorType(value.type, COUNT)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(i32, 0))
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), ir.Constant(ir.VectorType(i32, COUNT), [0] * COUNT))


def _spread(context, builder, value, given, kind):
    """A value of Numba type `given` as lanes of `kind`."""
    if not isinstance(given, Lanes):
        return _splat(builder, context.cast(builder, value, given, SCALARS[kind]))
    return builder.sitofp(value, ir.VectorType(f32, COUNT)) if (given.kind, kind) == ("int", "float") else value


def _kind(args):
    """Kind of the lanes that operands have in common; None where there is none or no operand is lanes."""
    kinds = {a.kind for a in args if isinstance(a, Lanes)}
    if not kinds or ("mask" in kinds and (len(kinds) > 1 or len(args) > sum(isinstance(a, Lanes) for a in args))):
        return None
    scalars = [a for a in args if not isinstance(a, Lanes)]
    if not all(isinstance(a, types.Number) for a in scalars):
        return None
    return "float" if "float" in kinds or any(isinstance(a, types.Float) for a in scalars) else kinds.pop()


def _operator(op, build, kinds, result=None):
    """Teach Numba `op` between lanes, and between lanes and numbers: build(builder, kind, values)."""

    def generic(self, args, kws):
        kind = _kind(args)
        return typing.signature(result or Lanes(kind), *args) if kind in kinds else None

    infer_global(op)(type(f"Lanes_{op.__name__}", (AbstractTemplate,), {"generic": generic}))

    def lower(context, builder, signature, arguments):
        kind = _kind(signature.args)
        pairs = zip(arguments, signature.args, strict=True)
        return build(builder, kind, [_spread(context, builder, *pair, kind) for pair in pairs])

    one = op in (operator.neg, operator.invert)
    for shape in [(Lanes,)] if one else [(Lanes, Lanes), (Lanes, types.Number), (types.Number, Lanes)]:
        lower_builtin(op, *shape)(lower)


def _by_kind(**names):
    return lambda builder, kind, values: getattr(builder, names[kind])(*values)


def _comparison(symbol):
    def build(builder, kind, values):
        if kind == "int":
            return builder.icmp_signed(symbol, *values)
        return (builder.fcmp_unordered if symbol == "!=" else builder.fcmp_ordered)(symbol, *values)

    return build


for _ops, _build, _kinds in (
    ((operator.add, operator.iadd), _by_kind(float="fadd", int="add"), ("float", "int")),
    ((operator.sub, operator.isub), _by_kind(float="fsub", int="sub"), ("float", "int")),
    ((operator.mul, operator.imul), _by_kind(float="fmul", int="mul"), ("float", "int")),
    ((operator.truediv, operator.itruediv), _by_kind(float="fdiv"), ("float",)),
    ((operator.and_, operator.iand), _by_kind(int="and_", mask="and_"), ("int", "mask")),
    ((operator.or_, operator.ior), _by_kind(int="or_", mask="or_"), ("int", "mask")),
    ((operator.xor, operator.ixor), _by_kind(int="xor", mask="xor"), ("int", "mask")),
    ((operator.lshift,), _by_kind(int="shl"), ("int",)),
    ((operator.rshift,), _by_kind(int="ashr"), ("int",)),
    ((operator.neg,), _by_kind(float="fneg", int="neg"), ("float", "int")),
    ((operator.invert,), _by_kind(int="not_", mask="not_"), ("int", "mask")),
):
    for _op in _ops:
        _operator(_op, _build, _kinds)
for _op, _symbol in {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}.items():
    _operator(getattr(operator, _op), _comparison(_symbol), ("float", "int"), MASK)


def _named(name, arity, typed, codegen):
    """An intrinsic of `arity` arguments: typed(types) -> signature or None, codegen(context, builder, types, values)."""
    names = ", ".join(f"a{i}" for i in range(arity))

    def typing_of(*args):
        signature = typed(args)
        if signature is None:
            return None
        return signature, lambda context, builder, signature, arguments: codegen(context, builder, signature.args, arguments)

    scope = {"typing_of": typing_of}
    exec(f"def {name}(typingctx{', ' if names else ''}{names}):\n    return typing_of({names})\n", scope)
    return intrinsic(scope[name])


def _fixed(result, *wanted):
    """Exactly these types; a number where lanes of floats or ints are wanted is spread."""

    def typed(args):
        fits = all(a == w or (w == I64 and isinstance(a, types.Integer)) for a, w in zip(args, wanted, strict=True))
        return result(*wanted) if fits else None

    return typed


# ---- making lanes, choosing between them ----


def _making(kind):
    def typed(args):
        return Lanes(kind)(args[0]) if args[0] in (FLOATS, INTS) or isinstance(args[0], types.Number) else None

    def codegen(context, builder, given, arguments):
        if given[0] == FLOATS and kind == "int":
            return builder.fptosi(arguments[0], ir.VectorType(i32, COUNT))
        return _spread(context, builder, arguments[0], given[0], kind)

    return typed, codegen


floats = _named("floats", 1, *_making("float"))  # of a number, or of ints
ints = _named("ints", 1, *_making("int"))  # of a number, or of floats with their fraction cut off


def _chosen(args):
    kind = _kind(args[1:]) if args[0] == MASK else None
    return Lanes(kind)(*args) if kind else None


def _choose(context, builder, given, arguments):
    pair = zip(arguments[1:], given[1:], strict=True)
    return builder.select(arguments[0], *(_spread(context, builder, *one, _kind(given[1:])) for one in pair))


select = _named("select", 3, _chosen, _choose)


def _some(context, builder, given, arguments):
    return builder.icmp_unsigned("!=", builder.bitcast(arguments[0], ir.IntType(COUNT)), ir.Constant(ir.IntType(COUNT), 0))


some = _named("some", 1, _fixed(types.boolean, MASK), _some)  # whether any lane is true

# ---- arithmetic ----


def _unary(name, llvm):
    def codegen(context, builder, given, arguments):
        kind = arguments[0].type
        return builder.call(declare(builder, f"{llvm}.v{COUNT}f32", kind, [kind]), arguments)

    return _named(name, 1, _fixed(FLOATS, FLOATS), codegen)


sqrt = _unary("sqrt", "llvm.sqrt")
size = _unary("size", "llvm.fabs")
rounded = _unary("rounded", "llvm.round")  # to an integer, ties away from zero


def _bits(context, builder, given, arguments):
    return builder.bitcast(arguments[0], ir.VectorType(i32, COUNT))


def _of_bits(context, builder, given, arguments):
    return builder.bitcast(arguments[0], ir.VectorType(f32, COUNT))


bits = _named("bits", 1, _fixed(INTS, FLOATS), _bits)
of_bits = _named("of_bits", 1, _fixed(FLOATS, INTS), _of_bits)


@helper
def nearest(value):
    """The nearest int, ties to even. Beyond 2**22 the same nonsense that ggml's nearest_int has there."""
    return (bits(value + MAGIC) & 0x7FFFFF) - 0x400000


@helper
def most(a, b):
    return select(a > b, a, b)


@helper
def least(a, b):
    return select(a < b, a, b)


@helper
def clamped(value, low, high):
    return most(ints(low), least(ints(high), value))


def _through_half(context, builder, given, arguments):
    kind = arguments[0].type
    if has_halves():
        return builder.fpext(builder.fptrunc(arguments[0], ir.VectorType(f16, COUNT)), kind)
    result = ir.Constant(kind, ir.Undefined)
    for lane in range(COUNT):
        at = ir.Constant(i32, lane)
        half = half_to_single(builder, single_to_half(builder, builder.extract_element(arguments[0], at)))
        result = builder.insert_element(result, half, at)
    return result


through_half = _named("through_half", 1, _fixed(FLOATS, FLOATS), _through_half)  # as a half float keeps it

def _stay_apart(context, builder, given, arguments):
    builder.function.attributes.add("noinline")
    return context.get_dummy_value()


stay_apart = _named("stay_apart", 0, _fixed(types.void), _stay_apart)  # the function that says it is not pasted into its callers

# ---- memory: addresses are int64 ----


def _at(builder, base, index, kind):
    """Pointer to the lanes number `index` of those at `base`. Functions that use it are compiled to be small."""
    builder.function.attributes.add("minsize")
    builder.function.attributes.add("optsize")
    at = builder.add(base, builder.mul(index, ir.Constant(i64, STRIDE)))
    return builder.inttoptr(at, ir.VectorType(KINDS[kind], COUNT).as_pointer())


def _loading(kind):
    return _fixed(Lanes(kind), I64, I64), lambda context, b, given, arguments: b.load(_at(b, *arguments, kind), align=4)


load = _named("load", 2, *_loading("float"))
load_ints = _named("load_ints", 2, *_loading("int"))


def _storing(args):
    return types.void(I64, I64, args[2]) if args[2] in (FLOATS, INTS) else None


def _store(context, builder, given, arguments):
    builder.store(arguments[2], _at(builder, *arguments[:2], given[2].kind), align=4)
    return context.get_dummy_value()


store = _named("store", 3, _storing, _store)


@inline
def place(base, index):
    """Address of lanes number `index` of those at `base`."""
    return base + STRIDE * index


def _gather(context, builder, given, arguments):
    result = ir.Constant(ir.VectorType(f32, COUNT), ir.Undefined)
    for lane in range(COUNT):
        at = builder.add(arguments[0], builder.mul(arguments[1], ir.Constant(i64, lane)))
        value = builder.load(builder.inttoptr(at, f32.as_pointer()), align=4)
        result = builder.insert_element(result, value, ir.Constant(i32, lane))
    return result


gather = _named("gather", 2, _fixed(FLOATS, I64, I64), _gather)  # float32 at an address and every so many bytes after it


def _gather_at(context, builder, given, arguments):
    result = ir.Constant(ir.VectorType(f32, COUNT), ir.Undefined)
    for lane in range(COUNT):
        place = builder.add(arguments[0], ir.Constant(i64, 8 * lane))
        base = builder.load(builder.inttoptr(place, i64.as_pointer()), align=8)
        value = builder.load(builder.inttoptr(builder.add(base, arguments[1]), f32.as_pointer()), align=4)
        result = builder.insert_element(result, value, ir.Constant(i32, lane))
    return result


gather_at = _named("gather_at", 2, _fixed(FLOATS, I64, I64), _gather_at)  # float32 at eight stored addresses plus an offset


def _looking_up(size, kind, widen):
    """Value number `index` of those of `size` bytes at an address, lane by lane."""

    def codegen(context, builder, given, arguments):
        result = ir.Constant(ir.VectorType(i32, COUNT), ir.Undefined)
        for lane in range(COUNT):
            at = ir.Constant(i32, lane)
            index = builder.sext(builder.extract_element(arguments[1], at), i64)
            place = builder.add(arguments[0], builder.mul(index, ir.Constant(i64, size)))
            value = widen(builder, builder.load(builder.inttoptr(place, kind.as_pointer()), align=size))
            result = builder.insert_element(result, value, at)
        return result

    return _fixed(INTS, I64, INTS), codegen


look_up_two = _named("look_up_two", 2, *_looking_up(2, i16, lambda b, value: b.zext(value, i32)))  # unsigned
look_up_four = _named("look_up_four", 2, *_looking_up(4, i32, lambda b, value: value))


def _scattering(kind, narrow):
    """Store narrow(lane) at an address and every so many bytes after it."""

    def codegen(context, builder, given, arguments):
        for lane in range(COUNT):
            at = builder.add(arguments[0], builder.mul(arguments[1], ir.Constant(i64, lane)))
            value = narrow(builder, builder.extract_element(arguments[2], ir.Constant(i32, lane)))
            builder.store(value, builder.inttoptr(at, value.type.as_pointer()), align=1)
        return context.get_dummy_value()

    return _fixed(types.void, I64, I64, kind), codegen


put_byte = _named("put_byte", 3, *_scattering(INTS, lambda b, value: b.trunc(value, i8)))
put_two = _named("put_two", 3, *_scattering(INTS, lambda b, value: b.trunc(value, i16)))
put_four = _named("put_four", 3, *_scattering(INTS, lambda b, value: value))
put_half = _named("put_half", 3, *_scattering(FLOATS, single_to_half))
