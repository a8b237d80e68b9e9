"""Writes the bundle of `reflex/bundle.py`: the compiled modules that system1 and generate import, for one Python version."""

import ast
import marshal
import sys
from binascii import crc32
from importlib.util import MAGIC_NUMBER
from pathlib import Path

ENTRIES = ("reflex.cli.front", "reflex.cli.jsonline", "reflex.cli.system1", "reflex.cli.generate")
NOT_COLD = ("reflex.kernels", "reflex.cli.app", "reflex.backends.reference", "reflex.ops", "reflex.api")
HEAD = 16384  # as reflex/bundle.py and the launcher read it
BY_NAME = ("reflex.arch",)  # packages whose modules are imported by computed names


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


def needs(root, name):
    """All that is imported when `name` is imported, each after what it imports itself; not its parents nor modules below it."""
    done = []
    parts = name.split(".")
    started = {".".join(parts[:count]) for count in range(1, len(parts))}  # its parents are being imported already

    def visit(other):
        path = _file(root, other)
        if other in started or path is None:
            return
        started.add(other)
        for inner in _imported(other, path, ast.parse(path.read_bytes()).body):
            visit(inner)
        done.append(other)

    visit(name)
    return tuple(n for n in done if n != name and not n.startswith(f"{name}."))


def _code(root, path):
    return compile(path.read_bytes(), str(path.relative_to(root)), "exec", dont_inherit=True)


def build(root):
    """The bundle's bytes."""
    root = Path(root)
    index, body = {}, b""
    cold = modules(root)
    for name, path in cold.items():
        code = marshal.dumps(_code(root, path))
        index[name] = (path.name == "__init__.py", crc32(path.read_bytes()), HEAD + len(body), len(code), tuple(n for n in needs(root, name) if n in cold))
        body += code
    head = MAGIC_NUMBER + marshal.dumps((_code(root, root / "reflex" / "bundle.py"), index))
    if len(head) > HEAD:
        raise SystemExit(f"the index of the bundle has {len(head)} bytes, more than {HEAD}")
    return head.ljust(HEAD, b"\0") + body


if __name__ == "__main__":  # in a process of its own: what marshal writes depends on which strings others hold too
    sys.stdout.buffer.write(build(sys.argv[1]))
