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


def _imported(root, name, path):
    """Names that a module imports anywhere in its code, its own packages included."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = ".".join([*package[: len(package) - node.level + 1], *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
    yield from (".".join(package[:count]) for count in range(1, len(package) + 1))
    if name in BY_NAME:
        yield from (f"{name}.{p.stem}" for p in path.parent.glob("*.py") if p.stem != "__init__")


def modules(root):
    """{module name: path} of everything the cold path can import."""
    found, pending = {}, list(ENTRIES)
    while pending:
        name = pending.pop()
        path = _file(root, name)
        if name in found or path is None or name.startswith(NOT_COLD):
            continue
        found[name] = path
        pending += _imported(root, name, path)
    return dict(sorted(found.items()))


def _code(root, path):
    return compile(path.read_bytes(), str(path.relative_to(root)), "exec", dont_inherit=True)


def build(root):
    """The bundle's bytes."""
    root = Path(root)
    index, body = {}, b""
    for name, path in modules(root).items():
        code = marshal.dumps(_code(root, path))
        index[name] = (path.name == "__init__.py", crc32(path.read_bytes()), HEAD + len(body), len(code))
        body += code
    head = MAGIC_NUMBER + marshal.dumps((_code(root, root / "reflex" / "bundle.py"), index))
    if len(head) > HEAD:
        raise SystemExit(f"the index of the bundle has {len(head)} bytes, more than {HEAD}")
    return head.ljust(HEAD, b"\0") + body
