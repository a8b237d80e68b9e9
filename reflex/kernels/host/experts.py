"""Mixture of experts: the router's choice (ops/route.py), products with the chosen matrices (ops/expert_linear.py), their sum
(ops/expert_sum.py) and the gate of a shared expert (ops/gate_rows.py).

An item is a slot of a row: number row x used + slot, one product of one expert. `arrange` sorts the items by expert. Products
are those of the linear kernels, called with the operands of a linear step over a part of one expert's matrix and the
items of that expert, whose inputs are first brought together; so an item's result is bit for bit the same in any company.
"""

from ..arrays import array_copy, array_exp_minus, array_map, array_max, array_reduce, array_scale, array_sum
from ..export import export, helper
from ..intrinsics import call3, float_of_bits, load_f32, load_i64, store_64, store_f32, to_float
from ..linear import ALIGNMENT, share

SOFTMAX, SIGMOID, SOFTMAX_OF_CHOSEN, SIGMOID_OF_CHOSEN = 0, 1, 2, 3  # as backends/experts.py numbers them
LEAST_SUM = 2.0**-14
LOWEST = float("-inf")

_sigmoid = array_map("_sigmoid", 1, 0, lambda v, x, s: v.sigmoid(x[0]))
_plus = array_map("_plus", 2, 0, lambda v, x, s: v.b.fadd(x[0], x[1]))
_plus_scaled = array_map("_plus_scaled", 2, 1, lambda v, x, s: v.fma(x[1], s[0], x[0]))
_gate = array_map("_gate", 1, 1, lambda v, x, s: v.b.fmul(x[0], v.sigmoid(s[0])))
_dot = array_reduce("_dot", 2, 0, 0.0, lambda v, a, b: v.b.fadd(a, b), lambda v, x, s: v.b.fmul(x[0], x[1]))
_nothing = array_reduce("_nothing", 1, 0, 0.0, lambda v, a, b: v.b.fadd(a, b), lambda v, x, s: v.b.fsub(x[0], x[0]))  # 0, or NaN


@helper
def softmax(out, x, count):
    array_exp_minus(out, x, count, array_max(x, count))
    array_scale(out, out, count, to_float(1) / array_sum(out, count))
    return 0


@helper
def largest(x, count):
    """Index of the largest float32, the lowest on ties; 0 where none is above -infinity."""
    best, found = to_float(0) + LOWEST, 0
    for i in range(count):
        value = load_f32(x + 4 * i)
        if value > best:
            best, found = value, i
    return found


@helper
def two_best(x, count):
    """Sum of the two largest of an array, of the only one where there is one."""
    if count == 1:
        return load_f32(x)
    first, second = to_float(0) + LOWEST, to_float(0) + LOWEST
    for i in range(count):
        value = load_f32(x + 4 * i)
        if value > first:
            first, second = value, first
        elif value > second:
            second = value
    return first + second


@helper
def keep_groups(choice, experts, groups, wanted, scores):
    """Set to -infinity all but the `wanted` groups with the largest sums of two. scores: scratch of a float32 per group."""
    size = experts // groups
    for g in range(groups):
        store_f32(scores + 4 * g, two_best(choice + 4 * size * g, size))
    for _ in range(wanted):
        store_f32(scores + 4 * largest(scores, groups), LOWEST)
    for g in range(groups):
        if load_f32(scores + 4 * g) > to_float(0) + LOWEST:
            for i in range(size * g, size * g + size):
                store_f32(choice + 4 * i, LOWEST)
    return 0


@helper
def route_row(step, logits, out, p):
    """p: scratch of two float32 per expert. Where a logit is not a number or infinite, no weight is a number: exponentials and
    maxima lose NaN, and what is lost here would be an answer made of nothing."""
    experts, used, gating = load_i64(step + 24), load_i64(step + 40), load_i64(step + 48)
    choice = p + 4 * experts
    if gating == SOFTMAX:
        softmax(p, logits, experts)
    elif gating == SIGMOID:
        _sigmoid(p, logits, experts)
    else:
        array_copy(p, logits, experts)
    if load_i64(step + 8) != 0:
        _plus(choice, p, load_i64(step + 8), experts)
    else:
        array_copy(choice, p, experts)
    if load_i64(step + 72) > 1:
        keep_groups(choice, experts, load_i64(step + 72), load_i64(step + 80), choice + 4 * experts)
    for j in range(used):
        expert = largest(choice, experts)
        store_f32(choice + 4 * expert, LOWEST)
        store_f32(out + 4 * j, load_f32(p + 4 * expert))
        store_f32(out + 4 * (used + j), to_float(expert))
    if gating == SOFTMAX_OF_CHOSEN:
        softmax(out, out, used)
    if gating == SIGMOID_OF_CHOSEN:
        _sigmoid(out, out, used)
    scale = float_of_bits(load_i64(step + 64))
    if load_i64(step + 56) != 0:
        scale = scale / max(array_sum(out, used), to_float(1) * LEAST_SUM)
    array_scale(out, out, used, scale + _nothing(logits, experts))
    return 0


# step: 0 logits, 1 bias or 0, 2 routes, 3 experts, 4 address of the row count, 5 used, 6 gating, 7 renormalize (0/1),
# 8 scale (float32 bits), 9 groups, 10 groups used, 11 scratch (three float32 per expert), 12 scratch bytes per thread


@export
def route(step, thread, threads):
    """Each thread takes every threads-th row."""
    rows, experts, used = load_i64(load_i64(step + 32)), load_i64(step + 24), load_i64(step + 40)
    scratch = load_i64(step + 88) + thread * load_i64(step + 96)
    for k in range((rows - thread + threads - 1) // threads):
        row = thread + k * threads
        route_row(step, load_i64(step) + 4 * experts * row, load_i64(step + 16) + 8 * used * row, scratch)
    return 0


# What a thread keeps of the order, int64 at byte offsets: operands of a linear step and its row count, experts that have items,
# what a block of matrix rows costs summed over them, per such expert (expert, first item, items), a cursor per expert, items.
COUNT, ACTIVE, COST, ENTRIES = 120, 128, 136, 144
ENTRY = 24
READING = 2  # what reading and unpacking weights costs, in items


@helper
def items_at(experts):
    return ENTRIES + (ENTRY + 8) * experts


# step: 0 routes, 1 order, 2 bytes per thread, 3 address of the row count, 4 used, 5 experts


@export
def arrange(step, thread, threads):
    """Sort the items by expert (a counting sort); every thread for itself, since that is quicker than to wait for another."""
    used, experts = load_i64(step + 32), load_i64(step + 40)
    rows = load_i64(load_i64(step + 24))
    order = load_i64(step + 8) + thread * load_i64(step + 16)
    cursors = order + ENTRIES + ENTRY * experts
    for e in range(experts):
        store_64(cursors + 8 * e, 0)
    for row in range(rows):
        chosen = load_i64(step) + 8 * used * row + 4 * used
        for j in range(used):
            cursor = cursors + 8 * int(load_f32(chosen + 4 * j))
            store_64(cursor, load_i64(cursor) + 1)
    entry, first = order + ENTRIES, 0
    for e in range(experts):
        count = load_i64(cursors + 8 * e)
        store_64(cursors + 8 * e, first)
        if count > 0:
            store_64(entry, e)
            store_64(entry + 8, first)
            store_64(entry + 16, count)
            entry += ENTRY
            first += count
    active = (entry - order - ENTRIES) // ENTRY
    store_64(order + ACTIVE, active)
    store_64(order + COST, first + READING * active)
    items = order + items_at(experts)
    for row in range(rows):
        chosen = load_i64(step) + 8 * used * row + 4 * used
        for j in range(used):
            cursor = cursors + 8 * int(load_f32(chosen + 4 * j))
            store_64(items + 8 * load_i64(cursor), row * used + j)
            store_64(cursor, load_i64(cursor) + 1)
    return 0


# Parameters of a product, int64 at byte offsets: first the operands of its linear step (kernels/linear.py), of which an expert
# sets weights, bias, input, output, rows and the two addresses that belong to a thread.
WEIGHTS, BIAS, X, OUT, ROWS, ROW_COUNT, ROW_BYTES, X_STRIDE, OUT_STRIDE, SCRATCH, SCRATCH_BYTES = (
    8 * i for i in (0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 12)
)
KERNEL, MATRIX_BYTES, BIAS_BYTES, USED, X_ROW, X_SLOT, ORDER, ORDER_BYTES, ITEMS, GATHERED, GATHERED_BYTES = (
    8 * i for i in range(15, 26)
)
TOGETHER = 128  # most items whose inputs are brought together at a time
ROWS_TOGETHER = 256  # most matrix rows whose results lie together before each goes to its place


@helper
def input_of(p, x, item):
    row = item // load_i64(p + USED)
    return x + row * load_i64(p + X_ROW) + (item - row * load_i64(p + USED)) * load_i64(p + X_SLOT)


@helper
def multiply_one(p, own, x, out, item):
    """One item, from its place to its place."""
    store_64(own + COUNT, 1)
    store_64(own + X, input_of(p, x, item))
    store_64(own + OUT, out + 4 * load_i64(p + ROWS) * item)
    return call3(load_i64(p + KERNEL), own, 0, 1)


@helper
def multiply_many(p, own, x, out, items, count, rows, gathered):
    """`count` items times `rows` rows of a matrix, by way of a copy of inputs and results."""
    stride, weights, bias = load_i64(p + X_STRIDE), load_i64(own + WEIGHTS), load_i64(own + BIAS)
    results = gathered + TOGETHER * stride
    for i in range(count):
        array_copy(gathered + i * stride, input_of(p, x, load_i64(items + 8 * i)), stride >> 2)
    store_64(own + COUNT, count)
    store_64(own + X, gathered)
    store_64(own + OUT, results)
    store_64(own + OUT_STRIDE, 4 * ROWS_TOGETHER)
    for first in range(0, rows, ROWS_TOGETHER):
        some = min(ROWS_TOGETHER, rows - first)
        store_64(own + WEIGHTS, weights + first * load_i64(p + ROW_BYTES))
        store_64(own + BIAS, bias + 4 * first if bias != 0 else 0)
        store_64(own + ROWS, some)
        call3(load_i64(p + KERNEL), own, 0, 1)
        for i in range(count):
            place = out + 4 * (load_i64(p + ROWS) * load_i64(items + 8 * i) + first)
            array_copy(place, results + 4 * ROWS_TOGETHER * i, some)
    return 0


@helper
def multiply(step, own, items, entry, start, stop, gathered):
    """Rows [start, stop) of the matrix of an entry of the order times its items."""
    p = load_i64(step + 32)
    expert, count = load_i64(entry), load_i64(entry + 16)
    items += 8 * load_i64(entry + 8)
    weights = load_i64(step) + expert * load_i64(p + MATRIX_BYTES) + start * load_i64(p + ROW_BYTES)
    bias = load_i64(step + 8)
    if bias != 0:
        bias += expert * load_i64(p + BIAS_BYTES) + 4 * start
    x, out = load_i64(step + 16), load_i64(step + 24) + 4 * start
    chunks = (count + TOGETHER - 1) // TOGETHER
    for c in range(chunks):
        first = count * c // chunks
        some = count * (c + 1) // chunks - first
        store_64(own + WEIGHTS, weights)
        store_64(own + BIAS, bias)
        store_64(own + ROWS, stop - start)
        if some == 1:
            multiply_one(p, own, x, out, load_i64(items + 8 * first))
        else:
            multiply_many(p, own, x, out, items + 8 * first, some, stop - start, gathered)
    return 0


# step: 0 weights of the first expert, 1 its bias or 0, 2 input, 3 output, 4 parameters


@export
def expert_linear(step, thread, threads):
    """Blocks of matrix rows, in the order of experts and rows, are divided so that each thread has as much to compute."""
    p = load_i64(step + 32)
    own = load_i64(p + ORDER) + thread * load_i64(p + ORDER_BYTES)
    items = own + load_i64(p + ITEMS)
    gathered = load_i64(p + GATHERED) + thread * load_i64(p + GATHERED_BYTES)
    for i in range(KERNEL // 8):
        store_64(own + 8 * i, load_i64(p + 8 * i))
    store_64(own + ROW_COUNT, own + COUNT)
    store_64(own + SCRATCH, load_i64(p + SCRATCH) + thread * load_i64(p + SCRATCH_BYTES))
    rows = load_i64(p + ROWS)
    blocks = (rows + ALIGNMENT - 1) // ALIGNMENT
    total = blocks * load_i64(own + COST)
    low, high = total * thread // threads, total * (thread + 1) // threads  # of what is left, in items
    for k in range(load_i64(own + ACTIVE)):
        entry = own + ENTRIES + ENTRY * k
        cost = load_i64(entry + 16) + READING
        start, stop = min(max((low + cost - 1) // cost, 0), blocks), min(max((high + cost - 1) // cost, 0), blocks)
        if start < stop:
            multiply(step, own, items, entry, start * ALIGNMENT, min(stop * ALIGNMENT, rows), gathered)
        low -= blocks * cost
        high -= blocks * cost
    return 0


@helper
def weight_of(step, at):
    return load_f32(at) if load_i64(step + 48) != 0 else to_float(1)


# step: 0 results of the experts, 1 routes, 2 output, 3 columns, 4 address of the row count, 5 used, 6 weighted (0/1)


@export
def expert_sum(step, thread, threads):
    """Each thread takes the columns that it also takes as rows of a linear step."""
    columns, used = load_i64(step + 24), load_i64(step + 40)
    first, last = share(columns, thread, threads), share(columns, thread + 1, threads)
    for row in range(load_i64(load_i64(step + 32))):
        x = load_i64(step) + 4 * (columns * used * row + first)
        weights = load_i64(step + 8) + 8 * used * row
        out = load_i64(step + 16) + 4 * (columns * row + first)
        array_scale(out, x, last - first, weight_of(step, weights))
        for j in range(1, used):
            _plus_scaled(out, out, x + 4 * columns * j, last - first, weight_of(step, weights + 4 * j))
    return 0


# step: 0 parts of the experts, 1 routes, 2 columns of a part, 3 address of the row count, 4 used


@export
def expert_scale(step, thread, threads):
    """Each thread takes every threads-th row."""
    rows, columns, used = load_i64(load_i64(step + 24)), load_i64(step + 16), load_i64(step + 32)
    for k in range((rows - thread + threads - 1) // threads):
        row = thread + k * threads
        for j in range(used):
            at = load_i64(step) + 4 * columns * (used * row + j)
            array_scale(at, at, columns, load_f32(load_i64(step + 8) + 4 * (2 * used * row + j)))
    return 0


# step: 0 buffer, 1 h, 2 weights, 3 columns, 4 address of the row count, 5 columns of h


@export
def gate_rows(step, thread, threads):
    """Each thread takes every threads-th row."""
    rows, columns, width = load_i64(load_i64(step + 32)), load_i64(step + 24), load_i64(step + 40)
    for k in range((rows - thread + threads - 1) // threads):
        row = thread + k * threads
        at = load_i64(step) + 4 * columns * row
        _gate(at, at, columns, _dot(load_i64(step + 8) + 4 * width * row, load_i64(step + 16), width))
    return 0
