"""What happens between exec and the first result: modules imported, files opened, from an audit hook in the process itself.

The hook is installed before anything of Reflex is imported and reports when the process is about to end. Only what Python
itself opens is seen, which is all there is: native code opens nothing.
"""

import json
import re
import subprocess
import sys
import sysconfig

import process
import pytest
import tiny

FORBIDDEN = {
    *("numpy", "typer", "click", "gguf", "re", "json", "json.decoder", "dataclasses", "pathlib", "typing", "enum", "collections"),
    *(
        "functools",
        "contextlib",
        "struct",
        "array",
        "ctypes",
        "mmap",
        "threading",
        "inspect",
        "argparse",
        "os.path",
        "site",
        "numba",
    ),
}
STANDARD = {  # what may be imported from outside Reflex; all of it built in, frozen or one small shared object
    *("_ctypes", "binascii", "math", "itertools", "posix", "time", "_thread", "gc", "sys", "__future__"),
}
MOST_MODULES = 55
MOST_FILES = 60
CHAT_MODULES = 8  # more, where a chat template is rendered
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}"

WATCH = """
import sys
first = (0, 0)
before = set(sys.modules)
opened = []
sys.addaudithook(lambda event, arguments: opened.append(str(arguments[0])) if event in ("open", "ctypes.dlopen") else None)
sys.path += [{root!r}, {packages!r}]
from reflex.cli import front
def leave(code):
    from posix import write, _exit
    lines = ["", "M " + " ".join(sorted(set(sys.modules) - before)), *("F " + name for name in opened)]
    write(2, "\\n".join(lines).encode())
    _exit(code)
front._exit = leave
front.main(first)
"""


def watched(*argv):
    """(stdout, modules imported since start, files opened) of one command."""
    code = WATCH.format(root=str(process.ROOT), packages=sysconfig.get_path("purelib"))
    done = subprocess.run([sys.executable, "-IS", "-c", code, *map(str, argv)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    modules = next(line[2:].split() for line in lines if line.startswith("M "))
    files = [line[2:] for line in lines if line.startswith("F ")]
    return done.stdout, set(modules) - {"reflex.stale"}, [file for file in files if not COMPARED.search(file)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    tiny.write("llama-smollm", path, template=TEMPLATE)
    for name, words in COMMANDS.items():  # a first run after a change writes bytecode, which is no part of a cold start
        watched(name.split()[0], path, *words)
    return path


COMPARED = re.compile(r"/stale\.|/cache/sources$|/reflex/kernels/")  # with kernel sources, which an installed package has not
COMMANDS = {
    "system1": ("The capital of France is", "--candidate", " Paris", "--candidate", " London"),
    "system1 json": ("The capital of France is", "--candidate", " Paris", "--candidate", " London", "--json", "--timings"),
    "generate": ("The capital of France is", "--max-tokens", "4"),
    "generate chat": ("The capital of France is", "--max-tokens", "4", "--chat", "--system", "Be brief."),
    "generate json": ("The capital", "--max-tokens", "4", "--json", "--temperature", "1", "--seed", "7", "--top-k", "5"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_modules_and_files_of_a_cold_start(model, name, capsys):
    output, modules, files = watched(name.split()[0], model, *COMMANDS[name])
    assert output
    assert not modules & FORBIDDEN
    outside = {module for module in modules if not module.startswith("reflex")}
    assert outside <= STANDARD
    assert "reflex.cli.app" not in modules and "reflex.kernels" not in modules and "reflex.api" not in modules
    assert not any(module.endswith((".reference", ".notebook")) for module in modules)
    more = CHAT_MODULES if "--chat" in COMMANDS[name] else 0
    assert len(modules) <= MOST_MODULES + more
    assert len(files) <= MOST_FILES + more
    assert not any(module.startswith("reflex.constrain") for module in modules)
    assert more or not any(module.startswith(("reflex.chat", "reflex.cli.chat")) for module in modules)
    # Every file is a module of ours or Python's, the model, the kernel blob, or the CPU's description.
    odd = [f for f in files if not f.endswith((".pyc", ".py", ".so", ".bin", str(model), "/proc/cpuinfo", "None"))]
    assert not odd
    assert sum(f.endswith(str(model)) for f in files) == 1
    with capsys.disabled():
        print(f"\n{name}: {len(modules)} modules ({len(outside)} outside reflex), {len(files)} files")


def test_the_watch_sees_what_is_forbidden(model):
    """The same hook on a command that may import everything: the test above could fail."""
    _, modules, files = watched("check", model, "hello", "--steps", "1")
    assert modules & FORBIDDEN
    assert len(files) > MOST_FILES


def test_phases_are_reported_in_order(model):
    done = process.reflex("system1", model, "Hello", "--candidate", " a", "--json", "--timings")
    result, phases = (json.loads(line) for line in done.stdout.splitlines())
    assert result["type"] == "result" and phases["type"] == "phases"
    times = list(phases["phases"].values())
    assert times == sorted(times) and times[0] > 0
    assert {"launch", "imports", "header", "tokenizer", "kernels", "prefill"} <= set(phases["phases"])


def test_phases_count_from_the_callers_clock(model):
    import os
    import time

    start = time.perf_counter_ns() - 10**9
    done = process.reflex("smoke", "--json", "--timings", env={**os.environ, "REFLEX_T0": str(start)})
    phases = json.loads(done.stdout.splitlines()[1])
    assert phases["clock"] == "exec" and phases["phases"]["launch"] > 1000
