"""Jinja's filters, as far as chat templates use them. Each takes (budget, value, ...). Called by library through FILTERS."""

from . import library
from .values import Stopped, Undefined, as_text, as_whole, defined, equal, items, joined, less, to_text

HTML = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("'", "&#39;"), ('"', "&#34;"))
MOST_DIGITS = 300  # a number is rounded to


def default(budget, value, other="", boolean=False):
    return other if isinstance(value, Undefined) or (boolean and not value) else value


def join(budget, value, d="", attribute=None):
    found = items(budget, value)
    parts = found if attribute is None else [_part(budget, item, attribute) for item in found]
    return joined(budget, to_text(budget, d), [to_text(budget, part) for part in parts])


def trim(budget, value, chars=None):
    return budget.made(to_text(budget, value).strip(chars))


def text(name):
    return lambda budget, value: budget.made(getattr(to_text(budget, value), name)())


def title(budget, value):
    made, starts = [], True
    for letter in budget.made(to_text(budget, value)):
        made.append(letter.upper() if starts else letter.lower())
        starts = letter in "-({[<" or letter.isspace()
    return "".join(made)


def escape(budget, value):
    found = to_text(budget, value)
    for sign, name in HTML:
        found = library.replaced(budget, found, sign, name)
    return found


def indent(budget, value, width=4, first=False, blank=False):
    space = width if isinstance(width, str) else library.calculated(budget, "*", " ", width)
    lines = as_text(value).splitlines() or [""]
    budget.make(len(value) + len(space) * len(lines))
    shown = [lines[0], *(space + line if line or blank else line for line in lines[1:])]
    return (space if first else "") + "\n".join(shown)


def pairs(budget, value):
    if not isinstance(value, (dict, Undefined)):
        raise Stopped(f"a {library.kind(value)} has no pairs")
    return [] if isinstance(value, Undefined) else library.attribute(budget, value, "items")()


def length(budget, value):
    if not isinstance(value, (str, list, tuple, dict, Undefined)):
        raise Stopped(f"a {library.kind(value)} has no length")
    return len(value)


def first(budget, value):
    found = items(budget, value)
    return found[0] if found else Undefined("the first of nothing")


def last(budget, value):
    found = items(budget, value)
    return found[-1] if found else Undefined("the last of nothing")


def as_list(budget, value):
    return list(budget.made(items(budget, value)))


def reverse(budget, value):
    return budget.made(value[::-1]) if isinstance(value, str) else budget.made(list(items(budget, value))[::-1])


def integer(budget, value, default=0, base=10):
    try:
        if isinstance(value, str):
            budget.read(value)
            return budget.number(int(value, base) if base != 10 else int(float(value)))
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return default


def real(budget, value, default=0.0):
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return default


def rounded(budget, value, precision=0, method="common"):
    if abs(as_whole(precision)) > MOST_DIGITS or method not in ("common", "ceil", "floor"):
        raise Stopped("a number cannot be rounded like this")
    if method == "common":
        return round(library.number(value), precision)
    from math import ceil, floor

    scale = 10**precision
    return (ceil if method == "ceil" else floor)(library.number(value) * scale) / scale


def total(budget, value, attribute=None, start=0):
    found = library.number(start)
    for item in items(budget, value):
        found = budget.number(found + library.number(item if attribute is None else _part(budget, item, attribute)))
    return found


# ---- lists by a part of their elements -------------------------------------------------------------------


def _part(budget, value, path):
    """The attribute `a.b.0` of a value."""
    for name in path.split(".") if isinstance(path, str) else [path]:
        if isinstance(value, Undefined):
            return value
        number = int(name) if isinstance(name, str) and name.isdigit() and len(name) < 9 else name
        value = library.item(value, number) if not isinstance(number, str) else library.attribute(budget, value, number)
    return value


def map_(budget, value, *given, **named):
    found = budget.made(items(budget, value))
    if "attribute" in named:
        parts = [_part(budget, item, named["attribute"]) for item in found]
        return [named["default"] if isinstance(part, Undefined) and "default" in named else part for part in parts]
    return [library.filtered(budget, given[0], item, given[1:], named) for item in found]


def chosen(wanted, by_attribute):
    """select, reject, selectattr and rejectattr."""

    def choose(budget, value, *given):
        kept, found = [], budget.made(items(budget, value))
        path, test = (given[0], given[1:]) if by_attribute else (None, given)
        for item in found:
            part = _part(budget, item, path) if by_attribute else item
            if bool(library.tested(budget, test[0], part, test[1:]) if test else part) == wanted:
                kept.append(item)
        return kept

    return choose


class Key:
    """A value in the order of `less`, capital letters aside unless they count."""

    __slots__ = ("budget", "value")

    def __init__(self, budget, value, case_sensitive):
        self.budget = budget
        self.value = value.lower() if isinstance(value, str) and not case_sensitive else value

    def __lt__(self, other):
        return less(self.budget, self.value, other.value)


def _keys(budget, value, attribute, case_sensitive):
    """[(Key, element)]"""
    found = budget.made(items(budget, value))
    return [(Key(budget, item if attribute is None else _part(budget, item, attribute), case_sensitive), item) for item in found]


def sort(budget, value, reverse=False, case_sensitive=False, attribute=None):
    pairs = _keys(budget, value, attribute, case_sensitive)
    return [item for _, item in sorted(pairs, key=lambda pair: pair[0], reverse=bool(reverse))]


def dictsort(budget, value, case_sensitive=False, by="key", reverse=False):
    at = {"key": 0, "value": 1}.get(by)
    if at is None or not isinstance(value, dict):
        raise Stopped("dictsort sorts a dictionary by key or value")
    return sort(budget, list(value.items()), reverse, case_sensitive, at)


def extreme(largest):
    def find(budget, value, case_sensitive=False, attribute=None):
        pairs = _keys(budget, value, attribute, case_sensitive)
        if not pairs:
            return Undefined("the extreme of nothing")
        return (max if largest else min)(pairs, key=lambda pair: pair[0])[1]

    return find


def unique(budget, value, case_sensitive=False, attribute=None):
    kept = []
    for found, item in _keys(budget, value, attribute, case_sensitive):
        if not any(equal(budget, found.value, other.value) for other, _ in kept):
            kept.append((found, item))
    return [item for _, item in kept]


# ---- JSON ------------------------------------------------------------------------------------------------


def to_json(budget, value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    """As transformers does it: plain JSON, without Jinja's HTML escapes."""
    if isinstance(indent, int):
        indent = library.calculated(budget, "*", " ", indent)
    comma, colon = separators or ((", " if indent is None else ","), ": ")
    return _json(budget, value, (bool(ensure_ascii), indent, comma, colon, bool(sort_keys)), "\n")


def _json(budget, value, form, line):
    ensure_ascii, indent, comma, colon, sort_keys = form
    budget.step()
    if isinstance(defined(value), str):
        return _json_text(budget, value, ensure_ascii)
    if isinstance(value, (dict, list, tuple)):
        deeper = line if indent is None else line + indent
        if isinstance(value, dict):
            names = sort(budget, list(value), case_sensitive=True) if sort_keys else list(value)
            shown = [name if isinstance(name, str) else _json(budget, name, form, line) for name in names]
            pairs = zip(shown, names, strict=True)
            parts = [_json_text(budget, s, ensure_ascii) + colon + _json(budget, value[name], form, deeper) for s, name in pairs]
        else:
            parts = [_json(budget, item, form, deeper) for item in value]
        opener, closer = "{}" if isinstance(value, dict) else "[]"
        if not parts:
            return opener + closer
        if indent is None:
            return opener + joined(budget, comma, parts) + closer
        return opener + deeper + joined(budget, comma + deeper, parts) + line + closer
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (int, float)):
        return repr(value).replace("inf", "Infinity").replace("nan", "NaN")
    raise Stopped(f"a {library.kind(value)} has no JSON")


NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f", '"': '\\"', "\\": "\\\\"}


def _json_text(budget, text, ensure_ascii):
    budget.make(6 * len(text) if ensure_ascii else 2 * len(text))
    parts = []
    for letter in text:
        code = ord(letter)
        if letter in NAMED:
            letter = NAMED[letter]
        elif code < 32 or (ensure_ascii and 126 < code < 65536):
            letter = f"\\u{code:04x}"
        elif ensure_ascii and code >= 65536:
            code -= 65536
            letter = f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 1023):04x}"
        parts.append(letter)
    return '"' + "".join(parts) + '"'


FILTERS = {
    "abs": lambda budget, value: abs(library.number(value)),
    "attr": library.attribute,
    "capitalize": text("capitalize"),
    "count": length,
    "d": default,
    "default": default,
    "dictsort": dictsort,
    "e": escape,
    "escape": escape,
    "first": first,
    "float": real,
    "indent": indent,
    "int": integer,
    "items": pairs,
    "join": join,
    "last": last,
    "length": length,
    "list": as_list,
    "lower": text("lower"),
    "map": map_,
    "max": extreme(True),
    "min": extreme(False),
    "reject": chosen(False, False),
    "rejectattr": chosen(False, True),
    "replace": library.replaced,
    "reverse": reverse,
    "round": rounded,
    "safe": lambda budget, value: to_text(budget, value),
    "select": chosen(True, False),
    "selectattr": chosen(True, True),
    "sort": sort,
    "string": lambda budget, value: to_text(budget, value),
    "sum": total,
    "title": title,
    "tojson": to_json,
    "trim": trim,
    "unique": unique,
    "upper": text("upper"),
}
