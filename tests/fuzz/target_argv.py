"""Command lines: words of the table of parameters, of the wrong kind, order and number; bytes that are no text."""

from changes import damage

from reflex.cli import front

COMMANDS = ("system1", "generate", "inspect", "check", "doctor", "smoke", "families", "formats", "bench")
WORDS = (
    "demo",
    "-",
    "--",
    "",
    "a",
    " Paris",
    "x=y",
    "\udcff\udcfe",
    "\u00e9\U0001f600",
    "-5",
    "1e3",
    "nan",
    "inf",
    "\u0663",
    "0",
    "7",
    "1_0",
)
WORDS += (
    "9" * 18,
    "9" * 19,
    "9" * 400,
    "1.",
    ".5",
    "1.5",
    "-",
    "--=",
    "--json=1",
    "-h",
    "--help",
    "--unknown",
    "../x",
    "x.y",
    "__init__",
)
WORDS += ("page", "front", "output", "app", "\0", "a" * 100_000, "--ctx=", "--ctx=8", "system1")


class Target:
    def __init__(self):
        self.flags = sorted({row[0] for name in COMMANDS for row in front.command(name).PARAMETERS if row[0][0] == "-"})

    def make(self, random):
        words = [random.choice(COMMANDS) if random.random() < 0.9 else random.choice(WORDS)]
        for _ in range(random.randrange(8)):
            flag = random.choice(self.flags)
            word = random.choice(WORDS)
            words += random.choice(((word,), (flag,), (flag, word), (f"{flag}={word}",)))
        return "\x1f".join(words).encode("utf-8", "surrogateescape")

    def again(self, data, random):
        return damage(data, random)

    def run(self, data):
        argv = data.decode("utf-8", "surrogateescape").split("\x1f")
        parsed = front.parse(argv)
        if parsed is None:
            return "declined"
        module, values = parsed
        rows = {front.destination(row[0]): row for row in module.PARAMETERS}
        if set(values) - set(rows) or any(name not in values for name, row in rows.items() if row[2] is not None):
            raise AssertionError(f"values that no row asked for, or none for one that did: {values}")
        for name, value in values.items():
            kind = rows[name][1]
            if (kind == "int" and type(value) is not int) or (kind == "switch" and type(value) is not bool):
                raise AssertionError(f"{name} is {value!r}")
            if type(kind) is tuple and value not in kind:
                raise AssertionError(f"{name} is {value!r}")
        return "parsed"
