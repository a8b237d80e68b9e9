"""Kernels in cache/ that are not those of the sources beside them: one line from every command, before anything is computed."""

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import process
import pytest
import sidecars
import tiny

from reflex import native, stale
from reflex.cli import front
from reflex.errors import KernelCacheError

KERNELS = "reflex/kernels/host/state.py"
UNCOMPILED = {Path("reflex/kernels/cuda/levels.py")}  # of the build: says which targets there are
COMMANDS = {  # every command that computes, or reads a model
    "bench": ("MODEL",),
    "check": ("MODEL", "text"),
    "compare": ("MODEL", "MODEL"),
    "generate": ("MODEL", "text"),
    "imatrix": ("MODEL", "demo", "-o", "OUT"),
    "inspect": ("MODEL",),
    "perplexity": ("MODEL", "demo"),
    "quantize": ("MODEL", "OUT", "--type", "Q8_0"),
    "sensitivity": ("MODEL",),
    "smoke": (),
    "stdio": ("MODEL",),
    "system1": ("MODEL", "text", "--candidate", "a"),
    "uds": ("MODEL", "OUT"),
}
WITHOUT = {"doctor", "families", "formats"}  # doctor: below; the others need no kernels


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A source tree whose cache is of another version of one kernel file, and a model."""
    root = tmp_path_factory.mktemp("tree")
    for name in ("reflex", "precompile.py"):
        (root / name).symlink_to(process.ROOT / name)
    shutil.copytree(process.ROOT / "cache", root / "cache", ignore=shutil.ignore_patterns("cuda-*"))
    edit(root / "cache")
    tiny.write("llama-smollm", root / "tiny.gguf")
    return root


def edit(cache, kind="host", kernels=KERNELS):
    """Have the list say something else of the sources of one kernel file."""
    lines = (cache / stale.NAMES[kind]).read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if line.endswith(kernels))
    _, size, time, name = lines[at].split(" ", 3)
    lines[at] = f"{'0' * 16} {int(size) + 1} {time} {name}"
    (cache / stale.NAMES[kind]).write_text("".join(f"{line}\n" for line in lines))


def one_line(text, code, kernels=KERNELS):
    assert code == 7 and text.count(b"\n") == 1, text.decode()
    assert text.startswith(b"reflex: kernel_cache: the compiled kernels are not those of the sources; expected ")
    assert all(word in text for word in (kernels.encode(), b"; found ", b"/cache -> ", b"precompile.py"))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_says_so(tree, command):
    words = [tree / "tiny.gguf" if word == "MODEL" else tree / "out" if word == "OUT" else word for word in COMMANDS[command]]
    done = process.reflex(command, *words, root=tree)
    one_line(done.stderr, done.returncode)
    assert not (tree / "out").exists()


def test_these_are_all_commands():
    names = {path.stem for path in (process.ROOT / "reflex" / "cli").glob("*.py") if "PARAMETERS" in path.read_text()}
    assert {name for name in names if hasattr(front.command(name), "run")} == set(COMMANDS) | WITHOUT


def test_json_and_the_worker_say_it_as_an_object(tree):
    for command in ("system1", "stdio"):
        words = ("text", "--candidate", "a", "--json") if command == "system1" else ()
        done = process.reflex(command, tree / "tiny.gguf", *words, root=tree)
        said = json.loads(done.stdout)
        assert said["type"] == "error" and said["category"] == "kernel_cache" and KERNELS in said["expected"]


def test_doctor_counts_it_as_a_failure(tree):
    done = process.reflex("doctor", root=tree)
    assert done.returncode == 1 and b"the compiled kernels are not those of the sources" in done.stdout


def test_the_sidecar_ends_with_the_code_of_its_worker(tree, tmp_path):
    worker = tmp_path / "reflex"
    worker.write_text(f'#!/bin/sh\nexec {shlex.join(process.words(root=tree))} "$@"\n')
    worker.chmod(0o755)
    words = sidecars.words(tree / "tiny.gguf", "--port", "0", "--worker", worker)
    done = subprocess.run(words, capture_output=True, timeout=300)
    assert done.returncode == 7 and b"Traceback" not in done.stderr
    assert b"the compiled kernels are not those of the sources" in done.stderr


def test_python_raises_it(tree):
    code = f"import sys; sys.path.insert(0, {str(tree)!r}); import reflex; reflex.load({str(tree / 'tiny.gguf')!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stderr.splitlines()[-1].startswith("reflex.errors.KernelCacheError: the compiled kernels are not those of the")


def test_what_counts_is_what_a_file_holds(tmp_path):
    """A time of change does not; a file that is gone, of another size or other bytes does, and so does a list that is missing."""
    cache, file = tmp_path / "cache", tmp_path / KERNELS
    cache.mkdir()
    file.parent.mkdir(parents=True)

    def listed(text):
        file.write_text(text)
        (cache / stale.NAMES["host"]).write_text(stale.line(str(tmp_path), KERNELS))

    def refused():
        with pytest.raises(KernelCacheError) as caught:
            stale.refuse_stale(str(cache), "host")
        return str(caught.value)

    listed("one")
    stale.refuse_stale(str(cache), "host")
    file.write_text("one")  # at another time
    stale.refuse_stale(str(cache), "host")
    file.write_text("two")
    assert KERNELS in refused()
    file.write_text("more")
    assert KERNELS in refused()
    file.unlink()
    assert KERNELS in refused()
    (cache / stale.NAMES["host"]).unlink()
    assert "older version" in refused()
    file.parent.rmdir()
    file.parent.parent.rmdir()
    stale.refuse_stale(str(cache), "host")  # there are no sources to be older than


@pytest.mark.parametrize("kind", stale.NAMES)
def test_the_list_names_every_kernel_file(kind):
    if kind == "cuda" and not list((process.ROOT / "cache").glob("cuda-*.bin")):
        pytest.skip("no kernels of a GPU in cache/")
    lines = Path(f"{native.cache_folder()}/{stale.NAMES[kind]}").read_text().splitlines()
    named = {Path(line.split(" ", 3)[3]) for line in lines}
    folder = process.ROOT / "reflex" / "kernels" / kind
    assert {path.relative_to(process.ROOT) for path in folder.glob("[a-z]*.py")} - UNCOMPILED <= named
