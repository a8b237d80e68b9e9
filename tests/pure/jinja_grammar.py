"""Random small templates for the comparison with Jinja: every kind of expression and statement, with every kind of white space."""

import random

VARIABLES = {
    "n": 3, "z": 0, "f": 2.5, "s": "Hello wOrld", "e": "", "l": [3, 1, 2], "w": ["b", "A", "c"], "t": True, "no": None,
    "d": {"a": 1, "b": [1, "x"], "items": 5}, "m": [{"role": "user", "n": 2}, {"role": "bot", "n": 1, "x": {"y": "deep"}}],
}  # fmt: skip
ATOM_WORDS = """
n z f s e l w d t no m u 1 0 -2 2.5 'a' "b" 'x\\ny' [1,'a',n] (1,2) {'k':s,'j':2} true none [] d.a d['b'] m[0].role
m[1]['x'].y m[0].nope l[0] l[-1] s[1:4] l[::-1] m[5] s.upper() s.split('o') d.get('a') d.get('q',7) s.replace('l','L')
s.startswith('He') '-'.join(w) range(3)|list d.keys()|list d.items()|list
"""
FILTER_WORDS = """
length upper lower trim first last list string tojson abs default('dd') default('dd',true) join(',') reverse|list sort
unique|list max min sum capitalize title round round(1) replace('l','_') map('upper')|list map(attribute='role')|list
selectattr('role','equalto','user')|list rejectattr('x')|list select('odd')|list reject('none')|list dictsort items|list
map(attribute='n',default=0)|list indent(2) tojson(indent=2) sort(reverse=true) sort(attribute='n') count
"""
TEST_WORDS = """
defined,undefined,none,string,number,integer,float,boolean,mapping,sequence,iterable,true,false,odd,even,divisibleby 2,
divisibleby(3),eq 3,equalto 'a',in [1],lower,upper,not none
"""
ATOMS, FILTERS, TESTS = ATOM_WORDS.split(), FILTER_WORDS.split(), TEST_WORDS.replace("\n", "").split(",")
LOOPED = ("l", "w", "m", "d", "s", "[]", "u", "range(3)")


class Grammar:
    """Random templates over VARIABLES; small ones, so that a failure can be read."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.pick = self.random.choice

    def expression(self, depth):
        kind = self.random.randrange(12) if depth else 0
        part = lambda: self.expression(depth - 1)  # noqa: E731
        if kind == 1:
            return f"({part()} {self.pick(['+', '-', '*', '/', '//', '%', '**'])} {part()})"
        if kind == 2:
            return f"{part()} {self.pick(['==', '!=', '<', '>', '<=', '>=', 'in', 'not in'])} {part()}"
        if kind == 3:
            return f"({part()} ~ {part()})"
        if kind == 4:
            return f"{part()} {self.pick(['and', 'or'])} {part()}"
        if kind == 5:
            return f"not {part()}"
        if kind in (6, 7, 8):
            return f"{part()}|{self.pick(FILTERS)}"
        if kind == 9:
            return f"({part()} is {self.pick(TESTS)})"
        if kind == 10:
            return f"({part()} if {part()} else {part()})"
        return f"{part()} {self.pick('+-*~')} {part()} {self.pick('+*~')} {part()}" if kind == 11 else self.pick(ATOMS)

    def tag(self, text):
        return f"{{%{self.pick(['', '-', '+', ''])} {text} {self.pick(['', '-', '+', ''])}%}}"

    def shown(self, text):
        return f"{{{{{self.pick(['', '-'])} {text} {self.pick(['', '-'])}}}}}"

    def space(self):
        return self.pick(["", "\n", "  ", "\n  ", " x ", "\n\n", "\t"])

    def body(self, depth):
        return self.space() + (self.statement(depth - 1) if depth else self.shown(self.pick(ATOMS))) + self.space()

    def statement(self, depth):
        kind, body = self.random.randrange(9), lambda: self.body(depth)
        if kind == 0:
            other = self.tag("elif " + self.expression(1)) + body() + self.tag("else") + body()
            return self.tag("if " + self.expression(1)) + body() + self.pick(["", other]) + self.tag("endif")
        if kind == 1:
            head = self.tag("for i in " + self.pick(LOOPED) + self.pick(["", " if i != 1"]))
            leave = self.tag("if loop.index == 2") + self.tag(self.pick(["break", "continue"])) + self.tag("endif")
            loop = "{{ i }}{{ loop.index }}{{ loop.last }}{{ loop.revindex0 }}{{ loop.nextitem }}" + self.pick(["", leave])
            return head + body() + loop + body() + self.pick(["", self.tag("else") + body()]) + self.tag("endfor")
        if kind == 2:
            return self.tag("for k, v in d.items()") + "{{ k }}={{ v }}" + body() + self.tag("endfor")
        if kind == 3:
            return self.tag(f"set q = {self.expression(1)}") + body() + "{{ q }}"
        if kind == 4:
            return self.tag("set q") + body() + self.tag("endset") + "{{ q }}"
        if kind == 5:
            space = "{% set ns = namespace(a=1) %}{% for i in l %}" + self.tag("set ns.a = ns.a + i") + "{% endfor %}{{ ns.a }}"
            return space + body()
        if kind == 6:
            return "{#" + self.pick(["", "-", "+"]) + " c " + self.pick(["", "-", "+"]) + "#}" + body()
        return body() + body() if kind == 7 else self.shown(self.expression(2))
