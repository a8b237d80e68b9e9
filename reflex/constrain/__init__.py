"""Constrained generation: choices, a regular expression or a JSON schema, which the text then cannot fail to satisfy.

Each becomes a grammar over bytes (regex.py and schema.py to grammar.py), read state by state while the text grows (states.py)
and asked which tokens may come next (guide.py). Nothing here is imported by a generation without a constraint.
Called by the API and by the command line.
"""

from ..errors import InvalidInputError
from .grammar import Grammar

MOST_CHOICES = 100_000
LARGEST_FILE = 1 << 24


def grammar_of(choices=(), regex=None, json_schema=None):
    """The Grammar of exactly one kind of constraint; errors name what is wrong or cannot be enforced.

    `json_schema`: a dict, True or False, or JSON text. It needs no model."""
    values = {"choices": choices or None, "regex": regex, "json_schema": json_schema}
    given = [name for name, value in values.items() if value is not None]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        raise InvalidInputError("one constraint at a time", "choices, a regular expression or a JSON schema", found)
    grammar = Grammar()
    if given == ["choices"]:
        tree = ("texts", _choices(choices))
    elif given == ["regex"]:
        from .regex import tree_of

        tree = tree_of(regex)
    else:
        from .schema import schema_tree

        tree = schema_tree(json_schema, grammar)
    grammar.start = grammar.build(tree, grammar.end)
    return grammar


def _choices(choices):
    if isinstance(choices, str):
        choices = (choices,)
    found = []
    for text in choices:
        if not isinstance(text, str) or not text:
            raise InvalidInputError("a choice has no meaning", "at least one character of text", repr(text))
        try:
            found.append(text.encode())
        except UnicodeEncodeError:
            raise InvalidInputError("a choice is not Unicode text", "UTF-8", ascii(text)) from None
    if len(found) > MOST_CHOICES:
        raise InvalidInputError("too many choices", f"at most {MOST_CHOICES}", len(found))
    return tuple(found)


def asked(choices, regex, path):
    """The Grammar that options of a command line ask for: texts, an expression or "", a file or ""."""
    return grammar_of(choices, regex or None, _content(path) if path else None)


def _content(path):
    from ..errors import InputOutputError

    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise InputOutputError("cannot read the JSON schema", found=error.strerror, where=path) from None
    if len(data) > LARGEST_FILE:
        raise InvalidInputError("the JSON schema is too large", f"at most {LARGEST_FILE} bytes", where=path)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError("the JSON schema is not UTF-8", "UTF-8 text", f"byte {error.start}", path) from None
