"""The tables of docs/errors.md: the classes of reflex/errors.py, and every place of the source that makes one of them.

Messages are read from the source text, not from running it: what a place fills in stands as <name>. bench/readme.py puts the
tables into the page.
"""

import ast
from functools import cache

from bench import record
from bench.record import table
from reflex import errors

FILE = record.ROOT / "docs" / "errors.md"
BUILD_SIDE = "kernels"
ARGUMENTS = ("message", "expected", "found", "where", "remedy")


@cache
def classes():
    """The error classes, in the order of the file."""
    found = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, errors.ReflexError)]
    return [error for error in found if error is not errors.ReflexError]


def tree():
    """One row per class."""
    rows = []
    for error in classes():
        when, _, remedy = error.__doc__.partition("\n\n")
        rows.append(
            [f"`{error.category}`", f"`{error.__name__}`", when.rstrip("."), remedy.strip().rstrip("."), str(error.exit_code)]
        )
    return table(["category", "class", "when", "what to do", "exit code"], rows)


def words(node, constants):
    """The text that an expression makes, with <...> for what is known only when it runs; None for nothing."""
    if isinstance(node, ast.Constant):
        return None if node.value is None else str(node.value)
    if isinstance(node, ast.Name) and node.id in constants:
        return constants[node.id]
    if isinstance(node, ast.JoinedStr):
        return "".join([str(part.value) if isinstance(part, ast.Constant) else f"<{name_of(part.value)}>" for part in node.values])
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return (words(node.left, constants) or "") + (words(node.right, constants) or "")
    return f"<{name_of(node)}>"


def name_of(node):
    """A word for an expression: the last name in it."""
    names = [n.attr if isinstance(n, ast.Attribute) else n.id for n in ast.walk(node) if isinstance(n, (ast.Attribute, ast.Name))]
    return names[0] if names else "..."


def texts_of(statements):
    """{name: text} of the names that statements set to texts; what only some branches set counts too."""
    found = {}
    for node in statements:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
            both = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
            for to, text in zip(target.elts, value.elts, strict=False) if both else ((target, value),):
                if isinstance(to, ast.Name) and (isinstance(text, ast.JoinedStr) or type(getattr(text, "value", None)) is str):
                    made = words(text, {})
                    found[to.id] = f"{found[to.id]}; or: {made}" if to.id in found else made
    return found


@cache
def places():
    """{class name: {message: remedy or None}} of the whole source."""
    known = {error.__name__ for error in classes()}
    found = {name: {} for name in known}
    for path in sorted((record.ROOT / "reflex").rglob("*.py")):
        if path.relative_to(record.ROOT / "reflex").parts[0] in (BUILD_SIDE, "cache"):
            continue
        module = ast.parse(path.read_text())
        constants = texts_of(module.body)
        functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)]
        for scope, names in ((module, {}), *((function, texts_of(ast.walk(function))) for function in functions)):
            for name, message, remedy in raised(scope, known, constants | names):
                found[name][message] = better(found[name].get(message), remedy)
    return found


def better(one, other):
    """Of two remedies the one that says more."""
    return max((one or "", other or ""), key=lambda text: (bool(text) and not text.startswith("<"), len(text))) or None


def raised(scope, known, texts):
    """(class name, message, remedy or None) of every error that a scope makes."""
    for node in ast.walk(scope):
        name = getattr(getattr(node, "func", None), "id", None)
        if isinstance(node, ast.Call) and name in known and node.args:
            given = dict(zip(ARGUMENTS, node.args, strict=False)) | {k.arg: k.value for k in node.keywords if k.arg}
            message = words(given["message"], {})
            if not message.strip("<>").isidentifier():  # else it is made elsewhere
                yield name, message, words(given["remedy"], texts) if "remedy" in given else None


def cell(text):
    return (text or "").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def messages():
    """One table per category: what the line says, and what to do where that is more than the category's remedy."""
    parts = []
    for error in classes():
        rows = [[cell(message), cell(remedy)] for message, remedy in sorted(places()[error.__name__].items())]
        if rows:
            parts.append(f"### {error.category}, exit code {error.exit_code}\n\n" + table(["message", "remedy"], rows))
    return "\n".join(parts)


PAGES = {FILE: {"tree": tree, "messages": messages}}
