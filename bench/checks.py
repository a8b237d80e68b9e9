"""What the checks of files and requests cost a cold start: instructions of `system1` on the demo model, with them and without.

    python bench/checks.py [MODEL] [--rounds N]

Two copies of reflex/ are made. From one, every `if` that only raises an error of reflex/errors.py is left out, with its condition;
there the kernels' checksum is believed and nothing is prepared for a file that shrinks. Valgrind counts the instructions of whole
processes of both, interpreter and kernels included, on one thread. What native code checks cannot be taken out: `walk` counts the
whole native walk over the header, checks and reading together, and `strings` stands for BOUND instructions for each string of the
vocabulary, so both are more than the checks in them. Only this file leaves anything out; nothing a user can ask for does.
"""

import argparse
import ast
import compileall
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import record
from reflex import errors

WORDS = ("The capital of France is", "--candidate", " Paris", "--candidate", " London", "--backend", "cpu", "--threads", "1")
BOUND = 4  # instructions: a length is compared with what is left, twice
BOOT = """
import sys
sys.path[:0] = [{root!r}]
sys.path += [{packages!r}]
{before}
from reflex.cli.front import main
main()
"""
AGAIN = """
import reflex.gguf.header as header
inner = header._walk
def walk(*words):
    inner(*words)
    return inner(*words)
header._walk = walk
"""
BELIEVED = """
class Any:
    def __eq__(self, other):
        return True
    def __ne__(self, other):
        return False
from reflex import native
from reflex.gguf import header
native.checksum_of = lambda data: Any()
header.guard = lambda *words: None
"""
KINDS = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, errors.ReflexError)}


def is_check(node):
    """Whether a statement is an `if` without `else` that does nothing but raise one of our errors; a condition that changes
    something is none."""
    if not isinstance(node, ast.If) or node.orelse or not isinstance(node.body[-1], ast.Raise):
        return False
    if not all(isinstance(part, (ast.Import, ast.ImportFrom, ast.Assign)) for part in node.body[:-1]):
        return False
    changes = [n for n in ast.walk(node.test) if isinstance(n, ast.NamedExpr) or getattr(n, "attr", "") == "acquire"]
    raised = node.body[-1].exc
    name = getattr(getattr(raised, "func", raised), "id", "")
    return not changes and (name in KINDS or name in ("explain", "foreign", "_twice", "_not_text"))


class Without(ast.NodeTransformer):
    """Takes checks out of a module, and counts them."""

    def __init__(self):
        self.taken = 0

    def generic_visit(self, node):
        super().generic_visit(node)
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(node, field, None)
            if isinstance(statements, list):
                left = [one for one in statements if not is_check(one)]
                self.taken += len(statements) - len(left)
                setattr(node, field, left or ([ast.Pass()] if field == "body" else []))
        return node


def copies(folder):
    """Copies the run time to folder/with and folder/without, both printed from their trees; the number of checks taken out."""
    checks = Without()
    for name in ("with", "without"):
        target = folder / name / "reflex"
        shutil.copytree(record.ROOT / "reflex", target, ignore=shutil.ignore_patterns("kernels", "__pycache__", "cache"))
        (folder / name / "cache").symlink_to(record.ROOT / "cache")
        for path in target.rglob("*.py"):
            tree = ast.parse(path.read_text())
            path.write_text(ast.unparse(checks.visit(tree) if name == "without" and path.name != "errors.py" else tree))
        compileall.compile_dir(str(target), quiet=2)
    return checks.taken


def instructions(root, model, before=""):
    """Instructions of one process, by valgrind, and what it printed."""
    boot = BOOT.format(root=str(root), packages=sysconfig.get_path("purelib"), before=before)
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", sys.executable, "-sSP", "-c", boot]
    environment = {"PYTHONHASHSEED": "0", "PATH": "/usr/bin:/bin"}
    done = subprocess.run([*command, "system1", model, *WORDS], capture_output=True, text=True, env=environment)
    counted = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or not counted:
        raise SystemExit(done.stderr[-2000:])
    return int(counted[1]), done.stdout


def measure(model, rounds):
    """Raw counts by variant."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        taken = copies(folder)
        variants = {
            "with": (folder / "with", ""),
            "without": (folder / "without", BELIEVED),
            "walked twice": (folder / "with", AGAIN),
        }
        counts, printed = {name: [] for name in variants}, set()
        for _ in range(rounds):
            for name, (root, before) in variants.items():
                count, text = instructions(root, model, before)
                counts[name].append(count)
                printed.add(text)
    if len(printed) != 1:
        raise SystemExit("the variants print different results")
    return taken, counts


def strings(model):
    """Strings of the vocabulary that native code steps over."""
    from reflex.gguf import reader

    file = reader.open_model(model)
    arrays = (file.array(f"tokenizer.ggml.{key}", None) for key in ("tokens", "merges"))
    found = sum(array.count for array in arrays if array)
    file.close()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="demo")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    from reflex import demo

    model = demo.resolve(arguments.model)
    taken, counts = measure(model, arguments.rounds)
    middle = {name: sorted(values)[len(values) // 2] for name, values in counts.items()}
    whole = middle["with"]
    parts = {
        "python": whole - middle["without"],
        "walk": middle["walked twice"] - whole,
        "strings": BOUND * strings(model),
    }
    body = {
        "model": record.model(model),
        "statements": taken,
        "instructions": counts,
        "parts": parts,
        "percent": {name: round(100 * count / whole, 3) for name, count in parts.items()},
        "percent_in_all": round(100 * sum(parts.values()) / whole, 3),
    }
    what = "Instructions of a cold system1 with and without its checks (callgrind); bench/checks.py says what counts"
    record.write("checks", what, body)
    print(json.dumps(body["percent"] | {"in all": body["percent_in_all"]}, indent=1))


if __name__ == "__main__":
    main()
