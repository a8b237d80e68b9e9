"""Dot products of weight rows with a tile of tokens, generated from a block format's LANES record.

Activations are rows of 256-element groups, quantized to signed bytes (`QUANTIZED_GROUP` bytes each):
    int8 code[256], float32 scale[16], float32 sum[16], int8 turned[256], int8 combed[256], int32 less[16]
where a scale belongs to 16 codes, a sum is scale x (sum of those codes), `turned` and `combed` are the codes in the orders of
quant/lanes.py, and `less` is -64 x (sum of 16 codes). The last group of a row may be partly filled. Every tile size adds the same
terms in the same order, so a token's result does not depend on the tile it is in.
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..quant.lanes import COMBED, NATURAL, TURNED, Group
from .intrinsics import I64, f32, i64
from .points import GATHERED, LOADED, PERMUTED, Points
from .target import current
from .vector import LANES, V8F, Vectors, vector

QUANTIZED_GROUP = 960
SCALES, SUMS, LESS = 256, 320, 896
CODES = {TURNED: 384, COMBED: 640}
LINE = 64  # bytes of a cache line
AHEAD = 4096  # bytes: the hardware does not look beyond a page of 4096, and a row is often shorter
TURNS = 2  # of groups that indices are made ahead, a power of two
FEW = 4  # tokens; with more, arithmetic takes longer than memory


def tile_sizes():
    """Largest number of tokens whose accumulators stay in registers; kernels exist for 1 to this many."""
    return 8 if current().registers == 32 else 4


class Tile:
    """Rows of weights against `tokens` rows of activations, as operands in the code that a Vectors builds.

    For as many rows at once as `together` says, `add(numbers, following, sums)` adds the products of rows of those numbers to an
    accumulator per row and token; following are the rows that come next. Behind the last row its number is given again.
    """

    def __init__(self, v, tokens, arguments, way=LOADED):
        self.v, self.tokens, self.way = v, tokens, way
        weights, self.row_bytes, self.rows, x, self.stride, groups, tail, out, self.out_stride, self.bias = arguments
        self.counts = groups, tail  # of a row; hidden in it, or LLVM makes a copy of the code for rows without any
        self.weights, self.out = v.pointer(weights), v.pointer(out)
        self.x = self._apart(v.pointer(x), self.stride)

    def _apart(self, pointer, stride):
        """A pointer per token."""
        pointers = [pointer]
        for _ in range(1, self.tokens):
            pointers.append(self.v.b.gep(pointers[-1], [stride]))
        return pointers

    def numbers(self, first, count):
        """Of `count` rows from one on, none behind the last."""
        b, last = self.v.b, self.v.b.sub(self.rows, self.v.const(i64, 1))
        rows = [first] + [b.add(first, self.v.const(i64, k)) for k in range(1, count)]
        return [b.select(b.icmp_signed("<", r, last), r, last) for r in rows]

    def run(self, lanes, add, together=1):
        v, b = self.v, self.v.b
        nothing, two = v.space(4), v.const(i64, together)
        v.store(v.const(f32, 0.0), nothing)
        biased = b.icmp_unsigned("!=", self.bias, v.const(i64, 0))
        with v.loop(b.udiv(b.add(self.rows, v.const(i64, together - 1)), two)) as turn:
            first = b.mul(turn, two)
            self.groups, self.tail = (v.hidden(count, again=True) for count in self.counts)
            numbers = self.numbers(first, together) if together > 1 else [first]
            sums = [[v.cell(v.const(vector(f32, lanes), 0.0)) for _ in range(self.tokens)] for _ in numbers]
            add(numbers, self.numbers(b.add(first, two), together), sums)
            for r, accumulators in zip(numbers, sums, strict=True):
                four = b.mul(r, v.const(i64, 4))
                bias = v.load(b.select(biased, v.pointer(b.add(self.bias, four)), nothing), f32)
                for accumulator, out in zip(accumulators, self._apart(b.gep(self.out, [four]), self.out_stride), strict=True):
                    v.store(b.fadd(v.sum(b.load(accumulator)), bias), out)

    def run_rows(self, lanes, row):
        """The same row by row: `row(weights, accumulators)`."""
        start = lambda r: self.v.b.gep(self.weights, [self.v.b.mul(r, self.row_bytes)])  # noqa: E731
        self.run(lanes, lambda numbers, following, sums: row(start(numbers[0]), sums[0]))


def _part(v, record, group, count, x, lane, accumulators, order=NATURAL):
    """acc[t] += (scale x codes + minimum) . x[t] over `count` sub-blocks: their activations at x[t], scales and sums at lane[t].
    order: that of codes, if not the natural one of all of a group."""
    b, lanes = v.b, LANES * v.subs
    kind, minimums = group.scales.type, group.minimums
    bias = 0.0 if order != NATURAL else 128.0 if record.signed and v.biased else float(group.bias)
    if bias and not v.fuses:
        minimums = b.fmul(group.scales, v.const(kind, -bias))
    scaled = []
    for t, at in enumerate(lane):
        scaled.append(b.fmul(group.scales, v.load(v.at(at, SCALES), kind)))
        if minimums is not None:
            term = v.fit(b.fmul(minimums, v.load(v.at(at, SUMS), kind)), lanes)
            b.store(b.fadd(b.load(accumulators[t]), term), accumulators[t])
        elif bias:  # a power of two: the bits of the sum are those of a product with the biased scale
            term = v.fit(b.fmul(group.scales, v.load(v.at(at, SUMS), kind)), lanes)
            b.store(v.fma(term, v.const(term.type, -bias), b.load(accumulators[t])), accumulators[t])
    if order != NATURAL:
        (_turned if order == TURNED else _combed)(v, group, x, scaled, accumulators)
        return
    for i in range(0, count, v.subs):
        width = min(v.subs, count)
        codes = group.codes(i, width)
        for t, at in enumerate(x):
            value = v.fit(_codes_dot(v, record, codes, v.load(v.at(at, 32 * i), codes.type)), lanes)
            scale = v.fit(v.fours(scaled[t], 2 * i, 2 * width), lanes)
            b.store(v.fma(value, scale, b.load(accumulators[t])), accumulators[t])


def _turned(v, group, x, scaled, accumulators):
    """Products by codes in the turned order, of which two vectors belong to the same scales: lanes 2 k and 2 k + 1 of the first two
    to one, those of the others to the next. The bits are those of products in the combed order (combed.py)."""
    b, negative, lanes = v.b, group.signs and v.bits_of(group.signs), LANES * v.subs
    for h in range(0, 2, v.subs):
        units = [(4 * side + h, 4 * side + 2 + h) for side in (0, 1)]
        codes = [[group.codes(i, v.subs) for i in side] for side in units]

        def product(at, i, code):
            value = v.load(v.at(at, CODES[TURNED] + 32 * i), code.type)
            return code, v.negated(value, negative(i, v.subs)) if negative else value

        for t, at in enumerate(x):
            pairs = [[product(at, *pair) for pair in zip(side, own, strict=True)] for side, own in zip(units, codes, strict=True)]
            sides = [v.dot_bytes(*own) for own in pairs]
            own, other = ([k + lanes * (k % 2) ^ odd for k in range(lanes)] for odd in (0, 1))
            ints = b.add(*(v.shuffle(*sides, places) for places in (own, other)))
            _scale(v, group, ints, v.at(at, LESS + 32 * h), v.slice(scaled[t], 8 * h, lanes), accumulators[t])


def _combed(v, group, x, scaled, accumulators):
    """The same by codes in the combed order, of which all vectors belong to the same scales lane by lane."""
    lanes = LANES * v.subs
    for h in range(0, 2, v.subs):
        codes = [group.codes(k, h, v.subs) for k in range(4)]
        for t, at in enumerate(x):
            values = [v.load(v.at(at, CODES[COMBED] + 64 * k + 32 * h), code.type) for k, code in enumerate(codes)]
            ints = v.dot_bytes(*zip(codes, values, strict=True))
            _scale(v, group, ints, v.at(at, LESS + 32 * h), v.slice(scaled[t], 8 * h, lanes), accumulators[t])


def _scale(v, group, ints, less, scale, accumulator):
    """acc += (ints - bias x sum) x scale."""
    for bit in range(7):
        if group.bias >> bit & 1:
            ints = v.b.add(ints, v.b.ashr(v.load(less, ints.type), v.const(ints.type, 6 - bit)))
    v.b.store(v.fma(v.signed_floats(ints), scale, v.b.load(accumulator)), accumulator)


def _codes_dot(v, record, codes, x):
    if not record.signed:
        ints = v.dot_bytes((codes, x))
    elif v.biased:
        ints = v.dot_bytes((v.b.xor(codes, v.const(codes.type, -128)), x))
    else:
        ints = v.dot_signed(codes, x)
    return v.signed_floats(ints)


def trailing(v, record, weights, x, tail, accumulators):
    """All trailing blocks: as many as a byte vector holds at a time, then single ones."""
    b, done, width = v.b, ir.Constant(i64, 0), record.width
    for size in sorted({max(v.subs, width), width}, reverse=True):
        steps = b.sdiv(b.sub(tail, done), ir.Constant(i64, size))
        with v.loop(steps) as k:
            index = b.add(done, b.mul(k, ir.Constant(i64, size)))
            p = b.gep(weights, [b.mul(b.sdiv(index, ir.Constant(i64, width)), ir.Constant(i64, record.nbytes))])
            codes_at = [b.gep(at, [b.mul(index, ir.Constant(i64, 32))]) for at in x]
            lane = [b.gep(at, [b.mul(index, ir.Constant(i64, 8))]) for at in x]
            _part(v, record, record.part(v, p, size), size, codes_at, lane, accumulators)
        done = b.add(done, b.mul(steps, ir.Constant(i64, size)))


def ask_ahead(v, p, nbytes, tokens):
    """With few tokens weights are read as fast as memory gives them: ask for those that come after the next ones."""
    if tokens <= FEW:
        for line in range(0, nbytes, LINE):
            v.prefetch(v.at(p, AHEAD + line))


def _reader(v, record, tile):
    """Function (address of a group) -> the group."""
    if record.indices is None:
        return lambda p: record.group(v, p)
    points = Points(v, tile.way)
    indices = {GATHERED: record.gathers, LOADED: record.scalars}[tile.way]

    def own(p):
        return record.group(v, p, points, indices(v, p))

    read = own if indices else _indices_ahead(v, record, tile, points)
    return _group_ahead(v, record, tile, read) if v.target.registers == 32 and tile.tokens == 1 else read


def _following(v, record, tile, groups=1):
    """Function (address of a group) -> that of the next one or of one some groups further, into the next row where a row ends; of
    the last one instead of any behind it."""
    last = v.b.gep(tile.weights, [v.b.sub(v.b.mul(tile.rows, tile.row_bytes), v.const(i64, record.group_bytes))])

    def following(p):
        after = v.at(p, groups * record.group_bytes)
        return v.b.select(v.b.icmp_unsigned(">", after, last), last, after)

    return following


def _group_ahead(v, record, tile, read):
    """The same for groups whose codes are made in the turn before: a processor in which much waits for one group's codes has no
    room for the next one's."""
    following = _following(v, record, tile)

    def of(group):
        return [group.scales, group.minimums, group.signs, *(group.codes(i, v.subs) for i in range(0, 8, v.subs))]

    first = read(tile.weights)
    cells = [value and v.cell(value) for value in of(first)]

    def read_ahead(p):
        values = of(read(following(p)))
        before = [cell and v.b.load(cell) for cell in cells]
        for value, cell in zip(values, cells, strict=True):
            if cell:
                v.b.store(value, cell)
        scales, minimums, signs, *codes = before
        return Group(scales, minimums, lambda i, count: codes[i // v.subs], first.bias, signs)

    return read_ahead


def _indices_ahead(v, record, tile, points):
    """The same for indices that are written to memory some turns before: a scalar read waits long for part of a vector that was
    stored only just, and processors begin with later turns long before they are done with one."""
    b = v.b
    following = [_following(v, record, tile, k) for k in range(TURNS + 1)]
    size = 2 * record.indices(v, tile.weights).type.count
    ring, mask = v.space(2 * TURNS * size), v.const(i64, 2 * TURNS * size - 1)
    for k in range(TURNS):
        v.store(v.words(record.indices(v, following[k](tile.weights))), v.at(ring, k * size))
    turn = v.cell(v.const(i64, 0))

    def read(p):
        now = b.load(turn)
        then = b.and_(b.add(now, v.const(i64, TURNS * size)), mask)
        v.store(v.words(record.indices(v, following[TURNS](p))), v.at(ring, then))
        b.store(b.and_(b.add(now, v.const(i64, size)), mask), turn)
        words = v.hidden(v.at(ring, now))
        return record.group(v, p, points, lambda at, count: v.scalars(v.at(words, 2 * at), v.int16, count))

    return read


def quantized_rows(record, v, tile):
    """`groups` whole groups of 256, then `tail` sub-blocks of 32 (formats whose blocks are narrower than a group only)."""
    b = v.b
    read = _reader(v, record, tile)

    def row(weights, accumulators):
        with v.loop(tile.groups) as g:
            p = b.gep(weights, [b.mul(g, v.const(i64, record.group_bytes))])
            x = [b.gep(q, [b.mul(g, v.const(i64, QUANTIZED_GROUP))]) for q in tile.x]
            ask_ahead(v, p, record.group_bytes, tile.tokens)
            _part(v, record, read(p), 8, x, x, accumulators, record.order)
        if record.width < 8:
            rest = b.gep(weights, [b.mul(tile.groups, v.const(i64, record.group_bytes))])
            x = [b.gep(q, [b.mul(tile.groups, v.const(i64, QUANTIZED_GROUP))]) for q in tile.x]
            trailing(v, record, rest, x, tile.tail, accumulators)

    tile.run_rows(LANES * v.subs, row)


def plain_rows(record, v, tile):
    """The same for floating-point weights and float32 activations: `groups` of 64 columns, then `tail` single ones."""
    b = v.b

    def group(p, x, accumulators):
        totals = [None] * tile.tokens
        ask_ahead(v, p, 64 * record.nbytes, tile.tokens)
        for i in range(8):
            w = record.load(v, v.at(p, 8 * i * record.nbytes))
            for t in range(tile.tokens):
                value = v.load(v.at(x[t], 32 * i), V8F)
                totals[t] = b.fmul(w, value) if totals[t] is None else v.fma(w, value, totals[t])
        for accumulator, total in zip(accumulators, totals, strict=True):
            b.store(b.fadd(b.load(accumulator), total), accumulator)

    def row(weights, accumulators):
        with v.loop(tile.groups) as g:
            x = [b.gep(q, [b.mul(g, v.const(i64, 256))]) for q in tile.x]
            group(b.gep(weights, [b.mul(g, v.const(i64, 64 * record.nbytes))]), x, accumulators)
        rest = b.gep(weights, [b.mul(tile.groups, v.const(i64, 64 * record.nbytes))])
        x = [b.gep(q, [b.mul(tile.groups, v.const(i64, 256))]) for q in tile.x]
        extras = [v.cell(v.const(f32, 0.0)) for _ in x]
        with v.loop(tile.tail) as i:
            value = record.load_one(v, b.gep(rest, [b.mul(i, v.const(i64, record.nbytes))]))
            four = b.mul(i, v.const(i64, 4))
            for q, extra in zip(x, extras, strict=True):
                b.store(v.fma(value, v.load(b.gep(q, [four]), f32), b.load(extra)), extra)
        for accumulator, extra in zip(accumulators, extras, strict=True):
            b.store(b.fadd(b.load(accumulator), v.fit(v.gather([b.load(extra)]), LANES)), accumulator)

    tile.run_rows(LANES, row)


def tile_of(record, limit, name, way=LOADED):
    """tile(tokens, weights, row_bytes, rows, x, stride, groups, tail, out, out_stride, bias): for 1 to `limit` tokens
    out[t][r] = row r . x[t] + bias[r].

    Row r lies at weights + r * row_bytes, x[t] at x + t * stride, out[t] at out + t * out_stride; bias is the address of as many
    float32 as there are rows, or 0. One LLVM function per number of tokens, made here and not by Numba, whose work on a
    function takes longer than LLVM's.
    """
    from .combed import combed_rows  # which is written in terms of this module

    make = plain_rows if not hasattr(record, "group") else combed_rows if way == PERMUTED else quantized_rows

    def codegen(context, builder, signature, arguments):
        kind = ir.FunctionType(ir.VoidType(), [i64] * 10)
        done = builder.append_basic_block("done")
        choice = builder.switch(arguments[0], done)
        for tokens in range(1, limit + 1):
            function = ir.Function(builder.module, kind, f"{name}_{tokens}")
            function.linkage = "internal"
            v = Vectors(ir.IRBuilder(function.append_basic_block("entry")))
            make(record, v, Tile(v, tokens, function.args, way))
            v.b.ret_void()
            with builder.goto_block(builder.append_basic_block(f"tokens_{tokens}")):
                choice.add_case(ir.Constant(i64, tokens), builder.block)
                builder.call(function, arguments[1:])
                builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    def typing(typingctx, tokens, weights, row_bytes, rows, x, stride, groups, tail, out, out_stride, bias):
        return types.void(*[I64] * 11), codegen

    typing.__name__ = typing.__qualname__ = name
    return intrinsic(typing)
