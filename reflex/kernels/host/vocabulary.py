"""String tables over GGUF string arrays, built where the file is mapped; and searches in them.

A block is sized by `strings_bytes`; `strings_index` fills only what string_address needs, `strings_table` and
`strings_merged` the look-up table as well. All check every length against the array and return -1 when one does not fit.
The caller keeps the mapping alive as long as the block.
"""

from ...tokenizer.special import NAMES
from ..export import export, helper
from ..intrinsics import (
    load_i64,
    load_u8,
    load_u32,
    store_8,
    store_32,
    store_64,
    trailing_zeros,
    unsigned_greater,
)
from ..lanes import bytes_other, lanes_other
from ..strings import (
    BASE,
    BITS,
    BUCKET_BITS,
    COUNT,
    EACH,
    EACH_BITS,
    ENTRIES,
    FIRST_MERGED,
    HEADER,
    KEEP_LAST,
    LONGEST,
    MERGED,
    OVER,
    OVER_SIZE,
    ROOM,
    SAMPLES,
    SIZES,
    SPLITS,
    bucket_of,
    entry_fingerprint,
    find_text,
    same_text,
    string_at,
    text_hash,
    token_kind,
)


def packed(names):
    """Strings as a GGUF array holds them, after eight bytes that searching may read."""
    raw = [name.encode() for name in names]
    return bytes(8) + b"".join(len(name).to_bytes(8, "little") + name for name in raw)


TABLES = {"special_names": packed(NAMES)}

ROOM_TO_SPARE = 20  # entries a bucket may hold beyond nine eighths of the mean: three standard deviations


@helper
def bits_for(count):
    """Bits of an index below `count`."""
    bits = 0
    while (1 << bits) < count:
        bits += 1
    return bits


@helper
def bucket_bits_for(count):
    """Buckets hold 128 to 256 strings on average."""
    return max(0, bits_for(count) - 8)


@helper
def room_for(count):
    mean = count >> bucket_bits_for(count)
    return mean + (mean >> 3) + ROOM_TO_SPARE


@helper
def sizes_start(count):
    return (HEADER + 4 * (count >> EACH_BITS) + 4 + 63) & -64


@helper
def entries_start(count):
    return (sizes_start(count) + (4 << bucket_bits_for(count)) + 63) & -64


@helper
def over_start(count):
    return entries_start(count) + ((4 * room_for(count)) << bucket_bits_for(count))


@export
def strings_bytes(count):
    """Bytes of the block of `count` strings."""
    return over_start(count) + 4 * (count + 64)


@export
def strings_touched(count):
    """How many of them, from the start, filling will write, unless the strings hash badly."""
    return over_start(count)


@helper
def describe(block, base, count, keep_last):
    store_64(block + BASE, base)
    store_64(block + COUNT, count)
    store_64(block + SAMPLES, block + HEADER)
    store_64(block + SIZES, block + sizes_start(count))
    store_64(block + ENTRIES, block + entries_start(count))
    store_64(block + ROOM, room_for(count))
    store_64(block + BUCKET_BITS, bucket_bits_for(count))
    store_64(block + BITS, bits_for(count))
    store_64(block + OVER, block + over_start(count))
    store_64(block + KEEP_LAST, keep_last)


@export
def strings_index(block, base, nbytes, count):
    """Places of `count` strings (u64 length, bytes) in `nbytes` at `base`. Returns 0, or -1: a string leaves the array."""
    describe(block, base, count, 0)
    at = 0
    longest = 0
    for i in range(count):
        if at + 8 > nbytes:
            return -1
        size = load_i64(base + at)
        if unsigned_greater(size, nbytes - at - 8):
            return -1
        if i & (EACH - 1) == 0:
            store_32(block + HEADER + ((i >> EACH_BITS) << 2), at)
        longest = max(longest, size)
        at += 8 + size
    store_64(block + LONGEST, longest)
    return 0


@export
def string_address(block, index):
    """Address of string `index`: its length as u64, then its bytes."""
    return string_at(block, index)


@helper
def enter(block, sizes, entries, room, bucket_bits, bits, address, size, index):
    h = text_hash(address, size)
    bucket = bucket_of(h, bucket_bits)
    held = load_u32(sizes + (bucket << 2))
    store_32(sizes + (bucket << 2), held + 1)
    entry = entry_fingerprint(h, bits) | index
    if held < room:
        store_32(entries + ((bucket * room + held) << 2), entry)
    else:
        over = load_i64(block + OVER_SIZE)
        store_32(load_i64(block + OVER) + (over << 2), entry)
        store_64(block + OVER_SIZE, over + 1)


# ---- merges that the tokens repeat ----------------------------------------------------------------------


@helper
def split_within(merge, token, size):
    """Bytes before the space in `merge`, `size` + 1 bytes, where it is the token but for that space; else -1.

    Both are at most 31 bytes long and may be read 33 bytes far. No branch but the last: merges come in no order of length."""
    at = trailing_zeros(bytes_other(merge, token))
    moved = (1 << size) - (1 << min(at, size))  # the bytes behind the space
    wrong = bytes_other(merge + 1, token) & moved
    return at if wrong == 0 and at >= 1 and at < size and load_u8(merge + min(at, size)) == 32 else -1


@helper
def split_anywhere(merge, token, size):
    """The same for any size, reading no byte further; parts before the space of more than 255 bytes are refused."""
    at = 0
    while at < size and load_u8(merge + at) == load_u8(token + at):
        at += 1
    if at < 1 or at >= size or at > 255 or load_u8(merge + at) != 32:
        return -1
    return at if same_text(merge + at + 1, token + at, size - at) else -1


@helper
def split_here(merges, left, token, size, further):
    """The split of the merge whose length is at `merges`, or -1. `left`, `further`: bytes from there and from the token on."""
    if left < 8:
        return -1
    if load_i64(merges) != size + 1 or size + 1 > left - 8:
        return -1
    if size <= 31 and further >= 40 and left >= 48:
        return split_within(merges + 8, token, size)
    return split_anywhere(merges + 8, token, size)


@helper
def fill(block, base, nbytes, count, keep_last, merges, merge_bytes, merge_count, splits):
    """See strings_table and strings_merged."""
    describe(block, base, count, keep_last)
    sizes = load_i64(block + SIZES)
    entries = load_i64(block + ENTRIES)
    room = load_i64(block + ROOM)
    bits = load_i64(block + BITS)
    bucket_bits = load_i64(block + BUCKET_BITS)
    at = 0
    longest = 0
    taken = 0  # bytes of merges done
    done = 0  # merges done, or more than all of them once one does not agree
    for i in range(count):
        if at + 8 > nbytes:
            return -1
        size = load_i64(base + at)
        if unsigned_greater(size, nbytes - at - 8):
            return -1
        if i & (EACH - 1) == 0:
            store_32(block + HEADER + ((i >> EACH_BITS) << 2), at)
        enter(block, sizes, entries, room, bucket_bits, bits, base + at + 8, size, i)
        if done < merge_count:
            split = split_here(merges + taken, merge_bytes - taken, base + at + 8, size, nbytes - at - 8)
            if split >= 0:
                if done == 0:
                    store_64(block + FIRST_MERGED, i)
                store_8(splits + done, split)
                taken += 8 + size + 1
                done += 1
            elif done > 0:
                done = merge_count + 1
        longest = max(longest, size)
        at += 8 + size
    store_64(block + LONGEST, longest)
    if merge_count > 0 and done == merge_count:
        store_64(block + MERGED, merge_count)
        store_64(block + SPLITS, splits)
    return 0


@export
def strings_table(block, base, nbytes, count, keep_last):
    """Places and look-up table. `block` is zeroed memory. Returns 0, or -1: a string leaves the array."""
    return fill(block, base, nbytes, count, keep_last, 0, 0, 0, 0)


@export
def strings_merged(block, base, nbytes, count, merges, merge_bytes, merge_count, splits):
    """As strings_table, the last of equal strings kept; and find out whether token FIRST + j is what merge j makes, for every j.

    Most byte-level vocabularies are made so. Then `splits`, `merge_count` bytes, holds the size of the left part of each merge,
    the block says so (SPLITS is not 0), and no table of merges is needed: find_merge looks the joined text up and compares the
    split. That is exact where no text that is looked up holds a space, as where bytes are spelled as letters."""
    return fill(block, base, nbytes, count, 1, merges, merge_bytes, merge_count, splits)


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
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

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
def special_bytes():
    """Bytes of the filter that `special_filter` fills."""
    return SPECIAL_BYTES


@helper
def next_special(types, forced, i, count):
    """First index from `i` on of a special token, or `count`. Stretches of normal tokens go by in sixteens."""
    while i < count:
        if i + 16 <= count:
            lanes = lanes_other(types + (i << 2), NORMAL)
            if lanes == 0:
                i += 16
                continue
            i += trailing_zeros(lanes)
        if is_special(token_kind(types, forced, i)):
            return i
        i += 1
    return count


@helper
def is_special(kind):
    return (SPECIAL_TYPES >> (kind & 15)) & 1 != 0


@helper
def special_token(types, forced, count, which):
    """Special tokens one by one: those that are forced to be, by their place in `forced`, then the others. Returns the next place
    in this order << 32 | the token, or -1 at the end. `which` starts at 0."""
    many = load_u32(forced)
    while which < many:
        which += 1
        if is_special(load_u32(forced + (which << 3))):
            return (which << 32) | load_u32(forced + (which << 3) - 4)
    if types == 0:
        return -1
    token = next_special(types, forced, which - many, count)
    while token < count and is_forced(forced, token):
        token = next_special(types, forced, token + 1, count)
    return ((many + token + 1) << 32) | token if token < count else -1


@helper
def is_forced(forced, token):
    found = False
    for i in range(load_u32(forced)):
        found = found or load_u32(forced + 4 + (i << 3)) == token
    return found


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
def special_filter(filter, block, types, forced, seen, size):
    """Describe all unknown, control and user-defined tokens: how many distinct lengths (longest first), and per
    bucket of first two bytes which of those lengths occur. `seen` is `size` zeroed bytes, size > longest token.
    Returns the number of lengths, or -1: more than LENGTHS."""
    count = load_i64(block + COUNT)
    found = special_token(types, forced, count, 0)
    while found >= 0:
        store_8(seen + load_i64(string_at(block, found & 0xFFFFFFFF)), 1)
        found = special_token(types, forced, count, found >> 32)
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
    found = special_token(types, forced, count, 0) if lengths > 0 else -1
    while found >= 0:
        text = string_at(block, found & 0xFFFFFFFF)
        n = load_i64(text)
        if n > 0:
            enter_filter(filter, text + 8, n, 1 << (load_u8(seen + n) - 1))
        found = special_token(types, forced, count, found >> 32)
    return lengths
