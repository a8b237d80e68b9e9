"""From a template to a tree: nested tuples whose first part names the node, each explained where run.py does it.

The grammar and its precedence are Jinja's. Refused with the line: what other files would be needed for (include, import,
extends), and every tag that is not listed in STATEMENTS. Called by the package's `render`.
"""

from .scan import Mistake, scan

COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
CONSTANTS = {"true": True, "True": True, "false": False, "False": False, "none": None, "None": None}


def parse(source):
    """The body of a template: a list of nodes."""
    return Parser(source).body(())[0]


class Parser:
    """Reads the pieces of a template one after another; `tokens` are those of the tag being read."""

    def __init__(self, source):
        self.pieces = scan(source)
        self.tokens, self.at, self.line = [], 0, 1

    # ---- tokens of a tag ----

    @property
    def token(self):
        return self.tokens[self.at]

    def take(self):
        token = self.tokens[self.at]
        self.at += token.kind != "end"
        return token

    def skip(self, kind):
        """Whether the next token is the operator `kind`, which is then taken."""
        found = self.token.kind == kind
        self.at += found
        return found

    def word(self, *words):
        """The next token where it is one of these names; it is not taken."""
        return self.token.kind == "name" and self.token.value in words

    def skip_word(self, word):
        found = self.word(word)
        self.at += found
        return found

    def expect(self, kind):
        token = self.take()
        if token.kind != kind:
            found = token.value if token.kind != "end" else "the end of the tag"
            raise Mistake(f"expected {kind}, found {found}", token.line)
        return token

    # ---- statements ----

    def body(self, ends):
        """(nodes up to a block tag that begins with one of `ends`, that word); with no ends, up to the end of the template."""
        nodes, began = [], self.line
        for kind, content, line in self.pieces:
            self.line = line
            if kind == "text":
                nodes.append(("text", content))
                continue
            self.tokens, self.at = content, 0
            if kind == "print":
                nodes.append(("print", self.tuple()))
                self.expect("end")
                continue
            name = self.expect("name")
            if name.value in ends:
                return nodes, name.value
            statement = STATEMENTS.get(name.value)
            if statement is None:
                raise Mistake(f"unknown or misplaced tag {name.value!r}", name.line)
            nodes.append(statement(self))
        if ends:
            raise Mistake(f"a tag is never closed: expected {' or '.join(ends)}", began)
        return nodes, None

    def rest(self, *ends):
        """The body of the tag just read, whose end tag may repeat a name."""
        self.expect("end")
        return self.body(ends)

    def if_(self):
        branches, otherwise, word = [], [], "elif"
        while word == "elif":
            test = self.tuple(plain=True)
            body, word = self.rest("elif", "else", "endif")
            branches.append((test, body))
        if word == "else":
            otherwise, _ = self.rest("endif")
        self.expect("end")
        return "if", branches, otherwise

    def for_(self):
        target = self.target()
        if not self.skip_word("in"):
            raise Mistake("expected in", self.token.line)
        values = self.tuple(conditional=False)
        test = self.expression() if self.skip_word("if") else None
        if self.word("recursive"):
            raise Mistake("recursive loops are not available", self.token.line)
        body, word = self.rest("else", "endfor")
        otherwise = self.rest("endfor")[0] if word == "else" else []
        self.expect("end")
        return "for", target, values, test, body, otherwise

    def set_(self):
        target = self.target()
        if self.skip("="):
            value = self.tuple()
            self.expect("end")
            return "set", target, value
        filters = self.filters(None) if self.token.kind == "|" else None
        body, _ = self.rest("endset")
        self.expect("end")
        return "set block", target, filters, body

    def macro(self):
        name = self.expect("name").value
        self.expect("(")
        parameters = []
        while not self.skip(")"):
            parameter = self.expect("name").value
            parameters.append((parameter, self.expression() if self.skip("=") else None))
            if self.token.kind != ")":
                self.expect(",")
        body, _ = self.rest("endmacro")
        self.at = len(self.tokens) - 1  # endmacro may repeat the name
        return "macro", name, parameters, body

    def scope(self, end):
        body, _ = self.rest(end)
        self.expect("end")
        return "scope", body

    def filter_(self):
        chain = self.filters(None, self.filter(None))
        body, _ = self.rest("endfilter")
        self.expect("end")
        return "filter block", chain, body

    def word_(self, word):
        self.expect("end")
        return (word,)

    def target(self):
        """What a loop or `set` assigns to: ("name", n), ("attribute", name, part) or ("names", targets)."""
        found = []
        while True:
            if self.skip("("):
                found.append(self.target())
                self.expect(")")
            else:
                name = self.expect("name").value
                found.append(("attribute", name, self.expect("name").value) if self.skip(".") else ("name", name))
            if not self.skip(","):
                return found[0] if len(found) == 1 else ("names", found)

    # ---- expressions, from loosely to tightly binding ----

    def tuple(self, plain=False, conditional=True):
        """An expression, or several with commas between."""
        one = self.expression if conditional else self.either
        first = one()
        if plain or self.token.kind != ",":
            return first
        items = [first]
        while self.skip(","):
            if self.token.kind in ("end", ")"):
                break
            items.append(one())
        return "tuple", items

    def expression(self):
        value = self.either()
        while self.skip_word("if"):
            test = self.either()
            value = "choice", test, value, self.expression() if self.skip_word("else") else None
        return value

    def either(self):
        value = self.both()
        while self.skip_word("or"):
            value = "or", value, self.both()
        return value

    def both(self):
        value = self.negation()
        while self.skip_word("and"):
            value = "and", value, self.negation()
        return value

    def negation(self):
        return ("not", self.negation()) if self.skip_word("not") else self.comparison()

    def comparison(self):
        first, steps = self.sum(), []
        while True:
            if self.token.kind in COMPARISONS:
                steps.append((self.take().kind, self.sum()))
            elif self.skip_word("in"):
                steps.append(("in", self.sum()))
            elif self.word("not") and self.tokens[self.at + 1].value == "in":
                self.at += 2
                steps.append(("not in", self.sum()))
            else:
                return ("compare", first, steps) if steps else first

    def chain(self, operators, operand):
        value = operand()
        while self.token.kind in operators:
            value = "math", self.take().kind, value, operand()
        return value

    def sum(self):
        return self.chain(("+", "-"), self.concatenation)

    def concatenation(self):
        parts = [self.product()]
        while self.skip("~"):
            parts.append(self.product())
        return ("join", parts) if len(parts) > 1 else parts[0]

    def product(self):
        return self.chain(("*", "/", "//", "%"), self.power)

    def power(self):
        return self.chain(("**",), self.unary)

    def unary(self, filtered=True):
        value = ("sign", self.take().kind, self.unary(False)) if self.token.kind in ("-", "+") else self.primary()
        value = self.postfix(value)
        return self.filters(value) if filtered else value

    def primary(self):
        token = self.take()
        if token.kind == "name":
            return ("constant", CONSTANTS[token.value]) if token.value in CONSTANTS else ("name", token.value)
        if token.kind == "string":
            text = token.value
            while self.token.kind == "string":
                text += self.take().value
            return "constant", text
        if token.kind == "number":
            return "constant", token.value
        if token.kind == "(":
            value = ("tuple", []) if self.token.kind == ")" else self.tuple()
            self.expect(")")
            return value
        if token.kind == "[":
            return "list", self.items("]", self.expression)
        if token.kind == "{":
            return "dict", self.items("}", self.pair)
        raise Mistake(f"unexpected {token.value or 'end of the tag'}", token.line)

    def items(self, closer, one):
        found = []
        while not self.skip(closer):
            found.append(one())
            if self.token.kind != closer:
                self.expect(",")
        return found

    def pair(self):
        key = self.expression()
        self.expect(":")
        return key, self.expression()

    def postfix(self, value):
        while True:
            if self.skip("."):
                token = self.take()
                if token.kind == "number":
                    value = "item", value, ("constant", token.value)
                elif token.kind == "name":
                    value = "attribute", value, token.value
                else:
                    raise Mistake("expected a name after the dot", token.line)
            elif self.skip("["):
                value = "item", value, self.subscript()
            elif self.token.kind == "(":
                value = "call", value, *self.arguments()
            else:
                return value

    def subscript(self):
        parts = [None]
        while not self.skip("]"):
            if self.skip(":"):
                parts.append(None)
            elif parts[-1] is None:
                parts[-1] = self.tuple()
            else:
                self.expect("]")
        if len(parts) > 3 or parts == [None]:
            raise Mistake("unexpected ]", self.token.line)
        return parts[0] if len(parts) == 1 else ("slice", [*parts, None][:3])

    def arguments(self):
        """(positional, [(name, value)]) in parentheses."""
        self.expect("(")
        positional, named = [], []
        while not self.skip(")"):
            if self.token.kind == "name" and self.tokens[self.at + 1].kind == "=":
                name = self.take().value
                self.take()
                named.append((name, self.expression()))
            elif named or self.token.kind in ("*", "**"):
                raise Mistake("unexpected argument", self.token.line)
            else:
                positional.append(self.expression())
            if self.token.kind != ")":
                self.expect(",")
        return positional, named

    def filters(self, value, chained=None):
        """Everything that follows a value: filters, tests and calls."""
        value = chained or value
        while True:
            if self.skip("|"):
                value = self.filter(value)
            elif self.skip_word("is"):
                value = self.test(value)
            elif self.token.kind == "(" and value is not None:
                value = "call", value, *self.arguments()
            else:
                return value

    def filter(self, value):
        name = self.expect("name").value
        arguments = self.arguments() if self.token.kind == "(" else ([], [])
        return "filter", value, name, *arguments

    def test(self, value):
        negated = self.skip_word("not")
        name = self.expect("name").value
        arguments = []
        if self.token.kind == "(":
            arguments, named = self.arguments()
            if named:
                raise Mistake("a test takes no named arguments", self.token.line)
        elif self.token.kind in ("name", "string", "number", "[", "{") and not self.word("else", "or", "and", "if", "is"):
            arguments = [self.postfix(self.primary())]
        found = "test", value, name, arguments
        return ("not", found) if negated else found


STATEMENTS = {
    "if": Parser.if_,
    "for": Parser.for_,
    "set": Parser.set_,
    "macro": Parser.macro,
    "filter": Parser.filter_,
    "generation": lambda parser: parser.scope("endgeneration"),
    "break": lambda parser: parser.word_("break"),
    "continue": lambda parser: parser.word_("continue"),
}
