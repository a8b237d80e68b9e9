"""Loops over float32 arrays for host kernels: element-wise maps and reductions, eight lanes at a time.

A loop is given as the body for one vector of lanes; the remainder of a length that is no multiple of eight runs
through the same body one lane at a time, so bodies are written once and buffers need no padding.
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .intrinsics import F32, I64, f32, i64
from .vector import LANES, V8F, Vectors, vector


def chunks(v, count, body):
    """body(offset in bytes, lanes) over `count` elements: whole vectors, then single elements."""
    b = v.b
    whole = b.lshr(count, ir.Constant(i64, 3))
    with v.loop(whole) as i:
        body(b.mul(i, ir.Constant(i64, 4 * LANES)), LANES)
    done = b.shl(whole, ir.Constant(i64, 3))
    with v.loop(b.sub(count, done)) as i:
        body(b.mul(b.add(i, done), ir.Constant(i64, 4)), 1)


def array_map(name, inputs, scalars, body):
    """f(out, in_1 .. in_inputs, count, s_1 .. s_scalars): out[i] = body(v, [in_k[i]], [s_k]).

    body works on float32 vectors of any width; scalars arrive splatted to it.
    """

    def codegen(context, builder, signature, arguments):
        v = Vectors(builder)
        out, sources = v.pointer(arguments[0]), [v.pointer(a) for a in arguments[1 : 1 + inputs]]

        def step(offset, lanes):
            kind = vector(f32, lanes)
            values = [v.load(builder.gep(s, [offset]), kind) for s in sources]
            spread = [v.splat(s, lanes) for s in arguments[2 + inputs :]]
            v.store(body(v, values, spread), builder.gep(out, [offset]))

        chunks(v, arguments[1 + inputs], step)
        return context.get_dummy_value()

    return _typed(name, types.void(*[I64] * (2 + inputs), *[F32] * scalars), codegen)


def array_reduce(name, inputs, scalars, start, combine, body):
    """f(in_1 .. in_inputs, count, s_1 ..) -> float32: combine over i of body(v, [in_k[i]], [s_k]).

    Eight running values are combined lane by lane, then folded, then the remainder joins in order.
    """

    def codegen(context, builder, signature, arguments):
        v = Vectors(builder)
        sources = [v.pointer(a) for a in arguments[:inputs]]
        wide, narrow = v.cell(v.const(V8F, start)), v.cell(v.const(vector(f32, 1), start))

        def step(offset, lanes):
            kind = vector(f32, lanes)
            values = [v.load(builder.gep(s, [offset]), kind) for s in sources]
            spread = [v.splat(s, lanes) for s in arguments[1 + inputs :]]
            cell = wide if lanes == LANES else narrow
            builder.store(combine(v, builder.load(cell), body(v, values, spread)), cell)

        chunks(v, arguments[inputs], step)
        folded = v.fold(builder.load(wide), lambda a, b: combine(v, a, b))
        rest = v.b.extract_element(builder.load(narrow), ir.Constant(ir.IntType(32), 0))
        total = combine(v, v.splat(folded, 1), v.splat(rest, 1))
        return v.b.extract_element(total, ir.Constant(ir.IntType(32), 0))

    return _typed(name, F32(*[I64] * (1 + inputs), *[F32] * scalars), codegen)


def _typed(name, signature, codegen):
    """A numba intrinsic of a fixed signature; numba wants one named parameter per argument."""
    names = [f"a{i}" for i in range(len(signature.args))]
    scope = {"signature": signature, "codegen": codegen}
    exec(f"def {name}(typingctx, {', '.join(names)}):\n    return signature, codegen\n", scope)
    return intrinsic(scope[name])


def _add(v, a, b):
    return v.b.fadd(a, b)


def _max(v, a, b):
    return v.maximum(a, b)


array_sum_squares = array_reduce("array_sum_squares", 1, 0, 0.0, _add, lambda v, x, s: v.b.fmul(x[0], x[0]))
array_max = array_reduce("array_max", 1, 0, float("-inf"), _max, lambda v, x, s: x[0])
array_sum = array_reduce("array_sum", 1, 0, 0.0, _add, lambda v, x, s: x[0])
array_scale = array_map("array_scale", 1, 1, lambda v, x, s: v.b.fmul(x[0], s[0]))
array_copy = array_map("array_copy", 1, 0, lambda v, x, s: x[0])
array_exp_minus = array_map("array_exp_minus", 1, 1, lambda v, x, s: v.exp(v.b.fsub(x[0], s[0])))
array_softcap = array_map("array_softcap", 1, 1, lambda v, x, s: v.b.fmul(s[0], v.tanh(v.b.fdiv(x[0], s[0]))))
