"""The front door of the command line: argv to keyword arguments in microseconds, then the command, then the exit code.

A command's `PARAMETERS` rows are (name, kind, default, help). An upper-case name is a positional, required where its default
is None; `--name` is an option. Kinds: "text", "int", "float", "switch", "texts" (repeatable, gives a tuple), or a tuple of
allowed words.
`parse` gives up (None) on whatever is not plain - help, unknown flags, missing or extra words, values that look like
flags - and the Typer app, built from the same rows, takes over. Called by the launcher and by the tests.
"""

import sys
from posix import _exit
from posix import read as _read

from .. import native
from ..backends import choice
from ..errors import InputOutputError, InternalError, InvalidInputError, OutOfMemoryError, ReflexError
from .output import Output

SHOWN = (  # every command
    ("--json", "switch", False, "One JSON object per line on stdout."),
    ("--timings", "switch", False, "Print milliseconds since process start per phase on stderr."),
    ("--trace", "switch", False, "Show a Python traceback with an error."),
)
ENGINE = (  # every command that runs a model
    ("--backend", choice.BACKENDS, "auto", "What computes; auto takes the fastest this build has."),
    ("--ctx", "int", 0, "Most tokens of prompt and answer together; 0 takes the model's own limit."),
    ("--threads", "int", 0, "Threads of the CPU backend; 0 takes the cores this process may use."),
    ("--device", "text", "", "Which GPU: its number, or a UUID (GPU-..., MIG-...); empty takes the first."),
    ("--weights", ("quantized", "f16", "f32"), "quantized", "How weights lie on the GPU: as in the file, or expanded."),
    ("--experts", ("lazy", "eager"), "lazy", "When the experts of a mixture go to the GPU: when they are asked for, or at once."),
    ("--expert-memory", "text", "", "Most GPU memory for experts, like 8G; the least used then make room. Empty: no limit."),
    ("--lora", "texts", (), "An adapter: FILE, or FILE=SCALE; may be given several times."),
)
ENERGY = ("--energy", "switch", False, "Joules that the GPU takes, idle subtracted; 2 s longer, implies --timings.")
CHAT = (  # every command that takes a prompt for a model that follows instructions
    ("--chat", "switch", False, "PROMPT is a message of the user; the chat template in the file makes the prompt."),
    ("--system", "text", "", "A system message in front; means --chat."),
    ("--messages", "text", "", 'JSON file of messages before PROMPT, [{"role": ..., "content": ...}]; - is stdin; means --chat.'),
)
STATE = (  # every command that answers one prompt
    ("--import-state", "text", "", "Take the state in this file, as far as the prompt begins like the text it was made of."),
    ("--export-state", "text", "", "Write the state that the prompt leaves to this file, for --import-state."),
    ("--state-type", ("kept", "f16", "f32"), "kept", "Numbers of an exported state; kept: as they are, which loses nothing."),
)


BROKEN = (ImportError, SyntaxError, EOFError)  # of modules; EOFError: compiled when the disk was full
MEND, REPORT = "install Reflex again, or remove its __pycache__ folders", "run again with --trace and report it"


def prompt(word):
    """The PROMPT argument's text: `-` reads stdin to its end. An empty one is refused."""
    text = word
    if word == "-":
        text = stdin().decode("utf-8", "surrogateescape")
    if not text:
        found, remedy = "end of input" if word == "-" else "nothing", "give a PROMPT, or - and text on stdin"
        raise InvalidInputError("the prompt is empty", "at least one character", found, remedy=remedy)
    return text


def request(word, chat, system, messages):
    """The prompt that a command's PROMPT and CHAT options ask for: a text, or a Chat, which is one after the model was opened."""
    if not (chat or system or messages):
        return prompt(word)
    from .chat import Chat

    return Chat(word, system, messages)


def stdin():
    """All bytes of stdin to its end."""
    parts = []
    try:
        while part := _read(0, 1 << 16):
            parts.append(part)
    except OSError as error:
        raise InputOutputError("cannot read the input", found=error.strerror, where="stdin") from None
    return b"".join(parts)


def engine(values):
    """Takes the ENGINE options out of a command's values; returns open_model's keyword arguments. A GPU starts here, since nothing
    takes longer than that."""
    found = {destination(row[0]): values.pop(destination(row[0]), row[2]) for row in ENGINE}
    found["context"] = found.pop("ctx")
    if choice.resolve(found["backend"]) == "cuda":
        from ..backends.cuda import device

        device.expect(found["device"])
    return found


def state(values):
    """Takes the STATE options out of a command's values; (import, export, type), or None where no state is asked for."""
    found = tuple([values.pop(destination(row[0])) for row in STATE])
    return found if found[0] or found[1] else None


def destination(name):
    """The keyword argument a parameter row fills."""
    return name.lstrip("-").lower().replace("-", "_")


def command(name):
    """The module of a command, or None where there is no such command."""
    if not name.isidentifier():
        return None
    full = f"reflex.cli.{name}"
    try:
        module = __import__(full, None, None, ["run"])
    except ModuleNotFoundError as error:
        if error.name not in (full, "typer"):  # without Typer, the word that names the Typer app is no command either
            raise
        return None
    return module if hasattr(module, "PARAMETERS") else None


def _value(kind, text):
    """The converted value, or None where Typer should judge it."""
    if text[:1] == "-" and text != "-":
        return None
    if kind == "text" or kind == "texts":
        return text
    if kind == "int":
        return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
    if kind == "float":
        whole, _, fraction = text.partition(".")
        return float(text) if text.isascii() and whole.isdigit() and (fraction.isdigit() or "." not in text) else None
    return text if text in kind else None


def parse(argv):
    """(module, keyword arguments) for a plain command line, else None."""
    module = command(argv[0]) if argv else None
    if module is None:
        return None
    positionals, options, values = [], {}, {}
    for row in module.PARAMETERS:
        if row[0][0] == "-":
            options[row[0]] = row
            values[destination(row[0])] = row[2]
        else:
            positionals.append(row)
            if row[2] is not None:
                values[destination(row[0])] = row[2]
    words = iter(argv[1:])
    given = 0
    for word in words:
        if word[:1] == "-" and word != "-":
            flag, equals, text = word.partition("=")
            row = options.get(flag)
            if row is None or (equals and flag[1] != "-"):  # the value of a short option may itself begin with =
                return None
            name = destination(flag)
            if row[1] == "switch":
                if equals:
                    return None
                values[name] = True
                continue
            value = _value(row[1], text if equals else next(words, "--"))
            if value is None:
                return None
            values[name] = (*values[name], value) if row[1] == "texts" else value
        elif given < len(positionals):
            values[destination(positionals[given][0])] = word
            given += 1
        else:
            return None
    return (module, values) if all(row[2] is not None for row in positionals[given:]) else None


def execute(module, values, first=None):
    """Run a command; returns the exit code of the process. `first`: (clock, CPU time) in ns at the first Python line."""
    trace = values.pop("trace")
    timings = values.pop("timings", True) or values.get("energy", False)
    out = Output(module.__name__.rpartition(".")[2], values.pop("json", True), timings, first)
    if native.lost_words:
        native.lost_words[0] = out.lost
    try:
        try:
            if values.pop("energy", False):
                out.weigh(values["backend"])
            if "backend" in values:
                values["engine"] = engine(values)
            if "import_state" in values:
                values["state"] = state(values)
            code = module.run(out, **values)
            native.raise_failed()  # of threads that nobody waited for
            out.finish()
            return code
        except ReflexError as error:
            problem = error
        except MemoryError:
            problem = OutOfMemoryError("out of memory", remedy="use a shorter context (--ctx) or free memory")
        except BrokenPipeError:
            return 141  # what a shell reports for a process ended by SIGPIPE
        except KeyboardInterrupt:
            return 130
        except Exception as error:
            problem = InternalError(f"{type(error).__name__}: {error}", remedy=MEND if isinstance(error, BROKEN) else REPORT)
            problem.__cause__ = error
        if trace:
            from traceback import print_exception

            print_exception(problem)
        out.error(problem)
        return problem.exit_code
    except BrokenPipeError:
        return 141


def _through_typer(argv, first):
    try:
        from .app import main as slow
    except ModuleNotFoundError as error:
        remedy = "pip install typer, or spell the command line plainly: reflex COMMAND MODEL PROMPT --option VALUE"
        Output("").error(InternalError(f"this command line needs {error.name}, which is not installed", remedy=remedy))
        return InternalError.exit_code
    return slow(argv, first)


def _watch_for_interrupts():
    """From here on Ctrl-C is a KeyboardInterrupt; until here the launcher let it end the process, which leaves no traceback."""
    import _signal

    if _signal.getsignal(_signal.SIGINT) == _signal.SIG_DFL:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)


def main(first=None):
    """The process: never returns. Interpreter teardown would cost 3 ms, so everything is written before and skipped."""
    try:
        _watch_for_interrupts()
        native.lost_words.append(None)
        parsed = parse(sys.argv[1:])
        if parsed is None:
            code = _through_typer(sys.argv[1:], first)
        else:
            module, values = parsed
            code = execute(module, values, first)
    except KeyboardInterrupt:
        code = 130
    except Exception as error:  # a command's file that cannot be imported
        Output("").error(InternalError(f"{type(error).__name__}: {error}", remedy=MEND))
        code = InternalError.exit_code
    _exit(code)
