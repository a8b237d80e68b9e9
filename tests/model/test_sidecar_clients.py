"""A real model behind the sidecar, asked by the clients that people have: OpenAI's own, and that of typed decisions."""

import concurrent.futures
import contextlib
import json

import openai
import pydantic
import pytest
import real
import sidecars
import typesafe_sdk

import reflex

MESSAGES = [{"role": "user", "content": "What is the capital of France? Answer with one word."}]
WEATHER = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sidecar")
    with sidecars.Running(folder, real.locate("smollm2"), engine=("--ctx", "2048", "--backend", "cpu")) as found:
        yield found


@pytest.fixture(scope="module")
def client(running):
    with openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0, timeout=300) as found:
        yield found


@pytest.fixture(scope="module")
def inside():
    with reflex.load(str(real.locate("smollm2")), backend="cpu", context=2048) as found:
        yield found


def test_chat_is_the_answer_of_the_engine_and_its_counts_are_real(client, inside):
    found = client.chat.completions.create(model="any", messages=MESSAGES, temperature=0, max_completion_tokens=40)
    expected = inside.generate(messages=MESSAGES, max_tokens=40)
    (choice,) = found.choices
    assert choice.message.content == expected.text and choice.message.role == "assistant" and choice.finish_reason == "stop"
    assert found.usage.prompt_tokens == expected.prompt_tokens and found.usage.completion_tokens == len(expected.token_ids)
    assert found.usage.total_tokens == expected.prompt_tokens + len(expected.token_ids)
    assert "<|" not in choice.message.content and "Paris" in choice.message.content


def test_a_stream_brings_the_same_text_and_counts(client):
    asked = {"model": "any", "messages": MESSAGES, "temperature": 0.8, "seed": 5, "max_completion_tokens": 30}
    whole = client.chat.completions.create(**asked)
    chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    assert "".join([chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]) == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage and chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    assert len({chunk.id for chunk in chunks}) == 1
    short, count = client.chat.completions.create(**asked | {"max_completion_tokens": 3}), whole.usage.completion_tokens
    assert (short.choices[0].finish_reason, short.usage.completion_tokens) == (("length", 3) if count >= 3 else ("stop", count))


def test_a_stream_that_is_left_is_cancelled(tmp_path):
    held = sidecars.held_program(tmp_path)
    engine = ("--ctx", "2048", "--backend", "cpu")
    with sidecars.Running(tmp_path, real.locate("smollm2"), worker=held, engine=engine) as found:
        schema = {"type": "string", "pattern": "^[0-9]{200}$"}  # a text that cannot be over when the worker stops
        wanted = {"type": "json_schema", "json_schema": {"name": "digits", "schema": schema}}
        with openai.OpenAI(base_url=f"{found.url}/v1", api_key="none", max_retries=0) as client:
            stream = client.chat.completions.create(
                model="any", messages=MESSAGES, response_format=wanted, max_completion_tokens=1500, stream=True
            )
            next(stream)
            stream.close()
            sidecars.until(lambda: found.gauge('cancelled_total{why="left"}') == 1)
            sidecars.until(lambda: found.gauge("requests_running") == 0)
            assert found.gauge('tokens_total{kind="completion"}') == 0


def test_log_probabilities(client, inside):
    asked = {"model": "any", "messages": MESSAGES, "temperature": 0, "max_completion_tokens": 6}
    found = client.chat.completions.create(**asked, logprobs=True, top_logprobs=5).choices[0]
    expected = inside.generate(messages=MESSAGES, max_tokens=6, logprobs=True)
    assert [token.logprob for token in found.logprobs.content] == list(expected.logprobs)
    assert b"".join([bytes(token.bytes) for token in found.logprobs.content]).decode() == found.message.content
    assert all(token.top_logprobs[0].logprob == token.logprob and len(token.top_logprobs) == 5 for token in found.logprobs.content)


def test_completions(client, inside):
    asked = {"model": "any", "prompt": "The capital of France is", "temperature": 0, "max_tokens": 12}
    found, expected = client.completions.create(**asked, logprobs=2), inside.generate("The capital of France is", max_tokens=12)
    assert found.choices[0].text == expected.text and found.usage.completion_tokens == 12
    assert found.choices[0].logprobs.text_offset[0] == 0 and len(found.choices[0].logprobs.top_logprobs[0]) == 2
    stopped = client.completions.create(**asked, stop=[" of"])
    assert stopped.choices[0].finish_reason == "stop" and " of" not in stopped.choices[0].text
    assert expected.text.startswith(stopped.choices[0].text)
    assert "".join([chunk.choices[0].text for chunk in client.completions.create(**asked, stream=True)]) == expected.text


class Person(pydantic.BaseModel):
    name: str
    age: int
    jobs: list[str]


def test_structured_output(client):
    messages = [{"role": "user", "content": "Anna is 34 and a teacher. Describe her as JSON."}]
    found = client.chat.completions.parse(model="any", messages=messages, response_format=Person, max_completion_tokens=80, seed=1)
    assert isinstance(found.choices[0].message.parsed, Person)
    wanted = {"type": "json_object"}
    text = client.chat.completions.create(model="any", messages=messages, response_format=wanted, max_completion_tokens=60, seed=1)
    assert isinstance(json.loads(text.choices[0].message.content), dict)


def test_tools_are_refused_with_a_reason(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="any", messages=MESSAGES, tools=[WEATHER])
    error = caught.value
    assert error.param == "tools" and error.code == "unsupported_value" and error.type == "invalid_request_error"
    assert error.body["category"] == "unsupported" and "JSON schema" in error.message
    with pytest.raises(openai.BadRequestError, match="400"):
        client.chat.completions.create(model="any", messages=MESSAGES, tools=[WEATHER], stream=True)


def test_other_errors_are_those_that_the_client_knows(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="any", messages=[{"role": "user", "content": "word " * 3000}])
    assert caught.value.code == "context_length_exceeded" and "2048" in caught.value.message
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="any", input="a")
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("another")


def test_a_busy_sidecar_is_a_rate_limit_and_the_client_tries_again(tmp_path, inside):
    asked = {"model": "any", "messages": MESSAGES, "temperature": 0, "max_completion_tokens": 2}
    expected = inside.generate(messages=MESSAGES, max_tokens=2)
    engine = ("--ctx", "512", "--backend", "cpu")
    refused = 'requests_total{path="/v1/chat/completions",status="429"}'
    with contextlib.ExitStack() as stack:
        found = stack.enter_context(sidecars.Running(tmp_path, real.locate("smollm2"), "--queue", "0", engine=engine))
        client = stack.enter_context(openai.OpenAI(base_url=f"{found.url}/v1", api_key="none", max_retries=0))
        pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor())
        with found.held():
            first = found.send("POST", "/v1/classify", {"prompt": "a", "labels": ["b"]})
            sidecars.until(lambda: found.gauge("requests_running") == 1)
            with pytest.raises(openai.RateLimitError) as caught:
                client.chat.completions.create(**asked)
            assert caught.value.response.headers["retry-after"]
            waiting = pool.submit(client.with_options(max_retries=1000).chat.completions.create, **asked)
            sidecars.until(lambda: found.gauge(refused) >= 3)
        answer = waiting.result()
        first.close()
        assert answer.choices[0].message.content == expected.text
        assert answer.usage.completion_tokens == len(expected.token_ids)


def test_models(client):
    (only,) = client.models.list().data
    assert only.id == "SmolLM2-135M-Instruct.Q4_1" and client.models.retrieve(only.id) == only


def test_decisions(running, inside):
    prompt, labels = "The capital of France is", [" Paris", " London", " Berlin"]
    found = running.ask("/v1/classify", {"prompt": prompt, "labels": labels}).said
    expected = inside.system1(prompt, labels)
    assert found["label"] == " Paris" and found["labels"][0]["probability"] == expected.candidates[0].probability > 0.8


def test_the_client_of_typed_decisions(running):
    questions = {
        "team": typesafe_sdk.Choice(
            instructions="Which team should handle this?", criteria={"billing": "payments", "garden": None}
        ),
        "urgent": typesafe_sdk.Noul(instructions="Does the customer want an answer?"),
        "anger": typesafe_sdk.Score(instructions="How angry is the customer?", criteria=["calm", "annoyed", "furious"]),
    }
    with typesafe_sdk.TypeSafeClient(api_key="none", base_url=running.url) as client:
        found = client.system_one(model="any", state="I was charged twice, please refund me.", questions=questions)
    assert found.choices["team"].choice == "billing" and found.choices["team"].confidence > 0.5
    assert 0 < found.nouls["urgent"].noul < 1 and 0 <= found.scores["anger"].score <= 2
    assert set(found.scores["anger"].probabilities) in ({0, 1, 2}, {"0", "1", "2"}) and found.usage.output_tokens == 0
