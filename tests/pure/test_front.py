"""The front's argv parser against the Typer app built from the same rows: the same keyword arguments, or the front declines."""

import random

import pytest

from reflex.cli import app, front

COMMANDS = app.commands()


def through_typer(argv):
    """(module, values) as Typer sees them, or None for a usage mistake or help."""
    seen = []
    command = app.typer.main.get_command(app.build(lambda module, values: seen.append((module, values))))
    try:
        command.main(args=argv, prog_name="reflex", standalone_mode=False)
    except Exception as error:
        assert hasattr(error, "format_message"), error
    return seen[0] if seen else None


def good_value(kind, rng):
    if kind == "int":
        return rng.choice(["0", "7", "042", "123456"])
    if kind == "float":
        return rng.choice(["0", "1.5", "0.25", "3."])
    if kind in ("text", "texts"):
        return rng.choice(["a", " Paris", "", "x=y", "é\U0001f600", "-", "two words", "demo", "--"[:1]])
    return rng.choice(kind)


ODD = [
    "--",
    "-h",
    "--help",
    "-x",
    "--unknown",
    "-k3",
    "--json=1",
    "--seed",
    "-5",
    "1e3",
    "1_0",
    " 7",
    "nan",
    "٣",
    "--ctx=",
    "--ctx=8",
    "",
    "extra",
]


def random_argv(rng):
    name = rng.choice(list(COMMANDS))
    words = []
    for row in COMMANDS[name].PARAMETERS:
        flag, kind = row[0], row[1]
        if flag[0] != "-":
            words.append([good_value(kind, rng)])
        elif rng.random() < 0.4:
            for _ in range(rng.choice([1, 1, 2])):
                if kind == "switch":
                    words.append([flag])
                else:
                    value = good_value(kind, rng)
                    words.append([f"{flag}={value}"] if rng.random() < 0.3 else [flag, value])
    rng.shuffle(words)
    argv = [name, *(part for group in words for part in group)]
    if rng.random() < 0.4:
        argv.insert(rng.randrange(len(argv) + 1), rng.choice(ODD))
    if rng.random() < 0.15:
        argv.pop(rng.randrange(len(argv)))
    return argv


def test_fuzzed_command_lines_agree_with_typer():
    rng = random.Random(20)
    accepted = 0
    for _ in range(1500):
        argv = random_argv(rng)
        fast = front.parse(argv)
        if fast is not None:
            accepted += 1
            slow = through_typer(argv)
            assert slow == fast, argv
    assert accepted > 600, "the front declines ordinary command lines"


@pytest.mark.parametrize("name", COMMANDS)
def test_defaults_agree_with_typer(name):
    rng = random.Random(1)
    argv = [name, *(good_value(row[1], rng) for row in COMMANDS[name].PARAMETERS if row[0][0] != "-")]
    assert front.parse(argv) == through_typer(argv) is not None


@pytest.mark.parametrize(
    "argv", [[], ["--help"], ["smoke", "--help"], ["smoke", "extra"], ["smoke", "--nope"], ["smoke", "--count"], ["front"]]
)
def test_unusual_command_lines_are_declined(argv):
    assert front.parse(argv) is None


@pytest.mark.parametrize(
    "argv", [["smoke", "--count", "-3"], ["smoke", "--count=x"], ["smoke", "--json=1"], ["../smoke"], ["os.path"]]
)
def test_values_that_typer_should_judge_are_declined(argv):
    assert front.parse(argv) is None


def test_undecodable_argv_is_passed_on():
    module, values = front.parse(["smoke", "--count", "5"])
    assert module is COMMANDS["smoke"] and values["count"] == 5


@pytest.mark.parametrize("name", COMMANDS)
def test_rows_are_well_formed(name):
    rows = COMMANDS[name].PARAMETERS
    assert len({front.destination(row[0]) for row in rows}) == len(rows)
    for flag, kind, default, text in rows:
        assert flag.isupper() or (flag.startswith("--") and flag.islower()) or flag == "-o"
        assert kind in ("text", "texts", "int", "float", "switch") or default in kind
        assert text.endswith(".")
