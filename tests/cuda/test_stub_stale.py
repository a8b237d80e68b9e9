"""Kernels of a GPU that are not those of the sources beside them, over the stub of the driver: one line and exit code 7 from what
would use them, and nothing from what uses the host's.
"""

import shutil

import process
import pytest
import tiny
from stub import fake

from reflex import stale

KERNELS = "reflex/kernels/cuda/attention_row.py"
COMMANDS = {
    "system1": ("MODEL", "text", "--candidate", "a", "--backend", "cuda"),
    "generate": ("MODEL", "text", "--backend", "cuda"),
    "stdio": ("MODEL", "--backend", "cuda"),
    "smoke": ("--device", "0"),
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory, sm_90):
    """A source tree with a cache of its own, and a model."""
    root = tmp_path_factory.mktemp("tree")
    for name in ("reflex", "precompile.py"):
        (root / name).symlink_to(process.ROOT / name)
    shutil.copytree(process.ROOT / "cache", root / "cache")
    tiny.write("llama-smollm", root / "tiny.gguf")
    return root


@pytest.fixture
def run(tree, driver_library):
    """run(command): the finished process."""

    def run(command, *words):
        words = [tree / "tiny.gguf" if word == "MODEL" else word for word in words or COMMANDS[command]]
        return process.reflex(command, *words, root=tree, env=fake.environment(driver_library))

    return run


@pytest.fixture
def edited(tree):
    """The list says something else of one kernel file."""
    path = tree / "cache" / stale.NAMES["cuda"]
    whole = path.read_text()
    lines = [line if not line.endswith(KERNELS) else f"{'0' * 16} 1 {line.split()[2]} {KERNELS}" for line in whole.splitlines()]
    assert "\n".join(lines) + "\n" != whole
    path.write_text("\n".join(lines) + "\n")
    yield
    path.write_text(whole)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_says_so(run, edited, command):
    done = run(command)
    said = done.stderr + done.stdout
    assert done.returncode == 7, said
    assert b"the compiled kernels are not those of the sources" in said and KERNELS.encode() in said and b"precompile.py" in said
    assert said.count(b"\n") == 1 or command == "stdio"


@pytest.mark.parametrize("command", COMMANDS)
def test_current_ones_are_taken(run, command):
    assert b"kernel_cache" not in run(command).stderr  # what the stub computes need not be right


def test_the_host_needs_none_of_them(run, edited):
    done = run("system1", "MODEL", "text", "--candidate", "a", "--backend", "cpu")
    assert done.returncode == 0 and not done.stderr


def test_a_list_that_is_missing_is_one_of_an_older_version(run, tree, edited):
    (tree / "cache" / stale.NAMES["cuda"]).unlink()
    done = run("system1")
    assert done.returncode == 7 and b"older version" in done.stderr and done.stderr.count(b"\n") == 1
