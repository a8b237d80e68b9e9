"""A mixture of experts as native steps (kernels/host/experts.py): imported where a program has one. A function is called as its
operation and does for it what the methods of lowering.py do for the others; f(lowering, step)."""

from ..quant.types import row_bytes
from .lowering import ALL, QUANTIZED_GROUP, float_bits

GATINGS = "softmax", "sigmoid", "softmax of chosen", "sigmoid of chosen"
OWN = ("thread",)  # how a buffer is divided of which every thread has one to itself
OPERANDS, COUNTS, ENTRY, CURSOR = 128, 16, 24, 8  # bytes of what a thread keeps of the order (kernels/host/experts.py)
TOGETHER, ROWS_TOGETHER = 128, 256


def route(low, step):
    (source,), out, args, m = step.ins, step.out, step.args, low.memory
    experts = low.width(source)
    chosen, count = low.rows(source)

    def bias(step):
        return 0 if step.weights[0] is None else low.floats(step.weights[0])

    gating, scale = GATINGS.index(args["gating"]), float_bits(args["scale"])
    groups, groups_used = args.get("groups", 0), args.get("groups_used", 0)
    row = (
        m.buffer(source), bias(step), m.buffer(out), experts, count, args["used"], gating, int(args["renormalize"]), scale, groups,
        groups_used, *m.scratch("route", 12 * experts),
    )  # fmt: skip
    division = ("rows", chosen)
    low.mark(out, chosen)
    low.add("route", row, ((source, division),), ((out, division),), ((1, bias),))


def ordered(low, routes, experts):
    """Make every thread's order of the items of `routes` current; returns (address, bytes per thread, where items begin)."""
    m = low.memory
    used = low.width(routes) // 2
    items = OPERANDS + COUNTS + (ENTRY + CURSOR) * experts
    order = m.scratch("order", items + 8 * used * m.rows)
    if routes not in low.quantized:
        _, count = low.rows(routes)
        low.add("arrange", (m.buffer(routes), *order, count, used, experts), ((routes, ALL),), ((routes + " order", OWN),))
        low.quantized.add(routes)
    return *order, items


def quantized_parts(low, buffer, columns):
    """Quantize a buffer of parts of `columns` each, which no other step reads so; returns (address, bytes per part, name
    for hazards)."""
    width, m = low.width(buffer), low.memory
    stride, parts = (columns + 255) // 256 * QUANTIZED_GROUP, width // columns
    twin, by_column = buffer + ".parts", ("columns", width)
    address = m.quantized(twin, stride * parts)
    _, count = low.rows(buffer)
    row = (m.buffer(buffer), address, columns // 32, count, 4 * width, stride, parts)
    low.add("quantize_parts", row, ((buffer, by_column),), ((twin, by_column),))
    return address, stride, twin


def inputs(low, source, columns, quantized):
    """(address, bytes per row, per slot, per part, name for hazards) of what the experts multiply."""
    apart = low.width(source) != columns
    if not quantized:
        stride, address, read = 4 * columns, low.memory.buffer(source), source
    elif apart:
        address, stride, read = quantized_parts(low, source, columns)
    else:
        address, stride, read = low.quantize(source)
    return address, low.width(source) // columns * stride, stride if apart else 0, stride, read


def expert_linear(low, step):
    source, routes = step.ins
    out, args, m = step.out, step.args, low.memory
    tensor = low.tensor(step.weights[0])
    columns, stacked = tensor.shape[:2]
    experts = tensor.elements // (columns * stacked)
    first, rows = args.get("rows", (0, stacked))
    row_size = row_bytes(tensor.type, columns)

    def bias(step):
        return 0 if step.weights[1] is None else low.floats(step.weights[1]) + 4 * first

    kernel, quantized, groups, tail, decoder = low.product(tensor)
    order, order_bytes, items = ordered(low, routes, experts)
    x, x_row, x_slot, stride, read = inputs(low, source, columns, quantized)
    gathered = m.scratch("gathered", TOGETHER * (stride + 4 * ROWS_TOGETHER))
    parameters = (
        0, 0, 0, 0, groups, tail, rows, 0, row_size, stride, 4 * ROWS_TOGETHER, *m.linear_scratch(), decoder, columns,
        low.library.address(kernel), stacked * row_size, 4 * stacked, args["used"], x_row, x_slot, order, order_bytes, items,
        *gathered,
    )  # fmt: skip
    row = (low.matrix(step), bias(step), x, m.buffer(out), m.constants(parameters))
    low.mark(out, low.rows(source)[0])
    reads, writes = ((read, ALL), (routes + " order", OWN)), ((out, ("blocks", rows)),)
    low.add("expert_linear", row, reads, writes, ((0, low.matrix), (1, bias)))


def expert_sum(low, step):
    source, routes = step.ins
    out, m = step.out, low.memory
    columns = low.width(out)
    chosen, count = low.rows(source)
    weighted = int(step.args.get("weighted", True))
    row = (m.buffer(source), m.buffer(routes), m.buffer(out), columns, count, step.args["used"], weighted)
    low.mark(out, chosen)
    low.add("expert_sum", row, ((source, ALL), (routes, ALL)), ((out, ("columns", columns)),))


def expert_scale(low, step):
    buffer, routes = step.ins
    m = low.memory
    chosen, count = low.rows(buffer)
    division = ("rows", chosen)
    row = (m.buffer(buffer), m.buffer(routes), low.width(buffer) // step.args["used"], count, step.args["used"])
    low.add("expert_scale", row, ((buffer, division), (routes, division)), ((buffer, division),))


def gate_rows(low, step):
    buffer, h = step.ins
    m = low.memory
    chosen, count = low.rows(buffer)
    row = (m.buffer(buffer), m.buffer(h), low.norm_weights(step), low.width(buffer), count, low.width(h))
    division = ("rows", chosen)
    low.add("gate_rows", row, ((buffer, division), (h, division)), ((buffer, division),), ((2, low.norm_weights),))
