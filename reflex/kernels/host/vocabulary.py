"""String tables over GGUF string arrays, built where the file is mapped; and searches in them.

A block is sized by `strings_bytes`; `strings_index` fills the offsets only (enough to read a string by its index),
`strings_table` fills the look-up table as well. Both check every length against the array and return -1 when one
does not fit. The caller keeps the mapping alive as long as the block.
"""

from ...tokenizer.special import NAMES
from ..export import export, helper
from ..intrinsics import load_i32, load_i64, load_u8, load_u32, store_8, store_32, store_64, unsigned_greater
from ..strings import (
    BASE,
    BITS,
    COUNT,
    HEADER,
    LONGEST,
    MASK,
    OFFSETS,
    TABLE,
    entry_fingerprint,
    find_text,
    same_text,
    text_hash,
)


def packed(names):
    """Strings as a GGUF array holds them, after eight bytes that searching may read."""
    raw = [name.encode() for name in names]
    return bytes(8) + b"".join(len(name).to_bytes(8, "little") + name for name in raw)


TABLES = {"special_names": packed(NAMES)}

BATCH = 64  # strings hashed before they are entered, so that the table's cache misses overlap


@helper
def slots_for(count):
    """A power of two that keeps the table at most two thirds full."""
    slots = 16
    while slots * 2 < count * 3:
        slots *= 2
    return slots


@helper
def table_start(count):
    return (HEADER + 4 * count + 8 * BATCH + 63) & -64


@export
def strings_bytes(count):
    """Bytes of the block of `count` strings."""
    return table_start(count) + 4 * slots_for(count)


@helper
def describe(block, base, count):
    bits = 1
    while (1 << bits) <= count:
        bits += 1
    store_64(block + BASE, base)
    store_64(block + COUNT, count)
    store_64(block + OFFSETS, block + HEADER)
    store_64(block + TABLE, block + table_start(count))
    store_64(block + MASK, slots_for(count) - 1)
    store_64(block + BITS, bits)
    return bits


@export
def strings_index(block, base, nbytes, count):
    """Offsets of `count` strings (u64 length, bytes) in `nbytes` at `base`. Returns 0, or -1: a string leaves the array."""
    describe(block, base, count)
    offsets = block + HEADER
    at = 0
    longest = 0
    for i in range(count):
        if at + 8 > nbytes:
            return -1
        size = load_i64(base + at)
        if unsigned_greater(size, nbytes - at - 8):
            return -1
        store_32(offsets + (i << 2), at)
        longest = max(longest, size)
        at += 8 + size
    store_64(block + LONGEST, longest)
    return 0


@helper
def enter(block, base, offsets, table, mask, bits, h, index, keep_last):
    """Put string `index` with hash `h` into the table; among equal strings the first or the last one stays."""
    print_of = entry_fingerprint(h, bits)
    low = (1 << bits) - 1
    at = h & mask
    searching = True
    while searching:
        entry = load_u32(table + (at << 2))
        if entry == 0:
            store_32(table + (at << 2), print_of | (index + 1))
            searching = False
        elif (entry ^ print_of) <= low:
            other = base + load_u32(offsets + (((entry & low) - 1) << 2))
            mine = base + load_u32(offsets + (index << 2))
            size = load_i64(mine)
            if load_i64(other) == size and same_text(other + 8, mine + 8, size):
                if keep_last != 0:
                    store_32(table + (at << 2), print_of | (index + 1))
                searching = False
        at = (at + 1) & mask


@export
def strings_table(block, base, nbytes, count, keep_last):
    """Offsets and look-up table. `block` is zeroed memory. Returns 0, or -1: a string leaves the array."""
    bits = describe(block, base, count)
    offsets = block + HEADER
    hashes = block + ((HEADER + 4 * count + 7) & -8)
    table = load_i64(block + TABLE)
    mask = load_i64(block + MASK)
    at = 0
    longest = 0
    first = 0
    while first < count:
        batch = min(BATCH, count - first)
        for k in range(batch):
            if at + 8 > nbytes:
                return -1
            size = load_i64(base + at)
            if unsigned_greater(size, nbytes - at - 8):
                return -1
            store_32(offsets + ((first + k) << 2), at)
            store_64(hashes + (k << 3), text_hash(base + at + 8, size))
            longest = max(longest, size)
            at += 8 + size
        for k in range(batch):
            enter(block, base, offsets, table, mask, bits, load_i64(hashes + (k << 3)), first + k, keep_last)
        first += batch
    store_64(block + LONGEST, longest)
    return 0


@export
def strings_find(block, names, count, out):
    """For each of `count` strings in GGUF array form at `names`: its index in the table or -1, as int32 at `out`."""
    at = names
    for i in range(count):
        size = load_i64(at)
        store_32(out + (i << 2), find_text(block, at + 8, size))
        at += 8 + size
    return 0


@export
def byte_tokens(block, text, out, named, bare):
    """int32[256] at `out`: the token of each byte, spelled <0xXX> (where `named`) or as the bare byte (where `bare`),
    or -1. `text` is 24 bytes of scratch."""
    name = text + 8
    for value in range(256):
        found = -1
        if named != 0:
            high = value >> 4
            low = value & 15
            store_64(name, 0x3E00_0078_303C | (high + (48 if high < 10 else 55)) << 24 | (low + (48 if low < 10 else 55)) << 32)
            found = find_text(block, name, 6)
        if found < 0 and bare != 0:
            store_8(name, value)
            found = find_text(block, name, 1)
        store_32(out + (value << 2), found)
    return 0


# ---- which tokens must be looked for in the text --------------------------------------------------------

# GGUF token types, https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (tokenizer.ggml.token_type)
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

SPECIAL_TYPES = (1 << UNKNOWN) | (1 << CONTROL) | (1 << USER_DEFINED)

BUCKETS = 1024  # of the filter by a token's first two bytes
LENGTHS = 512  # distinct token lengths at most
SHARED_BIT = 62  # lengths told apart by the filter; all shorter ones share this bit
SPECIAL_COUNT, SPECIAL_LENGTHS, SPECIAL_FILTER = 0, 8, 8 + 4 * LENGTHS
SPECIAL_BYTES = SPECIAL_FILTER + 8 * BUCKETS


@helper
def bucket(first, second):
    return (first * 37 + second * 101) & (BUCKETS - 1)


@export
def kinds_copy(kinds, types, count):
    """Token types (int32 at `types`) as bytes at `kinds`; values outside 1..6 become 0, which is never matched."""
    for i in range(count):
        kind = load_i32(types + (i << 2))
        if unsigned_greater(kind, BYTE):
            kind = 0
        store_8(kinds + i, kind)
    return 0


@export
def special_bytes():
    """Bytes of the filter that `special_filter` fills."""
    return SPECIAL_BYTES


@helper
def next_special(kinds, i, count):
    """First index from `i` on of a special token, or `count`. Stretches of normal tokens go by in eights."""
    while i < count:
        if i + 8 <= count and load_i64(kinds + i) == 0x0101010101010101:
            i += 8
        elif (SPECIAL_TYPES >> (load_u8(kinds + i) & 15)) & 1:
            return i
        else:
            i += 1
    return count


@helper
def enter_filter(filter, text, n, bit):
    first = load_u8(text)
    second = 0
    last = 255
    if n > 1:  # a single byte may be followed by anything
        second = load_u8(text + 1)
        last = second
    while second <= last:
        at = filter + SPECIAL_FILTER + (bucket(first, second) << 3)
        store_64(at, load_i64(at) | bit)
        second += 1


@export
def special_filter(filter, block, kinds, seen, size):
    """Describe all unknown, control and user-defined tokens: how many distinct lengths (longest first), and per
    bucket of first two bytes which of those lengths occur. `seen` is `size` zeroed bytes, size > longest token.
    Returns the number of lengths, or -1: more than LENGTHS."""
    base = load_i64(block + BASE)
    offsets = load_i64(block + OFFSETS)
    count = load_i64(block + COUNT)
    i = next_special(kinds, 0, count)
    while i < count:
        store_8(seen + load_i64(base + load_u32(offsets + (i << 2))), 1)
        i = next_special(kinds, i + 1, count)
    lengths = 0
    n = size - 1
    while n > 0:
        if load_u8(seen + n) != 0:
            if lengths == LENGTHS:
                return -1
            store_32(filter + SPECIAL_LENGTHS + (lengths << 2), n)
            store_8(seen + n, 1 + min(lengths, SHARED_BIT))
            lengths += 1
        n -= 1
    store_64(filter + SPECIAL_COUNT, lengths)
    i = next_special(kinds, 0, count)
    while i < count:
        text = base + load_u32(offsets + (i << 2))
        n = load_i64(text)
        if n > 0:
            enter_filter(filter, text + 8, n, 1 << (load_u8(seen + n) - 1))
        i = next_special(kinds, i + 1, count)
    return lengths
