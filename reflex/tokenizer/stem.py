"""Many texts that begin with one prompt, without tokenizing the prompt again for each of them.

A Stem cuts the prompt at a blank that no continuation can move a token over, and tokenizes only what comes behind it. Such a blank
stands behind a letter and before three plain words: two to fifteen lower-case ASCII letters, one blank before each. Why that holds:

* Word splitters in LOCAL. What follows a cut can change a split only through a match that sees it. A match there is at most a
  character, then runs of one class each, and looks ahead over blanks, digits or a contraction only; none gets from before the
  cut past letter, blank, letter. Merges stay inside words. The splitters that reach further are in SPANNING.
* Unigram vocabularies merge over the whole text, in the order of scores, then places. There a sequence of tokens is the right one
  if each pair of neighbours is right for its own text: the first merge over any border would be the first over it in the pair too.
  So the pair at the cut is tokenized by itself, once for each token that comes first behind the cut.
* Special tokens are looked for in the whole text first; a vocabulary in which one holds a letter, a blank and a letter is not cut.

Refuses nothing: where any of this does not hold, `of` gives None and the caller tokenizes the whole text. Called by the Tokenizer.
"""

SPANNING = ("groups", "lines", "lines_spaces", "spaced_letters")  # rules.RULES whose words hold blanks
LETTERS = frozenset(b"abcdefghijklmnopqrstuvwxyz")
WORDS, SHORTEST, LONGEST = 3, 2, 15  # plain words behind the cut, bytes of each
SEARCHED = 2048  # bytes at the end of the prompt
FOUND_WHOLE = (2, 3, 4)  # token types that are looked for in the text


class Stem:
    """A prompt cut in two; `encode(tail)` gives the ids of prompt + tail."""

    __slots__ = ("_back", "_good", "_head", "_tokenizer", "_whole")

    def __init__(self, tokenizer, head, back, whole):
        self._tokenizer = tokenizer
        self._head = head  # ids before the cut
        self._back = back  # bytes of the prompt behind it
        self._good = {}  # first id behind the cut -> whether it may stand there
        self._whole = whole  # of bytes, the ids of a whole text

    def encode(self, tail):
        """Ids of prompt + `tail` (bytes), as if tokenized as one text."""
        return self.parts(tail) or self._whole(tail)

    def parts(self, tail):
        """The ids of the two parts, or None where they may not stand side by side."""
        rest = self._tokenizer.encode(self._back + tail, add_special=False, starts=False)
        return self._head + rest if self.fits(rest[0]) else None

    def fits(self, first):
        """Whether a text whose first token is `first` may follow the ids before the cut."""
        if self._tokenizer.algorithm != "spm":
            return True
        if first not in self._good:
            pair = [self._head[-1], first]
            text = b"".join([self._tokenizer.piece(token) for token in pair])
            self._good[first] = self._tokenizer.encode(text, add_special=False, starts=False) == pair
        return self._good[first]


def of(tokenizer, prompt, encode):
    """The Stem of `prompt` (bytes), or None where it cannot be cut. `encode`: ids of a whole text that starts a timeline."""
    at = cut(prompt)
    if not at or spans(tokenizer):
        return None
    stem = Stem(tokenizer, encode(prompt[:at]), prompt[at:], lambda tail: encode(prompt + tail))
    return stem if stem.parts(b"") == encode(prompt) else None


def cut(prompt):
    """The last place where the prompt can be cut, or 0: of a blank behind a letter, before WORDS plain words."""
    start = max(0, len(prompt) - SEARCHED)
    words = prompt[start:].split(b" ")
    for first in range(len(words) - WORDS, 0, -1):
        end = words[first - 1][-2:]
        if end and LETTERS.issuperset(end) and all(map(plain, words[first : first + WORDS])):
            return start + len(b" ".join(words[:first]))
    return 0


def plain(word):
    return SHORTEST <= len(word) <= LONGEST and LETTERS.issuperset(word)


def spans(tokenizer):
    """Whether something that is looked for reaches over the blank between two words."""
    return tokenizer.rules in SPANNING or any(map(holds_words, tokenizer.found_whole(FOUND_WHOLE)))


def holds_words(text):
    """Whether a letter, a blank and a letter stand in a special token's text."""
    return any(a[-1:].isalpha() and b[:1].isalpha() for a, b in zip(text.split(b" "), text.split(b" ")[1:], strict=False))
