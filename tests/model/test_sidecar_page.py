"""The commands of docs/sidecar.md, as they stand there, and what they are said to give."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import real
import sidecars

from reflex.sidecar import app, openapi, options, problems

PAGE = (Path(__file__).parents[2] / "docs" / "sidecar.md").read_text()


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sidecar")
    with sidecars.Running(folder, real.locate("smollm2"), engine=("--ctx", "2048", "--backend", "cpu")) as found:
        yield found


def commands():
    """The curl commands of the page, each as its words."""
    blocks = re.findall(r"(?:^    .*\n)+", PAGE, re.MULTILINE)
    lines = "".join([re.sub("^    ", "", block, flags=re.MULTILINE) for block in blocks if "curl" in block])
    return [shlex.split("curl" + said.replace("\\\n", " ")) for said in re.split(r"^curl", lines, flags=re.MULTILINE)[1:]]


def test_every_command_of_the_page_does_what_it_says(running):
    if shutil.which("curl") is None:
        pytest.skip("curl is not here")
    said = {}
    for words in commands():
        words = [word.replace("http://127.0.0.1:8000", running.url) for word in words]
        done = subprocess.run(words, capture_output=True, timeout=300, check=True)
        said.setdefault(next(word for word in words if word.startswith("http")).removeprefix(running.url), []).append(
            done.stdout.decode()
        )
    assert set(said) == set(app.ENDPOINTS)
    assert json.loads(said["/v1/classify"][0])["label"] == " Paris"
    answers = json.loads(said["/v1/systemone"][0])["answers"]
    assert answers["route"]["choice"] == "billing" and set(answers) == {"route", "angry", "urgency"}
    colour, person = map(json.loads, said["/v1/chat/completions"])
    assert colour["usage"]["completion_tokens"] <= 20
    assert isinstance(json.loads(person["choices"][0]["message"]["content"])["age"], int)
    *chunks, done = [event.removeprefix("data: ") for event in said["/v1/completions"][0].strip().split("\n\n")]
    *_, last, usage = map(json.loads, chunks)
    count, limit = usage["usage"]["completion_tokens"], last["choices"][0]["finish_reason"] == "length"
    assert done == "[DONE]" and (count == 20 if limit else count < 20)


def test_the_page_names_what_there_is():
    for path in openapi.document("1", True)["paths"]:
        assert path.replace("/v1/models/{id}", "/v1/models/{id}") in PAGE, path
    for status in {*openapi.PROBLEMS} - {404, 500}:
        assert re.search(rf"^\| [^|]*\b{status}\b", PAGE, re.MULTILINE), status
    for name in re.findall(r"`(--[a-z-]+)", PAGE):
        assert name in [row[0] for row in options.OPTIONS] or name == "--help", name
    assert {problems.STATUS[category] for category in ("invalid_input", "unsupported", "context_overflow")} == {400}
