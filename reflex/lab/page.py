"""docs/api.md, made from docstrings and fields of what `reflex` and `reflex.lab` offer: `python -m reflex.lab.page >docs/api.md`.

A test compares the committed page with this text. Refuses (InternalError) something public that says nothing about itself.
"""

import ast
import inspect

import reflex

from .. import lab
from ..errors import InternalError
from ..records import Record
from .taps import HIDDEN, MEANINGS

HEAD = "# Python\n\nMade by `python -m reflex.lab.page`; do not edit. How to look inside a model: [lab.md](lab.md).\n"
ORDER = ("load", "Model", "Timeline")  # what one begins with; results follow in the order of their names


def said(thing, name):
    """The docstring."""
    text = inspect.getdoc(thing)
    if not text:
        raise InternalError("something public has no docstring", where=name)
    return text


def signature(function):
    """Parameters without self."""
    found = inspect.signature(function)
    shown = [p for p in found.parameters.values() if p.name != "self"]
    return str(found.replace(parameters=shown, return_annotation=inspect.Signature.empty))


def paragraphs(text):
    """A docstring as Markdown: what is indented stays code."""
    return text.strip() + "\n"


def fields(kind):
    """(name, type, comment) of the fields of a record, from its source."""
    lines = inspect.getsource(kind).splitlines()
    for node in ast.walk(ast.parse("\n".join(lines))):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            _, _, comment = lines[node.lineno - 1].partition("#")
            yield node.target.id, ast.unparse(node.annotation), comment.strip()


def members(kind):
    """(name, member) of the public methods and properties that a class adds to those of every record."""
    for name, member in vars(kind).items():
        if name[0] != "_" and (inspect.isfunction(member) or isinstance(member, property)):
            yield name, member


def cell(text):
    return text.replace("|", "\\|")


def class_parts(name, kind):
    yield f"## {name}\n\n{paragraphs(said(kind, name))}"
    if issubclass(kind, Record):
        rows = [f"| `{field}` | `{cell(about)}` | {cell(comment)} |" for field, about, comment in fields(kind)]
        yield "\n".join(["| field | type | |", "|---|---|---|", *rows]) + "\n"
    for word, member in members(kind):
        if isinstance(member, property):
            yield f"### {name}.{word}\n\n{paragraphs(inspect.getdoc(member) or '')}" if inspect.getdoc(member) else ""
        else:
            yield f"### {name}.{word}{signature(member)}\n\n{paragraphs(said(member, f'{name}.{word}'))}"


def taps():
    """The named taps, as a table."""
    rows = [f"| `{name if in_no_layer(name) else 'layers.{i}.' + name}` | {about} |" for name, about in MEANINGS.items()]
    defaults = ", ".join(f"`{name}`" for name in HIDDEN)
    about = f"Names for `trace`, `patch` and `lens`; `Model.taps()` has the shapes of a model. By default `trace` reads {defaults}."
    return "\n".join([f"## Taps\n\n{about}\n", "| tap | what it is |", "|---|---|", *rows]) + "\n"


def in_no_layer(name):
    return name in ("embedding", "final_norm", "logits")


def text():
    """The page as Markdown."""
    parts = [HEAD]
    names = [*ORDER, *(name for name in reflex.__all__ if name not in ORDER)]
    things = [(name, getattr(reflex, name)) for name in names]
    things += [(f"lab.{name}", thing) for name in lab.__all__ if callable(thing := getattr(lab, name))]
    for name, thing in things:
        if inspect.isclass(thing):
            parts += class_parts(name, thing)
        else:
            parts.append(f"## {name}{signature(thing)}\n\n{paragraphs(said(thing, name))}")
        if name == ORDER[-1]:
            parts.append(taps())
            parts.append("## Records\n\n" + paragraphs(said(Record, "Record")))
            parts += [
                f"### Record.{word}{signature(member)}\n\n{paragraphs(said(member, word))}" for word, member in members(Record)
            ]
    return "\n".join(part for part in parts if part)


if __name__ == "__main__":
    print(text(), end="")
