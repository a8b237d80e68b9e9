"""Merges symbols of one word, best pair first: byte-pair merges by rank, unigram pieces by score.

A symbol is 24 bytes: u32 start, u32 size, i32 previous, i32 next, i64 priority of the pair with the next symbol
(smaller merges earlier, -1 for none). Ties go to the leftmost pair. Called by kernels/host/tokenize.py.
"""

from .export import helper
from .intrinsics import load_i32, load_i64, load_u8, load_u32, store_8, store_32, store_64, unsigned_less
from .strings import LONGEST, SPLITS, find_merge, find_text

SYMBOL = 24
SCAN_LIMIT = 40  # words up to this many symbols are scanned; longer ones use a heap


@helper
def score_priority(scores, index):
    """A u32 that is smaller for a greater float32 score; -0 counts as 0."""
    bits = load_u32(scores + (index << 2))
    if bits == 0x80000000:
        bits = 0
    key = bits ^ 0xFFFFFFFF if bits & 0x80000000 else bits | 0x80000000
    return key ^ 0xFFFFFFFF


@helper
def pair_priority(tokens, merges, scores, text, symbol, following, join):
    """Priority of merging two neighbours, or -1. With merges: the rank of "left right", spelled out at `join` unless the block says
    how tokens split; without: the order of the score of the token that both spell together."""
    start = load_u32(symbol)
    left = load_u32(symbol + 4)
    right = load_u32(following + 4)
    if merges == 0:
        found = find_text(tokens, text + start, left + right)
        return score_priority(scores, found) if found >= 0 else -1
    if load_i64(merges + SPLITS) != 0:
        return find_merge(merges, text + start, left, left + right)
    if left + right + 1 > load_i64(merges + LONGEST):
        return -1
    for i in range(left):
        store_8(join + i, load_u8(text + start + i))
    store_8(join + left, 32)
    second = text + load_u32(following)
    for i in range(right):
        store_8(join + left + 1 + i, load_u8(second + i))
    return find_text(merges, join, left + 1 + right)


@helper
def heap_push(heap, count, key):
    i = count
    while i > 0 and unsigned_less(key, load_i64(heap + (((i - 1) >> 1) << 3))):
        store_64(heap + (i << 3), load_i64(heap + (((i - 1) >> 1) << 3)))
        i = (i - 1) >> 1
    store_64(heap + (i << 3), key)
    return count + 1


@helper
def heap_pop(heap, count):
    """Removes the smallest key (already read at heap[0]); returns the new count."""
    count -= 1
    key = load_i64(heap + (count << 3))
    i = 0
    sinking = True
    while sinking and 2 * i + 1 < count:
        child = 2 * i + 1
        least = load_i64(heap + (child << 3))
        if child + 1 < count and unsigned_less(load_i64(heap + (child << 3) + 8), least):
            child += 1
            least = load_i64(heap + (child << 3))
        sinking = unsigned_less(least, key)
        if sinking:
            store_64(heap + (i << 3), least)
            i = child
    store_64(heap + (i << 3), key)
    return count


@helper
def join_next(symbols, i):
    """Make symbol i swallow its successor; returns the symbol after that, or -1."""
    symbol = symbols + i * SYMBOL
    gone = symbols + load_i32(symbol + 12) * SYMBOL
    after = load_i32(gone + 12)
    store_32(symbol + 4, load_u32(symbol + 4) + load_u32(gone + 4))
    store_32(symbol + 12, after)
    store_32(gone + 4, 0)
    store_64(gone + 16, -1)
    store_64(symbol + 16, -1)
    if after >= 0:
        store_32(symbols + after * SYMBOL + 8, i)
    return after


@helper
def merge_scanning(tokens, merges, scores, text, symbols, count, join):
    for i in range(count - 1):
        s = symbols + i * SYMBOL
        store_64(s + 16, pair_priority(tokens, merges, scores, text, s, s + SYMBOL, join))
    while True:
        best = -1
        chosen = -1
        i = 0
        while i >= 0:
            s = symbols + i * SYMBOL
            p = load_i64(s + 16)
            if p >= 0 and (best < 0 or p < best):
                best = p
                chosen = i
            i = load_i32(s + 12)
        if chosen < 0:
            return 0
        after = join_next(symbols, chosen)
        s = symbols + chosen * SYMBOL
        if after >= 0:
            store_64(s + 16, pair_priority(tokens, merges, scores, text, s, symbols + after * SYMBOL, join))
        before = load_i32(s + 8)
        if before >= 0:
            b = symbols + before * SYMBOL
            store_64(b + 16, pair_priority(tokens, merges, scores, text, b, s, join))


@helper
def merge_heaped(tokens, merges, scores, text, symbols, count, heap, join):
    """Heap keys are priority << 32 | symbol; a key whose priority is no longer the symbol's is out of date."""
    held = 0
    for i in range(count - 1):
        s = symbols + i * SYMBOL
        p = pair_priority(tokens, merges, scores, text, s, s + SYMBOL, join)
        store_64(s + 16, p)
        if p >= 0:
            held = heap_push(heap, held, (p << 32) | i)
    while held > 0:
        key = load_i64(heap)
        held = heap_pop(heap, held)
        i = key & 0xFFFFFFFF
        s = symbols + i * SYMBOL
        p = load_i64(s + 16)
        if p >= 0 and (p << 32) | i == key:
            after = join_next(symbols, i)
            if after >= 0:
                p = pair_priority(tokens, merges, scores, text, s, symbols + after * SYMBOL, join)
                store_64(s + 16, p)
                if p >= 0:
                    held = heap_push(heap, held, (p << 32) | i)
            before = load_i32(s + 8)
            if before >= 0:
                b = symbols + before * SYMBOL
                p = pair_priority(tokens, merges, scores, text, b, s, join)
                store_64(b + 16, p)
                if p >= 0:
                    held = heap_push(heap, held, (p << 32) | before)
    return 0


@helper
def set_symbol(symbols, i, start, size):
    s = symbols + i * SYMBOL
    store_32(s, start)
    store_32(s + 4, size)
    store_32(s + 8, i - 1)
    store_32(s + 12, i + 1)
    store_64(s + 16, -1)


@helper
def merge_symbols(tokens, merges, scores, text, symbols, count, heap, join):
    """Merge `count` > 0 symbols in place; what remains is the chain that starts at symbol 0."""
    store_32(symbols + (count - 1) * SYMBOL + 12, -1)
    if count <= SCAN_LIMIT:
        merge_scanning(tokens, merges, scores, text, symbols, count, join)
    else:
        merge_heaped(tokens, merges, scores, text, symbols, count, heap, join)
