"""Chat templates: what the models' own ones need, Jinja itself as the judge, and what a hostile one must not do."""

import json
import subprocess
import sys
import time

import pytest
from jinja_grammar import VARIABLES, Grammar

from reflex import chat
from reflex.errors import InvalidInputError, UnsupportedError

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
        ("[{{ nothing }}{{ nothing.nope is defined if nothing else '' }}{% for x in nothing %}{% endfor %}]", "[]"),
        ("{% raw %}{{ no }} {% tag %}{% endraw %}{# no comment {{ } #}!", "{{ no }} {% tag %}!"),
        ("{{ '%}' }}{{ {'a': {'b': 1}}.a.b }}{{ 'a\\n\\u00e9' }}", "%}1a\n\u00e9"),
        ("{% set x %} y {% endset %}[{{ x | trim }}]{% filter upper %}a{{ 'b' }}{% endfilter %}", "[y]AB"),
        ("{{ messages[-1].content[1:] }}{{ messages[1:] | length }}{{ messages[::2] | map(attribute='role') | list }}",
         "es?2['system', 'assistant']"),
    ],
)  # fmt: skip
def test_what_templates_use(template, text):
    assert chat.render(template, MESSAGES, "<s>", "</s>", tools=[{"name": "caf\u00e9 <b>"}]) == text


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ raise_exception('roles must\nalternate') }}", "roles must alternate"),
        ("{% if %}", "line 1"),
        ("a\n\n{% nonsense %}", "line 3"),
        ("{% for x in messages %}\n\n", "never closed"),
        ("{{ 'a", "has no end"),
        ("{{ (1, 2] }}", "unexpected ']'"),
        ("{{ missing.field.deeper }}", "missing is undefined"),
        ("{{ messages[0].nope.deeper }}", "nope is undefined"),
        ("{{ missing() }}", "undefined"),
        ("{{ messages() }}", "cannot be called"),
        ("{{ messages + 1 }}", "list"),
        ("{{ 1 // 0 }}", "zero"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ messages[0].update({}) }}", "unsafe"),
        ("{% set messages.x = 1 %}", "no namespace"),
        ("{{ ''.__class__.__mro__ }}", "undefined"),
        ("{{ messages.__class__ + 1 }}", "undefined"),
        ("{{ raise_exception.__globals__.x }}", "undefined"),
        ("{% include 'x' %}", "unknown or misplaced tag"),
        ("{{ messages | nofilter }}", "no filter 'nofilter'"),
        ("{{ messages is nottest }}", "no test 'nottest'"),
    ],
)
def test_refusals_are_one_line(template, words):
    with pytest.raises(InvalidInputError) as refused:
        chat.render(template, MESSAGES)
    assert words in str(refused.value) and "\n" not in str(refused.value)


DOUBLING = "{% set n = namespace(x=['a'], y=['a']) %}{% for i in range(99) %}{% set n.x = [n.x, n.x] %}{% set n.y = [n.y, n.y] %}"
NESTED = DOUBLING + "{% endfor %}"
HOSTILE = {
    "a padded text": ("{{ 'x'.center(10**9) }}", "unsafe"),
    "a format": ("{{ '{:>1000000000}'.format(1) }}", "unsafe"),
    "an old format": ("{{ '%1000000000d' % 1 }}", "not available"),
    "a repeated text": ("{{ 'a' * 10**9 }}", "more than"),
    "a repeated list": ("{{ [1] * 10**9 }}", "more than"),
    "a power": ("{{ 10 ** (10 ** 9) }}", "more than"),
    "powers": ("{% set n = namespace(x=3) %}{% for i in range(99) %}{% set n.x = n.x * n.x %}{% endfor %}", "more than"),
    "a long number": ("{{ (('f' * 4000000) | int(base=16)) * 2 > 1 }}", "bits"),
    "a rounding": ("{{ 1.5 | round(1000000000, 'ceil') }}", "cannot be rounded"),
    "a replacement": ("{{ ('a' * 9000).replace('a', 'b' * 9000) }}", "more than"),
    "a replacing filter": ("{{ ('a' * 9000) | replace('a', 'b' * 9000) }}", "more than"),
    "a join": ("{{ ('a' * 40000).join((range(40000) | map('string') | list)) }}", "more than"),
    "a joining filter": ("{{ range(40000) | join('a' * 40000) }}", "more than"),
    "an indent": ("{{ ('a\n' * 9000) | indent(90000) }}", "more than"),
    "JSON with an indent": ("{{ messages | tojson(indent=10**9) }}", "more than"),
    "a doubled text": ("{% set n = namespace(x='aa') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}", "more than"),
    "a doubled sum": ("{% set n = namespace(x='aa') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}", "more than"),
    "a list of lists as text": (NESTED + "{{ n.x }}", "more than"),
    "a list of lists as JSON": (NESTED + "{{ n.x | tojson }}", "more than"),
    "two lists of lists compared": (NESTED + "{{ n.x == n.y }}", "more than"),
    "a sum of lists": ("{{ ([[0] * 4000] * 4000) | sum(start=[]) }}", "a number is needed"),
    "a range": ("{{ range(10**12) }}", "a range of more than"),
    "much output": ("{% for i in range(99999) %}{{ 'a' * 1000 }}{% endfor %}", "characters"),
    "endless work": ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "steps"),
    "searching": ("{% set a = 'a' * 9000000 %}{% for i in range(99999) %}{{ 'ab' in a }}{% endfor %}", "steps"),
    "comparing": ("{% set a = 'a' * 9000000 %}{% for i in range(99999) %}{{ a == a ~ '' }}{% endfor %}", "more than"),
    "sorting": ("{{ (range(99999) | map('string') | list * 9) | sort | length }}", "more than"),
    "counting a list": ("{{ (['a'] * 999999).count('b') }}{{ (['a'] * 999999).count('b') }}", "steps"),
    "macros": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested too deeply"),
    "brackets": ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "nested too deeply"),
    "a macro's exponential calls": (
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "steps",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_templates_end_soon(name):
    template, words = HOSTILE[name]  # without the budget they take hours, or all memory
    with pytest.raises(InvalidInputError) as refused:
        chat.render(template, MESSAGES)
    assert words in str(refused.value) and "\n" not in str(refused.value)


def test_an_ordinary_conversation_is_far_from_the_limits():
    long = [{"role": ("user", "assistant")[i % 2], "content": "word " * 400} for i in range(1000)]
    run = chat.Run({"messages": long, "add_generation_prompt": True})
    assert len(run.render(chat.parse(TEMPLATES["thoughts"]))) > 2_000_000
    assert run.budget.steps > 0.9 * run.budget.most_steps and run.budget.room > 0.9 * run.budget.most_room


def test_rendering_imports_nothing_heavy():
    code = "import sys\nfrom reflex import chat\nchat.render('{{ messages | tojson }}', [])\nprint(*sys.modules)"
    root = chat.__path__[0].removesuffix("/reflex/chat")
    done = subprocess.run([sys.executable, "-S", "-c", code], text=True, capture_output=True, cwd=root)
    assert done.returncode == 0, done.stderr
    assert not {"jinja2", "re", "json", "numpy", "enum", "typing", "collections", "encodings.ascii"} & set(done.stdout.split())


# ---- Jinja as the judge ----------------------------------------------------------------------------------

# In the manner of the templates that models carry: headers, roles that must alternate, tools, calls, thoughts cut out, dates.
TEMPLATES = {
    "headers": """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{#- The system message, or an empty one #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- "Today Date: " + date_string + "\\n\\n" + system_message + "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {%- for arg_name, arg_val in tool_call.arguments | items %}
            {{- arg_name + '="' ~ arg_val ~ '"' }}
            {%- if not loop.last %}
                {{- ", " }}
            {%- endif %}
        {%- endfor %}
        {{- "}<|eot_id|>" }}
    {%- else %}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
""",
    "turns": """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set first_user_prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- set role = "model" if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\\n'}}
{%- endif -%}
""",
    "instructions": """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}
{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}
{% set system_message = false %}{% endif %}
{% for message in loop_messages %}
  {% if loop.index0 == 0 and system_message != false %}
    {% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}
  {% else %}{% set content = message['content'] %}{% endif %}
  {% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}
  {% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}
  {% else %} unknown {{ message.role | upper }} {% endif %}
{% endfor %}
""",
    "thoughts": """{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and
           not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}{%- set content = message.content %}{%- else %}{%- set content = '' %}{%- endif %}
    {%- if message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or (not loop.last and reasoning_content)) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}{{- '\\n' }}{%- endif %}
                {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
                {{- '<tool_call>\\n{"name": "' ~ tool_call.name ~ '", "arguments": ' }}
                {%- set given = tool_call.arguments %}
                {%- if given is string %}{{- given }}{%- else %}{{- given | tojson }}{%- endif %}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' ~ content ~ '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}""",
    "types": """{%- macro describe(spec, depth=0) -%}
    {%- if spec.type == "array" -%}{{ describe(spec['items'], depth + 1) + "[]" }}
    {%- elif spec.enum -%}{{ '"' + spec.enum|join('" | "') + '"' }}
    {%- elif spec.type in ["integer", "number"] -%}number
    {%- elif spec.type == "object" -%}
        {{- "{" }}{%- for name, part in spec.properties|dictsort %}
            {{- name }}{{ "" if name in (spec.required or []) else "?" }}: {{ describe(part, depth=depth + 1) }}
            {%- if not loop.last %}{{ ", " }}{% endif %}
        {%- endfor %}{{- "}" }}
    {%- else -%}any{%- endif -%}
{%- endmacro -%}
{% for tool in tools or [] -%}
type {{ tool.function.name | upper }} = {{ describe(tool.function.parameters) }};
{% endfor %}
{{ messages | map(attribute='role') | unique | map('replace', 'a', 'A') | sort | join('/') }}
""",
}
CALL = {"type": "function", "function": {"name": "f", "arguments": {"x": 1, "y": ["é", None, True, 2.5]}}}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "f",
            "description": 'does <x> & "y"',
            "parameters": {
                "type": "object",
                "properties": {"x": {"type": "integer"}, "y": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}},
                "required": ["x"],
            },
        },
    }
]
SYSTEM, USER = {"role": "system", "content": "Be <brief>. "}, {"role": "user", "content": " Hi\nthere "}
REPLY, THOUGHT = {"role": "assistant", "content": 'Yes? "x"'}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nAnswer"}
CONVERSATIONS = [
    [USER],
    [SYSTEM, USER],
    [USER, REPLY, {"role": "user", "content": "Weiter, bitte! \U0001f600"}],
    [SYSTEM, USER, THOUGHT, USER],
    [USER, {**REPLY, "reasoning_content": "why\nnot"}],
    [USER, {"role": "assistant", "content": "", "tool_calls": [CALL]}, {"role": "tool", "content": "42"}, REPLY, USER],
    [USER, {"role": "assistant", "content": None, "tool_calls": [CALL, CALL]}, {"role": "tool", "content": "4"}],
    [{"role": "user", "content": [{"type": "text", "text": "part one "}, {"type": "text", "text": "two"}]}],
    [REPLY, USER],
    [USER, USER],
]


@pytest.fixture(scope="module")
def jinja():
    """Renders as Hugging Face does; None for an error."""
    import jinja2.ext
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message):
        raise jinja2.TemplateError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    environment.filters["tojson"] = lambda value, **how: json.dumps(value, **{"ensure_ascii": False, **how})
    environment.globals["raise_exception"] = refuse

    def render(template, **variables):
        try:
            return environment.from_string(template).render(**variables)
        except (jinja2.TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            return None

    return render


def ours(template, **variables):
    try:
        return chat.render(template, **variables)
    except InvalidInputError:
        return None


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_in_the_manner_of_models(jinja, name):
    outcomes = set()
    for messages in CONVERSATIONS:
        for more in ({}, {"tools": TOOLS}, {"enable_thinking": False, "add_generation_prompt": False}):
            given = {"messages": messages, "tools": None, "add_generation_prompt": True} | more
            given |= {"bos_token": "<s>", "eos_token": "</s>"}
            want = jinja(TEMPLATES[name], **given)
            assert ours(TEMPLATES[name], **given) == want
            outcomes.add(want is None)
    assert False in outcomes


def test_random_templates_are_what_jinja_makes_of_them(jinja):
    judged = refused = 0
    for seed in range(1200):
        template = Grammar(seed).statement(2)
        want, found = jinja(template, messages=[], **VARIABLES), ours(template, messages=[], **VARIABLES)
        if want is None or found is None:  # what is an error differs where Jinja works lazily or coerces; never much
            refused += (want is None) != (found is None)
        else:
            judged += 1
            assert found == want, template
    assert judged > 500 and refused < 60


# ---- the template of a file ------------------------------------------------------------------------------


class File:
    path = "m.gguf"

    def __init__(self, template=None):
        self.template = template

    def has(self, key):
        return key == "tokenizer.chat_template" and self.template is not None

    def s(self, key):
        return self.template


class Words:
    """As much of a tokenizer as a template sees."""

    bos, eos = 0, 1

    def __init__(self, add_bos):
        self.add_bos = add_bos

    def token_bytes(self, token):
        return (b"<s>", b"</s>")[token]


@pytest.mark.parametrize("add_bos", [True, False])
def test_exactly_one_begin_token(add_bos):
    with_bos, without = "{{ bos_token }}{{ messages[0].content }}", "{{ messages[0].content }}"
    text = chat.prompt(File(with_bos), Words(add_bos), [{"role": "user", "content": "hi"}])
    assert text == ("hi" if add_bos else "<s>hi"), "the tokenizer adds it, or the template"
    assert chat.prompt(File(without), Words(add_bos), [{"role": "user", "content": "hi"}]) == "hi"


def test_a_file_without_a_template_is_refused_only_when_asked():
    with pytest.raises(UnsupportedError, match="no chat template") as refused:
        chat.prompt(File(), Words(True), [{"role": "user", "content": "hi"}])
    assert "m.gguf" in str(refused.value) and "without --chat" in str(refused.value)


def test_an_empty_prompt_is_refused():
    with pytest.raises(InvalidInputError, match="empty prompt"):
        chat.prompt(File("{{ bos_token }}"), Words(True), [{"role": "user", "content": "hi"}])


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ({}, ("no conversation", "a object", "messages")),
        ("hi", ("no conversation", "a text")),
        ([], ("empty", "0 messages")),
        (["hi"], ("no message", "a text", "messages[0]")),
        ([{"role": "user", "content": "a"}, {"content": "x"}], ("role", "none", "messages[1].role")),
        ([{"role": 7, "content": "x"}], ("role", "7", "messages[0].role")),
        ([{"role": "", "content": "x"}], ("role", "''")),
        ([{"role": "user"}], ("content", "messages[0].content")),
        ([{"role": "user", "content": 5}], ("content", "5", "messages[0].content")),
        ([{"role": "user", "content": "x", "more": object()}], ("messages[0].more is a object",)),
        ([{"role": "user", "content": [{"a": {1: 2}}]}], ("messages[0].content[0].a is a dict",)),
    ],
)
def test_what_is_no_conversation_says_where(messages, words):
    with pytest.raises(InvalidInputError) as refused:
        chat.checked(messages)
    assert all(word in str(refused.value) for word in words), str(refused.value)


def test_messages_nested_without_end_are_refused():
    message = {"role": "user", "content": []}
    message["content"].append(message["content"])
    with pytest.raises(InvalidInputError, match="nested more than"):
        chat.checked([message])
