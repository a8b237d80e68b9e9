"""Renders a conversation with the chat template that a model file carries (Jinja, as Hugging Face uses it).

The template is foreign code: it runs in a sandbox that cannot change its inputs, with few filters, bounded strings,
bounded output and bounded time. Refused: everything the sandbox forbids, and jinja2 missing (extra `chat`). Called by
the clients that were asked for a chat, and imported only then.
"""

import json
import sys
import time

from ..errors import InvalidInputError

LIMIT = 4_000_000  # characters of any one string or list that a template makes, and of the whole output
SECONDS = 5.0
FILTERS = (
    "abs attr bool capitalize count d default dictsort e escape first float groupby int items join last length list lower map "
    "max min reject rejectattr replace reverse round safe select selectattr sort string sum title tojson trim unique upper"
)
# Methods whose result can be far longer than what goes in, without a bound that is cheap to know.
FORBIDDEN = frozenset(("center", "expandtabs", "format", "format_map", "ljust", "rjust", "translate", "zfill"))


class Stopped(Exception):
    """The template asked to stop or ran into a limit."""


def render(template, messages, bos_token="", eos_token="", add_generation_prompt=True, tools=None):
    """The prompt as text. template, bos_token, eos_token: str; messages: list of {"role", "content", ...};
    tools: list of JSON schemas or None. InvalidInputError says in one line what is wrong with the template or input."""
    environment = _environment()
    import jinja2

    values = {
        "messages": messages,
        "tools": tools,
        "bos_token": bos_token,
        "eos_token": eos_token,
        "add_generation_prompt": add_generation_prompt,
    }
    outer = sys.gettrace()
    deadline = time.monotonic() + SECONDS

    def watch(frame, event, argument):
        if time.monotonic() > deadline:
            raise Stopped(f"took longer than {SECONDS:g} s")
        return watch

    try:
        compiled = environment.from_string(template)
        sys.settrace(watch)
        try:
            return _collect(compiled.generate(**values))
        finally:
            sys.settrace(outer)
    except jinja2.TemplateSyntaxError as error:
        raise _refused(error.message, f"line {error.lineno}") from None
    except (
        Stopped,
        jinja2.TemplateError,
        ArithmeticError,
        AttributeError,
        LookupError,
        MemoryError,
        TypeError,
        ValueError,
    ) as error:
        raise _refused(str(error) or type(error).__name__) from None
    except RecursionError:
        raise _refused("nested too deeply") from None


def _refused(why, where=None):
    return InvalidInputError(
        "the chat template failed", found=why, where=where, remedy="check the messages, or prompt without --chat"
    )


def _collect(chunks):
    parts = []
    total = 0
    for chunk in chunks:
        total += len(chunk)
        if total > LIMIT:
            raise Stopped(f"more than {LIMIT} characters of output")
        parts.append(chunk)
    return "".join(parts)


def _bounded(value):
    """The value, unless it is a string or sequence beyond the limit."""
    if isinstance(value, (str, list, tuple)) and len(value) > LIMIT:
        raise Stopped(f"a text or list longer than {LIMIT}")
    return value


def _room(size):
    if size > LIMIT:
        raise Stopped(f"a text or list longer than {LIMIT}")


def _operate(operator, left, right):
    """Checks before a multiplication or power is worked out; both can grow without bound."""
    if operator == "*":
        for a, b in ((left, right), (right, left)):
            if isinstance(a, (str, list, tuple)) and isinstance(b, int):
                _room(len(a) * b)
    elif operator == "**" and isinstance(left, int) and isinstance(right, int):
        _room(abs(left).bit_length() * max(0, right))
    elif operator == "%" and isinstance(left, str):
        raise Stopped("the % operator on text is not available")


def _checked_replace(text, old, new, count=-1):
    text, old, new = str(text), str(old), str(new)
    found = text.count(old) if count is None or count < 0 else min(count, text.count(old))
    _room(len(text) + found * max(0, len(new) - len(old)))
    return text.replace(old, new) if count is None or count < 0 else text.replace(old, new, count)


def _checked_join(separator, values):
    parts = [str(value) for value in values]
    _room(sum(map(len, parts)) + len(separator) * len(parts))
    return separator.join(parts)


def _join_filter(value, d="", attribute=None):
    return _checked_join(str(d), value if attribute is None else [item[attribute] for item in value])


def _to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    """As in transformers: plain JSON, without jinja2's HTML escapes."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message):
    raise Stopped(str(message))


def _strftime_now(form):
    _room(len(form) * 100)
    return time.strftime(form)


def _sandbox():
    """The environment's class; made here because its base is imported only when a template is rendered."""
    from jinja2 import nodes
    from jinja2.compiler import CodeGenerator
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """{% generation %}..{% endgeneration %} marks the reply for training; here it is only its content."""

        tags = {"generation"}  # noqa: RUF012 - jinja2 reads it from the class

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body).set_lineno(line)

    class Code(CodeGenerator):
        def visit_Concat(self, node, frame):
            self.write("environment.concatenated((")
            for argument in node.nodes:
                self.visit(argument, frame)
                self.write(", ")
            self.write("))")

    class Sandbox(ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset(("*", "**", "%", "+"))
        code_generator_class = Code

        def concatenated(self, values):
            return _checked_join("", values)

        def call_binop(self, context, operator, left, right):
            _operate(operator, left, right)
            return _bounded(super().call_binop(context, operator, left, right))

        def wrap_str_format(self, value):
            return None  # leaves str.format to is_safe_attribute, which forbids it: a format can ask for any width

        def is_safe_attribute(self, obj, attr, value):
            return not (isinstance(obj, str) and attr in FORBIDDEN) and super().is_safe_attribute(obj, attr, value)

        def call(self, context, target, *args, **kwargs):
            owner, name = getattr(target, "__self__", None), getattr(target, "__name__", None)
            if isinstance(owner, str) and name in ("replace", "join"):
                return (_checked_replace if name == "replace" else _checked_join)(owner, *args, **kwargs)
            return _bounded(super().call(context, target, *args, **kwargs))

    return Sandbox, Generation


_made = []


def _environment():
    if not _made:
        try:
            import jinja2.ext
        except ImportError:
            raise InvalidInputError(
                "chat templates need jinja2, which is not installed", remedy="pip install 'reflex-gguf[chat]'"
            ) from None
        sandbox, generation = _sandbox()
        environment = sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[generation, jinja2.ext.loopcontrols])
        environment.filters = {name: environment.filters[name] for name in FILTERS.split() if name in environment.filters}
        environment.filters |= {"tojson": _to_json, "replace": _checked_replace, "join": _join_filter}
        environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
        _made.append(environment)
    return _made[0]
