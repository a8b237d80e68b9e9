"""What a kernel file is made from: the import graph of the build side, and files that appear whole or not at all."""

import ast
import os
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KERNEL_FOLDERS = ("reflex", "kernels", "host", "cuda")  # whose modules count one by one


def _module_file(name):
    path = ROOT.joinpath(*name.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.exists():
            return candidate
    return None


@cache
def _imports(path):
    """Names of reflex modules that a source file imports; a package counts as all its modules."""
    return list(_imported(path))


def _imported(path):
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            prefix = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*prefix, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{a.name}" for a in node.names)


def sources(path, seen=None):
    """The source files that can change what `path` compiles to, itself included.

    A package counts with all its modules, because kernels enumerate folders (one kernel per block format).
    """
    seen = set() if seen is None else seen
    if path in seen:
        return seen
    seen.add(path)
    for name in _imports(path):
        file = _module_file(name) if name.startswith("reflex") else None
        if file is None:
            continue
        sources(file, seen)
        if file.name == "__init__.py" and file.parent.name not in KERNEL_FOLDERS:
            for sibling in sorted(file.parent.glob("*.py")):
                sources(sibling, seen)
    return seen


def write_atomically(path, data):
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    os.replace(temporary, path)
