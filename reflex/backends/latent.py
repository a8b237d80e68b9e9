"""Latent attention as native steps (kernels/host/head_linear.py, latent_attention.py): imported where a program has it. A
function is called as its operation and does for it what the methods of lowering.py do for the others; f(lowering, step)."""

from ..quant.types import by_id, row_bytes
from .lowering import ALL, QUANTIZED_GROUP

LINE = 64  # bytes of a line of a cache
OWN_BYTES = 168  # of the operands that a thread keeps, of a linear step and of quantize_rows
BUNCH = 16  # heads that read a slot together, each with a float32 for it: a multiple of 4


def head_linear(low, step):
    (source,), out, args, m = step.ins, step.out, step.args, low.memory
    tensor, heads, head_dim = low.tensor(step.weights[0]), args["heads"], args["head_dim"]
    columns = tensor.shape[0]
    stored = tensor.elements // columns // heads  # rows of a head's matrix
    rows = args.get("rows", (0, stored))[1]
    row_size, decoder = row_bytes(tensor.type, columns), low.library.address("decode_" + by_id(tensor.type).name)
    transposed = args.get("transposed", False)
    kernel, quantized, groups, tail, _ = low.product(tensor)
    quantized = quantized and not transposed
    chosen, count = low.rows(source)
    used, made = (rows, columns) if transposed else (columns, rows)
    stride = (columns + 255) // 256 * QUANTIZED_GROUP if quantized else 4 * low.width(source)
    codes = m.scratch("inputs of a head", stride * m.rows) if quantized else (0, 0)
    parameters = (
        0, 0, 0, 0, groups, tail, rows, count, row_size, stride, 4 * low.width(out), *m.linear_scratch(), decoder, columns,
        0, 0, columns // 32, count, 4 * low.width(source), stride, low.library.address(kernel),
        low.library.address("quantize_rows") if quantized else 0, heads, head_dim, low.width(out) // heads, used, made,
        stored * row_size,
    )  # fmt: skip
    own = m.scratch("operands of a head", OWN_BYTES)
    row = (low.matrix(step), m.buffer(source), m.buffer(out), m.constants(parameters), *own, *codes)
    low.mark(out, chosen)
    division = ("whole heads", heads)
    kernel = "head_linear_transposed" if transposed else "head_linear"
    low.add(kernel, row, ((source, ALL),), ((out, division),), ((0, low.matrix),))


def latent_attention(low, step):
    q, c = step.ins
    cache, (chosen, _) = f"cache{step.args['layer']}", low.rows(q)

    def block(step):
        m = low.memory
        known = m.blocks.get(step.args["layer"])
        if known is not None:
            return known
        q, c = step.ins
        chosen, count = low.rows(q)
        args = {"kv_heads": 1, "window": 0, "softcap": 0.0, **step.args}
        return m.attention_block(args, m.buffer(q), m.buffer(step.out), m.buffer(c), 0, count, chosen, 0)

    rows = ("rows", False)
    low.add("append_latent", (block(step),), ((c, rows),), ((cache, rows),), ((0, block),))
    low.mark(step.out, chosen)
    division = ("bunches of heads", step.args["heads"], chosen)
    scratch = low.memory.scratch("latent attention", BUNCH * LINE * -(-4 * low.memory.capacity // LINE))
    row = (block(step), *scratch, BUNCH)
    low.add("latent_attention", row, ((q, division), (cache, ALL)), ((step.out, division),), ((0, block),))
