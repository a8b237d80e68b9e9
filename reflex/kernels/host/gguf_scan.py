"""The GGUF header walk: one record of eight int64 per key and per tensor, every read compared with the bytes left.

Nothing is copied: records hold byte offsets into the header. The caller has checked the magic, the version and the two
counts against the file size; this walk checks all else that can be known without the alignment. Never reads outside
[base, base + size), never loops without consuming bytes. Called by reflex/gguf/header.py, which words the errors.

`out`: int64[16] of results and scratch, then int64[8] for each key, then for each tensor.
    results   0 offset after the header, 1 records completed; of a failure: 2 offset, 3 bytes needed (or limit), 4 bytes
              left (or value found), 5 which field (layout.FIELDS)
    key       0 key offset, 1 key bytes, 2 value type, 3 value offset (first byte of a string, first element of an
              array), 4 count (bytes of a string, elements of an array), 5 element type, 6 bytes of the value
    tensor    0 name offset, 1 name bytes, 2 type | dimensions << 32, 3 offset of the dimensions, 4 elements, 5 bytes,
              6 data offset, 7 0
"""

from ...gguf.layout import (
    ARRAY,
    ARRAY_HEAD,
    BAD_TYPE,
    BOOL,
    DEPTH,
    DIMS,
    F32,
    F64,
    I8,
    I16,
    ITEMS,
    KEY,
    KEY_LENGTH,
    LENGTH,
    NAME,
    NAME_LENGTH,
    RAGGED_ROW,
    RANK,
    RECORD_BYTES,
    RESULTS_BYTES,
    SHORT,
    STRING,
    TENSOR_TYPE,
    TEXT,
    TOO_LARGE,
    TOO_LONG,
    TYPE,
    TYPE_ROWS,
    U64,
    VALUE,
)
from ...gguf.limits import DIMENSIONS, ELEMENTS, KEY_BYTES, NESTING, TENSOR_NAME_BYTES
from ...quant.types import TYPES
from ..export import export, helper
from ..intrinsics import load_i64, load_u32, store_64, unsigned_greater, unsigned_less

STRIDE = 1 << 14  # bytes between the starts of four walks over many strings
LOOK = 512  # bytes to look for a string in
ABSURD = 1 << 40
AHEAD = 56  # scratch within `out`: strings walked
STACK = 64  # scratch within `out`: arrays left to walk at each depth

# Pairs of int64 by tensor type: elements and bytes of a block; no elements: an unknown type.
TABLES = {
    "gguf_block_sizes": b"".join(
        (TYPES[i].elements if i in TYPES else 0).to_bytes(8, "little")
        + (TYPES[i].nbytes if i in TYPES else 0).to_bytes(8, "little")
        for i in range(TYPE_ROWS)
    )
}


@helper
def fail(out, code, offset, wanted, found, field):
    store_64(out + 16, offset)
    store_64(out + 24, wanted)
    store_64(out + 32, found)
    store_64(out + 40, field)
    return code


@helper
def width(value_type):
    """Bytes of a scalar of this value type; 0 for strings, arrays and unknown types."""
    if value_type <= I8 or value_type == BOOL:
        return 1
    if value_type <= I16:
        return 2
    if value_type <= F32:
        return 4
    if U64 <= value_type <= F64:
        return 8
    return 0


@helper
def likely_string(base, at):
    """The first offset from `at` on that looks like the length of a string: below 256, as seven zero bytes say."""
    limit = at + LOOK
    while at < limit and load_i64(base + at) & -256 != 0:
        at += 1
    return at


@helper
def hop(base, at):
    """The offset after the string at `at`; far too large where its length is absurd."""
    length = load_i64(base + at)
    return at + 8 + (ABSURD if unsigned_greater(length, ABSURD) else length)


@helper
def run_ahead(base, at, out):
    """Walk the strings from `at` on to about 4 * STRIDE further; the offset reached, and at out + AHEAD how many they are.

    A walk waits for each length before it knows where the next one is. Four walks wait together: the other three start where a
    string seems to. Each counts only if the one before it ended exactly there, so a wrong guess costs time and nothing else.
    The caller has seen to it that all of them, and the next LOOK bytes, are inside the header."""
    second = likely_string(base, at + STRIDE)
    third = likely_string(base, at + 2 * STRIDE)
    fourth = likely_string(base, at + 3 * STRIDE)
    end = at + 4 * STRIDE
    a, b, c, d = at, second, third, fourth
    many_a = many_b = many_c = many_d = 0
    while a < second and b < third and c < fourth and d < end:
        a = hop(base, a)
        b = hop(base, b)
        c = hop(base, c)
        d = hop(base, d)
        many_a += 1
    many_b = many_c = many_d = many_a
    while a < second:
        a = hop(base, a)
        many_a += 1
    while b < third:
        b = hop(base, b)
        many_b += 1
    while c < fourth:
        c = hop(base, c)
        many_c += 1
    while d < end:
        d = hop(base, d)
        many_d += 1
    if a == second:
        a, many_a = b, many_a + many_b
        if b == third:
            a, many_a = c, many_a + many_c
            if c == fourth:
                a, many_a = d, many_a + many_d
    store_64(out + AHEAD, many_a)
    return a


@helper
def skip_strings(base, size, at, count, out):
    """Offset after `count` length-prefixed strings, or a negative code."""
    while count > STRIDE and size - at > 5 * STRIDE:  # a string has eight bytes or more, so none of the others is passed
        reached = run_ahead(base, at, out)
        if reached > size:  # a length that may be wrong: the walk below says which
            break
        at = reached
        count -= load_i64(out + AHEAD)
    for _ in range(count):
        if size - at < 8:
            return fail(out, SHORT, at, 8, size - at, LENGTH)
        length = load_i64(base + at)
        at += 8
        if unsigned_less(size - at, length):
            return fail(out, SHORT, at, length, size - at, TEXT)
        at += length
    return at


@helper
def skip_elements(base, size, at, kind, count, out):
    """Offset after `count` strings or scalars, or a negative code. The count is any 64-bit pattern."""
    if kind == STRING:
        if unsigned_greater(count, (size - at) >> 3):
            return fail(out, SHORT, at, count, (size - at) >> 3, ITEMS)
        return skip_strings(base, size, at, count, out)
    each = width(kind)
    if each == 0:
        return fail(out, BAD_TYPE, at - 12, 0, kind, TYPE)
    if unsigned_greater(count, (size - at) // each):
        return fail(out, SHORT, at, count, (size - at) // each, ITEMS)
    return at + count * each


@helper
def skip_nested(base, size, at, count, out):
    """Offset after `count` arrays, each with its own type and count, or a negative code."""
    if unsigned_greater(count, (size - at) // 12):
        return fail(out, SHORT, at, count, (size - at) // 12, ITEMS)
    depth = 0
    store_64(out + STACK, count)
    while depth >= 0:
        left = load_i64(out + STACK + 8 * depth)
        if left == 0:
            depth -= 1
            continue
        store_64(out + STACK + 8 * depth, left - 1)
        if size - at < 12:
            return fail(out, SHORT, at, 12, size - at, ARRAY_HEAD)
        kind = load_u32(base + at)
        inner = load_i64(base + at + 4)
        at += 12
        if kind == ARRAY:
            depth += 1
            if depth >= NESTING:
                return fail(out, DEPTH, at - 12, NESTING, depth + 1, ARRAY_HEAD)
            if unsigned_greater(inner, (size - at) // 12):
                return fail(out, SHORT, at, inner, (size - at) // 12, ITEMS)
            store_64(out + STACK + 8 * depth, inner)
        else:
            at = skip_elements(base, size, at, kind, inner, out)
            if at < 0:
                return at
    return at


@helper
def read_value(base, size, at, kind, record, out):
    """Fill fields 3 to 6 of a key record; the offset after the value, or a negative code."""
    start = at
    count = 1
    element = 0
    if kind == STRING:
        if size - at < 8:
            return fail(out, SHORT, at, 8, size - at, LENGTH)
        count = load_i64(base + at)
        start = at + 8
        if unsigned_less(size - start, count):
            return fail(out, SHORT, start, count, size - start, TEXT)
        at = start + count
    elif kind == ARRAY:
        if size - at < 12:
            return fail(out, SHORT, at, 12, size - at, ARRAY_HEAD)
        element = load_u32(base + at)
        count = load_i64(base + at + 4)
        start = at + 12
        if element == ARRAY:
            at = skip_nested(base, size, start, count, out)
        else:
            at = skip_elements(base, size, start, element, count, out)
        if at < 0:
            return at
    else:
        each = width(kind)
        if each == 0:
            return fail(out, BAD_TYPE, at - 4, 0, kind, TYPE)
        if size - at < each:
            return fail(out, SHORT, at, each, size - at, VALUE)
        at += each
    store_64(record + 24, start)
    store_64(record + 32, count)
    store_64(record + 40, element)
    store_64(record + 48, at - start)
    return at


@helper
def read_key(base, size, at, record, out):
    if size - at < 8:
        return fail(out, SHORT, at, 8, size - at, KEY_LENGTH)
    length = load_i64(base + at)
    at += 8
    if unsigned_less(size - at, length):
        return fail(out, SHORT, at, length, size - at, KEY)
    if length > KEY_BYTES:
        return fail(out, TOO_LONG, at - 8, KEY_BYTES, length, KEY)
    store_64(record, at)
    store_64(record + 8, length)
    at += length
    if size - at < 4:
        return fail(out, SHORT, at, 4, size - at, TYPE)
    kind = load_u32(base + at)
    store_64(record + 16, kind)
    return read_value(base, size, at + 4, kind, record, out)


@helper
def read_shape(base, at, rank, kind, sizes, record, out):
    """Fill fields 4 and 5 of a tensor record from the `rank` dimensions at `at`; 0 or a negative code."""
    elements = 1
    empty = False
    for d in range(rank):
        size = load_i64(base + at + 8 * d)
        if size == 0:
            empty = True
        elif unsigned_greater(size, ELEMENTS // elements):
            return fail(out, TOO_LARGE, at, ELEMENTS, size, DIMS)
        else:
            elements *= size
    if kind >= TYPE_ROWS or load_i64(sizes + 16 * kind) == 0:
        return fail(out, TENSOR_TYPE, at + 8 * rank, 0, kind, TYPE)
    block = load_i64(sizes + 16 * kind)
    row = load_i64(base + at)
    if row % block != 0:
        return fail(out, RAGGED_ROW, at, block, row, DIMS)
    if empty:
        elements = 0
    store_64(record + 32, elements)
    store_64(record + 40, elements // block * load_i64(sizes + 16 * kind + 8))
    return 0


@helper
def read_tensor(base, size, at, sizes, record, out):
    if size - at < 8:
        return fail(out, SHORT, at, 8, size - at, NAME_LENGTH)
    length = load_i64(base + at)
    at += 8
    if unsigned_less(size - at, length):
        return fail(out, SHORT, at, length, size - at, NAME)
    if length > TENSOR_NAME_BYTES:
        return fail(out, TOO_LONG, at - 8, TENSOR_NAME_BYTES, length, NAME)
    store_64(record, at)
    store_64(record + 8, length)
    at += length
    if size - at < 4:
        return fail(out, SHORT, at, 4, size - at, DIMS)
    rank = load_u32(base + at)
    if rank < 1 or rank > DIMENSIONS:
        return fail(out, RANK, at, DIMENSIONS, rank, DIMS)
    at += 4
    if size - at < 8 * rank + 12:
        return fail(out, SHORT, at, 8 * rank + 12, size - at, DIMS)
    kind = load_u32(base + at + 8 * rank)
    store_64(record + 16, kind | (rank << 32))
    store_64(record + 24, at)
    code = read_shape(base, at, rank, kind, sizes, record, out)
    if code < 0:
        return code
    at += 8 * rank
    store_64(record + 48, load_i64(base + at + 4))
    return at + 12


@export
def gguf_scan(base, size, keys, tensors, sizes, out):
    """Walk a header of `keys` keys and `tensors` tensors within `size` bytes; 0, or the negative code of the first fault.

    base: address of the magic. sizes: address of the table `gguf_block_sizes`. out: see the module.
    """
    at = 24
    record = out + RESULTS_BYTES
    for i in range(keys + tensors):
        store_64(out + 8, i)
        at = read_key(base, size, at, record, out) if i < keys else read_tensor(base, size, at, sizes, record, out)
        if at < 0:
            return at
        record += RECORD_BYTES
    store_64(out, at)
    store_64(out + 8, keys + tensors)
    return 0
