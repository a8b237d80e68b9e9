"""Element-wise steps: add, gated, unary, clamp, scale, softcap (ops/<same name>.py), select, and rows of tables by token.

Steps over columns give each thread the columns that it computes as rows of a linear step, so no barrier is needed
between the two.
"""

from ..arrays import array_copy, array_map, array_scale
from ..export import export, helper
from ..intrinsics import call3, float_of_bits, i32, load_i64, load_u32
from ..linear import share
from ..logits import logarithm
from ..vector import vector


def _silu(v, g):
    return v.b.fmul(g, v.sigmoid(g))


def _gelu(v, g):
    """tanh form: g/2 (1 + tanh z) = g sigmoid(2z), z = sqrt(2/pi) (g + 0.044715 g^3)."""
    b = v.b
    cubic = v.fma(b.fmul(b.fmul(g, g), v.const(g.type, 0.044715)), g, g)
    return b.fmul(g, v.sigmoid(b.fmul(cubic, v.const(g.type, 1.5957691216057308))))


def _relu2(v, x, s):
    positive = v.maximum(x[0], v.const(x[0].type, 0.0))
    return v.b.fmul(positive, positive)


def _clamped(v, x, low, high):
    """What is no number stays so."""
    b = v.b
    return b.select(b.fcmp_ordered("<", x, low), low, b.select(b.fcmp_ordered(">", x, high), high, x))


def _least(v, x, high):
    """What is no number stays so."""
    return v.b.select(v.b.fcmp_ordered(">", x, high), high, x)


def _swiglu_oai(v, x, s):
    b, c = v.b, lambda value: v.const(x[0].type, value)
    a = b.select(b.fcmp_ordered(">", x[0], c(7.0)), c(7.0), x[0])
    up = b.fadd(_clamped(v, x[1], c(-7.0), c(7.0)), c(1.0))
    return b.fmul(b.fmul(a, v.sigmoid(b.fmul(a, c(1.702)))), up)


def _logarithm(v, x):
    """ln x of normal positive lanes to 2 units in the last place (Cephes logf coefficients)."""
    b, c, ints = v.b, lambda value: v.const(x.type, value), vector(i32, x.type.count)
    k = lambda value: v.const(ints, value)  # noqa: E731
    bits = b.sub(b.bitcast(x, ints), k(0x3F3504F3))  # of sqrt 1/2: the mantissa is then between that and its double
    exponent = v.signed_floats(b.ashr(bits, k(23)))
    m = b.fsub(b.bitcast(b.add(b.and_(bits, k(0x7FFFFF)), k(0x3F3504F3)), x.type), c(1.0))
    p = c(7.0376836292e-2)
    for term in (-1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1):
        p = v.fma(p, m, c(term))
    for term in (2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1):
        p = v.fma(p, m, c(term))
    square = b.fmul(m, m)
    y = v.fma(exponent, c(-2.12194440e-4), b.fmul(b.fmul(p, m), square))
    return v.fma(exponent, c(0.693359375), b.fadd(m, v.fma(square, c(-0.5), y)))


def _softplus(v, x):
    """ln(1 + t), t = e^x, as ln(y) t / (y - 1) with y = 1 + t rounded: exact where t is lost in y (Higham 2002, section 1.14.1)."""
    b, c = v.b, lambda value: v.const(x.type, value)
    large = b.fcmp_ordered(">", x, c(20.0))
    t = v.exp(x)
    y = b.fadd(c(1.0), t)
    rest = b.fsub(y, c(1.0))
    lost = b.fcmp_ordered("==", rest, c(0.0))
    quotient = b.fdiv(t, b.select(lost, c(1.0), rest))
    found = b.select(lost, t, b.fmul(_logarithm(v, y), quotient))
    return b.select(large, x, b.select(b.fcmp_unordered("uno", x, x), x, found))


COLUMN_STEPS = {  # step name -> lanes of (buffer, other), (parameter) -> new lanes of buffer
    "add": lambda v, x, s: v.fma(x[1], s[0], x[0]),
    "gated_silu": lambda v, x, s: v.b.fmul(_silu(v, x[0]), x[1]),
    "gated_silu_limited": lambda v, x, s: v.b.fmul(_least(v, _silu(v, x[0]), s[0]), _clamped(v, x[1], v.b.fneg(s[0]), s[0])),
    "gated_gelu": lambda v, x, s: v.b.fmul(_gelu(v, x[0]), x[1]),
    "gated_swiglu_oai": _swiglu_oai,
    "gated_sigmoid": lambda v, x, s: v.b.fmul(v.sigmoid(x[0]), x[1]),
    "gated_product": lambda v, x, s: v.b.fmul(x[0], x[1]),
    "unary_silu": lambda v, x, s: _silu(v, x[0]),
    "unary_gelu": lambda v, x, s: _gelu(v, x[0]),
    "unary_relu2": _relu2,
    "unary_sigmoid": lambda v, x, s: v.sigmoid(x[0]),
    "unary_softplus": lambda v, x, s: _softplus(v, x[0]),
    "clamp": lambda v, x, s: _clamped(v, x[0], v.b.fneg(s[0]), s[0]),
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


def _xielu(v, x, s):
    b, (a_p, a_n, beta, eps) = v.b, s
    above = v.fma(b.fmul(a_p, x[0]), x[0], b.fmul(beta, x[0]))
    least = b.select(b.fcmp_ordered("<", x[0], eps), x[0], eps)
    below = b.fsub(b.fsub(v.exp(least), v.const(eps.type, 1.0)), x[0])
    return b.select(b.fcmp_ordered(">", x[0], v.const(eps.type, 0.0)), above, v.fma(below, a_n, b.fmul(beta, x[0])))


_change_xielu = array_map("_change_xielu", 1, 4, _xielu)


# step: as above; float32 bits: 5 a_p, 7 a_n, 8 beta, 9 eps


@export
def unary_xielu(step, thread, threads):
    first, last = share(load_i64(step + 16), thread, threads), share(load_i64(step + 16), thread + 1, threads)
    a_p, a_n = float_of_bits(load_i64(step + 40)), float_of_bits(load_i64(step + 56))
    beta, eps = float_of_bits(load_i64(step + 64)), float_of_bits(load_i64(step + 72))
    for row in range(load_i64(load_i64(step + 24))):
        at = load_i64(step) + row * load_i64(step + 32) + 4 * first
        _change_xielu(at, at, last - first, a_p, a_n, beta, eps)
    return 0


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


_plus = array_map("_plus", 2, 0, lambda v, x, s: v.b.fadd(x[0], x[1]))


# step: 0 buffer, 1 table, 2 columns, 3 address of the row count, 4 bytes per table row, 5 token index per row (int64),
# 6 positions (int64), 7 decoder, 8 scratch, 9 scratch bytes per thread


@export
def add_position(step, thread, threads):
    """Rows of the table by the positions of tokens, decoded and added; each thread takes every threads-th row."""
    rows, columns = load_i64(load_i64(step + 24)), load_i64(step + 16)
    decoded = load_i64(step + 64) + thread * load_i64(step + 72)
    for k in range((rows - thread + threads - 1) // threads):
        row = thread + k * threads
        at = load_i64(step) + 4 * columns * row
        position = load_i64(load_i64(step + 48) + 8 * load_i64(load_i64(step + 40) + 8 * row))
        _decode(load_i64(step + 56), load_i64(step + 8) + position * load_i64(step + 32), decoded, columns)
        _plus(at, at, decoded, columns)
    return 0


# step: 0 buffer, 1 columns, 2 address of the row count, 3 token index per row (int64), 4 positions (int64),
# 5 scale (float32 bits), 6 length, 7 positions that are added


@export
def temper(step, thread, threads):
    """Each thread takes every threads-th row."""
    rows, columns = load_i64(load_i64(step + 16)), load_i64(step + 8)
    for k in range((rows - thread + threads - 1) // threads):
        row = thread + k * threads
        at = load_i64(step) + 4 * columns * row
        position = load_i64(load_i64(step + 32) + 8 * load_i64(load_i64(step + 24) + 8 * row)) + load_i64(step + 56)
        factor = 1.0 + float_of_bits(load_i64(step + 40)) * logarithm(1.0 * (position // load_i64(step + 48) + 1))
        array_scale(at, at, columns, factor)
    return 0
