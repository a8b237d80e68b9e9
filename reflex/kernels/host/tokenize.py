"""Text to token ids in one call: special tokens are cut out, the rest is split into words and merged.

The caller passes a context (int64 fields below) and scratch of the size `encode_scratch` returns; ids come back as
int32 at the start of the scratch. TABLES holds the split programs of all pre-tokenizers and the table of Unicode kinds.
"""

from ...tokenizer.patterns import compile_rules
from ...tokenizer.ranges import kind_table
from ...tokenizer.rules import RULES
from ..export import export, helper
from ..intrinsics import load_i32, load_i64, load_u8, load_u32, store_8, store_32
from ..matcher import kind_of, matcher_work, split_pieces
from ..merging import SYMBOL, merge_symbols, set_symbol
from ..strings import LONGEST, find_text, token_kind


def byte_letters():
    """u32 per byte: UTF-8 of the letter that spells it in byte-level vocabularies, its length << 16.

    Printable Latin-1 stands for itself, all other bytes follow from U+0100 on (GPT-2's bytes_to_unicode).
    """
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in plain]
    spelled = {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(others)}
    out = b""
    for b in range(256):
        text = spelled[b].encode()
        out += int.from_bytes(text, "little").to_bytes(2, "little") + len(text).to_bytes(2, "little")
    return out


TABLES = {"unicode_kinds": kind_table(), "byte_letters": byte_letters()}
TABLES |= {f"split_{name}": compile_rules(expressions) for name, expressions in RULES.items()}

# Context, int64 at byte offsets. Addresses unless said otherwise; 0 where absent.
TOKENS, MERGES, SCORES, TYPES, FILTER, PROGRAM, UNICODE, LETTERS = 0, 8, 16, 24, 32, 40, 48, 56
BYTE_TOKENS = 64  # int32[256]: id of each byte's own token or -1
UNKNOWN_TOKEN = 72  # id or -1
FLAGS = 80
FORCED = 88  # see strings.kind_of
SPM, IGNORE_MERGES, ESCAPE_SPACES, SPACE_PREFIX, WHOLE_LINES, SPACE_WORDS = 1, 2, 4, 8, 16, 32
STRIP_AFTER = 64  # white space after special tokens is swallowed
KEEP_AFTER, STRIP_BEFORE = 16, 32  # in a kind, over the type: not after this token; white space before it is swallowed
SPECIAL_COUNT, SPECIAL_LENGTHS, SPECIAL_FILTER = 0, 8, 8 + 4 * 512
SHARED_BIT = 62
CONTROL_TYPES = (1 << 2) | (1 << 3)  # unknown and control tokens: only where the caller parses special tokens
USER_DEFINED = 1 << 4

GUARD = 16  # readable bytes before every text that is hashed


@helper
def aligned(n):
    return (n + 63) & -64


@helper
def area(n, which):
    """Start of a part of the scratch for n bytes of text: 0 ids, 1 candidates, 2 used, 3 text, 4 points, 5 offsets,
    6 pieces, 7 more pieces, 8 word, 9 symbols, 10 heap, 11 join and matcher work, which has no size here."""
    clean = 3 * n + 64  # bytes of text once escaped or repaired
    at = 0
    if which > 0:
        at += aligned(4 * clean)
    if which > 1:
        at += aligned(12 * n)
    if which > 2:
        at += aligned(n)
    if which > 3:
        at += aligned(clean + GUARD)
    if which > 4:
        at += aligned(4 * n + 8)
    if which > 5:
        at += aligned(4 * n + 8)
    if which > 6:
        at += aligned(4 * n + 8)
    if which > 7:
        at += aligned(4 * n + 8)
    if which > 8:
        at += aligned(2 * clean + GUARD)
    if which > 9:
        at += aligned(SYMBOL * clean)
    if which > 10:
        at += aligned(3 * 8 * clean)
    return at


@helper
def join_bytes(context):
    longest = 0
    if load_i64(context + MERGES) != 0:
        longest = load_i64(load_i64(context + MERGES) + LONGEST)
    return aligned(longest + GUARD)


@export
def encode_scratch(context, n):
    """Bytes of scratch that encode_text needs for n bytes of text."""
    work = 0
    if load_i64(context + PROGRAM) != 0:
        work = matcher_work(load_i64(context + PROGRAM))
    return area(n, 11) + join_bytes(context) + work


# ---- UTF-8 -----------------------------------------------------------------------------------------------


@helper
def is_tail(byte):
    return (byte & 0xC0) == 0x80


@helper
def decode_one(text, at, n):
    """size << 32 | code point of the character at `at`; a byte that starts none is U+FFFD of size 1."""
    c = load_u8(text + at)
    if c < 0x80:
        return (1 << 32) | c
    if c >= 0xC0 and c < 0xE0 and at + 1 < n and is_tail(load_u8(text + at + 1)):
        return (2 << 32) | ((c & 31) << 6) | (load_u8(text + at + 1) & 63)
    if c >= 0xE0 and c < 0xF0 and at + 2 < n and is_tail(load_u8(text + at + 1)) and is_tail(load_u8(text + at + 2)):
        return (3 << 32) | ((c & 15) << 12) | ((load_u8(text + at + 1) & 63) << 6) | (load_u8(text + at + 2) & 63)
    if c >= 0xF0 and c < 0xF8 and at + 3 < n:
        b1 = load_u8(text + at + 1)
        b2 = load_u8(text + at + 2)
        b3 = load_u8(text + at + 3)
        point = ((c & 7) << 18) | ((b1 & 63) << 12) | ((b2 & 63) << 6) | (b3 & 63)
        if is_tail(b1) and is_tail(b2) and is_tail(b3) and point <= 0x10FFFF:
            return (4 << 32) | point
    return (1 << 32) | 0xFFFD


@helper
def store_utf8(at, point):
    """Writes one code point, returns its size."""
    size = 1
    if point < 0x80:
        store_8(at, point)
    elif point < 0x800:
        store_8(at, 0xC0 | (point >> 6))
        store_8(at + 1, 0x80 | (point & 63))
        size = 2
    elif point < 0x10000:
        store_8(at, 0xE0 | (point >> 12))
        store_8(at + 1, 0x80 | ((point >> 6) & 63))
        store_8(at + 2, 0x80 | (point & 63))
        size = 3
    else:
        store_8(at, 0xF0 | (point >> 18))
        store_8(at + 1, 0x80 | ((point >> 12) & 63))
        store_8(at + 2, 0x80 | ((point >> 6) & 63))
        store_8(at + 3, 0x80 | (point & 63))
        size = 4
    return size


@helper
def decode_text(text, n, kinds, escape, clean, points, offsets):
    """Repair and decode n bytes: UTF-8 at `clean`, u32 points (code point | kind << 24), u32 offsets into `clean`
    (one more than points). Returns the number of points."""
    at = 0
    size = 0
    count = 0
    while at < n:
        one = decode_one(text, at, n)
        point = one & 0xFFFFFFFF
        at += one >> 32
        if escape != 0 and point == 32:
            point = 0x2581
        store_32(points + (count << 2), point | (kind_of(kinds, point) << 24))
        store_32(offsets + (count << 2), size)
        size += store_utf8(clean + size, point)
        count += 1
    store_32(offsets + (count << 2), size)
    return count


# ---- one word --------------------------------------------------------------------------------------------


@helper
def emit_symbols(context, text, symbols, ids, made):
    """Ids of the chain of symbols; a symbol that is no token goes out as the tokens of its bytes."""
    tokens = load_i64(context + TOKENS)
    bytes_of = load_i64(context + BYTE_TOKENS)
    unknown = load_i64(context + UNKNOWN_TOKEN)
    i = 0
    while i >= 0:
        s = symbols + i * SYMBOL
        start = text + load_u32(s)
        size = load_u32(s + 4)
        found = find_text(tokens, start, size)
        if found >= 0:
            store_32(ids + (made << 2), found)
            made += 1
        else:
            for k in range(size):
                found = load_i32(bytes_of + (load_u8(start + k) << 2))
                if found < 0:
                    found = unknown
                if found >= 0:
                    store_32(ids + (made << 2), found)
                    made += 1
        i = load_i32(s + 12)
    return made


@helper
def spell_letters(letters, text, size, word, symbols):
    """Spell each byte as its letter; one symbol per letter. Returns the size of the word."""
    length = 0
    for i in range(size):
        letter = load_u32(letters + (load_u8(text + i) << 2))
        store_8(word + length, letter)
        store_8(word + length + 1, letter >> 8)
        set_symbol(symbols, i, length, letter >> 16)
        length += letter >> 16
    return length


@helper
def cut_characters(text, size, symbols):
    """One symbol per character by its first byte; returns their number."""
    count = 0
    at = 0
    while at < size:
        c = load_u8(text + at)
        length = 1
        if c >= 0xF0:
            length = 4
        elif c >= 0xE0:
            length = 3
        elif c >= 0xC0:
            length = 2
        length = min(length, size - at)
        set_symbol(symbols, count, at, length)
        count += 1
        at += length
    return count


@helper
def only_line_breaks(text, size):
    i = 0
    while i < size and load_u8(text + i) == 10:
        i += 1
    return i == size


@helper
def encode_word(context, text, size, word, symbols, heap, join, ids, made):
    """Append the ids of `size` > 0 bytes that are one word."""
    tokens = load_i64(context + TOKENS)
    flags = load_i64(context + FLAGS)
    letters = load_i64(context + LETTERS)
    count = size
    if letters != 0:
        size = spell_letters(letters, text, size, word, symbols)
        text = word
    if (flags & IGNORE_MERGES) != 0 or ((flags & WHOLE_LINES) != 0 and only_line_breaks(text, size)):
        found = find_text(tokens, text, size)
        if found >= 0:
            store_32(ids + (made << 2), found)
            return made + 1
    if letters == 0:
        count = cut_characters(text, size, symbols)
    merge_symbols(tokens, load_i64(context + MERGES), load_i64(context + SCORES), text, symbols, count, heap, join)
    return emit_symbols(context, text, symbols, ids, made)


# ---- text between special tokens -------------------------------------------------------------------------


@helper
def starts_with_space(text, size):
    """Whether U+2581, a spelled-out space, comes first."""
    return size >= 3 and load_u8(text) == 0xE2 and load_u8(text + 1) == 0x96 and load_u8(text + 2) == 0x81


@helper
def encode_pieces(context, text, size, scratch, n, ids, made):
    """Split into words, encode each."""
    clean = scratch + area(n, 3) + GUARD
    points = scratch + area(n, 4)
    offsets = scratch + area(n, 5)
    pieces = scratch + area(n, 6)
    join = scratch + area(n, 11) + GUARD
    work = scratch + area(n, 11) + join_bytes(context)
    escape = load_i64(context + FLAGS) & ESCAPE_SPACES
    count = decode_text(text, size, load_i64(context + UNICODE), escape, clean, points, offsets)
    found = split_pieces(load_i64(context + PROGRAM), points, count, pieces, scratch + area(n, 7), work)
    copy = scratch + area(n, 8) + GUARD
    spaced = (load_i64(context + FLAGS) & SPACE_WORDS) != 0
    start = 0
    for i in range(found):
        end = load_u32(offsets + (load_u32(pieces + (i << 2)) << 2))
        word = clean + start
        length = end - start
        if spaced and not starts_with_space(word, length) and not only_line_breaks(word, length):
            store_utf8(copy, 0x2581)
            for k in range(length):
                store_8(copy + 3 + k, load_u8(word + k))
            word = copy
            length += 3
        made = encode_word(context, word, length, copy, scratch + area(n, 9), scratch + area(n, 10), join, ids, made)
        start = end
    return made


@helper
def encode_whole(context, text, size, scratch, n, after_special, ids, made):
    """Unigram pieces over the whole fragment, spaces spelled U+2581."""
    clean = scratch + area(n, 3) + GUARD
    length = 0
    prefix = load_i64(context + FLAGS) & SPACE_PREFIX
    at = -1 if prefix != 0 and after_special != 0 else 0
    while at < size:
        c = 32 if at < 0 else load_u8(text + at)
        if c == 32:
            length += store_utf8(clean + length, 0x2581)
        else:
            store_8(clean + length, c)
            length += 1
        at += 1
    return encode_word(
        context, clean, length, clean, scratch + area(n, 9), scratch + area(n, 10), scratch + area(n, 11) + GUARD, ids, made
    )


# ---- special tokens in the text --------------------------------------------------------------------------


@helper
def filter_bits(filter, first, second):
    return load_i64(filter + SPECIAL_FILTER + (((first * 37 + second * 101) & 1023) << 3))


@helper
def find_candidates(filter, text, n, candidates):
    """Places where a special token may begin: 12 bytes each (position, id or -1, size). Returns their number."""
    count = 0
    for i in range(n):
        second = load_u8(text + i + 1) if i + 1 < n else 0
        if filter_bits(filter, load_u8(text + i), second) != 0:
            store_32(candidates + 12 * count, i)
            store_32(candidates + 12 * count + 4, -1)
            count += 1
    return count


@helper
def kind_of_token(context, token):
    return token_kind(load_i64(context + TYPES), load_i64(context + FORCED), token)


@helper
def take_specials(context, text, n, allowed, candidates, count, used):
    """Longest tokens first, leftmost first among equals: mark the candidates that stand for a special token."""
    filter = load_i64(context + FILTER)
    tokens = load_i64(context + TOKENS)
    for i in range(n):
        store_8(used + i, 0)
    for rank in range(load_i64(filter + SPECIAL_COUNT)):
        size = load_i32(filter + SPECIAL_LENGTHS + (rank << 2))
        bit = min(rank, SHARED_BIT)
        for k in range(count):
            at = load_u32(candidates + 12 * k)
            second = load_u8(text + at + 1) if at + 1 < n else 0
            if (
                at + size <= n
                and (filter_bits(filter, load_u8(text + at), second) >> bit) & 1
                and load_u8(used + at) == 0
                and load_u8(used + at + size - 1) == 0
            ):
                found = find_text(tokens, text + at, size)
                if found >= 0 and (allowed >> (kind_of_token(context, found) & 15)) & 1:
                    store_32(candidates + 12 * k + 4, found)
                    store_32(candidates + 12 * k + 8, size)
                    for i in range(size):
                        store_8(used + at + i, 1)


@helper
def is_space(byte):
    return byte == 32 or (byte >= 9 and byte <= 13)


@helper
def encode_fragment(context, text, start, end, scratch, n, after_special, made):
    if end <= start:
        return made
    if (load_i64(context + FLAGS) & SPM) != 0:
        return encode_whole(context, text + start, end - start, scratch, n, after_special, scratch, made)
    return encode_pieces(context, text + start, end - start, scratch, n, scratch, made)


@export
def encode_text(context, text, n, parse_special, scratch):
    """Ids of n bytes of text, at most 1 << 28 (GUARD readable bytes before it). parse_special, bit 0: control tokens in
    the text count as such; bit 1: it goes on from other text, so that no space is put before it. Returns the number of
    int32 ids at `scratch`."""
    count = 0
    candidates = scratch + area(n, 1)
    filter = load_i64(context + FILTER)
    if load_i64(filter + SPECIAL_COUNT) > 0:
        count = find_candidates(filter, text, n, candidates)
        if count > 0:
            allowed = USER_DEFINED | CONTROL_TYPES if parse_special & 1 else USER_DEFINED
            take_specials(context, text, n, allowed, candidates, count, scratch + area(n, 2))
    made = 0
    start = 0
    after_special = 0 if parse_special & 2 else 1
    for k in range(count):
        found = load_i32(candidates + 12 * k + 4)
        if found >= 0:
            at = load_u32(candidates + 12 * k)
            end = at
            if kind_of_token(context, found) & STRIP_BEFORE:
                while end > start and is_space(load_u8(text + end - 1)):
                    end -= 1
            made = encode_fragment(context, text, start, end, scratch, n, after_special, made)
            store_32(scratch + (made << 2), found)
            made += 1
            start = at + load_u32(candidates + 12 * k + 8)
            after_special = 1
            if (load_i64(context + FLAGS) & STRIP_AFTER) != 0 and kind_of_token(context, found) & KEEP_AFTER == 0:
                while start < n and is_space(load_u8(text + start)):
                    start += 1
    return encode_fragment(context, text, start, n, scratch, n, after_special, made)


@export
def split_scratch(program, n):
    """Bytes of scratch that split_text needs for n bytes of text."""
    return area(n, 8) + matcher_work(program)


@export
def split_text(program, kinds, text, n, scratch):
    """Only the splitting: returns the number of pieces, their ends (in code points) as u32 at `scratch`."""
    points = scratch + area(n, 4)
    count = decode_text(text, n, kinds, 0, scratch + area(n, 3), points, scratch + area(n, 5))
    found = split_pieces(program, points, count, scratch + area(n, 6), scratch + area(n, 7), scratch + area(n, 8))
    for i in range(found):
        store_32(scratch + (i << 2), load_u32(scratch + area(n, 6) + (i << 2)))
    return found
