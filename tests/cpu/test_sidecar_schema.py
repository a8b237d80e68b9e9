"""Generated requests, valid and not, against the sidecar's own OpenAPI document: what it says of answers and refusals is so."""

import os

import pytest
import schemathesis
import sidecars
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from reflex.sidecar import openapi

CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
    checks.unsupported_method,
]
OPTIONS = ("--timeout", "60", "--max-body", "7000000")
TOKEN = "s3cret"
TOLD = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sidecar")
    (folder / "token").write_text(TOKEN)
    with sidecars.Running(folder, sidecars.tiny_model(folder), "--token-file", str(folder / "token"), *OPTIONS) as running:
        said = running.ask("/openapi.json", headers=TOLD).said
        loaded = schemathesis.openapi.from_dict(said)
        loaded.config.update(base_url=running.url)
        yield loaded
        assert running.gauge("worker_starts_total", TOLD) == 1


OPERATIONS = [(path, "post") for path in openapi.POSTS] + [("/v1/models", "get"), ("/v1/models/{id}", "get"), ("/metrics", "get")]
OPERATIONS += [(path, "get") for path in ("/healthz", "/ping", "/openapi.json")]
EXAMPLES = int(os.environ.get("REFLEX_EXAMPLES", "25"))


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("path, method", OPERATIONS, ids=lambda value: value)
def test_requests_that_nobody_thought_of(document, path, method, mode):
    if mode == GenerationMode.NEGATIVE and method == "get" and "{" not in path:
        pytest.skip("there is nothing to get wrong")

    @given(case=document[path][method].as_strategy(generation_mode=mode))
    @settings(max_examples=EXAMPLES if method == "post" else 5, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    def hold(case):
        case.call_and_validate(headers=TOLD, checks=CHECKS, timeout=300)

    hold()
