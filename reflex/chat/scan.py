"""Cuts a template into text, `{{ }}` and `{% %}`, and those into tokens: Jinja's lexer, with trim_blocks and lstrip_blocks on as
Hugging Face sets them. Comments disappear here. Called by parse; raises Mistake with the line.
"""

LONG_OPERATORS = ("**", "//", "==", "!=", ">=", "<=")
OPERATORS = frozenset("+-/*%~[](){}><=.:|,")
PAIRS = {")": "(", "]": "[", "}": "{"}
KINDS = {"{{": "print", "{%": "block", "{#": "comment"}
CLOSERS = {"print": "}}", "block": "%}", "comment": "#}"}


class Mistake(Exception):
    """The template is not written as it must be; `line` counts from 1."""

    def __init__(self, why, line):
        super().__init__(why)
        self.line = line


class Token:
    """`kind`: name, string, number, or the operator itself; end at the end of a tag."""

    __slots__ = ("kind", "line", "value")

    def __init__(self, kind, value, line):
        self.kind = kind
        self.value = value
        self.line = line


def scan(source):
    """Yield ("text", str, line), ("print", tokens, line) and ("block", tokens, line)."""
    source = source.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n")
    at, line, line_starting = 0, 1, True
    while True:
        start = next_tag(source, at)
        if start < 0:
            if at < len(source):
                yield "text", source[at:], line
            return
        kind = KINDS[source[start : start + 2]]
        text = before_tag(source[at:start], source[start + 2 : start + 3], kind, line_starting)
        if text:
            yield "text", text, line
        line += source.count("\n", at, start)
        tokens, end = ([], comment_end(source, start, line)) if kind == "comment" else tag(source, start, kind, line)
        if kind == "block" and len(tokens) == 2 and tokens[0].value == "raw":
            at, end, text = raw(source, after_tag(source, end, kind), line)
            yield "text", text, line
        elif kind != "comment":
            yield kind, tokens, line
        at = after_tag(source, end, kind)
        line += source.count("\n", start, at)
        line_starting = source[at - 1] == "\n"


def next_tag(source, at):
    """Where the next tag begins; -1 where none does."""
    while (at := source.find("{", at)) >= 0:
        if source[at : at + 2] in KINDS:
            return at
        at += 1
    return -1


def before_tag(text, sign, kind, line_starting):
    """The text in front of a tag without the white space that the tag takes away."""
    if sign == "-":
        return text.rstrip()
    if sign == "+" or kind == "print":
        return text
    start = text.rfind("\n") + 1
    return text[:start] if (start or line_starting) and not text[start:].strip() else text


def after_tag(source, end, kind):
    """Where text goes on behind a tag whose closer ends at `end`."""
    sign = source[end - 3]
    if sign == "-":
        while white := len(ahead := source[end : end + 256]) - len(ahead.lstrip()):
            end += white
        return end
    return end + (kind != "print" and sign != "+" and source[end : end + 1] == "\n")


def comment_end(source, start, line):
    end = source.find("#}", start + 2)
    if end < 0:
        raise Mistake("a comment has no end", line)
    return end + 2


def raw(source, at, line):
    """(start of the endraw tag, its end, the text between)."""
    start = at
    while (start := source.find("{%", start)) >= 0:
        end = source.find("%}", start)
        if end >= 0 and source[start + 2 : end].strip("+- \t\n") == "endraw":
            return start, end + 2, before_tag(source[at:start], source[start + 2], "block", False)
        start += 2
    raise Mistake("raw has no endraw", line)


def tag(source, start, kind, line):
    """(tokens, end) of a tag; the last token is of kind end."""
    closer, tokens, open_brackets = CLOSERS[kind], [], []
    at = start + 2 + (source[start + 2 : start + 3] in ("-", "+"))
    while at < len(source):
        letter = source[at]
        if not open_brackets:
            shift = letter in "-+" and source.startswith(closer, at + 1)
            if shift or source.startswith(closer, at):
                tokens.append(Token("end", "", line))
                return tokens, at + shift + 2
        if letter.isspace():
            line += letter == "\n"
            at += 1
            continue
        token, after = one_token(source, at, line)
        line += source.count("\n", at, after)
        if letter in "([{":
            open_brackets.append(letter)
        elif letter in PAIRS and (not open_brackets or open_brackets.pop() != PAIRS[letter]):
            raise Mistake(f"unexpected {letter!r}", line)
        tokens.append(token)
        at = after
    raise Mistake(f"a tag has no {closer}", line)


def one_token(source, at, line):
    """(token, end) of what begins at `at`."""
    letter = source[at]
    if letter in "'\"":
        return quoted(source, at, line)
    if letter.isalpha() or letter == "_":
        end = at + 1
        while end < len(source) and (source[end].isalnum() or source[end] == "_"):
            end += 1
        return Token("name", source[at:end], line), end
    if letter.isdigit():
        return number(source, at, line)
    for operator in (source[at : at + 2], letter):
        if operator in LONG_OPERATORS or operator in OPERATORS:
            return Token(operator, operator, line), at + len(operator)
    raise Mistake(f"unexpected character {letter!r}", line)


def quoted(source, at, line):
    """A string; escapes as in Python."""
    from _codecs import unicode_escape_decode

    end = at + 1
    while end < len(source) and source[end] != source[at]:
        end += 2 if source[end] == "\\" else 1
    if end >= len(source):
        raise Mistake("a string has no end", line)
    text = source[at + 1 : end]
    if "\\" in text:
        try:
            text = unicode_escape_decode(text.encode("ascii", "backslashreplace"))[0]
        except UnicodeError as error:
            raise Mistake(f"a string cannot be read: {error}", line) from None
    return Token("string", text, line), end + 1


def number(source, at, line):
    """An integer or a float."""
    end = at
    while end < len(source) and (source[end].isdigit() or source[end] == "_"):
        end += 1
    whole = end
    if source[end : end + 1] == "." and source[end + 1 : end + 2].isdigit():
        end += 1
        while end < len(source) and source[end].isdigit():
            end += 1
    if source[end : end + 1] in ("e", "E"):
        power = end + 1 + (source[end + 1 : end + 2] in ("+", "-"))
        if source[power : power + 1].isdigit():
            end = power
            while end < len(source) and source[end].isdigit():
                end += 1
    try:
        value = int(source[at:end]) if end == whole else float(source[at:end])
    except ValueError as error:
        raise Mistake(f"a number cannot be read: {error}", line) from None
    return Token("number", value, line), end
