"""The command line of `reflex-sidecar`: rows like those of the other commands, without importing what those need.

Refuses unknown options, naming the nearest, and values that make no sense. Called by main.
"""

from ..errors import InvalidInputError, closest

USAGE = "reflex-sidecar MODEL [OPTIONS]"
ABOUT = """HTTP in front of `reflex stdio MODEL`, which this program starts, and starts again when it dies; see docs/sidecar.md.

Listens at once; requests wait while the model is loaded. Ends after SIGTERM (exit code 0) or Ctrl-C (130): requests under way have
--grace seconds. If the first worker cannot start, ends with its exit code."""
LONGEST = 1e6  # seconds
LARGEST_BODY = 7 << 20  # bytes; a line to the worker has at most 8 MiB
WORKER = ("--backend", "--ctx", "--threads", "--device", "--weights", "--lora")  # those most asked for; the worker judges them
OPTIONS = (  # (name, kind, default, help)
    ("--host", "text", "127.0.0.1", "Address to listen at; others than this machine can reach 0.0.0.0 or ::."),
    ("--port", "whole", 8000, "Port to listen at; 0 takes a free one, which the first line on stderr names."),
    ("--uds", "text", "", "In place of host and port, a local socket at this path, for its owner alone (mode 0600)."),
    ("--model-name", "text", "", "The model's id in answers; by default the file's name without .gguf."),
    ("--queue", "whole", 16, "Requests that may wait for the one at hand; more are answered 429."),
    ("--timeout", "seconds", 300.0, "Seconds a request may take, waiting included; then it is cancelled and answered 504."),
    ("--max-body", "whole", 1 << 20, "Largest body of a request in bytes; larger ones are answered 413."),
    ("--read-timeout", "seconds", 10.0, "Seconds for the head of a request, and for its body, to arrive."),
    ("--stall", "seconds", 30.0, "Seconds a client may leave an answer unread before it is given up."),
    ("--grace", "seconds", 10.0, "Seconds for requests under way after SIGTERM."),
    ("--token-file", "text", "", "File with the token that clients must send (Authorization: Bearer ...); or REFLEX_TOKEN."),
    ("--json", "switch", False, "Say what happens as JSON lines on stdout: listening, ready, error."),
    (
        "--worker",
        "text",
        "",
        "The program reflex; by default the one beside this program. Other options of `reflex stdio` go on to it.",
    ),
    *((name, "forwarded", (), f"As for `reflex stdio`, see `reflex stdio --help`: {name} VALUE.") for name in WORKER),
)
OWN = [row[0] for row in OPTIONS if row[1] != "forwarded"]
HELP = ("--help", "-h")


class Options:
    """The values of a command line: `model`, and an attribute per option (`read_timeout` for --read-timeout). `forwarded`: words
    for the worker."""

    def __init__(self, model, values):
        self.model = model
        others = [name for name, value in values.items() if isinstance(value, tuple) or (value is True and name not in OWN)]
        self.forwarded = [word for name in others for word in given(name, values[name])]
        for name, value in values.items():
            setattr(self, name[2:].replace("-", "_"), value)


def parse(argv):
    """The Options of a command line; None where help is asked for."""
    if any(word in HELP for word in argv):
        return None
    rows = {row[0]: row for row in OPTIONS}
    values = {name: row[2] for name, row in rows.items()}
    models, words = [], iter(argv)
    for word in words:
        if word[:1] != "-" or word == "-":
            models.append(word)
            continue
        name, equals, text = word.partition("=")
        if name not in rows:
            rows[name] = engine_option(name, rows)
            values[name] = ()
        if rows[name][1] in ("switch", "forwarded switch") and not equals:
            values[name] = True
            continue
        text = text if equals else next(words, None)
        if text is None:
            raise InvalidInputError("an option has no value", f"{name} VALUE", name)
        value = KINDS[rows[name][1]](name, text)
        values[name] = (*values[name], value) if rows[name][1] == "forwarded" else value
    if len(models) != 1:
        raise InvalidInputError("the command line has one MODEL", USAGE, f"{len(models)} of them", remedy="reflex-sidecar --help")
    return judged(Options(models[0], values))


def given(name, value):
    """The words of an option that goes on to the worker."""
    return [name] if value is True else [word for each in value for word in (name, each)]


def engine_option(name, rows):
    """The row of an option of the engine that OPTIONS does not list; refused where the engine has none of this name either."""
    from ..cli.front import ENGINE

    found = {row[0]: row for row in ENGINE}.get(name)
    if found is None:
        raise InvalidInputError("no such option", f"one of these: {closest(name, rows)}", name, remedy="reflex-sidecar --help")
    return (name, "forwarded switch" if found[1] == "switch" else "forwarded", *found[2:])


def judged(options):
    """The same Options, if their values make sense together."""
    for name, value, most in (("--port", options.port, 65535), ("--max-body", options.max_body, LARGEST_BODY)):
        if value > most:
            raise InvalidInputError(f"{name} is out of range", f"at most {most}", value)
    if options.max_body < 1:
        raise InvalidInputError("--max-body is out of range", "at least 1", options.max_body)
    return options


def _whole(name, text):
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidInputError(f"{name} is no number", "a whole number, 0 or more", repr(text))
    return int(text)


def _seconds(name, text):
    try:
        value = float(text)
    except ValueError:
        value = None
    if value is None or not 0 < value <= LONGEST:
        raise InvalidInputError(f"{name} is out of range", f"more than 0, at most {LONGEST:g} seconds", repr(text))
    return value


def _text(name, text):
    if not text:
        raise InvalidInputError("an option has no value", f"{name} VALUE", "an empty text")
    return text


def _switch(name, text):
    raise InvalidInputError("this option takes no value", name, f"{name}={text}")


KINDS = {"forwarded switch": _switch, "whole": _whole, "seconds": _seconds, "text": _text, "switch": _switch, "forwarded": _text}


def help_text():
    """What --help prints."""
    lines = [f"Usage: {USAGE}", "", ABOUT, "", "Options:"]
    for name, kind, default, text in OPTIONS:
        value = "" if kind == "switch" else " VALUE"
        shown = "" if default in ("", False, ()) else f" [default: {default:g}]" if kind == "seconds" else f" [default: {default}]"
        lines.append(f"  {name + value:<24}{text}{shown}")
    return "\n".join([*lines, f"  {'--help':<24}Show this and end."]) + "\n"
