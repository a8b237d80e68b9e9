"""For tests of constrained generation: a vocabulary of nasty tokens, logits that want trouble, and random schemas."""

import math
import random
from array import array

from reflex import native
from reflex.constrain import grammar_of
from reflex.constrain.words import Words
from reflex.generate import Generation
from reflex.sample import Sampling
from reflex.session import Session
from reflex.tokenizer import Stream

NASTY = [
    b'{"',
    b'":"',
    b'","',
    b'"}',
    b'"],',
    b"]}",
    b"}}",
    b"[[",
    b"]]",
    b'":',
    b',"',
    b'""',
    b'"a"',
    b'\\"',
    b"\\\\",
    b"\\u00",
    b"\\n",
]
NASTY += [
    b"  ",
    b"\n",
    b" \n\t ",
    b"    ",
    b"12",
    b"00",
    b"-1",
    b".5",
    b"e9",
    b"999",
    b"true",
    b"false",
    b"null",
    b"nul",
    b"tr",
    b"ab",
    b"the ",
]
NASTY += [
    b"\xc3",
    b"\xc3\xa9",
    b"\xe2\x82",
    b"\xe2\x82\xac",
    b"\xf0\x9f",
    b"\xf0\x9f\x98\x80",
    b"\x80\x80",
    b"\xef\xbf\xbd",
    b"\xff\xfe",
    b"\xed\xa0\x80",
]
NASTY += [
    b"x" * 20,
    b"0123456789",
    b'a":{"b":[',
    b'"},{"',
    b"2024-",
    b"-01-",
    b"T10:",
    b"@",
    b"aaaaaaaa",
    b"value",
    b"name",
    b"kind",
]


class Tokenizer:
    """Ids 0 and 1 end a generation, 2 is a control token that looks like text, then every byte, then NASTY."""

    def __init__(self, extra=NASTY, single=range(256), ends=(0, 1)):
        self.pieces = [b"<end>", b"<stop>", b'"', *(bytes((value,)) for value in single), *extra]
        self.eog = frozenset(ends)
        self.size = len(self.pieces)
        self.add_eos, self.eos = False, None
        data = b"".join(len(piece).to_bytes(8, "little") + piece for piece in self.pieces)
        self._memory = native.alloc(len(data))
        native.view(self._memory.address, len(data))[:] = data
        self._bytes = len(data)

    def layout(self):
        return (self._memory.address, self._bytes, self.size), 0, "plain", {2: 3}

    def encode(self, text, **options):
        return [3]

    def piece(self, token, special=True):
        return b"" if token < 3 and not special else self.pieces[token]

    def stream(self):
        return Stream(self, False)


class Plan:
    """No model: `rule(step)` makes each row of logits."""

    steady = True

    def __init__(self, vocabulary, context, rule):
        self.vocabulary, self.context, self.rule = vocabulary, context, rule
        self.steps = 0

    def follow(self, *request):
        raise AssertionError("a backend that makes tokens by itself knows nothing of constraints")

    def evaluate(self, *batch):
        self.steps += 1

    def logits(self, row):
        return memoryview(self.rule(self.steps))


def rules(tokenizer, seed):
    """{name: rule} of hostile logits."""
    size, pieces = tokenizer.size, tokenizer.pieces
    base = random.Random(seed)
    noise = [array("f", (base.gauss(0, 4) for _ in range(size))) for _ in range(7)]

    def prefer(score):
        row = array("f", (score(piece) + base.random() for piece in pieces))
        return lambda step: row

    return {
        "noise": lambda step: noise[step % 7],
        "longest": prefer(len),
        "white space": prefer(lambda piece: 10 * sum(c in b" \n\t" for c in piece)),
        "quotes": prefer(lambda piece: 10 * piece.count(b'"') + 5 * piece.count(b"\\")),
        "nesting": prefer(lambda piece: 10 * (piece.count(b"[") + piece.count(b"{")) - len(piece)),
        "digits": prefer(lambda piece: 5 * sum(48 <= c < 58 for c in piece)),
        "high bytes": prefer(lambda piece: 5 * sum(c > 127 for c in piece)),
        "ends": prefer(lambda piece: 50 * piece.startswith(b"<")),
        "flat": lambda step: array("f", [0.0]) * size,
        "hopeless": lambda step: array("f", [-math.inf]) * size,
    }


def complete(constraint, tokenizer, rule, most, **settings):
    """The finished Generation."""
    session = Session(Plan(tokenizer.size, most + 8, rule), tokenizer)
    generation = Generation(session, "p", most, sampling=Sampling(**settings), constraint=constraint)
    generation.result()
    return generation


def bound(grammar, tokenizer):
    return grammar.bind(Session(Plan(tokenizer.size, 8, None), tokenizer))


def begin(constraint, most):
    return constraint.begin(Session(Plan(constraint.size, 8, None), constraint.tokenizer), most)


# ---- random schemas ----

NAMES = ["a", "b", "name", "kind", "value", "naïve", 'quo"te', "", "x y", "{}", "日本"]
WORDS = ["red", "green", "re", "", "grün", 'say "hi"', "line\nbreak", "tab\t", "\\", "\u0001", "😀", "null", "1"]
PATTERNS = [r"^[a-z]{1,5}$", r"^\d{3}-\d{4}$", "a", r"^(foo|bar)+$", r"\w\s\w", r"^[^\"\\]{2}$", r"^.{0,4}x", r"[\"\\]$", "^$"]
FORMATS = ["date", "time", "date-time", "uuid", "ipv4", "ipv6", "hostname", "email"]


class Generator:
    """Random schemas of the supported subset; most can be satisfied."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def document(self):
        pick = self.random
        if pick.random() < 0.2:
            return self.recursive()
        schema = self.schema(3)
        if pick.random() < 0.2 and isinstance(schema, dict):
            schema = {
                "$defs": {"part": self.schema(1)},
                "type": "object",
                "properties": {"one": {"$ref": "#/$defs/part"}, "two": schema},
            }
            schema["required"] = pick.sample(["one", "two", "three"], pick.randint(0, 2))
        return schema

    def recursive(self):
        pick = self.random
        node = {
            "type": "object",
            "properties": {"value": self.schema(0), "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}},
        }
        node["properties"]["children"] = {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": pick.randint(0, 3)}
        node["required"] = pick.sample(["value", "next", "children"], pick.randint(0, 3))
        node["additionalProperties"] = False
        return {"$defs": {"node": node}, "$ref": "#/$defs/node", "title": "a tree"}

    def schema(self, depth):
        kinds = ["string", "integer", "number", "boolean", "null", "enum", "const", "union", "anything", "pattern", "format"]
        kinds += ["object", "array", "object", "array", "anyOf", "oneOf", "allOf", "map", "tuple"] * (depth > 0)
        return getattr(self, "_" + self.random.choice(kinds))(depth - 1)

    def _bounds(self, low, high, names):
        a, z = sorted((self.random.randint(low, high), self.random.randint(low, high)))
        return {name: value for name, value in zip(names, (a, z), strict=True) if self.random.random() < 0.6}

    def _string(self, depth):
        return {"type": "string", **self._bounds(0, 12, ("minLength", "maxLength"))}

    def _pattern(self, depth):
        found = {"type": "string", "pattern": self.random.choice(PATTERNS)}
        return found | (self._bounds(0, 12, ("minLength", "maxLength")) if self.random.random() < 0.4 else {})

    def _format(self, depth):
        return {"type": "string", "format": self.random.choice(FORMATS)}

    def _integer(self, depth):
        reach = self.random.choice([5, 120, 10**6, 10**25])
        names = self.random.choice([("minimum", "maximum"), ("exclusiveMinimum", "maximum"), ("minimum", "exclusiveMaximum")])
        found = {"type": "integer", **self._bounds(-reach, reach, names)}
        if self.random.random() < 0.2:
            found["multipleOf"] = self.random.choice([1, 2, 3, 7, 10, 25])
        return found

    def _number(self, depth):
        found = {"type": "number"}
        places = self.random.choice([0, 1, 2, 7])
        reach = self.random.choice([1, 1, 30, 10**5, 10**12])
        a, z = sorted(round(self.random.uniform(-reach, reach), places) for _ in range(2))
        names = self.random.choice(
            [("minimum", "maximum"), ("exclusiveMinimum", "exclusiveMaximum"), ("minimum", "exclusiveMaximum")]
        )
        return found | {name: value for name, value in zip(names, (a, z), strict=True) if self.random.random() < 0.6}

    def _boolean(self, depth):
        return {"type": "boolean"}

    def _null(self, depth):
        return {"type": "null", "description": "nothing"}

    def _value(self):
        pick = self.random
        scalars = [
            pick.choice(WORDS),
            pick.randint(-20, 20),
            round(pick.uniform(-3, 3), 2),
            True,
            None,
            [],
            {},
            [1, "a"],
            {"a": [None]},
            1e-7,
        ]
        return pick.choice(scalars)

    def _enum(self, depth):
        found = {"enum": [self._value() for _ in range(self.random.randint(1, 5))]}
        return found | ({"type": ["string", "integer", "null", "array", "boolean"]} if self.random.random() < 0.3 else {})

    def _const(self, depth):
        return {"const": self._value()}

    def _union(self, depth):
        return {
            "type": self.random.sample(["string", "integer", "boolean", "null", "array"], 2),
            "maxLength": 5,
            "maxItems": 2,
            "maximum": 50,
        }

    def _anything(self, depth):
        return self.random.choice([True, {}, {"title": "whatever"}])

    def _object(self, depth):
        pick = self.random
        names = pick.sample(NAMES, pick.randint(0, 4))
        found = {"type": "object", "properties": {name: self.schema(depth) for name in names}}
        found["required"] = pick.sample(names, pick.randint(0, len(names)))
        if pick.random() < 0.6:
            found["additionalProperties"] = pick.choice([False, True, self.schema(0)])
        if pick.random() < 0.2:
            found["minProperties"] = pick.randint(0, len(names))
        if pick.random() < 0.2:
            found["maxProperties"] = pick.randint(len(found["required"]), 6)
        return found

    def _map(self, depth):
        return {"type": "object", "additionalProperties": self.schema(depth), "properties": {"name": self.schema(0)}}

    def _array(self, depth):
        return {"type": "array", "items": self.schema(depth), **self._bounds(0, 4, ("minItems", "maxItems"))}

    def _tuple(self, depth):
        pick = self.random
        found = {"type": "array", "prefixItems": [self.schema(depth) for _ in range(pick.randint(1, 3))]}
        return found | pick.choice(
            [{}, {"items": False}, {"items": self.schema(0)}, {"minItems": 2}, {"minItems": 5}, {"maxItems": 2}]
        )

    def _anyOf(self, depth):
        return {"anyOf": [self.schema(depth) for _ in range(self.random.randint(1, 3))]}

    def _oneOf(self, depth):
        if self.random.random() < 0.5:
            return {
                "oneOf": [
                    {"type": "string"},
                    {"type": "integer", "minimum": 3},
                    {"type": "object", "properties": {"a": self.schema(depth)}},
                ]
            }
        rows = []
        for name in ("red", "green"):
            properties = {"kind": {"const": name}, "value": self.schema(depth)}
            rows.append({"type": "object", "properties": properties, "required": ["kind"]})
        return {"oneOf": rows}

    def _allOf(self, depth):
        one = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0}, "b": self.schema(depth)}, "required": ["a"]}
        other = {
            "properties": {"a": {"maximum": 40}, "c": self.schema(0)},
            "required": self.random.choice([["c"], ["b", "c"], ["a"]]),
        }
        return {"allOf": [one, other], **self.random.choice([{}, {"minProperties": 1}, {"properties": {"b": True}}])}


TOKENIZER = Tokenizer()
LETTERS = Tokenizer(extra=[b"aa", b"ab", b"abab", b"ba", b"aaaa"])


def asking(tokenizer=TOKENIZER, **asked):
    """The constraint of a regular expression, choices or a schema over a vocabulary."""
    return bound(grammar_of(**asked), tokenizer)


def matches(constraint, text):
    """Whether a text is one of the constraint's, by its table of states alone."""
    states, state = constraint.states, constraint.states.start
    for byte in text.encode():
        state = states.step(state, byte)
        if state < 0:
            return False
    return states.ends[state]


def check_words(tokenizer, size):
    """The words of a constraint are the pieces of a tokenizer's first `size` tokens, but for special ones and ends."""
    words = Words(tokenizer, size)
    places = native.view(words.entries, 3 * words.count, "I").tolist()
    found = {}
    for i in range(words.count):
        token, begin, end = places[3 * i : 3 * i + 3]
        found[token] = native.bytes_at(words.text + begin, end - begin)
    usable = [t for t in range(size) if not tokenizer.is_special(t) and t not in tokenizer.eog and tokenizer.piece(t, False)]
    blank = [t for t in range(size) if tokenizer.is_special(t) and t not in tokenizer.eog and tokenizer.piece(t, False)]
    blank = [t for t in blank if not tokenizer.piece(t, False).strip(b" \t\n\r\v\f")]
    assert found == {token: tokenizer.piece(token, False) for token in [*usable, *blank]}
    first = native.view(words.first, 257, "I").tolist()
    assert first[-1] == words.count and words.longest == max(map(len, found.values()))
    assert [bool(s) for s in words.single] == [bytes([b]) in found.values() for b in range(256)]
    assert all(found[places[3 * i]][0] == b for b in range(256) for i in range(first[b], first[b + 1]))
    words.close()
