"""A conversation as a prompt, by the chat template that a model file carries: a Jinja template, as Hugging Face uses it.

The template is foreign code. It is interpreted here, by an interpreter that knows plain data only and pays for every step and
every character, so that it can neither escape nor run for ever. Read and carried out only when a chat is asked for.
Special tokens spelled in a message count as such, as they do in any prompt. Called by the API and the command line; refuses files
without a template and messages that are none.
"""

from ..errors import InvalidInputError, UnsupportedError
from .parse import parse
from .run import Run
from .scan import Mistake
from .values import Stopped, plain

KEY = "tokenizer.chat_template"
MESSAGE = 'a list of {"role": "user", "content": "..."}'


def prompt(file, tokenizer, messages, **more):
    """The text that asks the model of an open `file` for its next message. It holds no begin token where the tokenizer adds one.

    `more`: further variables of the template (tools, enable_thinking, ...)."""
    messages = checked(messages)
    if not file.has(KEY):
        remedy = "prompt without --chat, and write the turns as the model's documentation shows them"
        raise UnsupportedError("this model has no chat template", f"the key {KEY}", "none", file.path, remedy)
    tokens = {"bos_token": spelled(tokenizer, tokenizer.bos), "eos_token": spelled(tokenizer, tokenizer.eos)}
    text = render(file.s(KEY), messages, **tokens, **more)
    if tokenizer.add_bos and tokens["bos_token"]:
        text = text.removeprefix(tokens["bos_token"])
    if not text:
        raise InvalidInputError("the chat template made an empty prompt", where=file.path, remedy="check the messages")
    return text


def spelled(tokenizer, token):
    """The text of a special token; empty where there is none."""
    return "" if token is None else tokenizer.token_bytes(token).decode("utf-8", "replace")


def render(template, messages, bos_token="", eos_token="", add_generation_prompt=True, **more):
    """A conversation through a template. InvalidInputError says in one line what is wrong with the template or the messages."""
    values = {"messages": messages, "tools": None, "documents": None, **more}
    values |= {"bos_token": bos_token, "eos_token": eos_token, "add_generation_prompt": add_generation_prompt}
    try:
        return Run({name: plain(value, name) for name, value in values.items()}).render(parse(template))
    except Mistake as error:
        raise _refused(str(error), f"line {error.line} of the template") from None
    except (Stopped, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise _refused(str(error) or type(error).__name__) from None
    except RecursionError:
        raise _refused("nested too deeply") from None


def _refused(why, where=None):
    remedy = "check the messages, or prompt without --chat"
    return InvalidInputError("the chat template failed", found=why, where=where, remedy=remedy)


def checked(messages, where="messages"):
    """A list of messages as plain data; refused where it is none, with the place."""
    if not isinstance(messages, (list, tuple)):
        raise InvalidInputError("this is no conversation", MESSAGE, f"a {_name(messages)}", where)
    if not messages:
        raise InvalidInputError("the conversation is empty", "at least 1 message", "0 messages", where)
    for index, message in enumerate(messages):
        place = f"{where}[{index}]"
        if not isinstance(message, dict):
            raise InvalidInputError("this is no message", '{"role": ..., "content": ...}', f"a {_name(message)}", place)
        if not isinstance(message.get("role"), str) or not message["role"]:
            raise InvalidInputError("a message needs a role", "a text such as user", _found(message, "role"), f"{place}.role")
        if "content" not in message and not message.get("tool_calls"):
            raise InvalidInputError("a message needs a content", "a text", "none", f"{place}.content")
        if not isinstance(message.get("content", ""), (str, list, type(None))):
            raise InvalidInputError("a message has no such content", "a text", _found(message, "content"), f"{place}.content")
    try:
        return plain(messages, where)
    except ValueError as error:
        raise InvalidInputError("a message holds more than JSON can say", "texts, numbers, lists, objects", str(error)) from None


def _found(message, name):
    return repr(message[name])[:80] if name in message else "none"


def _name(value):
    return {"dict": "object", "str": "text", "NoneType": "null"}.get(type(value).__name__, type(value).__name__)
