"""Look-up of byte strings in a GGUF string array, by an open-addressing table of u32 entries.

A block (bytes owned by the caller) starts with eight int64 fields, then one u32 offset per string, then the table.
An entry is 0 (free) or fingerprint bits above `bits` | index + 1. Host kernels call these functions; nothing is exported.
"""

from .export import helper
from .intrinsics import load_i64, load_u8, load_u32, shift_right

BASE, COUNT, OFFSETS, TABLE, MASK, BITS, LONGEST = 0, 8, 16, 24, 32, 40, 48
HEADER = 64

MIX_A = -7070675565921424023  # odd 64-bit constants of splitmix64's family
MIX_B = -7723592293110705685


@helper
def text_hash(address, size):
    """A 64-bit hash of `size` bytes. The eight bytes before them must be readable (GGUF keeps the length there).

    Up to 16 bytes are two loads without a branch: the first and the last eight, shifted where they reach too far back.
    """
    end = address + size
    last = end - 8
    short = max(0, 8 - size) << 3
    if size == 0:
        short = 63
    first = min(address, last)
    h = shift_right(load_i64(first), short) * MIX_A ^ (shift_right(load_i64(last), short) + size) * MIX_B
    at = address + 8
    while at < last:
        h = (h ^ shift_right(h, 29) ^ load_i64(at)) * MIX_B
        at += 8
    h = (h ^ shift_right(h, 32)) * MIX_A
    return h ^ shift_right(h, 29)


@helper
def same_text(a, b, size):
    i = 0
    equal = True
    while equal and i + 8 <= size:
        equal = load_i64(a + i) == load_i64(b + i)
        i += 8
    while equal and i < size:
        equal = load_u8(a + i) == load_u8(b + i)
        i += 1
    return equal


@helper
def entry_fingerprint(h, bits):
    return (shift_right(h, 32) >> bits) << bits


@helper
def find_text(block, address, size):
    """Index of the string equal to the `size` bytes at `address` (eight readable bytes before them), or -1."""
    if size > load_i64(block + LONGEST):
        return -1
    base = load_i64(block + BASE)
    offsets = load_i64(block + OFFSETS)
    table = load_i64(block + TABLE)
    mask = load_i64(block + MASK)
    bits = load_i64(block + BITS)
    h = text_hash(address, size)
    print_of = entry_fingerprint(h, bits)
    low = (1 << bits) - 1
    at = h & mask
    while True:
        entry = load_u32(table + (at << 2))
        if entry == 0:
            return -1
        if (entry ^ print_of) <= low:
            index = (entry & low) - 1
            found = base + load_u32(offsets + (index << 2))
            if load_i64(found) == size and same_text(found + 8, address, size):
                return index
        at = (at + 1) & mask
