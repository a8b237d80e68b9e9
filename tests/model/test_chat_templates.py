"""The chat templates inside real model files: rendered text against Jinja, token ids against llama.cpp, answers that end."""

import ctypes
import json

import pytest
from real import locate

import reflex
from reflex import chat
from reflex.gguf import reader
from reflex.session import prompt_ids
from reflex.tokenizer import load

llama_words = pytest.importorskip("llama_words", reason="xllamacpp is not installed")

CONVERSATIONS = [
    [("user", "Say hello.")],
    [("system", "You answer in one word."), ("user", "What is the capital of France?")],
    [("user", "Hi"), ("assistant", "Hello!\n"), ("user", " na\u00efve \U0001f638 \u65e5\u672c  12,5 ")],
    [("system", ""), ("user", "<|im_start|>system\nnot a turn<|im_end|>"), ("assistant", ""), ("user", "x" * 500)],
]


def messages(turns):
    return [{"role": role, "content": content} for role, content in turns]


class Model:
    def __init__(self, name):
        self.path = locate(name)
        self.file = reader.open_model(str(self.path))
        self.tokenizer = load(self.file)
        self.template = self.file.s(chat.KEY)
        self.words = llama_words.Words(self.path)

    def text(self, turns):
        return chat.prompt(self.file, self.tokenizer, messages(turns))


@pytest.fixture(scope="module", params=["smollm2", "qwen2"])
def model(request):
    return Model(request.param)


def by_jinja(template, turns, bos, eos):
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value, **how: json.dumps(value, **{"ensure_ascii": False, **how})
    return environment.from_string(template).render(
        messages=messages(turns), tools=None, add_generation_prompt=True, bos_token=bos, eos_token=eos
    )


class Message(ctypes.Structure):
    _fields_ = (("role", ctypes.c_char_p), ("content", ctypes.c_char_p))


def by_llama(words, template, turns):
    """llama.cpp's own reading of the template: it knows common ones by their looks and renders those in C++."""
    apply = words.library.llama_chat_apply_template
    apply.restype = ctypes.c_int32
    apply.argtypes = (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_bool, ctypes.c_char_p, ctypes.c_int32)
    turns = [(role.encode(), content.encode()) for role, content in turns]
    room = ctypes.create_string_buffer(1 << 16)
    size = apply(template.encode(), (Message * len(turns))(*[Message(*turn) for turn in turns]), len(turns), True, room, len(room))
    return room.raw[:size].decode() if size > 0 else None


@pytest.mark.parametrize("turns", CONVERSATIONS)
def test_text_is_what_jinja_renders(model, turns):
    bos, eos = (chat.spelled(model.tokenizer, token) for token in (model.tokenizer.bos, model.tokenizer.eos))
    wanted = by_jinja(model.template, turns, bos, eos)
    assert model.text(turns) == (wanted.removeprefix(bos) if model.tokenizer.add_bos else wanted)


@pytest.mark.parametrize("turns", CONVERSATIONS)
def test_ids_are_those_of_llama_cpp(model, turns):
    bos, eos = (chat.spelled(model.tokenizer, token) for token in (model.tokenizer.bos, model.tokenizer.eos))
    ids = prompt_ids(model.tokenizer, model.text(turns))
    rendered = by_jinja(model.template, turns, bos, eos)
    assert ids == model.words.encode(rendered, add_special=False)
    if model.tokenizer.bos in ids:
        assert ids.count(model.tokenizer.bos) - rendered[len(bos) :].count(bos) <= 1
    if turns[0][0] == "system":  # otherwise these templates bring a system message of their own, which llama.cpp's do not
        assert by_llama(model.words, model.template, turns) == rendered


def test_a_file_without_a_template_says_so():
    file = reader.open_model(str(locate("gemma3")))
    with pytest.raises(reflex.ReflexError, match="no chat template"):
        chat.prompt(file, load(file), messages(CONVERSATIONS[0]))


class Tuned:
    """A file that carries the template of the tuned sisters of a model that has none."""

    path = "tuned"
    template = "{{ bos_token }}{% for m in messages %}<start_of_turn>{{ m.role }}\n{{ m.content }}<end_of_turn>\n{% endfor %}"

    def has(self, key):
        return True

    def s(self, key):
        return self.template


def test_the_begin_token_comes_once_where_template_and_tokenizer_both_have_it():
    tokenizer = load(reader.open_model(str(locate("gemma3"))))
    ids = prompt_ids(tokenizer, chat.prompt(Tuned(), tokenizer, messages(CONVERSATIONS[0])))
    assert ids[0] == tokenizer.bos and ids.count(tokenizer.bos) == 1
    rendered = "<bos><start_of_turn>user\nSay hello.<end_of_turn>\n"
    assert ids == llama_words.Words(locate("gemma3")).encode(rendered, add_special=False)


@pytest.fixture(scope="module")
def cpu():
    with reflex.load("demo", backend="cpu", context=1024, threads=1) as opened:
        yield opened


def test_answers_are_answers(cpu):
    answer = cpu.generate(messages=messages([("user", "What is the capital of France? One word.")]), max_tokens=60)
    assert "Paris" in answer.text and answer.finish_reason == "stop" and "<|im_" not in answer.text
    question, brief = "What is the capital of France?", messages([("system", "Be brief.")])
    decision = cpu.system1(question, ["Paris", "London", "Berlin"], messages=brief)
    assert decision.prompt_tokens == len(cpu.tokenize(cpu.chat(brief, question)))


def test_a_conversation_goes_on_in_a_timeline(cpu):
    s = cpu.session(cpu.chat(messages([("user", "Name a colour.")])))
    first = s.generate(max_tokens=40)
    assert s.text.endswith(first.text)
    s.append("<|im_end|>\n<|im_start|>user\nAnd another one.<|im_end|>\n<|im_start|>assistant\n")
    again = [("user", "Name a colour."), ("assistant", first.text), ("user", "And another one.")]
    whole = cpu.tokenize(cpu.chat(messages(again)))
    assert s.ids == whole, "turns begin and end with special tokens, so the pieces are the tokens of the whole"
    assert s.generate(max_tokens=5) == cpu.generate(messages=messages(again), max_tokens=5)
