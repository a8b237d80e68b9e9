"""Writes the bundle of `reflex/bundle.py`: the compiled modules that system1, generate and the worker import, for one Python version."""

import ast
import marshal
import sys
from binascii import crc32
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from types import CodeType

ENTRIES = ("reflex.cli.front", "reflex.cli.jsonline", "reflex.cli.system1", "reflex.cli.generate")
ENTRIES += ("reflex.cli.stdio", "reflex.cli.uds", "reflex.worker.requests")
NOT_COLD = ("reflex.kernels", "reflex.cli.app", "reflex.backends.reference", "reflex.ops", "reflex.api", "reflex.energy")
STAGES = (  # what a request imports in one go, in this order
    ("reflex.cli.front", "reflex.native"),
    ("reflex.cli.system1",),  # with its rules, which would bring the whole of score along
    ("reflex.backends.cuda.device",),
    ("reflex.open", "reflex.gguf.ahead"),
    ("reflex.session", "reflex.tokenizer"),
    (*(f"reflex.arch{part}" for part in ("", ".spec", ".sizes", ".tensors", ".rotation", ".names")), "reflex.program"),
    ("reflex.backends.cpu",),
    ("reflex.sample",),
    ("reflex.backends.cuda.gpu",),
    ("reflex.backends.cuda.backend",),
    ("reflex.score",),
    ("reflex.cli.chat", "reflex.chat.filters"),
)
HEAD = 16384  # as reflex/bundle.py and the launcher read it
NO_LINES = 0xF8  # an entry of a table of lines: no location; its lowest three bits are the units less one
UNUSED = "TINY"  # what arch/ holds for the tests
BY_NAME = ("reflex.arch", "reflex.worker.requests")  # packages whose modules are imported by computed names


def file_name():
    """What the launcher of this Python looks for in the cache folder."""
    return f"cold-{sys.implementation.cache_tag}.bin"


def _file(root, name):
    base = root.joinpath(*name.split("."))
    return next((p for p in (base.with_suffix(".py"), base / "__init__.py") if p.is_file()), None)


def _imported(name, path, nodes):
    """Names that a module imports in `nodes` of its code, its own packages first."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    yield from (".".join(package[:count]) for count in range(1, len(package) + 1))
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.level:
            base = ".".join([*package[: len(package) - node.level + 1], *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def modules(root):
    """{module name: path} of everything the cold path can import."""
    found, pending = {}, list(ENTRIES)
    while pending:
        name = pending.pop()
        path = _file(root, name)
        if name in found or path is None or name.startswith(NOT_COLD):
            continue
        found[name] = path
        pending += _imported(name, path, ast.walk(ast.parse(path.read_bytes())))
        if name in BY_NAME:
            pending += [f"{name}.{p.stem}" for p in path.parent.glob("*.py") if p.stem != "__init__"]
    return dict(sorted(found.items()))


def groups(root):
    """Lists of module names: a stage each, and last all others, which are groups of one. A module comes after all that it imports
    when it is imported, so also after the modules of its own package that its package imports; for those the package is there,
    but empty."""
    cold = modules(root)
    placed = set()

    def visit(name, order):
        path = cold.get(name)
        parent = name.rpartition(".")[0]
        if parent:
            visit(parent, order)  # which may import this one
        if path is None or name in placed:
            return
        placed.add(name)
        for inner in _imported(name, path, ast.parse(path.read_bytes()).body):
            visit(inner, order)
        order.append(name)

    for stage in STAGES:
        order = []
        for name in stage:
            visit(name, order)
        yield order
    yield [name for name in cold if name not in placed]


def _code(root, path):
    """The code of a module, without the docstrings of functions and classes, the lines of instructions and what only tests read:
    nothing asks for them there, since --trace imports the modules, and they are a quarter of what a start reads."""
    tree = ast.parse(path.read_bytes())
    tree.body = [node for node in tree.body if not _assigns(node, UNUSED)]
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node, clean=False) is not None:
            node.body[:1] = [] if node.body[1:] else [ast.copy_location(ast.Pass(), node.body[0])]
    return _without_lines(compile(tree, str(path.relative_to(root)), "exec", dont_inherit=True))


def _assigns(node, name):
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
    return any(getattr(target.value if isinstance(target, ast.Subscript) else target, "id", "") == name for target in targets)


def _without_lines(code):
    """The same with a table of lines (CPython's Objects/locations.md) that says of up to 8 units at a time that they have none."""
    inner = (_without_lines(value) if isinstance(value, CodeType) else value for value in code.co_consts)
    units = len(code.co_code) // 2
    table = bytes(NO_LINES | min(8, units - first) - 1 for first in range(0, units, 8))
    return code.replace(co_linetable=table, co_consts=tuple(inner))


def build(root):
    """The bundle's bytes."""
    root = Path(root)
    cold = modules(root)
    *stages, alone = groups(root)
    index, lines, body = [], [""], b""
    for names in (*stages, *([name] for name in alone)):
        codes = marshal.dumps(tuple(_code(root, cold[name]) for name in names))
        packages = [cold[name].name == "__init__.py" for name in names]
        if len(index) < len(stages):
            index.append((HEAD + len(body), len(codes), tuple(zip(names, packages, strict=True))))
        else:
            lines.append(f"{names[0]} {HEAD + len(body)} {len(codes)} {packages[0]:d}")
        body += codes
    listing = "\n".join([*lines, ""]).encode()
    head = MAGIC_NUMBER + marshal.dumps((_code(root, root / "reflex" / "bundle.py"), (tuple(index), listing)))
    if len(head) > HEAD:
        raise SystemExit(f"the index of the bundle has {len(head)} bytes, more than {HEAD}")
    checksums = marshal.dumps({name: crc32(path.read_bytes()) for name, path in cold.items()})
    return head.ljust(HEAD, b"\0") + body + checksums + len(checksums).to_bytes(8, "little")


if __name__ == "__main__":  # in a process of its own: what marshal writes depends on which strings others hold too
    sys.stdout.buffer.write(build(sys.argv[1]))
