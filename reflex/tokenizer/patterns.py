"""Compiles the split expressions of pre-tokenizers to the byte programs that kernels/matcher.py runs.

The dialect is what tokenizer files use: ordered alternation, greedy quantifiers, sets with ranges, \\p{..}, negation and
`&&`, (?:..), (?i:..), lookahead, `$`. Refused at build time (PatternError): back-references, lazy quantifiers, and a
repeated group after which the match could still fail, because only then could matching take more than linear time.
Called by kernels/host/tokenize.py, which ships the programs; never at run time.
"""

import struct
from functools import cache

from . import codepoints, ranges

ACCEPT, CLASS, RUN, BRANCH, JUMP, LOOK, AHEAD, END_AHEAD, END, GROUPS, LOOP, COMMIT = range(12)
INSTRUCTION = 24  # bytes: opcode and five int32 operands
CLASS_BYTES = 32
UNLIMITED = -1
LETTERS_OF_ESCAPES = {"r": 13, "n": 10, "t": 9}


class PatternError(Exception):
    pass


# ---- text to tree: ("set", ranges) ("seq", [..]) ("alt", [..]) ("repeat", node, least, most) ("ahead", node, negated) ("end",)


class Parser:
    def __init__(self, text):
        self.text = text
        self.at = 0
        self.fold = False

    def fail(self, why):
        raise PatternError(f"{why} at {self.at} of {self.text!r}")

    def peek(self, token):
        return self.text.startswith(token, self.at)

    def accept(self, token):
        if not self.peek(token):
            return False
        self.at += len(token)
        return True

    def alternation(self):
        choices = [self.sequence()]
        while self.accept("|"):
            choices.append(self.sequence())
        return choices[0] if len(choices) == 1 else ("alt", choices)

    def sequence(self):
        items = []
        while self.at < len(self.text) and not self.peek("|") and not self.peek(")"):
            items.append(self.quantified(self.atom()))
        return items[0] if len(items) == 1 else ("seq", items)

    def quantified(self, node):
        if self.accept("?"):
            node = ("repeat", node, 0, 1)
        elif self.accept("*"):
            node = ("repeat", node, 0, UNLIMITED)
        elif self.accept("+"):
            node = ("repeat", node, 1, UNLIMITED)
        elif self.accept("{"):
            low, comma, high = self.text[self.at : self.text.index("}", self.at)].partition(",")
            self.at = self.text.index("}", self.at) + 1
            node = ("repeat", node, int(low), (int(high) if high else UNLIMITED) if comma else int(low))
        else:
            return node
        if self.peek("?") or self.peek("+") or self.peek("*"):
            self.fail("lazy and possessive quantifiers are not supported")
        return node

    def atom(self):
        for opening, wrap in (("(?=", False), ("(?!", True)):
            if self.accept(opening):
                return ("ahead", self.closed(), wrap)
        if self.accept("(?i:"):
            outer, self.fold = self.fold, True
            node = self.closed()
            self.fold = outer
            return node
        if self.accept("(?:"):
            return self.closed()
        if self.peek("(?"):
            self.fail("unknown group")
        if self.accept("("):
            return self.closed()
        if self.accept("["):
            return ("set", self.set_members())
        if self.accept("$"):
            return ("end",)
        if self.peek(".") or self.peek("^") or self.peek("?") or self.peek("*") or self.peek("+"):
            self.fail("unsupported operator")
        return ("set", self.folding(self.character()))

    def closed(self):
        node = self.alternation()
        if not self.accept(")"):
            self.fail("missing )")
        return node

    def folding(self, s):
        return ranges.folded(s) if self.fold else s

    def character(self):
        """One literal or escaped character, or a named set."""
        c = self.text[self.at]
        self.at += 1
        if c != "\\":
            return ((ord(c), ord(c)),)
        c = self.text[self.at]
        self.at += 1
        if c in LETTERS_OF_ESCAPES:
            return ((LETTERS_OF_ESCAPES[c],) * 2,)
        if c == "p":
            name = self.text[self.at + 1 : self.text.index("}", self.at)]
            self.at += len(name) + 2
            return ranges.named(name)
        known = {"s": ranges.SPACE, "S": codepoints.complement(ranges.SPACE), "d": ranges.category("Nd"), "w": ranges.word()}
        if c in known:
            return known[c]
        if c.isalnum():
            self.fail(f"unknown escape \\{c}")
        return ((ord(c), ord(c)),)

    def set_members(self):
        negated = self.accept("^")
        members = []
        while not self.accept("]"):
            if self.accept("&&"):
                if not self.accept("["):
                    self.fail("&& needs a set")
                members = [codepoints.intersection(codepoints.union(*members), self.set_members())]
                continue
            one = self.character()
            if self.peek("-") and not self.peek("-]"):
                self.at += 1
                high = self.character()
                if len(one) != 1 or one[0][0] != one[0][1] or len(high) != 1 or high[0][1] < one[0][0]:
                    self.fail("bad range")
                one = ((one[0][0], high[0][1]),)
            members.append(one)
        whole = self.folding(codepoints.union(*members))
        return codepoints.complement(whole) if negated else whole


def parse(text):
    parser = Parser(text)
    tree = parser.alternation()
    if parser.at != len(text):
        parser.fail("unbalanced )")
    return simplify(tree)


# ---- tree to simpler tree --------------------------------------------------------------------------------


def simplify(node):
    """Flatten sequences, join alternatives of single characters, and factor a first character that neighbours share."""
    if node[0] == "seq":
        items = []
        for item in map(simplify, node[1]):
            items += item[1] if item[0] == "seq" else [item]
        return items[0] if len(items) == 1 else ("seq", items)
    if node[0] == "alt":
        return _simplify_choices([simplify(c) for c in node[1]])
    if node[0] in ("repeat", "ahead"):
        return (node[0], simplify(node[1]), *node[2:])
    return node


def _simplify_choices(choices):
    if all(c[0] == "set" for c in choices):
        return ("set", codepoints.union(*(c[1] for c in choices)))
    out = []
    for choice in choices:
        head, rest = _head(choice)
        if head is not None and out and out[-1][0] == head:
            out[-1][1].append(rest)
        else:
            out.append((head, [rest]))
    nodes = []
    for head, rests in out:
        if len(rests) == 1 or head is None:
            nodes += [_joined(head, rest) for rest in rests]
        else:
            nodes.append(_joined(head, _simplify_choices(rests)))
    return nodes[0] if len(nodes) == 1 else ("alt", nodes)


def _head(node):
    """(first set, remainder) where a node starts with exactly one character, else (None, node)."""
    if node[0] == "set":
        return node[1], ("seq", [])
    if node[0] == "seq" and node[1] and node[1][0][0] == "set":
        rest = node[1][1:]
        return node[1][0][1], rest[0] if len(rest) == 1 else ("seq", rest)
    return None, node


def _joined(head, rest):
    if head is None:
        return rest
    tail = rest[1] if rest[0] == "seq" else [rest]
    return ("seq", [("set", head), *tail]) if tail else ("set", head)


def first_set(node):
    """A set that holds every character a match of `node` can start with, or None where it may start without one."""
    if node[0] == "set":
        return node[1]
    if node[0] == "repeat":
        return first_set(node[1]) if node[2] else None
    if node[0] == "alt":
        sets = [first_set(c) for c in node[1]]
        return None if None in sets else codepoints.union(*sets)
    if node[0] != "seq" or not node[1]:
        return None
    gathered = []
    for item in node[1]:
        s = first_set(item)
        if s is not None:
            return codepoints.union(*gathered, s)
        if item[0] == "repeat" and first_set(item[1]) is not None:
            gathered.append(first_set(item[1]))
        else:
            return None
    return None


# ---- tree to program -------------------------------------------------------------------------------------


class Writer:
    """Collects instructions of one rule list; `code` holds [opcode, class, target, a, b, c] with targets as indices."""

    def __init__(self):
        self.code = []
        self.classes = {}
        self.slots = 0

    def emit(self, opcode, s=None, a=0, b=0, c=0, d=0):
        number = -1 if s is None else self.classes.setdefault(s, len(self.classes))
        self.code.append([opcode, number, a, b, c, d])
        return len(self.code) - 1

    def slot(self):
        self.slots += 1
        return self.slots - 1

    def node(self, node, follow, safe):
        """`follow` is the set of which the next character must not be one (or None); `safe`: nothing after can fail."""
        if node[0] == "set":
            self.emit(CLASS, node[1])
        elif node[0] == "seq":
            for i, item in enumerate(node[1]):
                later = node[1][i + 1 :]
                excluded = _excluded(later[0]) if later else follow
                self.node(item, excluded, safe and all(_cannot_fail(x) for x in later))
        elif node[0] == "alt":
            self.choices(node[1], follow, safe)
        elif node[0] == "repeat":
            self.repeat(node, follow, safe)
        elif node[0] == "ahead":
            self.ahead(node)
        else:
            self.emit(END)

    def choices(self, choices, follow, safe):
        ends = []
        for i, choice in enumerate(choices):
            last = i == len(choices) - 1
            branch = None if last else self.emit(BRANCH, first_set(choice))
            self.node(choice, follow, safe)
            if not last:
                ends.append(self.emit(JUMP))
                self.code[branch][2] = len(self.code)
        for end in ends:
            self.code[end][2] = len(self.code)

    def repeat(self, node, follow, safe):
        _, body, least, most = node
        group = _counted_set(body)
        if body[0] == "set":
            possessive = follow is not None and not codepoints.difference(body[1], follow)
            self.emit(RUN, body[1], least, most, self.slot() if most == UNLIMITED else -1, int(possessive))
        elif group and most == UNLIMITED:
            if follow is None or codepoints.difference(group[0], follow):
                raise PatternError("a repeated group must be followed by a lookahead that excludes its characters")
            self.emit(GROUPS, group[0], least, group[1], self.slot())
        elif (least, most) == (0, 1):
            branch = self.emit(BRANCH, first_set(body))
            self.node(body, follow, safe)
            self.code[branch][2] = len(self.code)
        elif most == UNLIMITED:
            if not safe:
                raise PatternError("a match could fail after a repeated group")
            for _ in range(least):
                self.node(body, None, True)
            loop = self.emit(LOOP)
            self.node(body, None, True)
            self.emit(COMMIT, a=loop)
            self.code[loop][2] = len(self.code)
        else:
            raise PatternError("a repeated group with an upper limit")

    def ahead(self, node):
        _, body, negated = node
        if body[0] == "set":
            self.emit(LOOK, body[1], int(negated))
            return
        start = self.emit(AHEAD, b=int(negated))
        self.node(body, None, False)
        self.emit(END_AHEAD, b=int(negated))
        self.code[start][2] = len(self.code)


def _excluded(node):
    """The set that a negative lookahead forbids as the next character, else None."""
    if node[0] == "ahead" and node[2] and node[1][0] == "set":
        return node[1][1]
    return None


def _cannot_fail(node):
    return node[0] == "repeat" and node[2] == 0


def _counted_set(node):
    """(set, n) for a node that is exactly n characters of one set, else None."""
    if node[0] == "repeat" and node[1][0] == "set" and node[2] == node[3]:
        return node[1][1], node[2]
    return None


@cache
def decompose(s):
    """(128-bit ASCII map, 64-bit mask of kinds, ranges above ASCII where that mask is wrong)."""
    low = codepoints.intersection(s, ((0, 127),))
    bits = sum(1 << c for first, last in low for c in range(first, last + 1))
    high = codepoints.intersection(s, ((128, codepoints.LAST),))
    mask = 0
    covered = []
    for kind, members in enumerate(ranges.kind_ranges()):
        inside = codepoints.intersection(high, members)
        if inside and len(codepoints.difference(members, inside)) < len(inside):  # fewer ranges to toggle
            mask |= 1 << kind
            covered.append(members)
    covered = codepoints.union(*covered)
    return bits, mask, codepoints.union(codepoints.difference(high, covered), codepoints.difference(covered, high))


def class_record(s, toggles_at):
    """(32-byte record, toggles): ASCII map, mask of kinds, count and place of the ranges that differ."""
    bits, mask, toggles = decompose(s)
    record = bits.to_bytes(16, "little") + struct.pack("<QII", mask, len(toggles), toggles_at)
    return record, b"".join(struct.pack("<II", *pair) for pair in toggles)


def compile_rules(expressions):
    """The program of a list of expressions, applied one after the other, each within the pieces of the one before.

    int32 header: expressions, slots, entry offset per expression; then code, class records, toggles. All offsets are
    bytes from the start of the program.
    """
    writer = Writer()
    entries = []
    for text in expressions:
        entries.append(len(writer.code))
        writer.node(parse(text), None, True)
        writer.emit(ACCEPT)
    code_at = (8 + 4 * len(entries) + 7) & -8
    classes_at = code_at + INSTRUCTION * len(writer.code)
    toggles_at = classes_at + CLASS_BYTES * len(writer.classes)
    records, toggles = b"", b""
    for s in writer.classes:
        record, extra = class_record(s, toggles_at + len(toggles))
        records += record
        toggles += extra
    code = b""
    for opcode, number, a, b, c, d in writer.code:
        if opcode in (BRANCH, JUMP, AHEAD, LOOP, COMMIT):
            a = code_at + INSTRUCTION * a
        code += struct.pack("<6i", opcode, classes_at + CLASS_BYTES * number if number >= 0 else 0, a, b, c, d)
    header = struct.pack(f"<{2 + len(entries)}i", len(entries), writer.slots, *(code_at + INSTRUCTION * e for e in entries))
    return header.ljust(code_at, b"\0") + code + records + toggles
