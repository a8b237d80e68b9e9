"""What a JSON schema says about one value: keywords of all its parts brought together, and what a value must be to satisfy them.

`Schemas` owns a document: references, and pairs of schemas that must both hold. Refuses every keyword that is neither an annotation
nor enforced (KEYWORDS), by name and place. Called by schema.
"""

from ..errors import InvalidInputError, closest
from .jsontext import exact, write

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
KEYWORDS = {  # enforced keyword -> the types of values it speaks of, and what the documentation says
    "type": ((), "one of the seven names, or a list"),
    "enum": ((), "values that the other keywords exclude are left out"),
    "const": ((), ""),
    "properties": (("object",), "written in this order; those that are not required may be left out"),
    "required": (("object",), ""),
    "additionalProperties": (("object",), "where it is not given, only `properties` are written if there are any"),
    "minProperties": (("object",), "the first optional properties become required ones"),
    "maxProperties": (("object",), "the last optional properties are not written"),
    "items": (("array",), "a list of schemas means `prefixItems`"),
    "prefixItems": (("array",), "where `items` is not given, nothing follows them"),
    "additionalItems": (("array",), "only beside a list of `items`"),
    "minItems": (("array",), ""),
    "maxItems": (("array",), ""),
    "uniqueItems": (("array",), "`false`, or `true` where there is at most one item"),
    "minLength": (("string",), "in characters"),
    "maxLength": (("string",), "in characters"),
    "pattern": (("string",), "one, of the regular expressions above"),
    "format": (("string",), "one of those below, each as a part of what the standard allows"),
    "minimum": (("integer", "number"), "integers exactly; other numbers have at most 15 digits"),
    "maximum": (("integer", "number"), ""),
    "exclusiveMinimum": (("integer", "number"), "a number, not `true`"),
    "exclusiveMaximum": (("integer", "number"), "a number, not `true`"),
    "multipleOf": (("integer", "number"), "whole numbers; then only integers are written"),
    "anyOf": ((), ""),
    "oneOf": ((), "where types, constants, bounds or required properties tell the alternatives apart"),
    "allOf": ((), "brought together keyword by keyword"),
    "$ref": ((), "inside the document: `#`, `#/$defs/name`; schemas may contain themselves"),
}
ANNOTATIONS = ("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$schema", "$comment")
ANNOTATIONS += ("$defs", "definitions", "$id", "$anchor")
COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
NESTING = 48  # schemas inside schemas, a reference that leads back counts once


def fail(message, expected=None, found=None, where=None):
    raise InvalidInputError(f"JSON schema: {message}", expected, found, where)


def key(value):
    """Equal exactly where two JSON values are: 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return type(value).__name__, value
    if isinstance(value, (int, float)):
        number, places = exact(value)
        while places and number % 10 == 0:
            number, places = number // 10, places - 1
        return "number", number, places
    if isinstance(value, dict):
        return "object", frozenset((name, key(item)) for name, item in value.items())
    return "array", tuple(map(key, value))


def type_of(value):
    """The narrowest type name of a value."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    if isinstance(value, (int, float)):
        number, places = exact(value)
        return "integer" if number % 10**places == 0 else "number"
    return "string" if isinstance(value, str) else "object" if isinstance(value, dict) else "array"


def less(a, b):
    """Whether one (n, k) is below another."""
    return a[0] * 10 ** b[1] < b[0] * 10 ** a[1]


class Schemas:
    """A document. Schemas are known by identity, so those made here are made once."""

    def __init__(self, root):
        self.root = root
        self.pairs = {}

    def place(self, schema):
        """Where a schema stands, for messages."""
        pending = [(self.root, "#")]
        while pending:
            value, path = pending.pop()
            if value is schema:
                return path
            items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
            pending += [(item, f"{path}/{name}") for name, item in items]
        return "#"

    def both(self, *schemas):
        """The schema of what satisfies all of them."""
        parts = {}
        for schema in schemas:
            for part in self.pairs.get(id(schema), (None, None, [schema]))[2]:
                if part is not None and part is not True:
                    parts[id(part)] = part
        if len(parts) < 2:
            return next(iter(parts.values()), True)
        name = frozenset(parts)
        if name not in self.pairs:
            made = {"allOf": list(parts.values())}
            self.pairs[name] = made
            self.pairs[id(made)] = (made, name, list(parts.values()))
        return self.pairs[name]

    def target(self, reference, schema):
        """The schema that a $ref names."""
        where = self.place(schema)
        if not isinstance(reference, str) or not reference.startswith("#"):
            fail("a $ref leads outside the document", "#, or # and a path such as #/$defs/name", repr(reference), where)
        found = self.root
        for part in reference[1:].split("/")[1:]:
            name = _unquoted(part).replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and name in found:
                found = found[name]
            elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:
                fail("a $ref leads nowhere", f"a schema at {reference}", f"no {name!r}", where)
        if reference not in ("#", "") and reference[1] != "/":
            fail("a $ref by $anchor is not supported", "a path such as #/$defs/name", repr(reference), where)
        return found


def _unquoted(text):
    parts = text.split("%")
    try:
        data = parts[0].encode() + b"".join(bytes((int(part[:2], 16),)) + part[2:].encode() for part in parts[1:])
        return data.decode()
    except ValueError:
        return text


class Facts:
    """Everything that is asked of one value."""

    def __init__(self, schemas):
        self.schemas = schemas
        self.types = None  # a set of names, integer beside number; None: not said
        self.values = None  # a list; None: not said
        self.never = False
        self.keywords = {}  # numbers, bounds, texts by keyword; see _narrow
        self.patterns, self.formats = (), ()
        self.leading, self.items = [], None
        self.members, self.required, self.extra = {}, {}, None  # extra: of names that are not members
        self.declared = False  # whether there were any `properties`
        self.groups = []  # (anyOf or oneOf, schemas)
        self.origin = None

    def copy(self):
        new = Facts(self.schemas)
        for name, value in vars(self).items():
            vars(new)[name] = value.copy() if isinstance(value, (dict, list, set)) else value
        return new

    def absorb(self, schema, seen=()):
        """Add what a schema says; `seen`: references on the way here."""
        self.origin = self.origin or schema
        if schema is True or schema is False:
            self.never |= not schema
            return self
        if not isinstance(schema, dict):
            fail("this is no schema", "an object, true or false", write(schema), self.schemas.place(schema))
        for name in schema:
            if name not in KEYWORDS and name not in ANNOTATIONS:
                near = closest(str(name), [*KEYWORDS, *ANNOTATIONS])
                expected = f"a keyword of docs/constrain.md (near: {near})"
                fail(f"the keyword {name!r} cannot be enforced", expected, None, self.schemas.place(schema))
        if "$id" in schema and schema is not self.schemas.root:
            fail("an $id inside the document is not supported", "paths from its root", None, self.schemas.place(schema))
        if "$ref" in schema:
            target = self.schemas.target(schema["$ref"], schema)
            if any(target is other for other in seen) or len(seen) > NESTING:
                fail("a $ref leads back to itself with nothing between", where=self.schemas.place(schema))
            self.absorb(target, (*seen, target))
        for part in self._list(schema, "allOf"):
            self.absorb(part, seen)
        for name in ("anyOf", "oneOf"):
            if name in schema:
                self.groups.append((name, self._list(schema, name)))
        self._values(schema)
        self._numbers(schema)
        self._texts(schema)
        self._array(schema)
        self._object(schema)
        return self

    def _wrong(self, schema, name, expected):
        fail(f"{name} has no meaning", expected, write(schema[name]), self.schemas.place(schema))

    def _list(self, schema, name):
        found = schema.get(name, [])
        if not isinstance(found, (list, tuple)) or (name in schema and not found):
            self._wrong(schema, name, "a list that is not empty")
        return found

    def _values(self, schema):
        if "type" in schema:
            names = schema["type"] if isinstance(schema["type"], (list, tuple)) else [schema["type"]]
            if not names or any(name not in TYPES for name in names):
                self._wrong(schema, "type", ", ".join(TYPES))
            names = {*names, "integer"} if "number" in names else set(names)
            self.types = names if self.types is None else self.types & names
        for values in [self._list(schema, "enum")] * ("enum" in schema) + [[schema.get("const")]] * ("const" in schema):
            known = {key(value) for value in values}
            self.values = list(values) if self.values is None else [value for value in self.values if key(value) in known]

    def _numbers(self, schema):
        for name, low in (("minimum", True), ("maximum", False), ("exclusiveMinimum", True), ("exclusiveMaximum", False)):
            if name in schema:
                value = schema[name]
                if isinstance(value, bool) or not isinstance(value, (int, float)):
                    self._wrong(schema, name, "a number")
                bound = *exact(value), name.startswith("ex")
                side = "low" if low else "high"
                held = self.keywords.get(side)
                tighter = held is None or (less(held, bound) if low else less(bound, held))
                if tighter or (not less(held, bound) and not less(bound, held) and bound[2]):
                    self.keywords[side] = bound
        if "multipleOf" in schema:
            value = schema["multipleOf"]
            number, places = exact(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else (0, 0)
            if number <= 0 or number % 10**places:
                self._wrong(schema, "multipleOf", "a whole number, 1 or more: fractions depend on how a reader rounds")
            from math import lcm

            self.keywords["multiple"] = lcm(self.keywords.get("multiple", 1), number // 10**places)

    def _texts(self, schema):
        for name in COUNTS:
            if name in schema:
                value = schema[name]
                if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0 or value != int(value):
                    self._wrong(schema, name, "a whole number, 0 or more")
                pick = max if name.startswith("min") else min
                self.keywords[name] = pick(self.keywords.get(name, int(value)), int(value))
        for name, held in (("pattern", "patterns"), ("format", "formats")):
            if name in schema:
                if not isinstance(schema[name], str):
                    self._wrong(schema, name, "text")
                setattr(self, held, tuple(dict.fromkeys((*getattr(self, held), schema[name]))))

    def _array(self, schema):
        both = self.schemas.both
        if "items" not in schema and "prefixItems" not in schema and "uniqueItems" not in schema:
            return
        self.keywords["unique"] = self.keywords.get("unique", False) or schema.get("uniqueItems", False)
        items, leading = schema.get("items"), self._list(schema, "prefixItems")
        if isinstance(items, (list, tuple)):
            leading, items = items, schema.get("additionalItems")
        count = max(len(self.leading), len(leading))
        mine = [*self.leading, *[self.items] * count][:count]
        other = [*leading, *[items] * count][:count]
        self.leading = [both(a, b) for a, b in zip(mine, other, strict=True)]
        self.items = items if self.items is None else self.items if items is None else both(self.items, items)

    def _object(self, schema):
        both = self.schemas.both
        members, extra = schema.get("properties", {}), schema.get("additionalProperties")
        if not isinstance(members, dict):
            self._wrong(schema, "properties", "an object")
        for name in self._list(schema, "required") if schema.get("required", []) != [] else []:
            if not isinstance(name, str):
                self._wrong(schema, "required", "a list of names")
            self.required[name] = True
        self.declared |= "properties" in schema
        merged = {name: both(held, members.get(name, extra)) for name, held in self.members.items()}
        merged |= {name: both(self.extra, member) for name, member in members.items() if name not in self.members}
        self.members = merged
        if extra is not None:
            self.extra = extra if self.extra is None else both(self.extra, extra)

    # ---- what follows ----

    def generated(self):
        """The types of values that are written: those said, else those that the keywords speak of, else all."""
        if self.types is not None:
            return self.types
        spoken = {"low": "minimum", "high": "maximum", "multiple": "multipleOf", "unique": "items"}
        names = {spoken.get(name, name) for name in self.keywords}
        names |= {"pattern"} if self.patterns or self.formats else set()
        names |= {"items"} if self.leading or self.items is not None else set()
        names |= {"properties"} if self.declared or self.required or self.extra is not None else set()
        return {kind for name in names for kind in KEYWORDS[name][0]} or set(TYPES)

    def all_members(self):
        """{name: schema} of every member that is named, required ones too."""
        extra = True if self.extra is None else self.extra
        return self.members | {name: extra for name in self.required if name not in self.members}
