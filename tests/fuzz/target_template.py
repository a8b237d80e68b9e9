"""Chat templates: the grammar's own pieces put together at random, templates of models with damage, and noise."""

import random as randoms

from changes import damage

from reflex import chat
from reflex.errors import ReflexError

MESSAGES = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "name a \u00e7olour"},
    {"role": "assistant", "content": None},
]
NAMES = (
    "messages",
    "message",
    "loop",
    "x",
    "y",
    "bos_token",
    "add_generation_prompt",
    "namespace",
    "range",
    "dict",
    "none",
    "true",
)
CALLS = (
    "strftime_now",
    "raise_exception",
    "range",
    "dict",
    "namespace",
    "cycler",
    "joiner",
    "lipsum",
    "x",
    "loop.cycle",
    "messages.append",
)
FIELDS = (
    "role",
    "content",
    "index",
    "first",
    "__class__",
    "split",
    "strip",
    "replace",
    "items",
    "upper",
    "format",
    "keys",
    "get",
    "join",
)
FILTERS = (
    "trim",
    "tojson",
    "length",
    "join(',')",
    "upper",
    "list",
    "sort",
    "first",
    "last",
    "int",
    "float",
    "string",
    "default('z')",
)
FILTERS += (
    "replace('a', 'b')",
    "map(attribute='role')",
    "selectattr('role', 'equalto', 'user')",
    "round(2)",
    "indent(4)",
    "reverse",
    "sum",
)
FILTERS += (
    "unique",
    "batch(2)",
    "slice(2)",
    "dictsort",
    "groupby('role')",
    "wordcount",
    "abs",
    "random",
    "format(1)",
    "center(80)",
    "e",
)
TESTS = ("defined", "string", "mapping", "none", "number", "iterable", "even", "divisibleby(0)", "in messages", "sameas(1)", "true")
OPERATORS = ("+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", ">=", "and", "or", "in", "not in")
ATOMS = (
    "1",
    "0",
    "-1",
    "2.5",
    "9999999999999999999",
    "'a'",
    '"b\\n"',
    "''",
    "[]",
    "{}",
    "[1, 2]",
    "{'a': 1}",
    "(1,)",
    "1e308",
    "none",
)
SEED = (
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}{{ '<s>' }}{% endif %}"
    "{{ '<|' + message.role + '|>\\n' + (message['content'] or '') | trim + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'go' }}{% endif %}"
)


class Made:
    """One random template."""

    def __init__(self, random):
        self.random = random

    def pick(self, words):
        return self.random.choice(words)

    def value(self, depth):
        what = self.random.randrange(9) if depth else 0
        if what == 0:
            return self.pick(NAMES + ATOMS)
        inner = self.value(depth - 1)
        if what == 1:
            return f"{inner} {self.pick(OPERATORS)} {self.value(depth - 1)}"
        if what == 2:
            return f"{inner} | {self.pick(FILTERS)}"
        if what == 3:
            return f"({inner})"
        if what == 4:
            return f"{self.pick(CALLS)}({inner})"
        if what == 5:
            return f"({inner}).{self.pick(FIELDS)}" + self.pick(("", "()", f"({self.value(depth - 1)})"))
        if what == 6:
            return f"({inner})[{self.value(depth - 1)}{self.pick(('', ':', '::-1', ':2'))}]"
        if what == 7:
            return f"({inner} is {self.pick(('', 'not '))}{self.pick(TESTS)})"
        return f"({inner} if {self.value(depth - 1)} else {self.pick(ATOMS)})"

    def body(self, depth):
        return "".join([self.statement(depth) for _ in range(self.random.randrange(1, 4))])

    def statement(self, depth):
        what = self.random.randrange(8) if depth else self.random.randrange(2)
        value = self.value(self.random.randrange(4))
        if what == 0:
            return self.pick(("text", "\n", "{# no #}", "{%- raw %}{{{% endraw %}", "{% break %}", "{% continue %}"))
        if what in (1, 2):
            return f"{{{{ {value} }}}}"
        inner = self.body(depth - 1)
        if what == 3:
            return f"{{% if {value} %}}{inner}{{% elif {self.value(1)} %}}{inner}{{% else %}}.{{% endif %}}"
        if what == 4:
            return f"{{% for x in {value} %}}{inner}{{% else %}}none{{% endfor %}}"
        if what == 5:
            return f"{{% set {self.pick(('x', 'y', 'x, y', 'ns.x'))} = {value} %}}{inner}"
        if what == 6:
            return f"{{% macro x(y={self.pick(ATOMS)}) %}}{inner}{{% endmacro %}}{{{{ x({value}) }}}}"
        return f"{{% filter {self.pick(FILTERS)} %}}{inner}{{% endfilter %}}"


class Target:
    def make(self, random):
        what = random.random()
        if what < 0.7:
            return Made(random).body(3).encode()
        if what < 0.9:
            return damage(SEED.encode(), random)
        return "".join(
            [random.choice(("{{", "}}", "{%", "%}", "(", ")", "[", "'", "x", " ", "-", "|", "for", "1")) for _ in range(40)]
        ).encode()

    def again(self, data, random):
        if random.random() < 0.3:
            return data + self.make(random)
        return damage(data, random)

    def run(self, data):
        random = randoms.Random(len(data))
        try:
            chat.render(data.decode("utf-8", "replace")[: 1 << 16], MESSAGES[: random.randrange(1, 4)], "<s>", "</s>")
        except ReflexError as error:
            if error.category != "invalid_input" or not str(error).isprintable():
                raise AssertionError(str(error)) from error
            return error.category
        return "text"
