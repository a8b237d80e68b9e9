"""A long text to ids, a piece at a time, so that it takes memory for its ids and for one piece of itself.

Pieces begin at the blanks at which stem.py cuts prompts, for the reasons told there. Where special tokens or the splitter reach
over blanks, a token would reach over a border, or a text has no such blank for long (it is not of plain words), it is one piece.
A number that repeats is one object. Refuses nothing. Called by the Tokenizer for texts of more than LONG bytes.
"""

from .stem import FOUND_WHOLE, SEARCHED, Stem, cut, spans

PIECE = 1 << 16  # bytes: the Vocabulary keeps the scratch of so many


def encode(tokenizer, words, data, parse_special, starts):
    """As Vocabulary.encode; `words`: the Vocabulary of the Tokenizer."""
    if words.strips() or spans(tokenizer) or any(map(holds_end, tokenizer.found_whole(FOUND_WHOLE))):
        return words.encode(data, parse_special, starts)
    ids, own, first = [], {}, 0
    while first < len(data):
        end = place(data, first)
        found = words.encode(data[first:end], parse_special, starts and not first)
        if ids and (tokenizer.is_special(ids[-1]) or not Stem(tokenizer, ids, b"", None).fits(found[0])):
            return words.encode(data, parse_special, starts)
        ids.extend(map(own.setdefault, found, found))
        first = end
    return ids


def place(data, first):
    """Where the piece that begins at `first` ends: the last such blank within PIECE, or the first behind that."""
    for end in range(first + PIECE, min(len(data), first + 2 * PIECE), SEARCHED):
        begin = max(first, end - SEARCHED)
        at = cut(data[begin:end])
        if at:
            return begin + at
    return len(data)


def holds_end(text):
    """Whether a blank follows a letter in a special token's text."""
    return any(part[-1:].isalpha() for part in text.split(b" ")[:-1])
