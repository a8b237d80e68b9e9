"""What a template can call: attributes and methods of values, arithmetic, filters and tests, as Jinja and Python define them.

Called by run. A filter takes (budget, value, ...); everything of unbounded cost is charged before it is done. Refused: methods
that change a value, and whatever is not in the tables here.
"""

from .values import (
    BITS,
    Loop,
    Namespace,
    Stopped,
    Undefined,
    as_text,
    as_whole,
    contains,
    defined,
    equal,
    items,
    joined,
    kind,
    less,
    to_text,
)

CHANGING = ("append", "clear", "extend", "insert", "pop", "popitem", "remove", "reverse", "setdefault", "sort", "update")
PLAIN_METHODS = (  # of a text; the result is about as long as the text
    *("capitalize", "casefold", "lower", "lstrip", "rstrip", "strip", "swapcase", "title", "upper", "removeprefix"),
    *("removesuffix", "endswith", "startswith", "find", "rfind", "index", "rindex", "count", "isalnum", "isalpha", "isascii"),
    *("isdecimal", "isdigit", "isidentifier", "islower", "isnumeric", "isspace", "istitle", "isupper"),
)


def raise_exception(message):
    raise Stopped(str(message))


def number(value):
    if not isinstance(defined(value), (int, float)):
        raise Stopped(f"a number is needed, found a {kind(value)}")
    return value


def key(value):
    """A value that can be the key of a dictionary."""
    if not isinstance(value, (str, int, float, bool, type(None))):
        raise Stopped(f"a {kind(value)} cannot be a key")
    return value


# ---- parts of values -------------------------------------------------------------------------------------


def attribute(budget, owner, name):
    """owner.name"""
    if isinstance(defined(owner), dict):
        if name in ("items", "keys", "values", "get"):
            return getattr(Pairs(budget, owner), name)
        if name not in owner and name in CHANGING:
            raise Stopped(f"{name} is unsafe: it would change a value")
        return owner[name] if name in owner else Undefined(name)
    if isinstance(owner, Namespace):
        return owner.parts.get(name, Undefined(name))
    if isinstance(owner, Loop):
        return owner.part(name)
    if isinstance(owner, (list, tuple)) and name in CHANGING:
        raise Stopped(f"{name} is unsafe: it would change a value")
    if isinstance(owner, str):
        return text_method(budget, owner, name)
    if isinstance(owner, (list, tuple)) and name in ("count", "index"):
        return lambda value: getattr([True if equal(budget, value, item) else None for item in owner], name)(True)
    return Undefined(f"{kind(owner)}.{name}")


class Pairs:
    """The methods of a dictionary."""

    def __init__(self, budget, owner):
        self.budget, self.owner = budget, owner

    def items(self):
        return list(self.budget.made(self.owner).items())

    def keys(self):
        return list(self.budget.made(self.owner))

    def values(self):
        return list(self.budget.made(self.owner).values())

    def get(self, name, default=None):
        return self.owner.get(key(name), default)


def text_method(budget, text, name):
    """A method of a text, ready to be called."""
    if name in PLAIN_METHODS:

        def plain(*given):
            budget.read(text)
            found = getattr(text, name)(*given)
            return budget.made(found) if isinstance(found, str) else found

        return plain
    if name in ("split", "rsplit", "splitlines"):

        def parts(*given, **named):
            budget.make(len(text))
            return budget.made(getattr(text, name)(*given, **named))

        return parts
    if name == "replace":
        return lambda old, new, count=-1: replaced(budget, text, old, new, count)
    if name == "join":
        return lambda values: joined(budget, text, [as_text(value) for value in items(budget, values)])
    if name in ("center", "expandtabs", "format", "format_map", "ljust", "rjust", "translate", "zfill", "encode"):
        raise Stopped(f"{name} is unsafe: its result can be of any length")
    return Undefined(f"text.{name}")


def replaced(budget, text, old, new, count=-1):
    text, old, new = to_text(budget, text), to_text(budget, old), to_text(budget, new)
    most = text.count(old)
    found = most if count is None or count < 0 else min(as_whole(count), most)
    budget.make(len(text) + found * max(0, len(new) - len(old)))
    return text.replace(old, new, found)


def item(owner, index):
    """owner[index]"""
    if isinstance(owner, dict):
        return owner.get(key(index), Undefined(str(index)[:80]))
    if isinstance(owner, (list, tuple, str)) and isinstance(index, int):
        return owner[index] if -len(owner) <= index < len(owner) else Undefined(f"element {index}")
    if isinstance(owner, Namespace):
        return owner.parts.get(index, Undefined(str(index)))
    return Undefined(f"an element of a {kind(owner)}")


def sliced(budget, owner, start, stop, step):
    if not isinstance(owner, (list, tuple, str)):
        raise Stopped(f"a {kind(owner)} has no slices")
    return budget.made(owner[start:stop:step])


# ---- arithmetic ------------------------------------------------------------------------------------------


def calculated(budget, operator, a, b):
    """a operator b"""
    a, b = defined(a), defined(b)
    if operator == "+" and isinstance(a, (str, list, tuple)):
        if kind(a) != kind(b):
            raise Stopped(f"a {kind(a)} and a {kind(b)} cannot be added")
        budget.make(len(a) + len(b))
        return a + b
    if operator == "*" and isinstance(a, (str, list, tuple)) != isinstance(b, (str, list, tuple)):
        series, times = (a, b) if isinstance(a, (str, list, tuple)) else (b, a)
        budget.make(len(series) * max(0, as_whole(times)))
        return series * times
    if operator == "%" and isinstance(a, str):
        raise Stopped("the % operator on text is not available")
    a, b = number(a), number(b)
    if operator == "**" and isinstance(a, int) and isinstance(b, int) and a.bit_length() * abs(b) > BITS:
        raise Stopped(f"makes a number of more than {BITS} bits")
    return budget.number(ARITHMETIC[operator](a, b))


ARITHMETIC = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "**": lambda a, b: a**b,
}

# ---- tests -----------------------------------------------------------------------------------------------


def tested(budget, name, value, arguments):
    """value is name(arguments)"""
    test = TESTS.get(name)
    if test is None:
        raise Stopped(f"there is no test {name!r}")
    return test(budget, value, *arguments)


def _whole(value):
    return isinstance(value, int) and not isinstance(value, bool)


TESTS = {
    "defined": lambda budget, value: not isinstance(value, Undefined),
    "undefined": lambda budget, value: isinstance(value, Undefined),
    "none": lambda budget, value: value is None,
    "boolean": lambda budget, value: isinstance(value, bool),
    "true": lambda budget, value: value is True,
    "false": lambda budget, value: value is False,
    "string": lambda budget, value: isinstance(value, str),
    "integer": lambda budget, value: _whole(value),
    "float": lambda budget, value: isinstance(value, float),
    "number": lambda budget, value: isinstance(value, (int, float)),
    "mapping": lambda budget, value: isinstance(value, dict),
    "sequence": lambda budget, value: isinstance(value, (str, list, tuple, dict, Undefined)),
    "iterable": lambda budget, value: isinstance(value, (str, list, tuple, dict, Undefined)),
    "callable": lambda budget, value: callable(value),
    "even": lambda budget, value: number(value) % 2 == 0,
    "odd": lambda budget, value: number(value) % 2 == 1,
    "divisibleby": lambda budget, value, by: number(value) % number(by) == 0,
    "lower": lambda budget, value: to_text(budget, value).islower(),
    "upper": lambda budget, value: to_text(budget, value).isupper(),
    "in": lambda budget, value, container: contains(budget, container, value),
    "sameas": lambda budget, value, other: value is other,
    "eq": equal,
    "ne": lambda budget, value, other: not equal(budget, value, other),
    "lt": less,
    "gt": lambda budget, value, other: less(budget, other, value),
    "le": lambda budget, value, other: not less(budget, other, value),
    "ge": lambda budget, value, other: not less(budget, value, other),
}
TESTS |= {"equalto": TESTS["eq"], "==": TESTS["eq"], "!=": TESTS["ne"], "lessthan": TESTS["lt"], "greaterthan": TESTS["gt"]}


# ---- filters ---------------------------------------------------------------------------------------------


def filtered(budget, name, value, given, named):
    """value | name(given)"""
    from .filters import FILTERS

    function = FILTERS.get(name)
    if function is None:
        raise Stopped(f"there is no filter {name!r}")
    return function(budget, value, *given, **named)
