"""What a line may say: one JSON object, a request by the table of its command; and how answers are spelled.

A request is a file in requests/: `FIELDS` rows are (name, kind, default, help), and `run(worker, **fields)` answers. Here fields
are known by name and have the right type; what numbers and texts mean is judged where the engine takes them. Refuses, naming the
nearest: unknown commands and fields. Called by the loop and, for its table, by the page.
"""

from posix import listdir

from .. import rules
from ..cli.jsonline import encode
from ..cli.output import SCHEMA_VERSION
from ..constrain.jsontext import read as read_json
from ..errors import LONGEST_PART, InvalidInputError, closest

LONGEST_LINE = 8 << 20  # bytes
LONGEST_ID = 256  # characters
LONGEST_NAME = 64  # of a command or a field, in messages
MOST_TEXTS = 10_000  # in a list of candidates or choices
MOST_STOPS = 64
MOST_MESSAGES = 10_000
REQUIRED = ...  # as a field's default
FOLDER = __file__.rpartition("/")[0] + "/requests"
COMMAND = ("command", "command", REQUIRED, "What is asked for.")
ID = ("id", "id", None, "Any text or whole number; every answer to this request repeats it.")
_names = []


def _list(value, most):
    return isinstance(value, list) and len(value) <= most


def _texts(value, most):
    return _list(value, most) and all(isinstance(text, str) for text in value)


def _ids(value):
    return isinstance(value, list) and all(map(_whole, value))


def _whole(value):
    return type(value) is int and -LARGEST <= value < 2 * LARGEST


def _name(value):
    return isinstance(value, str) and len(value) <= LONGEST_ID


LARGEST = 1 << 63
KINDS = {  # kind -> (whether a JSON value is of it, what is expected)
    "text": (lambda value: isinstance(value, str), "a text"),
    "path": (lambda value: isinstance(value, str) and "\0" not in value, "the path of a file"),
    "texts": (lambda value: _texts(value, MOST_TEXTS), f"a list of at most {MOST_TEXTS} texts"),
    "stops": (lambda value: _texts(value, MOST_STOPS), f"a list of at most {MOST_STOPS} texts"),
    "switch": (lambda value: isinstance(value, bool), "true or false"),
    "whole": (_whole, "a whole number of at most 64 bits"),
    "number": (lambda value: isinstance(value, float) or _whole(value), "a number"),
    "tokens": (_ids, "a list of token ids"),
    "prompt": (lambda value: isinstance(value, str) or _ids(value), "a text or a list of token ids"),
    "messages": (lambda value: _list(value, MOST_MESSAGES), f"a list of at most {MOST_MESSAGES} messages"),
    "object": (lambda value: isinstance(value, dict), "an object"),
    "schema": (lambda value: isinstance(value, (dict, bool)), "a JSON schema: an object, true or false"),
    "id": (lambda value: _whole(value) or _name(value), f"a text of at most {LONGEST_ID} characters or a whole number"),
    "rule": (lambda value: isinstance(value, str) and value in rules.RULES, ", ".join(rules.RULES)),
}


def names():
    """The commands, in alphabetical order: the files in requests/."""
    if not _names:
        _names.extend(sorted([name[:-3] for name in listdir(FOLDER) if name.endswith(".py") and name[0] != "_"]))
    return _names


def command(name):
    """The module of a command that `names` has."""
    return __import__(f"reflex.worker.requests.{name}", None, None, ["run"])


def read(line):
    """The object that a line (bytes) holds."""
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError("the request is not UTF-8", "UTF-8 text", f"byte {error.start} is not") from None
    value = read_json(text, "the request")
    if not isinstance(value, dict):
        raise InvalidInputError("the request is no object", '{"command": ...}', shown(value))
    return value


def identity(said):
    """The id of a request, None where it has none."""
    name, kind, default, _ = ID
    return _field(said, name, kind, default)


def checked(said):
    """(command, keyword arguments of its `run`) of a request's object."""
    name = said.get("command")
    if name is None:
        raise InvalidInputError("the request has no command", f"command: {' or '.join(names())}", "none")
    if not isinstance(name, str) or name not in names():
        near = f" (near: {closest(name[:LONGEST_NAME], names())})" if isinstance(name, str) else ""
        raise InvalidInputError("no such command", f"one of {', '.join(names())}{near}", shown(name), "command")
    rows = command(name).FIELDS
    known = [row[0] for row in (COMMAND, ID, *rows)]
    for field in said:
        if field not in known:
            near = f"one of {', '.join(known)} (near: {closest(field[:LONGEST_NAME], known)})"
            raise InvalidInputError(f"{name} has no such field", near, shown(field))
    return name, {field: _field(said, field, kind, default, name) for field, kind, default, _ in rows}


def _field(said, field, kind, default, of=""):
    value = said.get(field)
    if value is None:  # null is as good as nothing
        if default is REQUIRED:
            raise InvalidInputError(f"{of} needs {field}", KINDS[kind][1], "none", field)
        return default
    holds, expected = KINDS[kind]
    if not holds(value):
        raise InvalidInputError(f"{field} is of another kind", expected, shown(value), field)
    return value


def shown(value):
    """The beginning of a value, for messages."""
    if isinstance(value, (list, dict)):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    text = ascii(value[:LONGEST_NAME]) if isinstance(value, str) else {None: "null", True: "true", False: "false"}.get(value)
    return text or str(value)[:LONGEST_NAME]


def answer(kind, number, fields):
    """The bytes of an answer line; `number`: the id of the request, if it has one."""
    head = {"schema_version": SCHEMA_VERSION, "type": kind}
    if number is not None:
        head["id"] = number
    return f"{encode({**head, **fields})}\n".encode()


def problem(error):
    """The fields of an error answer; long parts are cut, as they may hold what the request said."""
    return {name: value if value is None else _cut(str(value)) for name, value in error.as_dict().items()}


def _cut(text):
    return text if len(text) <= LONGEST_PART else f"{text[:LONGEST_PART]}... ({len(text)} characters)"
