"""Look-up of byte strings in a GGUF string array, through buckets of u32 entries.

A block (bytes owned by the caller) starts with the int64 fields below, then the offset of every EACH-th string as u32, then
per bucket the number of its entries as u32, then ROOM entries for each bucket, then what found no room. An entry is
fingerprint bits above `bits` | index, in the order of the strings. The top bits of a string's hash choose its bucket. Filling
writes to a few hundred places in turn and looks nothing up, which is three times as fast as a hash table; a search compares
a whole bucket, 64 entries at a time. Host kernels call these functions; nothing is exported.
"""

from .export import helper
from .intrinsics import load_i32, load_i64, load_u8, load_u32, shift_right, trailing_zeros, unsigned_greater
from .lanes import entries_matching

BASE, COUNT, SAMPLES, SIZES, ENTRIES, ROOM, BUCKET_BITS, BITS, LONGEST = 0, 8, 16, 24, 32, 40, 48, 56, 64
OVER, OVER_SIZE = 72, 80  # entries beyond the room of their buckets, and their number
KEEP_LAST = 88  # among equal strings the last one is found, else the first
SPLITS, FIRST_MERGED, MERGED = 96, 104, 112  # see vocabulary.strings_merged; no splits: 0
HEADER = 128
EACH, EACH_BITS = 8, 3

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
def bucket_of(h, bucket_bits):
    return shift_right(h, 63 - bucket_bits) >> 1


@helper
def entry_fingerprint(h, bits):
    return ((h & 0xFFFFFFFF) >> bits) << bits


@helper
def string_at(block, index):
    """Address of string `index`: its length, then its bytes."""
    at = load_i64(block + BASE) + load_u32(load_i64(block + SAMPLES) + ((index >> EACH_BITS) << 2))
    for _ in range(index & (EACH - 1)):
        at += 8 + load_i64(at)
    return at


@helper
def is_string(block, index, address, size):
    found = string_at(block, index)
    return load_i64(found) == size and same_text(found + 8, address, size)


@helper
def is_split(block, index, left):
    """Whether token `index` comes from the merge of a part of `left` bytes with the rest."""
    merge = index - load_i64(block + FIRST_MERGED)
    return merge >= 0 and merge < load_i64(block + MERGED) and load_u8(load_i64(block + SPLITS) + merge) == left


@helper
def search(block, entries, count, address, size, print_of, left, before):
    """The index of a string among `count` entries, or `before`. left: 0, or only tokens merged from so many bytes and more."""
    bits = load_i64(block + BITS)
    last = load_i64(block + KEEP_LAST) != 0 and left == 0
    found = before
    i = 0
    while i < count:
        lanes = entries_matching(entries + (i << 2), print_of, bits)  # beyond `count` too, into whatever lies there
        while lanes != 0:
            at = i + trailing_zeros(lanes)
            lanes &= lanes - 1
            if at < count and (last or found < 0):
                index = load_u32(entries + (at << 2)) - print_of
                if (left == 0 or is_split(block, index, left)) and is_string(block, index, address, size):
                    found = index
        i += 64
    return found


@helper
def find(block, address, size, left):
    if size > load_i64(block + LONGEST):
        return -1
    h = text_hash(address, size)
    bucket = bucket_of(h, load_i64(block + BUCKET_BITS))
    room = load_i64(block + ROOM)
    count = min(load_u32(load_i64(block + SIZES) + (bucket << 2)), room)
    print_of = entry_fingerprint(h, load_i64(block + BITS))
    found = search(block, load_i64(block + ENTRIES) + ((bucket * room) << 2), count, address, size, print_of, left, -1)
    return search(block, load_i64(block + OVER), load_i64(block + OVER_SIZE), address, size, print_of, left, found)


@helper
def find_text(block, address, size):
    """Index of the string equal to the `size` bytes at `address` (eight readable bytes before them), or -1."""
    return find(block, address, size, 0)


@helper
def find_merge(block, address, left, size):
    """Rank of the merge that joins the first `left` of `size` bytes at `address` and the others, or -1. `block` has SPLITS."""
    found = find(block, address, size, left)
    return found - load_i64(block + FIRST_MERGED) if found >= 0 else -1


@helper
def token_kind(types, forced, token):
    """A token's kind: its type in the low four bits (0: never matched), flags above. `types`: int32 per token, or 0: all normal.

    `forced`: u32 count, then u32 pairs of a token and its kind, for those that are not what `types` says."""
    for i in range(load_u32(forced)):
        if load_u32(forced + 4 + (i << 3)) == token:
            return load_u32(forced + 8 + (i << 3))
    if types == 0:
        return 1
    kind = load_i32(types + (token << 2))
    return 0 if unsigned_greater(kind, 6) else kind
