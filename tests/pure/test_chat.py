"""Chat templates: what the models' own ones need, and what a hostile one must not do."""

import subprocess
import sys
import time

import pytest

pytest.importorskip("jinja2", reason="extra chat is not installed")

from reflex.errors import InvalidInputError
from reflex.tokenizer import chat

MESSAGES = [
    {"role": "system", "content": "Be <brief>."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Yes?"},
]
CHATML = (
    "{% for message in messages %}\n    {{- '<|im_start|>' + message['role'] + '\\n' + message.content + '<|im_end|>' + '\\n' -}}\n"
    "{% endfor %}\n{% if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' -}}\n{% endif %}\n"
)


def test_renders_messages_and_the_generation_prompt():
    turns = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in MESSAGES)
    assert chat.render(CHATML, MESSAGES) == turns + "<|im_start|>assistant\n"
    assert chat.render(CHATML, MESSAGES, add_generation_prompt=False) == turns


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ bos_token }}|{{ eos_token }}", "<s>|</s>"),
        ("{{ tools | tojson }}", '[{"name": "caf\u00e9 <b>"}]'),
        ("{{ {'b': 1, 'a': [1, 2]} | tojson(indent=1) }}", '{\n "b": 1,\n "a": [\n  1,\n  2\n ]\n}'),
        ("{% generation %}{{ messages[1].content }}{% endgeneration %}", "Hi"),
        ("{{ strftime_now('%Y') }}", time.strftime("%Y")),
        ("{% for m in messages %}{% if loop.index0 == 1 %}{% break %}{% endif %}{{ m.role }}{% endfor %}", "system"),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n ~ '!' }}", "3!"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | join(', ') }}", "Hi"),
        ("{{ messages[0].content.replace('<', '(').split('.')[0] }}{{ ' x ' | trim }}", "Be (brief>x"),
        ("{%- macro f(x) %}[{{ x }}]{% endmacro -%}{{ f(messages | length) }}{{ 'a' * 3 }}", "[3]aaa"),
        ("[{{ messages | attr('__class__') }}]", "[]"),
        ("{{ ', '.join(['a', 'b']) }}{{ messages[0]['nothing'] is defined }}", "a, bFalse"),
    ],
)
def test_what_templates_use(template, text):
    assert chat.render(template, MESSAGES, "<s>", "</s>", tools=[{"name": "caf\u00e9 <b>"}]) == text


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ raise_exception('roles must\nalternate') }}", "roles must alternate"),
        ("{% if %}", "line 1"),
        ("a\n\n{% nonsense %}", "line 3"),
        ("{{ missing.field.deeper }}", "undefined"),
        ("{{ messages + 1 }}", "list"),
        ("{{ 1 // 0 }}", "zero"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{% include 'x' %}", "loader"),
        ("{{ 'x'.center(10**9) }}", "unsafe"),
        ("{{ '{:>1000000000}'.format(1) }}", "unsafe"),
        ("{{ '%1000000000d' % 1 }}", "not available"),
        ("{{ 'a' * 10**9 }}", "longer than"),
        ("{{ [1] * 10**9 }}", "longer than"),
        ("{{ 10 ** (10 ** 9) }}", "longer than"),
        ("{{ ('a' * 4000).replace('a', 'b' * 4000) }}", "longer than"),
        ("{{ ('a' * 4000) | replace('a', 'b' * 4000) }}", "longer than"),
        ("{{ ('a' * 40000).join(range(40000)) }}", "longer than"),
        ("{{ range(40000) | join('a' * 40000) }}", "longer than"),
        ("{% set n = namespace(x='aa') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}", "longer than"),
        ("{% set n = namespace(x='aa') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}", "longer than"),
        ("{% for i in range(99999) %}{{ 'a' * 100 }}{% endfor %}", "characters of output"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested too deeply"),
    ],
)
def test_refusals_are_one_line(template, words):
    began = time.monotonic()
    with pytest.raises(InvalidInputError) as refused:
        chat.render(template, MESSAGES)
    assert words in str(refused.value) and "\n" not in str(refused.value)
    assert time.monotonic() - began < chat.SECONDS


def test_endless_work_is_cut_short(monkeypatch):
    monkeypatch.setattr(chat, "SECONDS", 0.2)
    began = time.monotonic()
    with pytest.raises(InvalidInputError, match=r"longer than 0\.2 s"):
        chat.render("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", [])
    assert time.monotonic() - began < 2
    assert sys.gettrace() is None or "chat" not in repr(sys.gettrace())


def test_missing_jinja_names_the_extra():
    code = (
        "import sys; sys.modules['jinja2'] = None\n"
        "from reflex.tokenizer import chat\nfrom reflex.errors import InvalidInputError\n"
        "try: chat.render('x', [])\nexcept InvalidInputError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install" in done.stdout and "[chat]" in done.stdout
