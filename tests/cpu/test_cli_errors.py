"""What a person sees when something is wrong: one line on stderr with the category, the exit code of the contract, no traceback."""

import json
import os
import shutil
import signal
import subprocess

import process
import pytest
import tiny

SYSTEM1 = ("The capital", "--candidate", " Paris", "--candidate", " London")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A whole, tiny, random model with a byte-level vocabulary."""
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    tiny.write("llama-smollm", path)
    return path


def damaged(model, folder, change):
    path = folder / "damaged.gguf"
    path.write_bytes(change(model.read_bytes()))
    return path


def expect(done, code, category, *words):
    """One line with category and words on stderr, the exit code, nothing but an error object on stdout."""
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 1, done.stderr.decode()
    assert lines[0].startswith(f"reflex: {category}: ")
    assert all(word in lines[0] for word in words), lines[0]
    assert done.returncode == code
    return lines[0]


def test_a_whole_model_answers(model):
    done = process.reflex("system1", model, *SYSTEM1, "--json")
    assert done.returncode == 0, done.stderr.decode()
    result = json.loads(done.stdout)
    assert result["type"] == "result" and result["schema_version"] == 1
    assert abs(sum(row["probability"] for row in result["candidates"]) - 1) < 1e-9


# ---- the model file --------------------------------------------------------------------------------------

DAMAGE = {
    "empty": (lambda data: b"", 3, "model_file"),
    "not_gguf": (lambda data: b"PK\x03\x04" + data[4:], 3, "model_file"),
    "text": (lambda data: b"hello, this is no model\n" * 50, 3, "model_file"),
    "truncated_in_header": (lambda data: data[:1000], 3, "model_file"),
    "truncated_in_tensors": (lambda data: data[: len(data) - 4096], 3, "model_file"),
    "corrupt_counts": (lambda data: data[:8] + b"\xff" * 16 + data[24:], 3, "model_file"),
    "unknown_version": (lambda data: data[:4] + b"\x63\0\0\0" + data[8:], 3, None),
    "unknown_architecture": (lambda data: data.replace(b"llama", b"lxama"), 3, "unsupported"),
    "unknown_pretokenizer": (lambda data: data.replace(b"smollm", b"smoxxm"), 3, None),
}


@pytest.mark.parametrize("name", DAMAGE)
@pytest.mark.parametrize("command", ["system1", "generate"])
def test_damaged_models(model, tmp_path, name, command):
    change, code, category = DAMAGE[name]
    path = damaged(model, tmp_path, change)
    words = SYSTEM1 if command == "system1" else SYSTEM1[:1]
    done = process.reflex(command, path, *words, "--json")
    error = json.loads(done.stdout)
    assert error["type"] == "error" and set(error) >= {"category", "message", "expected", "found", "where", "remedy"}
    assert error["category"] in ((category,) if category else ("model_file", "unsupported", "tokenizer"))
    expect(done, code, error["category"])


def test_missing_model(tmp_path):
    path = tmp_path / "nothing here.gguf"
    expect(process.reflex("system1", path, *SYSTEM1), 3, "model_file", str(path))


def test_model_is_a_folder(tmp_path):
    expect(process.reflex("generate", tmp_path, "hello"), 3, "model_file", str(tmp_path))


def test_unknown_names_say_what_is_near(model, tmp_path):
    path = damaged(model, tmp_path, DAMAGE["unknown_architecture"][0])
    expect(process.reflex("system1", path, *SYSTEM1), 3, "unsupported", "lxama", "llama")
    path = damaged(model, tmp_path, DAMAGE["unknown_pretokenizer"][0])
    done = process.reflex("system1", path, *SYSTEM1)
    assert b"smoxxm" in done.stderr and b"smollm" in done.stderr


# ---- what the person asked for ---------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["system1", "generate"])
def test_empty_prompt_and_empty_stdin(model, command):
    more = SYSTEM1[1:] if command == "system1" else ()
    expect(process.reflex(command, model, "", *more), 2, "invalid_input", "prompt is empty")
    expect(process.reflex(command, model, "-", *more, stdin=b""), 2, "invalid_input", "end of input")


def test_prompt_from_stdin_is_the_same_prompt(model):
    argument = process.reflex("system1", model, "naïve \N{SNOWMAN}", *SYSTEM1[1:], "--json")
    piped = process.reflex("system1", model, "-", *SYSTEM1[1:], "--json", stdin="naïve \N{SNOWMAN}".encode())
    assert argument.returncode == 0 and argument.stdout == piped.stdout


@pytest.mark.parametrize("locale", ["C", "C.UTF-8", "POSIX"])
def test_undecodable_arguments_arrive_as_bytes(model, locale):
    argv = process.words("system1", model, "@", "--candidate", " a", "--json")
    argv[argv.index("@")] = b"caf\xc3\xa9 \xff"
    done = subprocess.run(argv, capture_output=True, env={**os.environ, "LC_ALL": locale})
    piped = process.reflex("system1", model, "-", "--candidate", " a", "--json", stdin=b"caf\xc3\xa9 \xff")
    assert done.returncode == 0, done.stderr
    assert done.stdout == piped.stdout


def test_undecodable_candidates_are_scored_as_bytes(model):
    argv = process.words("system1", model, "caf", "--candidate", "@", "--candidate", "\u0301", "--json")
    argv[argv.index("@")] = b"\xc3"
    done = subprocess.run(argv, capture_output=True)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["candidates"]
    assert [row["text"] for row in rows] == ["\ufffd", "\u0301"] and rows[0]["token_ids"]


def test_context_too_long(model):
    done = process.reflex("generate", model, "many words " * 400)
    expect(done, 6, "context_overflow", "1024")
    expect(process.reflex("generate", model, "hello", "--max-tokens", "2000"), 6, "context_overflow", "2000")
    expect(
        process.reflex("system1", model, "some words to fill it", "--candidate", " a", "--ctx", "4"), 6, "context_overflow", "--ctx"
    )


@pytest.mark.parametrize("option", ["--top-k", "--top-p", "--min-p", "--repeat-penalty", "--seed", "--stop"])
def test_system1_refuses_sampling_options_and_says_whose_they_are(option):
    done = process.reflex("system1", "demo", "p", "--candidate", "a", option, "1")
    expect(done, 2, "invalid_input", f"{option} belongs to generate")


USAGE = [
    ["nonsense"],
    ["system1"],
    ["system1", "demo"],
    ["system1", "demo", "p", "extra"],
    ["system1", "demo", "p"],
    ["system1", "demo", "p", "--candidate"],
    ["system1", "demo", "p", "--candidate", ""],
    ["system1", "demo", "p", "--candidate", "a", "--rule", "best"],
    ["system1", "demo", "p", "--candidate", "a", "--temperature", "0"],
    ["system1", "demo", "p", "--candidate", "a", "--backend", "tpu"],
    ["system1", "demo", "p", "--candidate", "a", "--ctx", "-4"],
    ["system1", "demo", "p", "--candidate", "a", "--threads", "100000"],
    ["generate", "demo", "p", "--top-p", "2"],
    ["generate", "demo", "p", "--max-tokens", "many"],
    ["generate", "demo", "p", "--stop", ""],
    ["check", "demo", "p", "--steps", "0"],
    ["smoke", "--count", "0"],
]


@pytest.mark.parametrize("argv", USAGE, ids=" ".join)
def test_usage_mistakes(model, argv):
    argv = [str(model) if word == "demo" else word for word in argv]
    expect(process.reflex(*argv), 2, "invalid_input")
    done = process.reflex(argv[0], "--json", *argv[1:])
    assert done.returncode == 2 and json.loads(done.stdout)["category"] == "invalid_input"


def test_a_backend_that_is_not_there_is_not_replaced(model):
    expect(process.reflex("system1", model, *SYSTEM1, "--backend", "cuda"), 4, "device", "cpu")


# ---- the kernel cache ------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path):
    """A copy of the run-time package with a cache of its own."""
    skip = shutil.ignore_patterns("kernels", "__pycache__")
    shutil.copytree(process.ROOT / "reflex", tmp_path / "tree" / "reflex", ignore=skip)
    shutil.copytree(process.ROOT / "cache", tmp_path / "tree" / "cache")
    return tmp_path / "tree"


def blobs(tree):
    return sorted((tree / "cache").glob("host-*.bin"))


def test_missing_cache(model, tree):
    shutil.rmtree(tree / "cache")
    expect(process.reflex("system1", model, *SYSTEM1, root=tree), 7, "kernel_cache", "precompile.py")
    assert process.reflex("doctor", root=tree).returncode == 1


def test_corrupt_cache(model, tree):
    for path in blobs(tree):
        data = bytearray(path.read_bytes())
        data[-100] ^= 1
        path.write_bytes(data)
    expect(process.reflex("system1", model, *SYSTEM1, root=tree), 7, "kernel_cache", "corrupt", "precompile.py")
    done = process.reflex("doctor", "--json", root=tree)
    assert done.returncode == 1 and json.loads(done.stdout)["ok"] is False


def test_truncated_cache(model, tree):
    for path in blobs(tree):
        path.write_bytes(path.read_bytes()[:5000])
    expect(process.reflex("smoke", root=tree), 7, "kernel_cache", "precompile.py")


def test_doctor_is_content_with_a_whole_cache(tree):
    done = process.reflex("doctor", "--json", root=tree)
    assert done.returncode == 0, done.stdout
    assert {"cpu", "cache", "python", "launcher"} <= {check["name"] for check in json.loads(done.stdout)["checks"]}


# ---- where the result goes -------------------------------------------------------------------------------


def test_full_disk_is_an_error(model):
    with open("/dev/full", "wb") as full:
        done = subprocess.run(process.words("system1", model, *SYSTEM1), stdout=full, stderr=subprocess.PIPE)
    expect(done, 8, "io", "stdout")


def test_closed_stdout_is_an_error(model):
    done = subprocess.run(process.words("smoke"), stderr=subprocess.PIPE, preexec_fn=lambda: os.close(1))
    expect(done, 8, "io", "stdout")


def test_closed_pipe_ends_quietly(model):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(process.words("generate", model, "hello", "--max-tokens", "50"), stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert done.stderr == b""
    assert done.returncode == 141


SLOW = """
import time
from reflex.backends.cpu import Plan
inner = Plan.evaluate
def evaluate(self, *words):
    time.sleep(0.2)
    inner(self, *words)
Plan.evaluate = evaluate
"""


def test_interrupt_keeps_the_text_and_exits_130(model):
    """A text that would take three minutes."""
    argv = process.words("generate", model, "hello", "--max-tokens", "900", "--json", before=SLOW)
    running = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    first = running.stdout.readline()
    running.send_signal(signal.SIGINT)
    rest, errors = running.communicate(timeout=300)
    lines = [json.loads(line) for line in (first + rest).splitlines()]
    assert lines[0]["type"] == "token" and (running.returncode, errors) == (130, b"")
    assert lines[-1]["finish_reason"] == "interrupt"
    assert len(lines[-1]["token_ids"]) - (len(lines) - 1) in (0, 1)  # the signal may come before a token's line


def test_a_broken_installation_is_one_line(tree):
    path = tree / "reflex" / "cli" / "smoke.py"
    path.write_text(path.read_text().replace("from .. import native\n", "from .. import nativ\n"))
    expect(process.reflex("smoke", root=tree), 8, "internal", "nativ")
    path.write_text("this is no Python\n")
    expect(process.reflex("smoke", root=tree), 8, "internal", "smoke.py")


def test_modules_compiled_on_a_full_disk_are_one_line(model, tree):
    """Python leaves what it could write of a compiled module, and cannot read it again."""
    assert process.reflex("system1", model, *SYSTEM1, root=tree).returncode == 0
    (compiled,) = (tree / "reflex" / "gguf" / "__pycache__").glob("header.*.pyc")
    compiled.write_bytes(compiled.read_bytes()[:100])
    expect(process.reflex("system1", model, *SYSTEM1, root=tree), 8, "internal", "EOFError", "remove its __pycache__ folders")
    shutil.rmtree(compiled.parent)
    assert process.reflex("system1", model, *SYSTEM1, root=tree).returncode == 0


def test_unexpected_errors_are_one_line_unless_traced(tree):
    path = tree / "reflex" / "cli" / "smoke.py"
    path.write_text(path.read_text().replace("    library = native.library()\n", "    library = native.no_such_thing()\n"))
    line = expect(process.reflex("smoke", root=tree), 8, "internal", "no_such_thing", "--trace")
    traced = process.reflex("smoke", "--trace", root=tree).stderr.decode()
    assert "Traceback" in traced and traced.splitlines()[-1] == line


@pytest.mark.parametrize("word", ["app", "page", "nonsense"])
def test_what_is_no_command_is_said_where_typer_is_not_installed(word):
    done = process.reflex(word, "x", before="sys.modules['typer'] = None")
    expect(done, 8, "internal", "needs typer", "pip install typer")
