"""The Typer app: every command file of this folder as a Typer command, from the same parameter rows that the front reads.

Owns help and the wording of usage mistakes. Importing Typer costs 60 ms or more, so the front comes here only for command
lines it does not take. `build` is also what the parity test and the generated help page use.
"""

import inspect
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal

import typer

from ..errors import InvalidInputError
from . import front
from .output import Output

ABOUT = "Cold-start GGUF inference. MODEL is a .gguf file (the first shard of a split one) or `demo`."
TYPES = {"text": str, "int": int, "float": float, "switch": bool, "texts": list[str]}


def commands():
    """{name: module} of every command, in alphabetical order."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("*.py"))
    return {name: module for name in names if (module := front.command(name)) is not None}


def _parameter(row):
    name, kind, default, text = row
    annotation = TYPES[kind] if isinstance(kind, str) else Literal[kind]
    if name[0] != "-":
        argument = Annotated[annotation, typer.Argument(metavar=name, help=text, show_default=False)]
        default = inspect.Parameter.empty if default is None else default
        return inspect.Parameter(front.destination(name), inspect.Parameter.KEYWORD_ONLY, annotation=argument, default=default)
    metavar = None if kind == "switch" or not isinstance(kind, str) else {"texts": "TEXT"}.get(kind, kind.upper())
    option = Annotated[annotation, typer.Option(name, help=text, metavar=metavar, show_default=default not in ((), "", False))]
    default = list(default) if kind == "texts" else default
    return inspect.Parameter(front.destination(name), inspect.Parameter.KEYWORD_ONLY, annotation=option, default=default)


def _function(module, run):
    """A function with the signature that Typer reads; it hands the values to `run(module, values)`."""
    repeated = {front.destination(row[0]) for row in module.PARAMETERS if row[1] == "texts"}

    def call(**values):
        return run(module, {k: tuple(v) if k in repeated else v for k, v in values.items()})

    parameters = [_parameter(row) for row in module.PARAMETERS]
    annotations = {p.name: p.annotation for p in parameters}
    vars(call).update(__signature__=inspect.Signature(parameters))
    call.__annotations__, call.__doc__ = annotations, inspect.cleandoc(module.__doc__)
    return call


def _version(wanted: bool):
    if not wanted:
        return
    try:
        text = metadata.version("reflex-gguf")
    except metadata.PackageNotFoundError:
        text = "source tree, not installed"
    Output("").text(f"reflex {text}\n")
    raise typer.Exit


def _root(version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False):
    return version


def build(run):
    """The Typer app over all commands; each calls `run(module, values)`."""
    app = typer.Typer(help=ABOUT, add_completion=False, rich_markup_mode=None, no_args_is_help=True, pretty_exceptions_enable=False)
    app.callback()(_root)
    for name, module in commands().items():
        app.command(name)(_function(module, run))
    return app


def main(argv, first=None):
    """Run a command line through Typer; returns the exit code. A usage mistake is one line and exit code 2."""
    try:
        code = typer.main.get_command(build(lambda module, values: front.execute(module, values, first))).main(
            args=list(argv), prog_name="reflex", standalone_mode=False
        )
        return code or 0
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        message = " ".join(error.format_message().split())
        if not message:  # Typer printed the help page instead of a message
            return 2
        remedy = "see reflex --help" + elsewhere(getattr(error, "option_name", None))
        Output("", json="--json" in argv).error(InvalidInputError(message, remedy=remedy))
        return 2


def elsewhere(option):
    """Which commands have an option that the given one has not; system1, for one, samples nothing."""
    owners = [name for name, module in commands().items() if any(row[0] == option for row in module.PARAMETERS)]
    return f"; {option} belongs to {', '.join(owners)}" if owners else ""
