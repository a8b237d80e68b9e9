"""JSON schemas to trees of grammar.py: every text of the tree is compact JSON of a value that satisfies the schema.

Not every such value can be written, where that would need memory or guesses: members keep the order of `properties`, there is no
white space, numbers have a limit of digits. What cannot be enforced is refused by name (facts.py). A schema that refers to itself
becomes a rule, so nesting is limited by the tokens that are left, not by the size of the grammar. Called by Constraint.
"""

from . import numbers, strings
from .exclusion import accepts, apart
from .facts import NESTING, TYPES, Facts, Schemas, fail
from .jsontext import read, write

VALUE = "any value"
COMBINATIONS = 1000  # alternatives of alternatives


def schema_tree(json_schema, grammar):
    """The tree of a schema: a dict, True, False, or JSON text. Rules are defined in `grammar`."""
    root = read(json_schema) if isinstance(json_schema, str) else json_schema
    if not isinstance(root, (dict, bool)):
        fail("this is no schema", "an object, true or false", type(root).__name__)
    return Trees(root, grammar).tree(root)


class Trees:
    """Builds the tree of each schema once; what is met again is a rule."""

    def __init__(self, root, grammar):
        self.grammar = grammar
        self.schemas = Schemas(root)
        self.met = {}  # id of a schema -> (schema, how often)
        self.names = {}  # id of a schema -> its rule
        self.here = []  # ids of schemas that speak of the value at hand
        self.depth = 0
        self.combined = 0

    def tree(self, schema, inner=True):
        """The tree of a schema; `inner`: of a new value, not of an alternative for the one at hand."""
        while isinstance(schema, dict) and set(schema) == {"$ref"} and self.plain(schema):
            schema = self.schemas.target(schema["$ref"], schema)
        if schema is True or schema == {}:
            return self.anything()
        number = id(schema)
        outer = self.here
        if not inner and number in outer:
            fail("a $ref leads back to itself with nothing between", where=self.schemas.place(schema))
        if number in self.names:
            return ("rule", self.names[number])
        again = number in self.met
        self.met[number] = schema
        if again:
            self.names[number] = f"schema {len(self.names)}"
        self.here = [number] if inner else [*outer, number]
        self.depth += 1
        if self.depth > NESTING:
            fail("schemas are nested too deeply", f"at most {NESTING}")
        found = self.of(Facts(self.schemas).absorb(schema))
        self.depth -= 1
        self.here = outer
        if number in self.names:
            self.grammar.define(self.names[number], found)
            return ("rule", self.names[number])
        return found

    def plain(self, schema):
        """Follows references; refuses those in a circle."""
        seen = []
        while isinstance(schema, dict) and set(schema) == {"$ref"}:
            if any(schema is other for other in seen):
                fail("a $ref leads back to itself with nothing between", where=self.schemas.place(schema))
            seen.append(schema)
            schema = self.schemas.target(schema["$ref"], schema)
        return True

    def anything(self):
        if VALUE not in self.grammar.rules:
            self.grammar.rules[VALUE] = None
            scalar = [("texts", (b"null", b"true", b"false")), numbers.unbounded(), strings.plain(0, None)]
            nested = [("array", [], ("rule", VALUE), 0, None), ("object", [], strings.name(()), ("rule", VALUE))]
            self.grammar.define(VALUE, ("alt", scalar + nested))
        return ("rule", VALUE)

    # ---- one value ----

    def of(self, facts):
        """The tree of what facts ask for, its alternatives tried one by one."""
        if facts.never:
            return ("alt", [])
        if not facts.groups:
            return self.value(facts)
        kind, schemas = facts.groups[0]
        rest = facts.copy()
        rest.groups = facts.groups[1:]
        self.combined += len(schemas)
        if self.combined > COMBINATIONS:
            fail("there are too many alternatives of alternatives", f"at most {COMBINATIONS}")
        if kind == "oneOf":
            parts = [rest.copy().absorb(schema) for schema in schemas]
            for i, part in enumerate(parts):
                for j, other in enumerate(parts):
                    if i != j and not apart(part, other):
                        message = f"oneOf: nothing tells alternatives {i + 1} and {j + 1} apart"
                        fail(message, "anyOf, or a constant member", None, self.schemas.place(schemas))
        if self.alone(facts):
            return ("alt", [self.tree(schema, False) for schema in schemas])
        return ("alt", [self.of(rest.copy().absorb(schema)) for schema in schemas])

    @staticmethod
    def alone(facts):
        """Whether a group of alternatives is all that is asked for."""
        blank = Facts(facts.schemas)
        blank.origin, blank.groups = facts.origin, facts.groups
        return len(facts.groups) == 1 and vars(blank) == vars(facts)

    def value(self, facts):
        if facts.values is not None:
            bare = facts.copy()
            bare.values = None
            texts = [write(value).encode() for value in facts.values if accepts(bare, value)]
            return ("texts", tuple(texts)) if texts else ("alt", [])
        kinds = facts.generated()
        if len(kinds) == len(TYPES) and not self.structured(facts):
            return self.anything()
        made = [getattr(self, "_" + kind)(facts) for kind in sorted(kinds) if not (kind == "integer" and "number" in kinds)]
        return made[0] if len(made) == 1 else ("alt", made)

    @staticmethod
    def structured(facts):
        """Whether anything but types is said."""
        said = facts.keywords, facts.patterns, facts.formats, facts.leading, facts.all_members()
        return any(said) or facts.items is not None or facts.extra is not None

    def _null(self, facts):
        return ("text", b"null")

    def _boolean(self, facts):
        return ("texts", (b"true", b"false"))

    def _integer(self, facts):
        held = facts.keywords
        return numbers.integers(held.get("low"), held.get("high"), held.get("multiple", 1))

    def _number(self, facts):
        held = facts.keywords
        if "multiple" in held:
            return self._integer(facts)
        if "low" in held or "high" in held:
            return numbers.decimals(held.get("low"), held.get("high"))
        return numbers.unbounded()

    def _string(self, facts):
        held = facts.keywords
        least, most = held.get("minLength", 0), held.get("maxLength")
        rules = [*((pattern, None) for pattern in facts.patterns), *((None, word) for word in facts.formats)]
        where = self.schemas.place(facts.origin)
        if len(rules) > 1:
            fail("two patterns or formats of one string cannot be enforced together", "one of them", None, where)
        if not rules:
            return strings.plain(least, most)
        return strings.matching(*rules[0], least, most, where)

    def _array(self, facts):
        held = facts.keywords
        least, most = held.get("minItems", 0), held.get("maxItems")
        leading, items = facts.leading, facts.items
        if items is None and leading and least <= len(leading):
            items = False
        if items is False:
            most = len(leading) if most is None else min(most, len(leading))
        if held.get("unique") and (most is None or most > 1):
            fail("the keyword 'uniqueItems' cannot be enforced", "maxItems 1", None, self.schemas.place(facts.origin))
        if most is not None and most < least:
            return ("alt", [])
        leading = leading if most is None else leading[:most]
        item = None if items is False or most == len(leading) else self.tree(True if items is None else items)
        return ("array", [self.tree(schema) for schema in leading], item, least, most)

    def _object(self, facts):
        held, members = facts.keywords, facts.all_members()
        least, most = held.get("minProperties", 0), held.get("maxProperties")
        open_ended = not facts.declared and not members if facts.extra is None else facts.extra is not False
        required = [name for name in members if name in facts.required]
        if most is not None and most < len(members) + (1 << 60 if open_ended else 0):
            open_ended = False
            if most < len(required):
                return ("alt", [])
            optional = [name for name in members if name not in facts.required][: most - len(required)]
            members = {name: schema for name, schema in members.items() if name in facts.required or name in optional}
        for name in members:
            if least > len(required) and name not in required:
                required.append(name)
        if least > len(required):
            if open_ended or (most == 0 and facts.extra is not False):
                where = self.schemas.place(facts.origin)
                fail("the keyword 'minProperties' cannot be enforced", "properties that are named", None, where)
            return ("alt", [])
        rows = [(write(name).encode(), name in required, self.tree(schema)) for name, schema in members.items()]
        if not open_ended:
            return ("object", rows, None, None)
        return ("object", rows, strings.name(members), self.tree(True if facts.extra is None else facts.extra))
