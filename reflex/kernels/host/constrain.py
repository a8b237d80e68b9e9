"""Which tokens a state of an automaton over bytes allows: the whole vocabulary walked through its table of transitions.

A table has 256 u32 per state: the next state, DEAD, or UNKNOWN where the caller has not worked it out yet. A walk that meets
UNKNOWN is set aside and the place is listed, so the caller fills in what was missing and resumes. The words of the vocabulary
are entries of 12 bytes (token id, where its bytes begin and end in the text), sorted by their first byte.
"""

from ..export import export, helper
from ..intrinsics import (
    load_f32,
    load_i16,
    load_i32,
    load_i64,
    load_u8,
    load_u32,
    store_8,
    store_32,
    store_64,
    store_f32,
    trailing_zeros,
)

# Cells are compared as unsigned numbers: LLVM 20 loses the sign of one that was extended before a loop's branch.
DEAD, UNKNOWN, LISTED = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD  # LISTED: unknown, and the caller will be told
# Context, int64 at byte offsets: addresses first.
TABLE, COSTS, EXACT, TEXT, ENTRIES, FIRST, PENDING, MISSING, INEXACT = 0, 8, 16, 24, 32, 40, 48, 56, 64
PENDING_COUNT, MISSING_COUNT, INEXACT_COUNT, ROOM = 72, 80, 88, 96  # ROOM: pairs that fit MISSING, numbers that fit INEXACT
MOST = 104  # the largest need of an allowed token's state
LONGEST = 112  # bytes of the longest word
FROM, TO = 120, 128  # only words of so many bytes are looked at
ENTRY, WAITING = 12, 12  # bytes: (id, begin, end), (entry, state, place in the text)
NORMAL, USER_DEFINED, BYTE = 1, 4, 6  # tokenizer.ggml.token_type
PLAIN, ESCAPED, LETTERS = 0, 1, 2  # how NORMAL tokens are spelled
LONGEST_WORD, SINGLE = 4 * 257, 4 * 258  # behind the index by first byte: u32, and u8[256]: whether the byte is a word
RARE, IMPOSSIBLE = 1 << 28, 1 << 29  # costs from here on: bytes that no word spells alone are among them; there is no way
LOWEST = -3.0e38


# ---- the words of a vocabulary ----------------------------------------------------------------------------


@helper
def spelled_in_letters(text, size, out, letters):
    """Undo the spelling of bytes as letters (int16 per code point below 512, -1: none); -1 where another character occurs."""
    at = 0
    n = 0
    while at < size:
        c = load_u8(text + at)
        at += 1
        if c >= 0x80:
            if c < 0xC2 or c > 0xC5 or at >= size or load_u8(text + at) & 0xC0 != 0x80:
                return -1
            c = (c & 31) << 6 | (load_u8(text + at) & 63)
            at += 1
        value = load_i16(letters + 2 * c)
        if value < 0:
            return -1
        store_8(out + n, value)
        n += 1
    return n


@helper
def copied(text, size, out, spaces):
    """Copy bytes; with `spaces`, U+2581 becomes a space."""
    at = 0
    n = 0
    while at < size:
        c = load_u8(text + at)
        if spaces and c == 0xE2 and at + 2 < size and load_u8(text + at + 1) == 0x96 and load_u8(text + at + 2) == 0x81:
            c = 32
            at += 2
        store_8(out + n, c)
        at += 1
        n += 1
    return n


@helper
def digit(c):
    return c - 48 if c >= 48 and c <= 57 else c - 55 if c >= 65 and c <= 70 else -1


@helper
def byte_value(text, size):
    """The byte that <0xXX> names, or -1."""
    if size != 6 or load_u32(text) & 0xFFFFFF != 0x78303C or load_u8(text + 5) != 62:
        return -1
    high, low = digit(load_u8(text + 3)), digit(load_u8(text + 4))
    return high << 4 | low if high >= 0 and low >= 0 else -1


@helper
def blank(text, size):
    for i in range(size):
        c = load_u8(text + i)
        if c != 32 and (c < 9 or c > 13):
            return False
    return True


@helper
def word(text, size, kind, spelling, letters, out):
    """The bytes that a reader sees of one token, at `out`; returns how many, 0 for tokens that no text may hold."""
    if kind == USER_DEFINED:
        return copied(text, size, out, False) if blank(text, size) else 0
    if kind == BYTE:
        value = byte_value(text, size)
        if value < 0:
            return copied(text, size, out, False)
        store_8(out, value)
        return 1
    if kind != NORMAL:
        return 0
    n = spelled_in_letters(text, size, out, letters) if spelling == LETTERS else -1
    return n if n >= 0 else copied(text, size, out, spelling == ESCAPED)


@export
def constrain_words(tokens, nbytes, count, types, forced, spelling, letters, out, entries, first, unsorted):
    """Bytes of the words at `out` (room for nbytes), entries sorted by first byte; first: u32[257], where those of each byte begin,
    then LONGEST_WORD and SINGLE. forced: int32 pairs (id, kind) by rising id, ended by an id beyond all. Returns how many, or -1:
    a string leaves the array.
    """
    at = 0
    n = 0
    to = out
    for i in range(count):
        if at + 8 > nbytes:
            return -1
        size = load_i64(tokens + at)
        if size < 0 or size > nbytes - at - 8:
            return -1
        kind = load_i32(types + 4 * i) if types != 0 else NORMAL
        if load_i32(forced) == i:
            kind = load_i32(forced + 4)
            forced += 8
        length = word(tokens + at + 8, size, kind, spelling, letters, to)
        if length > 0:
            place = unsorted + ENTRY * n
            store_32(place, i)
            store_32(place + 4, to - out)
            store_32(place + 8, to - out + length)
            byte = load_u8(to)
            store_32(first + 4 * byte + 4, load_u32(first + 4 * byte + 4) + 1)
            store_32(first + LONGEST_WORD, max(length, load_u32(first + LONGEST_WORD)))
            if length == 1:
                store_8(first + SINGLE + byte, 1)
            to += length
            n += 1
        at += 8 + size
    for b in range(256):
        store_32(first + 4 * b + 4, load_u32(first + 4 * b) + load_u32(first + 4 * b + 4))
    for i in range(n):
        place = unsorted + ENTRY * i
        slot = first + 4 * load_u8(out + load_u32(place + 4))
        target = entries + ENTRY * load_u32(slot)
        store_64(target, load_i64(place))
        store_32(target + 8, load_u32(place + 8))
        store_32(slot, load_u32(slot) + 1)
    for b in range(256):
        store_32(first + 4 * (255 - b) + 4, load_u32(first + 4 * (255 - b)))
    store_32(first, 0)
    return n


# ---- allowed tokens ---------------------------------------------------------------------------------------


@helper
def set_aside(context, entry, state, at):
    n = load_i64(context + PENDING_COUNT)
    place = load_i64(context + PENDING) + WAITING * n
    store_32(place, entry)
    store_32(place + 4, state)
    store_32(place + 8, at)
    store_64(context + PENDING_COUNT, n + 1)


@helper
def list_missing(context, state, byte, cell):
    n = load_i64(context + MISSING_COUNT)
    if n < load_i64(context + ROOM):
        store_32(cell, LISTED)
        place = load_i64(context + MISSING) + 8 * n
        store_32(place, state)
        store_32(place + 4, byte)
        store_64(context + MISSING_COUNT, n + 1)


@helper
def list_inexact(context, state, cell):
    n = load_i64(context + INEXACT_COUNT)
    if n < load_i64(context + ROOM):
        store_32(cell, LISTED)
        store_32(load_i64(context + INEXACT) + 4 * n, state)
        store_64(context + INEXACT_COUNT, n + 1)


@helper
def need(context, state, limit):
    """Tokens that end the text from a state: an upper bound where that is within the limit, else exact; UNKNOWN: listed."""
    cost = load_u32(load_i64(context + COSTS) + 4 * state)
    if cost <= limit or cost >= IMPOSSIBLE or (cost < RARE and cost > limit * load_i64(context + LONGEST)):
        return cost
    cell = load_i64(context + EXACT) + 4 * state
    exact = load_u32(cell)
    if exact == UNKNOWN:
        list_inexact(context, state, cell)
    return exact if exact < LISTED else UNKNOWN


@helper
def judge(context, entry, state, at, limit, mask):
    """Walk one word from `at` on; its bit is set in the mask where the state it reaches can end within `limit` tokens."""
    place = load_i64(context + ENTRIES) + ENTRY * entry
    table = load_i64(context + TABLE)
    text = load_i64(context + TEXT)
    end = load_u32(place + 8)
    while at < end:
        byte = load_u8(text + at)
        cell = table + (state << 10) + (byte << 2)
        following = load_u32(cell)
        if following >= LISTED:
            if following != DEAD:
                if following == UNKNOWN:
                    list_missing(context, state, byte, cell)
                set_aside(context, entry, state, at)
            return 0
        state = following
        at += 1
    wanted = need(context, state, limit)
    if wanted == UNKNOWN:
        set_aside(context, entry, state, at)
        return 0
    if wanted < IMPOSSIBLE:
        store_64(context + MOST, max(wanted, load_i64(context + MOST)))
    if wanted > limit:
        return 0
    token = load_u32(place)
    cell = mask + ((token >> 6) << 3)
    store_64(cell, load_i64(cell) | 1 << (token & 63))
    return 1


@export
def constrain_begin(context, state, limit, mask):
    """Set the bits of the tokens allowed in `state`, which are zero in the mask; returns how many tokens wait for an answer."""
    store_64(context + PENDING_COUNT, 0)
    store_64(context + MISSING_COUNT, 0)
    store_64(context + INEXACT_COUNT, 0)
    store_64(context + MOST, 0)
    row = load_i64(context + TABLE) + (state << 10)
    least = load_i64(context + FROM)
    most = load_i64(context + TO)
    first = load_i64(context + FIRST)
    entries = load_i64(context + ENTRIES)
    for b in range(256):
        if load_u32(row + 4 * b) != DEAD:
            for entry in range(load_u32(first + 4 * b), load_u32(first + 4 * b + 4)):
                begin = load_u32(entries + ENTRY * entry + 4)
                size = load_u32(entries + ENTRY * entry + 8) - begin
                if size >= least and size <= most:
                    judge(context, entry, state, begin, limit, mask)
    return load_i64(context + PENDING_COUNT)


@export
def constrain_resume(context, limit, mask):
    """Go on with the tokens that were set aside; returns how many still wait."""
    count = load_i64(context + PENDING_COUNT)
    pending = load_i64(context + PENDING)
    store_64(context + PENDING_COUNT, 0)
    store_64(context + MISSING_COUNT, 0)
    store_64(context + INEXACT_COUNT, 0)
    for i in range(count):
        place = pending + WAITING * i
        judge(context, load_u32(place), load_u32(place + 4), load_u32(place + 8), limit, mask)
    return load_i64(context + PENDING_COUNT)


@export
def constrain_gather(logits, mask, count, values, ids):
    """Logits and ids (int64) of the tokens in the mask, by rising id; returns how many, or -1: one of them is no number."""
    n = 0
    for i in range((count + 63) >> 6):
        bits = load_i64(mask + 8 * i)
        while bits != 0:
            token = (i << 6) + trailing_zeros(bits)
            bits &= bits - 1
            value = load_f32(logits + 4 * token)
            if not value <= -LOWEST:
                return -1
            store_f32(values + 4 * n, max(value, LOWEST))
            store_64(ids + 8 * n, token)
            n += 1
    return n


@export
def constrain_cover(context, text, fresh, size, out):
    """out: int32[size + 1], the fewest words that spell a text from each place on, IMPOSSIBLE where none do; known from place
    `fresh` on. `text`: its next `size` bytes."""
    words = load_i64(context + TEXT)
    entries = load_i64(context + ENTRIES)
    first = load_i64(context + FIRST)
    for k in range(fresh):
        at = fresh - 1 - k
        best = IMPOSSIBLE
        byte = load_u8(text + at)
        for entry in range(load_u32(first + 4 * byte), load_u32(first + 4 * byte + 4)):
            begin = load_u32(entries + ENTRY * entry + 4)
            length = load_u32(entries + ENTRY * entry + 8) - begin
            if length <= size - at:
                i = 1
                while i < length and load_u8(words + begin + i) == load_u8(text + at + i):
                    i += 1
                if i == length:
                    best = min(best, load_i32(out + 4 * (at + length)) + 1)
        store_32(out + 4 * at, min(best, IMPOSSIBLE))
    return load_i32(out)
