r"""Regular expressions to trees of grammar.py: a text must match from its first character to its last.

The subset is SUBSET below. Where engines differ, what is allowed is what all of them accept: `\d \w \s` are ASCII where a text
must match them and Unicode where it must not, `.` is no line end of any kind. Refused with the place: look-around,
back-references, flags, possessive repetition, word borders, and anchors anywhere but at the ends, where they change nothing.
Called by Constraint and, for `pattern`, by schema.
"""

from ..errors import InvalidInputError
from ..tokenizer.codepoints import LAST, complement, union

SUBSET = (
    ("characters", r"`a`  `é`  `\.`  `\n \t \r \f \v \0`  `\x41`  `\u00e9`  `\u{1F600}`  `\cJ`"),
    ("any character but a line end", "`.`"),
    ("classes", r"`[a-z0-9_]`  `[^\"\\]`  `\d \w \s \D \W \S`  `\p{L}` `\p{Lu}` `\P{L}` (general categories, and `Han`)"),
    ("groups", "`(…)`  `(?:…)`  `(?<name>…)`  `(?P<name>…)`: all the same"),
    ("choice", "`a|b`"),
    ("repetition", "`?`  `*`  `+`  `{3}`  `{2,5}`  `{2,}`  `{,5}`, lazy forms (`*?`) too: they match the same texts"),
    ("anchors", "`^` at the beginning and `$` at the end"),
)
NESTING = 100
LONGEST = 100_000  # characters of a pattern
LINE_ENDS = ((10, 10), (13, 13), (0x2028, 0x2029))
ASCII = {"d": ((48, 57),), "w": ((48, 57), (65, 90), (95, 95), (97, 122)), "s": ((9, 13), (32, 32))}
NAMED = {"n": 10, "t": 9, "r": 13, "f": 12, "v": 11, "0": 0, "a": 7, "e": 27}
ANY = complement(LINE_ENDS)


def widest(letter):
    """All that any engine counts to a class: its Unicode form."""
    from ..tokenizer import ranges

    if letter == "d":
        return ranges.category("Nd")
    if letter == "s":
        return union(ranges.SPACE, ((0x1C, 0x1F), (0x180E, 0x180E), (0xFEFF, 0xFEFF)))
    return union(ranges.word(), ranges.category("N"), ranges.category("M"), ranges.category("L"), ranges.category("Pc"))


class Parser:
    """One pattern. `started`, `ended`: whether an anchor stands at its beginning, its end (of each alternative)."""

    def __init__(self, text):
        self.text = text
        self.at = 0
        self.depth = 0
        if len(text) > LONGEST:
            self.fail("the pattern is too long", f"at most {LONGEST} characters", len(text))

    def fail(self, why, expected=None, found=None):
        shown = self.text if len(self.text) <= 60 else f"{self.text[:40]}…"
        place = f"character {min(self.at, len(self.text)) + 1} of {shown!r}"
        raise InvalidInputError(f"regular expression: {why}", expected, found, place)

    def peek(self):
        return self.text[self.at : self.at + 1]

    def accept(self, token):
        if not self.text.startswith(token, self.at):
            return False
        self.at += len(token)
        return True

    def whole(self):
        tree = self.alternation()
        if self.at < len(self.text):
            self.fail("a ) closes nothing")
        return tree

    def alternation(self):
        choices = [self.sequence()]
        while self.accept("|"):
            choices.append(self.sequence())
        return choices[0] if len(choices) == 1 else ("alt", choices)

    def sequence(self):
        items = []
        while self.peek() not in ("", "|", ")"):
            items.append(self.quantified(self.atom()))
        return items[0] if len(items) == 1 else ("seq", items)

    # ---- repetition ----

    def quantified(self, tree):
        bounds = self.bounds()
        if bounds is None:
            return tree
        least, most = bounds
        if tree[0] == "anchor":
            self.fail("an anchor cannot be repeated")
        if most is not None and most < least:
            self.fail("a repetition contradicts itself", "{least,most}", f"{{{least},{most}}}")
        if self.accept("+"):
            self.at -= 1
            self.fail("possessive repetition is not supported")
        self.accept("?")
        if self.peek() in ("*", "+", "?") and self.peek():
            self.fail("a repetition of a repetition", "a group around the inner one")
        return ("repeat", tree, least, most)

    def bounds(self):
        """(least, most) of the repetition that stands here, or None."""
        for token, found in (("?", (0, 1)), ("*", (0, None)), ("+", (1, None))):
            if self.accept(token):
                return found
        if self.peek() != "{":
            return None
        end = self.text.find("}", self.at)
        low, comma, high = self.text[self.at + 1 : end].partition(",")
        digits = low + high
        if end < 0 or not digits.isascii() or not digits.isdigit() or (not comma and not low):
            self.fail("a { that begins no repetition", r"{n}, {n,}, {,m}, {n,m}, or \{ for the character")
        if len(low) > 18 or len(high) > 18:
            self.fail("a number of repetitions is too large", "at most 18 digits")
        self.at = end + 1
        return int(low or 0), int(high) if high else None if comma else int(low)

    # ---- atoms ----

    def atom(self):
        c = self.peek()
        if c == "(":
            return self.group()
        if c == "[":
            self.at += 1
            return ("set", self.members())
        if c in "*+?{":
            self.fail(f"nothing before {c} to repeat", rf"a character, or \{c}")
        if c in "^$":
            self.at += 1
            return ("anchor", c, self.at)
        if self.accept("."):
            return ("set", ANY)
        if c == "\\" and self.text[self.at + 1 : self.at + 2] in ("A", "Z", "z"):
            self.at += 2
            return ("anchor", "^" if self.text[self.at - 1] == "A" else "$", self.at)
        return ("set", self.character(False)[0])

    def group(self):
        start = self.at
        self.at += 1
        for opening in ("?=", "?!", "?<=", "?<!"):
            if self.text.startswith(opening, self.at):
                self.fail(f"look-around ({opening} is not supported")
        if self.accept("?P<") or self.accept("?<"):
            end = self.text.find(">", self.at)
            if end < 0 or not self.text[self.at : end].isidentifier():
                self.fail("a group's name is not closed", "(?<name>…)")
            self.at = end + 1
        elif not self.accept("?:") and self.peek() == "?":
            self.fail("flags and other special groups are not supported", "(?:…) or (…)")
        self.depth += 1
        if self.depth > NESTING:
            self.fail("groups are nested too deeply", f"at most {NESTING}")
        tree = self.alternation()
        if not self.accept(")"):
            self.at = start
            self.fail("a ( is not closed")
        self.depth -= 1
        return ("seq", [tree])

    # ---- characters ----

    def character(self, negated):
        """(code points, whether a single one) of a literal, an escape or a named class, `negated` where all but them is wanted."""
        c = self.peek()
        self.at += 1
        if c != "\\":
            if 0xD800 <= ord(c) <= 0xDFFF:
                self.fail("a lone surrogate", "Unicode text")
            return ((ord(c), ord(c)),), True
        c = self.peek()
        self.at += 1
        if not c:
            self.fail(r"a \ at the end")
        if c in ASCII:
            return (widest(c) if negated else ASCII[c]), False
        if c.lower() in ASCII:
            return complement(ASCII[c.lower()] if negated else widest(c.lower())), False
        if c in "pP":
            return self.category(c), False
        if c in NAMED:
            if c == "0" and self.peek().isdigit():
                self.fail("octal escapes are not supported")
            return ((NAMED[c], NAMED[c]),), True
        if c in "xuUc":
            code = self.code(c)
            return ((code, code),), True
        if c.isdigit() or c == "k":
            self.at -= 2
            self.fail("back-references are not supported")
        if c in "bB":
            self.at -= 2
            self.fail("word borders are not supported")
        if c.isalpha():
            self.at -= 2
            self.fail(f"unknown escape \\{c}")
        return ((ord(c), ord(c)),), True

    def code(self, letter):
        if letter == "c":
            c = self.peek()
            if not (c.isascii() and c.isalpha()):
                self.fail(r"\c needs a letter")
            self.at += 1
            return ord(c) & 31
        if letter == "u" and self.accept("{"):
            end = self.text.find("}", self.at)
            digits, self.at = self.text[self.at : end] if end >= 0 else "", end + 1 if end >= 0 else self.at
        else:
            size = {"x": 2, "u": 4, "U": 8}[letter]
            digits = self.text[self.at : self.at + size]
            self.at += size
            digits = digits if len(digits) == size else ""
        try:
            found = int(digits, 16) if digits.isalnum() else -1
        except ValueError:
            found = -1
        if not 0 <= found <= LAST or 0xD800 <= found <= 0xDFFF:
            self.fail(f"\\{letter} names no character", "hexadecimal digits of a code point", repr(digits))
        return found

    def category(self, letter):
        from ..tokenizer import ranges

        end = self.text.find("}", self.at)
        if self.peek() != "{" or end < 0:
            self.fail(f"\\{letter} needs a name", rf"\{letter}{{L}}")
        name = self.text[self.at + 1 : end]
        try:
            found = ranges.named(name)
        except KeyError:
            self.fail(f"unknown class \\{letter}{{{name}}}", "a general category such as L, Lu, Nd, P, or Han")
        self.at = end + 1
        return complement(found) if letter == "P" else found

    def members(self):
        start = self.at
        negated = self.accept("^")
        if self.peek() == "]":
            self.fail("an empty class", r"a character, or \] for the bracket")
        found = []
        while not self.accept("]"):
            if self.at >= len(self.text):
                self.at = start - 1
                self.fail("a [ is not closed")
            if self.peek() == "[" and self.text[self.at + 1 : self.at + 2] in (":", ".", "="):
                self.fail("POSIX classes are not supported", r"\d, \w, \s or \p{…}")
            if self.text.startswith(("&&", "--", "~~", "||"), self.at):
                self.fail("operations on classes are not supported")
            found.append(self.member(negated))
        whole = union(*found)
        return complement(whole) if negated else whole

    def member(self, negated):
        if self.accept("\\b"):
            return ((8, 8),)
        ranges, single = self.character(negated)
        if self.peek() != "-" or self.text[self.at + 1 : self.at + 2] in ("]", ""):
            return ranges
        self.at += 1
        high, also = self.character(negated)
        if not single or not also or high[0][0] < ranges[0][0]:
            self.fail("a range contradicts itself", "two characters, the lower one first")
        return ((ranges[0][0], high[0][0]),)


def parse(text):
    """[(items, anchored at the beginning, anchored at the end)] of the alternatives of a pattern; other anchors are refused."""
    if not isinstance(text, str):
        raise InvalidInputError("regular expression: this is not text", "str", type(text).__name__)
    parser = Parser(text)
    branches = []
    tree = parser.whole()
    for branch in tree[1] if tree[0] == "alt" else [tree]:
        items = list(branch[1]) if branch[0] == "seq" else [branch]
        started = bool(items) and items[0][:2] == ("anchor", "^")
        items = items[started:]
        ended = bool(items) and items[-1][:2] == ("anchor", "$")
        items = items[: len(items) - ended]
        refuse_anchors(items, parser)
        branches.append((items, started, ended))
    return branches


def refuse_anchors(trees, parser):
    """Anchors that are left stand where they matter."""
    pending = list(trees)
    while pending:
        node = pending.pop()
        if node[0] == "anchor":
            parser.at = node[2] - 1
            parser.fail("an anchor in the middle is not supported")
        if node[0] in ("seq", "alt"):
            pending += node[1]
        elif node[0] == "repeat":
            pending.append(node[1])


def tree_of(text):
    """The tree of the texts that match from beginning to end."""
    return ("alt", [("seq", items) for items, _, _ in parse(text)])


def searching(text, before):
    """The tree of the texts in which the pattern occurs; `before`: the tree of whatever may stand around it."""
    around = ("repeat", before, 0, None)
    found = []
    for items, started, ended in parse(text):
        found.append(("seq", [*([] if started else [around]), *items, *([] if ended else [around])]))
    return ("alt", found)
