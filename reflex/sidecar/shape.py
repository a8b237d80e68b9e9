"""JSON held against a schema: the schemas of the OpenAPI document are what requests are judged by, so that the two cannot differ.

Knows the keywords that requests.py uses. One more is our own: where a value breaks a schema that has `x-refused`, what is asked for
is something that there is not, and the keyword's text is the remedy. Called by app.
"""

from ..errors import InvalidInputError, UnsupportedError, closest

SHOWN = 64  # characters of a value, in messages
LONGEST_NAME = 64  # of an unknown field that is compared with the known ones
REFERENCE = "#/components/schemas/"
TYPES = {  # JSON's name of a type -> whether a value is of it
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: (
        not isinstance(value, bool) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))
    ),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "null": lambda value: value is None,
}


class Shape:
    """The schemas by name; those that others refer to among them."""

    def __init__(self, schemas):
        self.schemas = schemas

    def judge(self, value, name):
        """Refuse a value that is not as the schema `name` says: InvalidInputError, or UnsupportedError."""
        self._judge(value, self.schemas[name], "")

    def _judge(self, value, schema, place):
        if "$ref" in schema:
            self._judge(value, self.schemas[schema["$ref"].removeprefix(REFERENCE)], place)
            return
        for keyword, rule in RULES.items():
            if keyword in schema and (expected := rule(value, schema[keyword])):
                raise refused(schema, expected, value, place)
        if "anyOf" in schema:
            self._any(value, schema["anyOf"], place)
        if isinstance(value, dict):
            self._members(value, schema, place)
        if isinstance(value, list) and "items" in schema:
            for index, item in enumerate(value):
                self._judge(item, schema["items"], f"{place}[{index}]")

    def _any(self, value, schemas, place):
        """Where none fits, the complaint is that of the schema whose type fits; of the deepest one where several do."""
        complaints = []
        for schema in schemas:
            try:
                self._judge(value, schema, place)
                return
            except (InvalidInputError, UnsupportedError) as error:
                complaints.append(error)
        deeper = [error for error in complaints if len(error.where or "") > len(place)]
        if deeper:
            raise max(deeper, key=lambda error: len(error.where))
        raise InvalidInputError(
            complaints[0].message, " or ".join([str(c.expected) for c in complaints]), shown(value), place or None
        )

    def _members(self, value, schema, place):
        known, more = schema.get("properties", {}), schema.get("additionalProperties", True)
        for name, item in value.items():
            if "propertyNames" in schema:
                self._judge(name, schema["propertyNames"], joined(place, name[:SHOWN]))
            if name in known:
                self._judge(item, known[name], joined(place, name))
            elif more is False:
                near = closest(name[:LONGEST_NAME], known)
                raise InvalidInputError(
                    "no such field", f"one of those in /openapi.json (near: {near})", shown(name), joined(place, name[:SHOWN])
                )
            elif isinstance(more, dict):
                self._judge(item, more, joined(place, name[:SHOWN]))
        for name in schema.get("required", ()):
            if name not in value:
                raise InvalidInputError(f"{place or 'the request'} needs {name}", name, "none", joined(place, name))


def joined(place, name):
    """The place of a member."""
    return f"{place}.{name}" if place else name


def refused(schema, expected, value, place):
    """The error for a value that a schema does not allow."""
    where = place or None
    if "x-refused" in schema:
        return UnsupportedError(f"{place} is not supported", expected, shown(value), where, schema["x-refused"])
    return InvalidInputError(f"{place or 'the request'} is not as described", expected, shown(value), where)


def shown(value):
    """The beginning of a value, for messages."""
    if isinstance(value, (list, dict)):
        if not value:
            return repr(value)
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    if isinstance(value, str):
        return ascii(value[:SHOWN])
    return (
        {None: "null", True: "true", False: "false"}.get(value) or str(value)[:SHOWN]
        if not isinstance(value, float)
        else repr(value)
    )


def _same(a, b):
    """Whether JSON values are equal: true is not 1."""
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def _type(value, names):
    names = (names,) if isinstance(names, str) else names
    return None if any(TYPES[name](value) for name in names) else " or ".join(names)


def _enum(value, values):
    return None if any(_same(value, each) for each in values) else f"one of {', '.join([shown(each) for each in values])}"


def _bound(holds, says):
    """A rule about numbers."""
    return lambda value, bound: None if not TYPES["number"](value) or holds(value, bound) else f"{says} {bound}"


def _size(kind, holds, says):
    """A rule about how many letters, items or members there are."""
    return lambda value, bound: None if not isinstance(value, kind) or holds(len(value), bound) else f"{says} {bound}"


RULES = {  # keyword -> what is expected, where a value breaks it
    "type": _type,
    "enum": _enum,
    "minimum": _bound(lambda value, bound: value >= bound, "at least"),
    "maximum": _bound(lambda value, bound: value <= bound, "at most"),
    "exclusiveMinimum": _bound(lambda value, bound: value > bound, "more than"),
    "exclusiveMaximum": _bound(lambda value, bound: value < bound, "less than"),
    "minLength": _size(str, lambda size, bound: size >= bound, "characters: at least"),
    "maxLength": _size(str, lambda size, bound: size <= bound, "characters: at most"),
    "minItems": _size(list, lambda size, bound: size >= bound, "items: at least"),
    "maxItems": _size(list, lambda size, bound: size <= bound, "items: at most"),
    "minProperties": _size(dict, lambda size, bound: size >= bound, "members: at least"),
    "maxProperties": _size(dict, lambda size, bound: size <= bound, "members: at most"),
}
