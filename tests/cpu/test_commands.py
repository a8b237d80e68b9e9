"""Every command end to end on a tiny model: the text, the JSON fields of the contract, and agreement between the two."""

import json

import process
import pytest
import tiny

CANDIDATES = ("--candidate", " fox", "--candidate", " dog", "--candidate", " over a lazy dog")
DECISION = [
    "command",
    "model",
    "backend",
    "rule",
    "best_index",
    "best_text",
    "entropy_bits",
    "margin",
    "prompt_tokens",
    "candidates",
]
CANDIDATE = ["index", "text", "token_ids", "logprobs", "sum", "mean", "per_byte", "probability", "pmi"]
GENERATED = ["command", "model", "backend", "text", "token_ids", "finish_reason", "prompt_tokens"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    tiny.write("llama-smollm", path)
    return path


def ran(*argv, code=0, **options):
    done = process.reflex(*argv, **options)
    assert done.returncode == code, done.stderr.decode()
    return done


def objects(*argv, code=0):
    return [json.loads(line) for line in ran(*argv, "--json", code=code).stdout.splitlines()]


def test_system1_json_has_the_fields_of_the_contract(model):
    (result,) = objects("system1", model, "The quick brown", *CANDIDATES)
    assert list(result) == ["schema_version", "type", *DECISION, "warnings"]
    assert all(list(row) == CANDIDATE for row in result["candidates"])
    assert result["schema_version"] == 1 and result["type"] == "result" and result["command"] == "system1"
    assert result["model"] == str(model) and result["backend"] == "cpu" and result["rule"] == "sum"
    assert [row["text"] for row in result["candidates"]] == [" fox", " dog", " over a lazy dog"]
    assert result["best_text"] == result["candidates"][result["best_index"]]["text"]
    assert sum(row["probability"] for row in result["candidates"]) == pytest.approx(1)


def test_system1_text_and_json_agree(model):
    (result,) = objects("system1", model, "The quick brown", *CANDIDATES, "--rule", "mean")
    done = ran("system1", model, "The quick brown", *CANDIDATES, "--rule", "mean")
    lines = done.stdout.decode().splitlines()
    assert len(lines) == 1 + 3 + 1
    for row, line in zip(result["candidates"], lines[1:4], strict=True):
        assert line.startswith(">") == (row["index"] == result["best_index"])
        assert f"{row['probability']:.4f}" in line and f"{row['mean']:.4f}" in line and repr(row["text"]) in line
    assert lines[4].startswith(f"best: {result['best_text']!r}")
    assert done.stderr == b""


def test_system1_reports_pmi_where_a_prior_is_scored(model):
    (result,) = objects("system1", model, "The quick brown", *CANDIDATES, "--rule", "pmi")
    (plain,) = objects("system1", model, "The quick brown", *CANDIDATES)
    (prior,) = objects("system1", model, "so:", *CANDIDATES)
    (given,) = objects("system1", model, "The quick brown", *CANDIDATES, "--prior", "so:")
    assert result["rule"] == "pmi" and [row["pmi"] for row in plain["candidates"]] == [None] * 3
    assert [row["sum"] for row in result["candidates"]] == [row["sum"] for row in plain["candidates"]]
    best = max(result["candidates"], key=lambda row: row["pmi"])
    assert best["index"] == result["best_index"]
    for mine, unconditional in zip(given["candidates"], prior["candidates"], strict=True):
        assert mine["pmi"] == mine["sum"] - unconditional["sum"]
    text = ran("system1", model, "The quick brown", *CANDIDATES, "--rule", "pmi").stdout.decode()
    assert all(f"{row['pmi']:.4f}" in text for row in result["candidates"])


def test_system1_shows_an_empty_candidate_without_a_score(model):
    words = ("system1", model, "The quick", "--candidate", "", "--candidate", " fox")
    (result,) = objects(*words)
    assert result["candidates"][0]["sum"] is None and result["best_index"] == 1
    done = ran(*words)
    assert b"none" in done.stdout and b"candidate 0 is empty" in done.stderr


def test_system1_warnings_go_to_stderr(model):
    done = ran("system1", model, "The", "--candidate", " fox", "--candidate", " fox")
    assert done.stderr.decode().startswith("reflex: warning: ")
    assert b"warning" not in done.stdout


@pytest.mark.parametrize("threads", ["1", "2", "3"])
def test_system1_does_not_depend_on_threads(model, threads):
    assert objects("system1", model, "The quick", *CANDIDATES, "--threads", threads) == objects(
        "system1", model, "The quick", *CANDIDATES
    )


def test_backends_agree_and_are_named(model):
    (cpu,) = objects("system1", model, "The quick", *CANDIDATES)
    (reference,) = objects("system1", model, "The quick", *CANDIDATES, "--backend", "reference")
    assert (cpu["backend"], reference["backend"]) == ("cpu", "reference")
    for ours, theirs in zip(cpu["candidates"], reference["candidates"], strict=True):
        assert ours["token_ids"] == theirs["token_ids"]
        assert ours["sum"] == pytest.approx(theirs["sum"], abs=0.05)


def test_generate_streams_the_text_of_its_result(model):
    *tokens, result = objects("generate", model, "The quick", "--max-tokens", "12", "--logprobs")
    assert list(result) == ["schema_version", "type", *GENERATED, "logprobs"]
    assert result["logprobs"] == [token["logprob"] for token in tokens if token["id"] is not None]
    assert list(objects("generate", model, "The quick", "--max-tokens", "2")[-1]) == ["schema_version", "type", *GENERATED]
    assert result["type"] == "result" and all(token["type"] == "token" for token in tokens)
    assert "".join(token["text"] for token in tokens) == result["text"]
    assert [token["id"] for token in tokens if token["id"] is not None] == result["token_ids"]
    assert all(token["logprob"] <= 0 for token in tokens if token["id"] is not None)
    assert result["finish_reason"] in ("length", "stop")
    plain = ran("generate", model, "The quick", "--max-tokens", "12").stdout.decode()
    assert plain == result["text"] + ("" if result["text"].endswith("\n") else "\n")


def test_generate_repeats_with_a_seed_and_varies_without(model):
    settings = ("--max-tokens", "16", "--temperature", "1.5")

    def ids(*more):
        return objects("generate", model, "The quick", *settings, *more)[-1]["token_ids"]

    assert ids("--seed", "5") == ids("--seed", "5") != ids("--seed", "6")
    assert ids("--seed", "5", "--top-k", "1") == objects("generate", model, "The quick", "--max-tokens", "16")[-1]["token_ids"]


def test_generate_ends_before_a_stop_text(model):
    whole = objects("generate", model, "The quick", "--max-tokens", "20")[-1]["text"]
    stop = whole[len(whole) // 2 :][:3]
    result = objects("generate", model, "The quick", "--max-tokens", "20", "--stop", stop)[-1]
    assert result["finish_reason"] == "stop"
    assert result["text"] == whole[: whole.index(stop)]


def test_check_same_and_different(model, tmp_path):
    (result,) = objects("check", model, "The quick", "--steps", "3")
    assert result["same"] is True and (result["backend"], result["against"]) == ("cpu", "reference")
    recording = tmp_path / "recording.json"
    ran("check", model, "The quick", "--steps", "3", "--record", recording)
    assert objects("check", model, "The quick", "--steps", "3", "--reference", recording)[0]["same"] is True
    changed = json.loads(recording.read_text())
    changed["steps"][1]["logprobs"] = [value - 5 for value in changed["steps"][1]["logprobs"]]
    recording.write_text(json.dumps(changed))
    (result,) = objects("check", model, "The quick", "--steps", "3", "--reference", recording, code=1)
    assert result["same"] is False and result["first_different"] == 1
    text = ran("check", model, "The quick", "--steps", "3", "--reference", recording, code=1).stdout.decode()
    assert text.splitlines()[-1].startswith("different: ")


def test_check_refuses_what_is_no_recording(model, tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{"a": 1}')
    for words, code in ((("--reference", path), 2), (("--reference", tmp_path / "none"), 8)):
        done = ran("check", model, "The", *words, code=code)
        assert len(done.stderr.splitlines()) == 1 and str(words[1]).encode() in done.stderr


def test_inspect_text_and_json(model):
    (result,) = objects("inspect", model)
    assert (result["type"], result["command"], result["architecture"]) == ("result", "inspect", "llama")
    text = ran("inspect", model).stdout.decode()
    assert "llama" in text and str(model) in text


def test_smoke_and_doctor(model):
    (result,) = objects("smoke")
    assert result["sum"] == 2 * 4096 * 4095
    assert "nothing failed" in ran("doctor").stdout.decode()


def test_bench_measures_this_tree_and_another_command(model):
    (result,) = objects("bench", model, "--runs", "1", "--against", "/bin/true", "--threads", "1")
    assert next(iter(result["cold"]["phases"])) == "launch" and result["cold"]["total_ms"] > 0
    (other,) = result["cold"]["against"]
    assert other["command"] == "/bin/true" and 0 < other["ratio"] < 1
    assert result["cold"]["peak_bytes"] > 1 << 20
    assert all(value > 0 for value in result["warm"].values())
    done = ran("bench", model, "--runs", "1", "--against", "/bin/false", code=8)
    assert b"/bin/false" in done.stderr


def test_module_entry_is_the_same_command_line(model):
    import subprocess
    import sys

    done = subprocess.run([sys.executable, "-m", "reflex", "smoke", "--json"], capture_output=True, cwd=process.ROOT)
    assert json.loads(done.stdout) == objects("smoke")[0]


def test_version():
    text = ran("--version").stdout.decode()
    assert text.startswith("reflex ") and text.count("\n") == 1


def test_help_of_every_command():
    from reflex.cli import app

    text = ran("--help").stdout.decode()
    for name, module in app.commands().items():
        assert name in text
        page = ran(name, "--help").stdout.decode()
        assert all(row[0] in page for row in module.PARAMETERS)


@pytest.mark.parametrize("command", ["families", "formats"])
def test_tables_as_text_and_json(command):
    (result,) = objects(command)
    assert list(result) == ["schema_version", "type", "command", command] and result["command"] == command
    lines = ran(command).stdout.decode().splitlines()
    assert [line.split()[0] for line in lines] == ["name", *(row["name"] for row in result[command])]
