"""Machines that give little: no rights, no threads, no room for a file. A request is answered, or one line says what is missing."""

import json
import os
import subprocess
import tempfile
from pathlib import Path

import process
import pytest
import tiny

SYSTEM1 = ("The capital", "--candidate", " Paris", "--candidate", " London")
NOBODY = 2000  # a user id without a name, a home or a file


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    tiny.write("llama-smollm", path)
    for folder in (path, *path.parents):  # nobody may read it
        if folder == Path(tempfile.gettempdir()):
            break
        folder.chmod(folder.stat().st_mode | 0o055)
    return path


@pytest.fixture(scope="module")
def answer(model):
    done = process.reflex("system1", model, *SYSTEM1)
    return done.returncode, done.stdout, done.stderr


def line_of(done, code, category, *words):
    (line,) = done.stderr.decode().splitlines()
    assert done.returncode == code and line.startswith(f"reflex: {category}: ") and all(word in line for word in words), line
    assert done.stdout == b""


# ---- rights ----------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become nobody")
def test_a_user_who_may_write_nowhere(model, answer):
    """Neither the package nor its cache nor a home can be written to."""
    argv = process.words("system1", model, *SYSTEM1)
    other = {"cwd": "/", "user": NOBODY, "group": NOBODY, "extra_groups": [], "capture_output": True}
    try:
        code = f"open({str(process.ROOT)!r} + '/README.md'), open({str(model)!r})"
        subprocess.run([argv[0], "-IS", "-c", code], check=True, **other)
    except (PermissionError, subprocess.CalledProcessError):
        pytest.skip("Python, this source tree or the temporary folder lies where only its owner can read")
    done = subprocess.run(argv, env={}, **other)
    assert (done.returncode, done.stdout, done.stderr) == answer


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become nobody")
def test_a_model_that_may_not_be_read(model, tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(model.read_bytes())
    path.chmod(0o000)
    before = f"import os, reflex.cli.system1; os.setgid({NOBODY}); os.setuid({NOBODY})\n"
    line_of(process.reflex("system1", path, *SYSTEM1, before=before), 3, "model_file", "Permission denied", str(path))


# ---- threads ---------------------------------------------------------------------------------------------

NO_THREADS = """
import _thread
def start_new_thread(*words):
    raise RuntimeError("can't start new thread")
_thread.start_new_thread = start_new_thread
"""


def test_no_more_threads_is_one_line_unless_one_will_do(model, answer):
    done = process.reflex("system1", model, *SYSTEM1, "--threads", "4", before=NO_THREADS)
    line_of(done, 5, "out_of_memory", "cannot start a thread", "--threads 1", "ulimit -u")
    done = process.reflex("system1", model, *SYSTEM1, "--threads", "1", before=NO_THREADS)
    assert (done.returncode, done.stdout, done.stderr) == answer


@pytest.mark.skipif(os.getuid() != 0, reason="root has no such limit, and who is not may have reached it")
def test_a_limit_of_processes(model):
    """The real limit, as a user: the main thread is all there is."""
    before = f"import os, resource, reflex.cli.system1; os.setgid({NOBODY}); os.setuid({NOBODY})\n"
    before += "resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))\n"
    done = process.reflex("system1", model, *SYSTEM1, "--threads", "4", before=before)
    if done.returncode:
        line_of(done, 5, "out_of_memory", "cannot start a thread")


# ---- files that are written ------------------------------------------------------------------------------

FULL = "import resource, reflex.cli.check; sys.dont_write_bytecode = True; resource.setrlimit(resource.RLIMIT_FSIZE, ({0}, {0}))\n"


def record(model, path, before=""):
    return process.reflex("check", model, "The capital", "--steps", "3", "--record", path, before=before)


def test_a_recording_is_there_whole_or_not_at_all(model, tmp_path):
    path = tmp_path / "recording.json"
    line_of(record(model, path, FULL.format(100)), 8, "io", "cannot write the recording", "File too large", str(path))
    assert list(tmp_path.iterdir()) == []
    assert record(model, path).returncode == 0
    before, mode = path.read_bytes(), path.stat().st_mode & 0o777
    assert json.loads(before)["type"] == "recording" and mode & 0o600 == 0o600
    line_of(record(model, path, FULL.format(100)), 8, "io", "File too large")
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_a_recording_goes_where_a_link_or_a_device_leads(model, tmp_path):
    (tmp_path / "there").mkdir()
    link, target = tmp_path / "link.json", tmp_path / "there" / "recording.json"
    link.symlink_to(target)
    assert record(model, link).returncode == 0
    assert link.is_symlink() and json.loads(target.read_text())["type"] == "recording"
    line_of(record(model, "/dev/full"), 8, "io", "No space left", "/dev/full")
    line_of(record(model, tmp_path / "none" / "recording.json"), 8, "io", "No such file or directory")


def test_a_quantized_model_takes_the_place_of_a_file_only(model, tmp_path):
    """Root may rename a file over a device, and must not."""
    line_of(process.reflex("quantize", model, "/dev/null", "--type", "Q8_0"), 2, "invalid_input", "not a regular file", "/dev/null")
    assert not os.path.isfile("/dev/null")
    link, target = tmp_path / "link.gguf", tmp_path / "target.gguf"
    link.symlink_to(target)
    assert process.reflex("quantize", model, link, "--type", "Q8_0").returncode == 0
    assert link.is_symlink() and target.read_bytes()[:4] == b"GGUF"
