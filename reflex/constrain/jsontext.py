"""JSON read and written without the `json` package, which costs 3 ms of a cold start: its C scanner does the work.

Numbers keep their decimal digits, members that come twice are refused. Called by schema, and by the worker for its requests.
"""

from ..errors import InvalidInputError

SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\b": "\\b", "\f": "\\f"}
SPACE = " \t\r\n"
LARGEST_EXPONENT = 400
LARGEST_BITS = 1400


class Decimal(float):
    """A float that remembers how it was written: `text`."""

    def __init__(self, text):
        self.text = text


class _Reader:
    """What _json's scanner asks for."""

    strict = True
    object_hook = None
    parse_float = Decimal
    parse_int = int

    def __init__(self, what):
        self.what = what
        self.memo = {}

    def parse_constant(self, name):
        raise InvalidInputError(f"{self.what} is not JSON", "a number", name)

    def object_pairs_hook(self, pairs):
        found = {}
        for name, value in pairs:
            if name in found:
                raise InvalidInputError(f"{self.what} has a member twice", "each name once", repr(name))
            found[name] = value
        return found


def read(text, what="the JSON schema"):
    """The value of a JSON text; `what` it is, for messages."""
    start = len(text) - len(text.lstrip(SPACE + "\ufeff"))
    try:
        value, end = _scanned(text, start, what)
    except StopIteration as stop:
        raise InvalidInputError(f"{what} is not JSON", "a value", where=f"character {stop.value + 1}") from None
    except RecursionError:
        raise InvalidInputError(f"{what} is nested too deeply") from None
    except ValueError as error:
        raise InvalidInputError(f"{what} is not JSON", found=str(error)) from None
    if text[end:].strip(SPACE):
        raise InvalidInputError(f"{what} is not JSON", "one value", "more text", f"character {end + 1}")
    return value


def _scanned(text, start, what):
    """(the value that begins at a character, where it ends)"""
    from _json import make_scanner

    try:
        return make_scanner(_Reader(what))(text, start)
    except SystemError:  # it takes the class of its errors from this module, and up to Python 3.12 does not import it
        __import__("json.decoder")
        return make_scanner(_Reader(what))(text, start)


def write(value):
    """The one text of a value: no spaces, members as they come, only what must be escaped is."""
    if isinstance(value, str):
        if any("\ud800" <= c <= "\udfff" for c in value):
            raise InvalidInputError("the JSON schema holds a lone surrogate", "Unicode text", ascii(value))
        return '"' + "".join(SHORT.get(c) or (c if c >= " " else f"\\u{ord(c):04x}") for c in value) + '"'
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        if value.bit_length() > LARGEST_BITS:
            raise InvalidInputError("a number of the JSON schema is too large", f"at most {LARGEST_BITS} bits", value.bit_length())
        return int.__repr__(value)
    if isinstance(value, float):
        if value - value:
            raise InvalidInputError("the JSON schema holds what is no number", "a finite number", repr(value))
        return getattr(value, "text", None) or float.__repr__(value)
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(write, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{write(str(name))}:{write(item)}" for name, item in value.items()) + "}"
    raise InvalidInputError("the JSON schema holds what is not JSON", "JSON values", type(value).__name__)


def exact(value):
    """(n, k) with value = n / 10^k, k at least 0, of an int or float by its decimal digits."""
    if isinstance(value, int):
        return int(write(int(value))), 0
    digits, _, exponent = write(value).lower().partition("e")
    whole, _, fraction = digits.partition(".")
    power = int(exponent or 0) - len(fraction)
    if abs(power) > LARGEST_EXPONENT:
        raise InvalidInputError("a number of the JSON schema is too large or too small", found=write(value))
    number = int(whole + fraction)
    return (number * 10**power, 0) if power >= 0 else (number, -power)
