"""JSON strings: plain ones, names of members, and strings that match a pattern, as trees of grammar.py.

Every character is written in one way: as itself, or escaped where JSON says it must be. Called by schema.
"""

from ..tokenizer.codepoints import difference, intersection, union
from . import regex
from .facts import fail
from .formats import FORMATS
from .grammar import BYTES, SPLIT
from .lengths import within

LAST = 0x10FFFF
ITSELF = ((32, 33), (35, 91), (93, LAST))  # all but the quote, the backslash and control characters
SHORT = {34: b'\\"', 92: b"\\\\", 10: b"\\n", 9: b"\\t", 13: b"\\r", 8: b"\\b", 12: b"\\f"}
QUOTE = ("text", b'"')
EVERY = ((0, LAST),)


def characters(ranges):
    """The tree of one character out of code points, as JSON writes it."""
    plain = intersection(ranges, ITSELF)
    codes = [code for a, z in intersection(ranges, ((0, 31), (34, 34), (92, 92))) for code in range(a, z + 1)]
    escaped = [SHORT.get(code, b"\\u%04x" % code) for code in codes]
    ways = [("set", plain)] * bool(plain) + [("texts", tuple(escaped))] * bool(escaped)
    return ways[0] if len(ways) == 1 else ("alt", ways)


def plain(least, most):
    """Any string of so many characters."""
    return ("seq", [QUOTE, ("repeat", characters(EVERY), least, most), QUOTE]) if most is None or most >= least else ("alt", [])


def matching(pattern, word, least, most, where):
    """Strings in which a pattern occurs, or of a format, of so many characters."""
    if word is not None and word not in FORMATS:
        fail(f"the format {word!r} cannot be enforced", ", ".join(FORMATS), None, where)
    tree = regex.searching(pattern, ("set", EVERY)) if word is None else regex.tree_of(FORMATS[word])
    shortest, longest = lengths(tree)
    if shortest >= least and (most is None or (longest is not None and longest <= most)):
        return ("seq", [QUOTE, written(tree), QUOTE])
    found = within(tree, least, most, characters)
    if found is None:
        name, other = "minLength" if shortest < least else "maxLength", "pattern" if word is None else "format"
        expected = "less characters, or a pattern that implies it"
        fail(f"the keyword {name!r} cannot be enforced beside {other}", expected, None, where)
    return ("seq", [QUOTE, found, QUOTE])


def written(tree):
    """A tree over characters as one over their JSON spelling."""
    if tree[0] == "set":
        return characters(tree[1])
    if tree[0] == "repeat":
        return ("repeat", written(tree[1]), *tree[2:])
    return (tree[0], [written(part) for part in tree[1]])


def lengths(tree):
    """(least, most) characters of a tree of a pattern; most is None where there is no limit."""
    if tree[0] == "set":
        return 1, 1
    if tree[0] == "repeat":
        least, most = lengths(tree[1])
        largest = 0 if most == 0 or tree[3] == 0 else None if most is None or tree[3] is None else most * tree[3]
        return least * tree[2], largest
    parts = [lengths(part) for part in tree[1]]
    gather = sum if tree[0] == "seq" else max
    least = sum(a for a, _ in parts) if tree[0] == "seq" else min((a for a, _ in parts), default=0)
    return least, None if any(z is None for _, z in parts) else gather([z for _, z in parts] or [0])


def name(taken):
    """Names of members that are none of `taken`, without any that need an escape."""

    def made(grammar, target):
        close = grammar.add(BYTES, ((34, 34, target),))
        free = grammar.add(SPLIT, ())
        grammar.data[free] = (grammar.build(("set", ITSELF), free), close)
        prefixes = {text[:n] for text in taken for n in range(len(text) + 1)} | {""}
        nodes = {}
        for prefix in sorted(prefixes, key=len, reverse=True):
            nexts = {text[-1]: nodes[text] for text in prefixes if len(text) == len(prefix) + 1 and text.startswith(prefix)}
            codes = difference(ITSELF, union(tuple((ord(c), ord(c)) for c in nexts)))
            ways = [grammar.build(("set", codes), free)]
            ways += [grammar.build(("set", intersection(((ord(c), ord(c)),), ITSELF)), node) for c, node in nexts.items()]
            nodes[prefix] = grammar.add(SPLIT, (*ways, *([] if prefix in taken else [close])))
        return grammar.add(BYTES, ((34, 34, nodes[""]),))

    return ("made", made)
