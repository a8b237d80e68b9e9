"""Element-wise steps: add, gated, scale, softcap (ops/<same name>.py), select, and rows of the embedding table.

Steps over columns give each thread the columns that it computes as rows of a linear step, so no barrier is needed
between the two.
"""

from ..arrays import array_copy, array_map, array_scale
from ..export import export, helper
from ..intrinsics import call3, float_of_bits, load_i64, load_u32
from ..linear import share


def _silu_times(v, x, s):
    return v.b.fmul(v.b.fmul(x[0], v.sigmoid(x[0])), x[1])


def _gelu_times(v, x, s):
    """tanh form: g/2 (1 + tanh z) = g sigmoid(2z), z = sqrt(2/pi) (g + 0.044715 g^3)."""
    b, g = v.b, x[0]
    cubic = v.fma(b.fmul(b.fmul(g, g), v.const(g.type, 0.044715)), g, g)
    return b.fmul(b.fmul(g, v.sigmoid(b.fmul(cubic, v.const(g.type, 1.5957691216057308)))), x[1])


COLUMN_STEPS = {  # step name -> lanes of (buffer, other), (parameter) -> new lanes of buffer
    "add": lambda v, x, s: v.fma(x[1], s[0], x[0]),
    "gated_silu": _silu_times,
    "gated_gelu": _gelu_times,
    "scale": lambda v, x, s: v.b.fmul(x[0], s[0]),
    "softcap": lambda v, x, s: v.b.fmul(s[0], v.tanh(v.b.fdiv(x[0], s[0]))),
}


# step: 0 buffer, 1 other, 2 columns, 3 address of the row count, 4 bytes per row, 5 parameter (float32 bits), 6 bytes per other row


def _over_columns(name, body):
    change = array_map(f"_{name}", 2, 1, body)

    def kernel(step, thread, threads):
        first, last = share(load_i64(step + 16), thread, threads), share(load_i64(step + 16), thread + 1, threads)
        for row in range(load_i64(load_i64(step + 24))):
            at = load_i64(step) + row * load_i64(step + 32) + 4 * first
            other = load_i64(step + 8) + row * load_i64(step + 48) + 4 * first
            change(at, at, other, last - first, float_of_bits(load_i64(step + 40)))
        return 0

    return kernel


for _name, _body in COLUMN_STEPS.items():
    export(_over_columns(_name, _body), name=_name)


# step: 0 buffer, 1 token index per wanted row (int64, ascending), 2 columns, 3 address of the wanted row count, 4 bytes per row


@export
def select(step, thread, threads):
    """Move the wanted rows to the front, each thread its own columns; rows only ever move up."""
    first, last = share(load_i64(step + 16), thread, threads), share(load_i64(step + 16), thread + 1, threads)
    for row in range(load_i64(load_i64(step + 24))):
        token = load_i64(load_i64(step + 8) + 8 * row)
        to = load_i64(step) + row * load_i64(step + 32) + 4 * first
        if token != row:
            array_copy(to, load_i64(step) + token * load_i64(step + 32) + 4 * first, last - first)
    return 0


@helper
def _decode(entry, source, out, columns):
    return call3(entry, source, out, columns)


# step: 0 output, 1 table, 2 columns, 3 address of the row count, 4 bytes per table row, 5 factor (float32 bits),
# 6 token ids (uint32), 7 decoder


@export
def embed(step, thread, threads):
    """Rows of the table by token id, decoded to float32 and scaled; each thread takes every threads-th row."""
    rows, columns = load_i64(load_i64(step + 24)), load_i64(step + 16)
    factor = float_of_bits(load_i64(step + 40))
    for k in range((rows - thread + threads - 1) // threads):
        row = thread + k * threads
        out = load_i64(step) + 4 * columns * row
        token = load_u32(load_i64(step + 48) + 4 * row)
        _decode(load_i64(step + 56), load_i64(step + 8) + token * load_i64(step + 32), out, columns)
        array_scale(out, out, columns, factor)
    return 0
