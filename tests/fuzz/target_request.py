"""What a request brings besides its prompt: messages as JSON, JSON schemas and regular expressions; made by a grammar, with damage.

The input is a letter for what it is, then the text. What is accepted is used: messages become a prompt, and a few tokens that a
constraint allows are chosen among nasty ones.
"""

import json
import tempfile
from pathlib import Path

import constrained
from changes import damage
from target_template import SEED

from reflex import chat
from reflex.cli import chat as cli_chat
from reflex.constrain import grammar_of
from reflex.errors import ReflexError
from reflex.sample import Sampling

TOKENS = 6
PIECES = (
    "a",
    "b",
    ".",
    "\\d",
    "\\w",
    "\\s",
    "\\S",
    "[a-z]",
    "[^a]",
    "(a|b)",
    "()",
    "^",
    "$",
    "|",
    "*",
    "+",
    "?",
    "{2,3}",
    "{0,1000000000}",
    "{1000}",
    "(?:",
    "(",
    ")",
    "[",
    "]",
    "\\",
    "\\u00e9",
    "\u00e9",
    "\U0001f600",
    "\\b",
    "(?=a)",
    "\\1",
    "-",
    "{",
    "}",
    ",",
    "a{3}",
)
VALUES = (
    "null",
    "true",
    "-0",
    "1e999",
    "1e-999",
    "9" * 500,
    "0.1",
    '"a"',
    '"\\ud800"',
    '"\\u0000"',
    "[]",
    "{}",
    "NaN",
    "-Infinity",
    "[[[",
    '"',
)
KEYWORDS = (
    "type",
    "enum",
    "const",
    "properties",
    "required",
    "items",
    "minItems",
    "maxItems",
    "minimum",
    "maximum",
    "multipleOf",
    "pattern",
    "format",
    "minLength",
    "maxLength",
    "anyOf",
    "oneOf",
    "allOf",
    "not",
    "$ref",
    "$defs",
    "additionalProperties",
    "prefixItems",
    "minProperties",
    "maxProperties",
    "uniqueItems",
    "if",
    "patternProperties",
    "propertyNames",
)
TOOL = {"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}


def messages(random):
    """Roles and contents of every kind that templates meet, and of none."""
    contents = ("hi", "", None, 3, [{"type": "text", "text": "x"}], [{"type": "image"}], {"a": 1}, "\ud800", [None], "x" * 2000)
    found = []
    for _ in range(random.randrange(4)):
        one = {"role": random.choice(("system", "user", "assistant", "tool", "", None, 7)), "content": random.choice(contents)}
        if random.random() < 0.2:
            one["tool_calls"] = random.choice(([TOOL], [], None, "x", [3]))
        found.append(one if random.random() < 0.95 else random.choice((None, 1, "x", [])))
    return json.dumps(found if random.random() < 0.95 else random.choice((found[:1], {}, None, "x")))


def schema(random):
    """A sound schema, with some of its values or words replaced."""
    text = json.dumps(constrained.Generator(random.getrandbits(32)).document())
    for _ in range(random.randrange(4)):
        old, new = random.choice((KEYWORDS, VALUES)), random.choice((KEYWORDS, VALUES))
        text = text.replace(random.choice(old), random.choice(new), 1)
    return text


def pattern(random):
    return "".join([random.choice(PIECES) for _ in range(random.randrange(1, 12))])


MAKERS = {"m": messages, "s": schema, "r": pattern}


class Target:
    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "messages.json"
        self.rules = list(constrained.rules(constrained.TOKENIZER, 1).values())[:-1]

    def make(self, random):
        kind = random.choice(list(MAKERS))
        data = (kind + MAKERS[kind](random)).encode("utf-8", "surrogatepass")
        return data if random.random() < 0.7 else self.again(data, random)

    def again(self, data, random):
        return data[:1] + damage(data[1:], random)

    def run(self, data):
        kind, text = data[:1].decode("latin-1"), data[1:]
        try:
            if kind == "m":
                return self.converse(text)
            return self.constrain("json_schema" if kind == "s" else "regex", text.decode("utf-8", "replace"))
        except ReflexError as error:
            line = str(error)
            if error.category not in ("invalid_input", "unsupported") or not line.isprintable() or len(line) > 3000:
                raise AssertionError(line) from error
            return f"{kind} {error.category}"

    def converse(self, text):
        self.path.write_bytes(text)
        chat.render(SEED, cli_chat.load(str(self.path)), "<s>", "</s>")
        return "m text"

    def constrain(self, kind, text):
        grammar = grammar_of(**{kind: text})
        rule = self.rules[len(text) % len(self.rules)]
        walk = constrained.begin(constrained.bound(grammar, constrained.TOKENIZER), TOKENS)
        while not walk.finished and walk.left:
            token = walk.pick(memoryview(rule(walk.left)), Sampling(), 0)
            if token in constrained.TOKENIZER.eog:
                break
            walk.accept(token)
        return f"{'r' if kind == 'regex' else 's'} {'end' if walk.finished else 'open'}"
