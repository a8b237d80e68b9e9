"""The values of a template and what they cost. Everything a template sees is plain data (text, numbers, lists, dictionaries) or
made here, so that there is nothing to escape to; every step and every character made is charged to a Budget, so that it ends.

Called by run and library. Refuses (Stopped): more steps, more characters or larger numbers than a real template needs.
"""

STEPS, STEPS_PER_MESSAGE = 500_000, 20_000  # evaluated nodes and comparisons
ROOM, ROOM_PER_LETTER = 32_000_000, 100  # characters and list places that a template makes in all; more for longer messages
DEPTH = 100  # of macro calls, and of lists within lists
BITS = 4096  # of an integer
RANGE = 100_000
SCALARS = (str, int, float, bool, type(None))


class Stopped(Exception):
    """The template asked to stop, did what it may not, or ran into a limit."""


class Budget:
    """What a template may still use."""

    __slots__ = ("depth", "most_room", "most_steps", "room", "steps")

    def __init__(self, messages=()):
        self.steps = self.most_steps = STEPS + STEPS_PER_MESSAGE * len(messages)
        self.room = self.most_room = ROOM + ROOM_PER_LETTER * weight(messages)
        self.depth = DEPTH

    def step(self, count=1):
        self.steps -= count
        if self.steps < 0:
            raise Stopped(f"takes more than {self.most_steps} steps")

    def make(self, size):
        """Charge for a value of `size` characters or places, before it is made."""
        self.room -= size
        if self.room < 0:
            raise Stopped(f"makes more than {self.most_room} characters")

    def read(self, text):
        """Charge for looking through a text or list."""
        self.step(1 + len(text) // 64)
        return text

    def made(self, value):
        """Charge for a value of bounded size that exists already."""
        self.make(len(value))
        return value

    def number(self, value):
        if isinstance(value, int) and value.bit_length() > BITS:
            raise Stopped(f"makes a number of more than {BITS} bits")
        return value


class Undefined:
    """What a name or key that does not exist gives: empty as a text or list, false, and an error for all else."""

    __slots__ = ("name",)

    def __init__(self, name):
        self.name = name

    def __bool__(self):
        return False

    def __len__(self):
        return 0

    def __iter__(self):
        return iter(())


class Namespace:
    """`namespace(...)`: the one thing whose parts a template may change."""

    __slots__ = ("parts",)

    def __init__(self, parts):
        self.parts = parts


class Loop:
    """`loop` inside a for."""

    __slots__ = ("at", "items")

    def __init__(self, items):
        self.items, self.at = items, -1

    def part(self, name):
        at, count = self.at, len(self.items)
        plain = {"index": at + 1, "index0": at, "first": at == 0, "last": at == count - 1, "length": count}
        plain |= {"revindex": count - at, "revindex0": count - at - 1, "depth": 1, "depth0": 0}
        if name in plain:
            return plain[name]
        if name == "cycle":
            return lambda *values: values[at % len(values)]
        if name == "previtem" and at > 0:
            return self.items[at - 1]
        if name == "nextitem" and at < count - 1:
            return self.items[at + 1]
        return Undefined(f"loop.{name}")


def weight(value):
    """Characters and elements of plain data."""
    if isinstance(value, dict):
        return sum(map(len, value)) + weight(list(value.values()))
    return sum(map(weight, value)) if isinstance(value, (list, tuple)) else len(value) if isinstance(value, str) else 1


def defined(value):
    """The value itself; what is undefined may not be used this way."""
    if isinstance(value, Undefined):
        raise Stopped(f"{value.name} is undefined")
    return value


def kind(value):
    return "undefined" if isinstance(value, Undefined) else type(value).__name__.lower()


def to_text(budget, value):
    """What printing a value shows."""
    if isinstance(value, str):
        return value
    if isinstance(value, Undefined):
        return ""
    return represent(budget, value)


def represent(budget, value, depth=0):
    """As Python's repr, and charged before it grows."""
    budget.step()
    if depth > DEPTH:
        raise Stopped("lists are nested too deeply")
    if isinstance(value, (list, tuple)):
        parts = [represent(budget, item, depth + 1) for item in value]
        inner = joined(budget, ", ", parts)
        return f"[{inner}]" if isinstance(value, list) else f"({inner},)" if len(parts) == 1 else f"({inner})"
    if isinstance(value, dict):
        pairs = [f"{represent(budget, key)}: {represent(budget, item, depth + 1)}" for key, item in value.items()]
        return "{" + joined(budget, ", ", pairs) + "}"
    if isinstance(value, SCALARS):
        return budget.made(repr(budget.number(value)))
    return "Undefined" if isinstance(value, Undefined) else f"<{kind(value)}>"


def joined(budget, separator, parts):
    budget.make(sum(map(len, parts)) + len(separator) * len(parts))
    return separator.join(parts)


def equal(budget, a, b, depth=0):
    """a == b, step by step."""
    budget.step()
    if depth > DEPTH:
        raise Stopped("lists are nested too deeply")
    if isinstance(a, Undefined) or isinstance(b, Undefined):
        return isinstance(a, Undefined) and isinstance(b, Undefined)
    if isinstance(a, str) and isinstance(b, str):
        return len(a) == len(b) and budget.read(a) == b
    if isinstance(a, (list, tuple)) and type(a) is type(b):
        return len(a) == len(b) and all(equal(budget, x, y, depth + 1) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(budget, a[key], b[key], depth + 1) for key in a)
    return a is b or (isinstance(a, SCALARS) and isinstance(b, SCALARS) and a == b)


def contains(budget, container, value):
    """value in container."""
    if isinstance(container, str):
        return as_text(value) in budget.read(container)
    if isinstance(container, dict):
        return isinstance(value, SCALARS) and value in container
    return any(equal(budget, item, value) for item in items(budget, container))


def less(budget, a, b):
    """a < b for two numbers, two texts or two lists of them."""
    budget.step()
    if isinstance(a, str) and isinstance(b, str):
        return budget.read(a) < b
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return a < b
    if isinstance(a, (list, tuple)) and type(a) is type(b):
        for x, y in zip(a, b, strict=False):
            if not equal(budget, x, y):
                return less(budget, x, y)
        return len(a) < len(b)
    raise Stopped(f"{kind(a)} and {kind(b)} have no order")


def items(budget, value):
    """What a loop over a value goes through: a list or tuple."""
    if isinstance(value, (list, tuple)):
        return value
    if isinstance(value, (str, dict, Undefined)):
        return list(budget.made(value))
    raise Stopped(f"a {kind(value)} cannot be looped over")


def as_text(value):
    if not isinstance(value, str):
        raise Stopped(f"a text is needed, found a {kind(value)}")
    return value


def as_whole(value):
    if not isinstance(value, int):
        raise Stopped(f"a whole number is needed, found a {kind(value)}")
    return value


def plain(value, where, depth=0):
    """A copy of data from outside, which may hold nothing else: raises ValueError with the place."""
    if depth > DEPTH:
        raise ValueError(f"{where} is nested more than {DEPTH} deep")
    if isinstance(value, SCALARS):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{where}[{index}]", depth + 1) for index, item in enumerate(value)]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: plain(item, f"{where}.{key}", depth + 1) for key, item in value.items()}
    raise ValueError(f"{where} is a {type(value).__name__}")
