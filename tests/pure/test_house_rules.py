"""The rules that a machine can hold: layers, imports, the cold path, sizes, one place per word, no work at import.

Every rule is a function from a parsed file to complaints, so that a broken rule is one readable line per place. Each rule
is also run on a bad example, since a rule that finds nothing could be one that looks at nothing.
"""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAYERS = {  # a module imports only from its own or lower layers; the first two name parts decide
    0: ("errors", "native", "output_file", "settings", "demo", "records", "rules", "bundle", "stale", "threads"),
    1: ("gguf", "quant"),
    2: ("arch", "tokenizer", "chat", "ops", "sample"),
    3: ("program",),
    4: ("backends",),
    5: ("weights", "snapshots", "state", "lora"),
    6: ("session",),
    7: ("open", "tree", "score", "generate", "constrain", "check", "fits", "inspect"),
    8: ("api", "timeline", "lab", "client"),
    9: ("cli", "worker", "tools", "examine", "measure", "tables", "energy", "integrations", "__main__"),
    10: ("sidecar",),
}
LAYER_OF = {name: layer for layer, names in LAYERS.items() for name in names}
BUILD_SIDE_MAY_USE = {"kernels", "gguf", "quant", "ops", "tokenizer", "native", "errors"}
THIRD_PARTY = {  # package -> files (prefixes below reflex/) that may import it
    "numpy": ("quant/", "ops/", "backends/reference", "check", "api", "timeline", "lab/", "tools/"),
    "pandas": ("lab/",),
    "matplotlib": ("lab/",),
    "tqdm": ("lab/",),
    "gguf": ("tools/",),
    "typer": ("cli/app",),
    "pynvml": ("energy",),
    "ray": ("integrations/",),
    "pyarrow": ("integrations/",),
    "numba": ("kernels/",),
    "llvmlite": ("kernels/",),
    "starlette": ("sidecar/pages",),
    "uvicorn": ("sidecar/server",),
    "h11": ("sidecar/server",),  # uvicorn's own
}
# What a module of the cold path may import when it is imported. Everything here is built in, frozen or already loaded.
COLD_IMPORTS = {
    "__future__",
    "_ctypes",
    "_imp",
    "_thread",
    "binascii",
    "gc",
    "itertools",
    "math",
    "operator",
    "posix",
    "sys",
    "time",
}
COLD = (
    "errors",
    "native",
    "settings",
    "gguf/",
    "quant/",
    "arch/",
    "tokenizer/",
    "chat/",
    "program/",
    "state",
    "session",
    "snapshots",
    "rules",
    "tree",
    "score",
    "generate",
    "sample",
    "api",
    "demo",
    "open",
    "records",
)
COLD += (
    "__init__",
    "backends/__init__",
    "backends/cpu",
    "backends/cuda/",
    "cli/__init__",
    "cli/front",
    "cli/output",
    "cli/jsonline",
    "cli/system1",
    "cli/generate",
)
WARM = (
    "tokenizer/rules",
    "tokenizer/categories",
    "tokenizer/patterns",
    "tokenizer/ranges",
    "quant/encode",
)  # build side or extras
FILE_LINES, FUNCTION_LINES, KERNEL_FILE_LINES, KERNEL_FUNCTION_LINES = 400, 50, 500, 120
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
BAD_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "misc"}
WORDS = {  # a word of one subject -> the places that own the subject
    "family": (("qwen", "llama", "gemma", "smollm", "mistral", "phi3", "deepseek"), ("arch/", "tokenizer/pretypes", "demo")),
    "block format": (
        ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "q8_k", "iq2_", "iq3_", "iq4_"),
        ("quant/", "kernels/host/", "demo"),
    ),
}


def product_files():
    return sorted(p for p in (ROOT / "reflex").rglob("*.py") if "cache" not in p.parts)


def name_of(path):
    return str(path.relative_to(ROOT / "reflex").with_suffix(""))


class File:
    """A parsed source file; `name` is its path below reflex/ without suffix."""

    def __init__(self, name, text):
        self.name, self.text, self.tree = name, text, ast.parse(text)
        self.part = name.split("/")[0]

    def imports(self, module_level_only=False):
        """(line, absolute dotted module, imported name or None)."""
        nodes = module_level(self.tree) if module_level_only else ast.walk(self.tree)
        package = ["reflex", *self.name.split("/")[:-1]]
        for node in nodes:
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name, None) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = package[: len(package) - node.level + 1] if node.level else []
                module = ".".join([*base, *([node.module] if node.module else [])])
                yield from ((node.lineno, module, alias.name) for alias in node.names)

    def reflex_parts(self, module_level_only=False):
        """(line, first name part below reflex) of every import from reflex."""
        for line, module, name in self.imports(module_level_only):
            parts = [*module.split("."), *([name] if name else [])]
            if parts[0] == "reflex" and len(parts) > 1:
                yield line, parts[1]


def module_level(tree):
    """Every statement that runs at import: all but function bodies and what only `python -m` runs."""
    pending = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'":
            continue
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            pending += [child for child in ast.iter_child_nodes(node) if isinstance(child, (ast.stmt, ast.ExceptHandler))]


def is_cold(name):
    return name.startswith(COLD) and not name.startswith(WARM)


# ---- the rules -------------------------------------------------------------------------------------------


def layers(file):
    if file.part == "kernels":
        yield from (f"{n}: build side imports reflex.{part}" for n, part in file.reflex_parts() if part not in BUILD_SIDE_MAY_USE)
        return
    if file.part == "__init__":
        yield from (
            f"{n}: the package imports {part}, not only the api" for n, part in file.reflex_parts() if part not in ("api", "errors")
        )
        return
    if file.part not in LAYER_OF:
        yield f"1: {file.part} is in no layer of this test"
        return
    for line, part in file.reflex_parts():
        if part == "kernels":
            yield f"{line}: reflex.kernels is never imported at run time"
        elif part in LAYER_OF and LAYER_OF[part] > LAYER_OF[file.part]:
            yield f"{line}: layer {LAYER_OF[file.part]} {file.part} imports layer {LAYER_OF[part]} {part}"


def third_party(file):
    for line, module, _ in file.imports():
        root = module.split(".")[0]
        if root in sys.stdlib_module_names or root in ("reflex", ""):
            continue
        if not file.name.startswith(THIRD_PARTY.get(root, ())) or root not in THIRD_PARTY:
            yield f"{line}: imports {module}"


def cold_imports(file):
    if is_cold(file.name):
        for line, module, _ in file.imports(module_level_only=True):
            if not module.startswith("reflex") and module not in COLD_IMPORTS:
                yield f"{line}: a cold-path module imports {module} at module level"


def length(function, kernel):
    """Lines of a function; in kernels, which are often made by a function, the inner ones count for themselves."""
    inner = [node for node in ast.walk(function) if isinstance(node, FUNCTIONS) and node is not function]
    lines = {n for node in inner if kernel for n in range(node.lineno, node.end_lineno + 1)}
    return function.end_lineno - function.lineno + 1 - len(lines)


def sizes(file):
    kernel = file.part == "kernels"
    lines = len(file.text.splitlines())
    if lines > (KERNEL_FILE_LINES if kernel else FILE_LINES):
        yield f"{lines} lines"
    limit = KERNEL_FUNCTION_LINES if kernel else FUNCTION_LINES
    for node in ast.walk(file.tree):
        if isinstance(node, FUNCTIONS) and length(node, kernel) > limit:
            yield f"{node.lineno}: {node.name} has {length(node, kernel)} lines"


def names_and_docstrings(file):
    if BAD_NAMES & set(file.name.split("/")):
        yield "the file's name says nothing"
    if file.text.strip() and not ast.get_docstring(file.tree):
        yield "no module docstring"


def one_place_per_word(file):
    for subject, (words, homes) in WORDS.items():
        if file.name.startswith(homes):
            continue
        text = file.text.lower().replace("llama.cpp", "").replace("llama-gguf-split", "")  # programs, not the family
        for number, line in enumerate(text.splitlines(), 1):
            yield from (f"{number}: the {subject} word {word!r} outside {homes}" for word in words if word in line)


def no_work_at_import(file):
    """Loops, prints and opened files at module level; decorators, constants and constructors of tables are fine.

    Not in kernels, which only the build imports: their entry points are often made in a loop.
    """
    if file.part == "kernels":
        return
    for node in module_level(file.tree):
        if isinstance(node, (ast.For, ast.While, ast.With)):
            yield f"{node.lineno}: a {type(node).__name__.lower()} statement runs at import"
        call = node.value if isinstance(node, (ast.Expr, ast.Assign)) else None
        if isinstance(node, ast.Expr) and isinstance(call, ast.Call):
            yield f"{node.lineno}: a call runs at import: {ast.unparse(call)[:60]}"
        elif (
            isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in ("open", "print", "library", "alloc")
        ):
            yield f"{node.lineno}: {call.func.id}() runs at import"


def environment_in_one_file(file):
    if file.name not in ("settings", "kernels/target"):
        for node in ast.walk(file.tree):
            if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv", "environb"):
                yield f"{node.lineno}: reads the environment; only settings.py does"
        yield from (f"{n}: imports {name}" for n, _, name in file.imports() if name in ("environ", "getenv", "environb"))


def no_assert(file):
    yield from (
        f"{node.lineno}: assert; raise an error of errors.py" for node in ast.walk(file.tree) if isinstance(node, ast.Assert)
    )


RULES = {
    layers: ("gguf/x", "from ..session import Session\n"),
    third_party: ("gguf/x", "import numpy\n"),
    cold_imports: ("gguf/x", "if True:\n    import re\n"),
    sizes: ("gguf/x", "def f():\n" + "    pass\n" * 50),
    names_and_docstrings: ("gguf/utils", "x = 1\n"),
    one_place_per_word: ("session", "if arch == 'qwen2':\n    pass\n"),
    no_work_at_import: ("gguf/x", "print('hello')\n"),
    environment_in_one_file: ("gguf/x", "import os\nx = os.environ\n"),
    no_assert: ("gguf/x", "assert x\n"),
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule(rule):
    name, bad = RULES[rule]
    assert list(rule(File(name, bad))), "the rule does not see its own bad example"
    complaints = [f"reflex/{name_of(p)}.py {c}" for p in product_files() for c in rule(File(name_of(p), p.read_text()))]
    assert not complaints, "\n" + "\n".join(complaints)


def test_at_most_five_environment_variables():
    source = (ROOT / "reflex" / "settings.py").read_text()
    read = {node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant) and isinstance(node.value, bytes)}
    names = {name.decode() for name in read if name.startswith(b"REFLEX_")}
    assert 1 <= len(names) <= 5
    assert all(name in ast.get_docstring(ast.parse(source)) for name in names)


def test_total_is_printed(capsys):
    totals = {}
    for path in product_files():
        part = path.relative_to(ROOT / "reflex").parts[0]
        totals[part] = totals.get(part, 0) + len(path.read_text().splitlines())
    with capsys.disabled():
        print(
            "\nlines: " + ", ".join(f"{part} {count}" for part, count in sorted(totals.items())) + f"; total {sum(totals.values())}"
        )
    assert sum(totals.values()) > 1000
