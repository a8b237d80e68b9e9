"""docs/help.md, made from the commands' own parameter rows: `python -m reflex.cli.page > docs/help.md`.

A test compares the committed page with this text.
"""

import inspect

from . import app

HEAD = "# Commands\n\nMade by `python -m reflex.cli.page`; do not edit. {about}\n"


def _kind(kind):
    if kind == "switch":
        return "yes or no"
    return kind + ", repeatable" if kind == "texts" else kind if isinstance(kind, str) else " ".join(f"`{word}`" for word in kind)


def _usage(name, rows):
    words = [row[0] if row[2] is None else f"[{row[0]}]" for row in rows if row[0][0] != "-"]
    return " ".join(["reflex", name, *words, "[options]"])


def text():
    """The page as Markdown."""
    parts = [HEAD.format(about=app.ABOUT)]
    for name, module in app.commands().items():
        parts.append(f"## {name}\n\n{inspect.cleandoc(module.__doc__)}\n\n    {_usage(name, module.PARAMETERS)}\n")
        parts.append("| parameter | kind | default | meaning |\n|---|---|---|---|")
        for flag, kind, default, meaning in module.PARAMETERS:
            shown = "" if default in (None, (), "", False) else f"`{default}`"
            parts.append(f"| `{flag}` | {_kind(kind)} | {shown} | {meaning} |")
        parts.append("")
    return "\n".join(parts)


if __name__ == "__main__":
    print(text(), end="")
