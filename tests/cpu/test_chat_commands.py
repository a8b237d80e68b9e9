"""`--chat`, `--system` and `--messages` end to end: the tokens of the prompt that the template makes, and errors that say where."""

import json

import process
import pytest
import tiny

TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def turns(*pairs):
    return "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in pairs) + "<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Tiny models by the template in them."""
    folder = tmp_path_factory.mktemp("models")
    templates = {
        "chat": TEMPLATE,
        "bos": "{{ bos_token }}" + TEMPLATE,
        "none": None,
        "refusing": "{{ raise_exception('only\nusers may speak') }}",
        "endless": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "huge": "{{ 'a' * 10 ** 9 }}",
        "damaged": "a\n{% if %}",
    }
    return {name: tiny.write("llama-smollm", folder / f"{name}.gguf", template=text) for name, text in templates.items()}


@pytest.fixture(scope="module")
def spm(tmp_path_factory):
    """A model whose tokenizer adds a begin token, with a template that writes one too."""
    path = tmp_path_factory.mktemp("models") / "spm.gguf"
    return tiny.write("llama", path, template="{{ bos_token }}[{{ messages[0].content }}]")


COMMANDS = {"generate": ("--max-tokens", "5"), "system1": ("--candidate", " fox", "--candidate", " dog")}


def result(command, model, *words, **options):
    done = process.reflex(command, model, *words, *COMMANDS[command], "--json", **options)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("command", COMMANDS)
def test_prompt_is_the_users_message(models, command):
    plain = result(command, models["chat"], turns(("user", "the quick")))
    assert result(command, models["chat"], "the quick", "--chat") == plain
    assert result(command, models["chat"], "-", "--chat", stdin=b"the quick") == plain
    assert plain["prompt_tokens"] < len(turns(("user", "the quick"))), "special tokens are tokens"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_system_message_and_earlier_turns(models, command, tmp_path):
    earlier = [{"role": "user", "content": "h\u00e9 \U0001f638"}, {"role": "assistant", "content": "yes"}]
    path = tmp_path / "messages.json"
    path.write_text(json.dumps(earlier))
    wanted = turns(("system", "be brief"), ("user", "h\u00e9 \U0001f638"), ("assistant", "yes"), ("user", "and now"))
    plain = result(command, models["chat"], wanted)
    words = ("--system", "be brief", "--messages")
    assert result(command, models["chat"], "and now", *words, path) == plain
    assert result(command, models["chat"], "and now", *words, "-", stdin=path.read_bytes()) == plain
    path.write_text(json.dumps([*earlier, {"role": "user", "content": "and now"}]))
    assert result(command, models["chat"], *words, path) == plain, "PROMPT may be left out"
    assert result(command, models["chat"], "--chat", *words, path) == plain


def test_exactly_one_begin_token(models, spm):
    once = result("generate", spm, "[hello]")
    assert result("generate", spm, "hello", "--chat")["prompt_tokens"] == once["prompt_tokens"]
    assert result("generate", spm, "hello", "--chat")["token_ids"] == once["token_ids"]
    with_bos = result("generate", models["bos"], "hello", "--chat")
    assert with_bos["prompt_tokens"] == result("generate", models["chat"], "hello", "--chat")["prompt_tokens"] + 1


def test_a_broken_template_matters_only_to_a_chat(models):
    for name in ("none", "refusing", "endless", "damaged"):
        assert result("generate", models[name], "hello")["token_ids"] == result("generate", models["chat"], "hello")["token_ids"]


REFUSED = {
    "none": (3, "unsupported", "no chat template"),
    "refusing": (2, "invalid_input", "only users may speak"),
    "endless": (2, "invalid_input", "steps"),
    "huge": (2, "invalid_input", "characters"),
    "damaged": (2, "invalid_input", "line 2"),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", REFUSED)
def test_templates_that_fail_are_one_line(models, name, command):
    code, category, words = REFUSED[name]
    done = process.reflex(command, models[name], "hello", "--chat", *COMMANDS[command])
    (line,) = done.stderr.decode().splitlines()
    assert done.returncode == code and line.startswith(f"reflex: {category}: ") and words in line and not done.stdout


MESSAGES = {
    b"": ("no JSON", "end of input"),
    b"[{": ("no JSON", "line 1"),
    b"\xff\xfe\xfa": ("no JSON",),
    b"[" * 100000: ("no JSON",),
    b"{}": ("no conversation", "object"),
    b"[]": ("empty", "0 messages"),
    b'["hi"]': ("no message", "messages.json[0]", "text"),
    b'[{"role": "user", "content": "a"}, {"content": "b"}]': ("role", "messages.json[1].role"),
    b'[{"role": "user", "content": 5}]': ("content", "messages.json[0].content", "5"),
    b'[{"role": "user"}]': ("content", "messages.json[0].content"),
}


@pytest.mark.parametrize("data", MESSAGES, ids=lambda data: data[:40].decode("latin-1"))
def test_messages_that_are_none_say_where(models, tmp_path, data):
    path = tmp_path / "messages.json"
    path.write_bytes(data)
    done = process.reflex("generate", models["chat"], "--messages", path)
    (line,) = done.stderr.decode().splitlines()
    assert done.returncode == 2 and line.startswith("reflex: invalid_input: ") and str(path) in line
    assert all(word in line for word in MESSAGES[data]), line


def test_other_mistakes(models, tmp_path):
    path = tmp_path / "messages.json"
    path.write_text('[{"role": "system", "content": "x"}]')
    cases = [
        (("--messages", tmp_path / "none"), 8, "No such file"),
        (("--messages", tmp_path), 8, "directory"),
        (("hi", "--messages", path, "--system", "y"), 2, "two system messages"),
        (("-", "--messages", "-"), 2, "stdin"),
        (("--chat",), 2, "prompt is empty"),
        (("", "--chat"), 2, "prompt is empty"),
        ((), 2, "prompt is empty"),
        (("x" * 3000, "--chat"), 6, "at most 1024 tokens"),
    ]
    for words, code, said in cases:
        done = process.reflex("generate", models["chat"], *words)
        (line,) = done.stderr.decode().splitlines()
        assert done.returncode == code and said in line, line
