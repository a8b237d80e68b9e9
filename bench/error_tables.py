"""The tables of docs/errors.md: the classes of reflex/errors.py, and every place of the source that makes one of them.

Messages are read from the source text, not from running it: what a place fills in stands as <name>, what is one of several texts
with "or" between them. Where a place has no remedy of its own, that of its class is meant. bench/readme.py puts the tables into the
page.
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


OR = "; or: "


def words(node, constants):
    """The text that an expression makes, with <...> for what is known only when it runs; None for nothing."""
    if isinstance(node, ast.Constant):
        return None if node.value is None else str(node.value)
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)
    if name in constants:
        return constants[name]
    if isinstance(node, ast.JoinedStr):
        return "".join([str(part.value) if isinstance(part, ast.Constant) else f"<{name_of(part.value)}>" for part in node.values])
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return (words(node.left, constants) or "") + (words(node.right, constants) or "")
    choice = choices(node)
    if choice:
        return either([text for part in choice for text in (words(part, constants) or "").split(OR)])
    return f"<{name_of(node)}>"


def choices(node):
    """The expressions of which one is taken, if a node is such a choice: by a condition, or where a table has nothing."""
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
        return node.values
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "get" and len(node.args) == 2:
        return node.args[1:]
    return None


def either(texts):
    """Several texts as one, without those that say nothing where others do."""
    texts = list(dict.fromkeys(text for text in texts if text))
    told = [text for text in texts if not text.startswith("<")]
    return OR.join(told or texts) or None


def name_of(node):
    """A word for an expression: the last name in it."""
    names = [n.attr if isinstance(n, ast.Attribute) else n.id for n in ast.walk(node) if isinstance(n, (ast.Attribute, ast.Name))]
    return names[0] if names else "..."


def texts_of(statements, known):
    """{name: text} of the names that statements set to texts; what only some branches set counts too."""
    found = {}
    for node in statements:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
            if isinstance(target, ast.Tuple) and not isinstance(value, ast.Tuple):
                continue
            for to, text in zip(target.elts, value.elts, strict=False) if isinstance(target, ast.Tuple) else ((target, value),):
                is_text = isinstance(text, ast.JoinedStr) or type(getattr(text, "value", None)) is str or choices(text)
                if isinstance(to, ast.Name) and is_text:
                    made = words(text, known | found)
                    found[to.id] = either([*found.get(to.id, "").split(OR), made]) or ""
        elif isinstance(node, ast.Assign) and all(isinstance(target, (ast.Name, ast.Tuple)) for target in node.targets):
            *_, names, last = *node.targets, node.value  # A = B, C = "...", "..."
            if isinstance(names, ast.Tuple) and isinstance(last, ast.Tuple):
                found |= {to.id: words(text, known) for to, text in zip(names.elts, last.elts, strict=False)}
    return found


@cache
def modules():
    """(tree, its texts) of every module of the run time, those of all modules that have one value everywhere included."""
    paths = sorted((record.ROOT / "reflex").rglob("*.py"))
    trees = [ast.parse(p.read_text()) for p in paths if p.relative_to(record.ROOT / "reflex").parts[0] not in (BUILD_SIDE, "cache")]
    everywhere = {}
    for tree in trees:
        for name, text in texts_of(tree.body, everywhere).items():
            if name.isupper():
                everywhere[name] = text if everywhere.get(name, text) == text else None
    shared = {name: text for name, text in everywhere.items() if text}
    return [(tree, shared | texts_of(tree.body, shared)) for tree in trees]


@cache
def places():
    """{class name: {message: remedy or None}} of the whole source."""
    known = {error.__name__ for error in classes()}
    found = {name: {} for name in known}
    for module, constants in modules():
        functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)]
        for scope, names in ((module, {}), *((function, texts_of(ast.walk(function), constants)) for function in functions)):
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
            whole = isinstance(given["message"], ast.JoinedStr)
            remedy = words(given["remedy"], texts) if "remedy" in given else None
            for message in [words(given["message"], {})] if whole else (words(given["message"], texts) or "").split(OR):
                if not message.strip("<>").isidentifier():  # else it is made elsewhere
                    yield name, message, remedy


def cell(text):
    return (text or "").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def own(remedy):
    """The cell of a remedy that says something by itself."""
    return "" if remedy is None or remedy.startswith("<") else cell(remedy)


def messages():
    """One table per category: what the line says, and what to do."""
    parts = []
    for error in classes():
        general = error.__doc__.partition("\n\n")[2].strip().rstrip(".")
        rows = [[cell(message), own(remedy) or "as above"] for message, remedy in sorted(places()[error.__name__].items())]
        if rows:
            head = f"### {error.category}, exit code {error.exit_code}\n\n{general}.\n\n"
            parts.append(head + table(["message", "remedy"], rows))
    return "\n".join(parts)


PAGES = {FILE: {"tree": tree, "messages": messages}}
