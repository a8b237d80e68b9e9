"""--import-state, --export-state and the worker's fields of these names, in processes of their own."""

import json
import re

import process
import pytest
import tiny

from reflex.client import Client
from reflex.errors import InvalidInputError, StateError

TEXT = "the quick brown fox jumps over a lazy dog while that other animal sings about things " * 3
ENGINE = ("--backend", "cpu", "--threads", "1", "--ctx", "512")
CANDIDATES = ("--candidate", "one", "--candidate", "two three")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.write("llama-smollm", tmp_path_factory.mktemp("models") / "tiny.gguf")


def told(*words):
    """(results, lines on stderr)."""
    done = process.reflex(*words, *ENGINE, "--json")
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr.decode().splitlines()


def taken(lines):
    """(reused, in the file, of the prompt) of the line that says so."""
    (line,) = [line for line in lines if line.startswith("reflex: state: ")]
    return tuple(map(int, re.match(r"reflex: state: (\d+) of (\d+) tokens from .* for a prompt of (\d+)$", line).groups()))


COMMANDS = [("system1", *CANDIDATES), ("system1", *CANDIDATES, "--rule", "pmi"), ("generate", "--max-tokens", "5", "--logprobs")]


@pytest.mark.parametrize("command", COMMANDS)
def test_answers_with_a_state_are_those_without(model, tmp_path, command):
    name, *options = command
    plain, _ = told(name, model, TEXT, *options)
    exported, lines = told(name, model, TEXT, *options, "--export-state", tmp_path / "state")
    assert exported == plain and not lines
    again, lines = told(name, model, TEXT, *options, "--import-state", tmp_path / "state", "--export-state", tmp_path / "again")
    count = plain[-1]["prompt_tokens"]
    assert again == plain and taken(lines) == (count, count, count)
    assert (tmp_path / "again").read_bytes() == (tmp_path / "state").read_bytes()
    longer, lines = told(name, model, TEXT + "again", *options, "--import-state", tmp_path / "state")
    assert longer == told(name, model, TEXT + "again", *options)[0]
    reused, held, _ = taken(lines)
    assert count - 3 <= reused <= count == held


@pytest.mark.parametrize("command", COMMANDS[1:])
def test_nothing_is_said_of_a_damaged_state_but_the_error(model, tmp_path, command):
    """Also where the prompt begins like none of it."""
    path, (name, *options) = tmp_path / "state", command
    told(name, model, TEXT, *options, "--export-state", path)
    data = bytearray(path.read_bytes())
    data[-9] ^= 1  # of the last digest
    path.write_bytes(data)
    for prompt in (TEXT, "something else"):
        done = process.reflex(name, model, prompt, *options, *ENGINE, "--import-state", path)
        lines = done.stderr.decode().splitlines()
        assert done.returncode == 8 and not done.stdout and len(lines) == 1 and lines[0].startswith("reflex: state: "), lines
        assert "tokens from" not in lines[0]


def test_a_half_float_state_is_half_as_large_and_says_so(model, tmp_path):
    told("system1", model, TEXT, *CANDIDATES, "--export-state", tmp_path / "f32", "--state-type", "f32")
    told("system1", model, TEXT, *CANDIDATES, "--export-state", tmp_path / "f16", "--state-type", "f16")
    assert 0.4 < (tmp_path / "f16").stat().st_size / (tmp_path / "f32").stat().st_size < 0.6
    _, lines = told("system1", model, TEXT, *CANDIDATES, "--import-state", tmp_path / "f16")
    assert "float16" in lines[-1] and lines[-1].startswith("reflex: warning: ")


def test_a_state_that_fits_nothing(model, tmp_path):
    told("system1", model, TEXT, *CANDIDATES, "--export-state", tmp_path / "state")
    result, lines = told("system1", model, "something else", *CANDIDATES, "--import-state", tmp_path / "state")
    assert result == told("system1", model, "something else", *CANDIDATES)[0]
    assert "nothing of the state could be used" in lines[-1]


def test_refusals_are_one_line(model, tmp_path):
    told("system1", model, TEXT, *CANDIDATES, "--export-state", tmp_path / "state")
    data = bytearray((tmp_path / "state").read_bytes())
    data[-300] ^= 4
    (tmp_path / "damaged").write_bytes(data)
    for path, code, category in (("damaged", 8, "state"), ("none", 8, "io")):
        done = process.reflex("system1", model, TEXT, *CANDIDATES, *ENGINE, "--json", "--import-state", tmp_path / path)
        assert done.returncode == code and done.stderr.decode().count("\n") == 1
        assert json.loads(done.stdout)["category"] == category
    done = process.reflex("system1", model, TEXT, *CANDIDATES, *ENGINE, "--export-state", tmp_path / "none" / "state")
    assert done.returncode == 8 and b"cannot write the state" in done.stderr


def test_a_start_without_states_imports_nothing_of_them(model):
    before = "import atexit, sys"
    after = "import os; os.write(2, ' '.join(sys.modules).encode())"
    done = process.reflex(
        "system1",
        model,
        "x",
        *CANDIDATES,
        *ENGINE,
        before=f"{before}\nimport posix\nend = posix._exit\ndef leave(code):\n    {after}\n    end(code)\nposix._exit = leave",
    )
    assert done.returncode == 0 and b"reflex.session" in done.stderr and b"reflex.state" not in done.stderr


def test_the_worker_takes_and_leaves_states(model, tmp_path):
    path = str(tmp_path / "state")
    with Client(process.words("stdio", model, *ENGINE)) as worker:

        def ask(prompt, **fields):
            answer = worker.system1(prompt, ["one", "two"], **fields)
            return {key: value for key, value in answer.items() if key not in ("timings", "state", "id")}, answer.get("state")

        plain, state = ask(TEXT)
        assert state is None
        assert ask(TEXT, export_state=path) == (plain, None)
        count = plain["prompt_tokens"]
        assert ask(TEXT, import_state=path) == (plain, {"tokens": count, "reused": count, "warnings": []})
        assert ask("else", import_state=path)[1]["reused"] == 0
        tokens = worker.generate(TEXT, max_tokens=3, import_state=path)
        assert len(list(tokens)) == 3 and tokens.result["state"]["reused"] == count
        with pytest.raises(InvalidInputError, match="absolute"):
            ask(TEXT, import_state="state")
        with pytest.raises(InvalidInputError, match="path of a file"):
            ask(TEXT, import_state="/a\0b")
        data = bytearray((tmp_path / "state").read_bytes())
        data[5000] ^= 1
        (tmp_path / "state").write_bytes(data)
        with pytest.raises(StateError, match="damaged"):
            ask(TEXT, import_state=path)
        assert ask(TEXT) == (plain, None)


def test_what_a_request_imported_is_gone_with_it(model, tmp_path):
    """A state of rounded numbers changes the answer that asked for it, and no other."""
    told("system1", model, TEXT, *CANDIDATES, "--export-state", tmp_path / "f16", "--state-type", "f16")
    with Client(process.words("stdio", model, *ENGINE)) as worker:
        rounded = worker.system1(TEXT, ["one", "two"], import_state=str(tmp_path / "f16"))
        plain = worker.system1(TEXT, ["one", "two"])
    with Client(process.words("stdio", model, *ENGINE)) as worker:
        fresh = worker.system1(TEXT, ["one", "two"])
    assert plain["candidates"] == fresh["candidates"] != rounded["candidates"]
