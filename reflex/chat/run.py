"""Carries out the tree that parse.py made, within a budget. One method per kind of node, found by its name.

Scopes are as in Jinja: a loop's body and a macro have their own, an `if` has none; only a namespace can be changed from inside.
Called by the package's `render`.
"""

from . import library
from .values import (
    RANGE,
    Budget,
    Loop,
    Namespace,
    Stopped,
    Undefined,
    as_text,
    as_whole,
    contains,
    defined,
    equal,
    items,
    joined,
    kind,
    less,
    to_text,
)


class Scope:
    """Names and values, and the scope around them."""

    __slots__ = ("names", "outer")

    def __init__(self, names, outer=None):
        self.names, self.outer = names, outer

    def find(self, name):
        scope = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return Undefined(name)


class Run:
    """One rendering. `parts`: the pieces of output so far."""

    def __init__(self, values):
        self.budget = Budget(values.get("messages", ()))
        self.parts = []
        makers = {"namespace": self.namespace, "dict": lambda **named: named, "range": self.range}
        makers |= {"raise_exception": library.raise_exception, "strftime_now": self.strftime_now}
        self.scope = Scope(makers | values)

    def render(self, body):
        self.execute(body, Scope({}, self.scope))
        return "".join(self.parts)

    # ---- statements: each returns None, "break" or "continue" ----

    def execute(self, body, scope):
        for node in body:
            self.budget.step()
            signal = getattr(self, "do_" + node[0].replace(" ", "_"))(scope, *node[1:])
            if signal:
                return signal
        return None

    def captured(self, body, scope):
        """The output of a body as a text."""
        outer, self.parts = self.parts, []
        try:
            self.execute(body, scope)
            return joined(self.budget, "", self.parts)
        finally:
            self.parts = outer

    def write(self, text):
        self.budget.make(len(text))
        self.parts.append(text)

    def do_text(self, scope, text):
        self.write(text)

    def do_print(self, scope, value):
        self.write(to_text(self.budget, self.value(value, scope)))

    def do_if(self, scope, branches, otherwise):
        for test, body in branches:
            if self.value(test, scope):
                return self.execute(body, scope)
        return self.execute(otherwise, scope)

    def do_for(self, scope, target, values, test, body, otherwise):
        found = items(self.budget, self.value(values, scope))
        if test is not None:
            kept = []
            for item in found:
                inner = Scope({}, scope)
                self.assign(target, item, inner)
                if self.value(test, inner):
                    kept.append(item)
            found = kept
        if not found:
            return self.execute(otherwise, Scope({}, scope))
        loop = Loop(found)
        for item in found:
            self.budget.step()
            loop.at += 1
            inner = Scope({"loop": loop}, scope)
            self.assign(target, item, inner)
            if self.execute(body, inner) == "break":
                break
        return None

    def do_break(self, scope):
        return "break"

    def do_continue(self, scope):
        return "continue"

    def do_set(self, scope, target, value):
        self.assign(target, self.value(value, scope), scope)

    def do_set_block(self, scope, target, filters, body):
        self.assign(target, self.through(filters, self.captured(body, Scope({}, scope)), scope), scope)

    def do_filter_block(self, scope, filters, body):
        self.write(to_text(self.budget, self.through(filters, self.captured(body, Scope({}, scope)), scope)))

    def through(self, filters, text, scope):
        """`text` through the filters of a block, whose innermost value is left open."""
        inner = Scope({None: text}, scope)
        return text if filters is None else self.value(filters, inner)

    def do_scope(self, scope, body):
        return self.execute(body, Scope({}, scope))

    def do_macro(self, scope, name, parameters, body):
        def call(*given, **named):
            if len(given) > len(parameters):
                raise Stopped(f"{name} takes {len(parameters)} arguments, got {len(given)}")
            inner = Scope({}, scope)
            for at, (parameter, default) in enumerate(parameters):
                if at < len(given):
                    value = given[at]
                elif parameter in named:
                    value = named.pop(parameter)
                else:
                    value = Undefined(parameter) if default is None else self.value(default, inner)
                inner.names[parameter] = value
            if named:
                raise Stopped(f"{name} takes no argument {next(iter(named))}")
            self.budget.depth -= 1
            if self.budget.depth < 0:
                raise Stopped("macros are nested too deeply")
            try:
                return self.captured(body, inner)
            finally:
                self.budget.depth += 1

        scope.names[name] = call

    def assign(self, target, value, scope):
        if target[0] == "name":
            scope.names[target[1]] = value
        elif target[0] == "attribute":
            space = scope.find(target[1])
            if not isinstance(space, Namespace):
                raise Stopped(f"{target[1]}.{target[2]} cannot be set: {target[1]} is no namespace")
            space.parts[target[2]] = value
        else:
            values = items(self.budget, value)
            if len(values) != len(target[1]):
                raise Stopped(f"{len(target[1])} names for {len(values)} values")
            for inner, item in zip(target[1], values, strict=True):
                self.assign(inner, item, scope)

    # ---- expressions ----

    def value(self, node, scope):
        self.budget.step()
        if node is None:  # the open place of a block's filters
            return scope.find(None)
        return getattr(self, "of_" + node[0])(scope, *node[1:])

    def of_constant(self, scope, value):
        return value

    def of_name(self, scope, name):
        return scope.find(name)

    def of_list(self, scope, nodes):
        return self.budget.made([self.value(node, scope) for node in nodes])

    def of_tuple(self, scope, nodes):
        return tuple(self.of_list(scope, nodes))

    def of_dict(self, scope, pairs):
        return self.budget.made({library.key(self.value(name, scope)): self.value(value, scope) for name, value in pairs})

    def of_attribute(self, scope, owner, name):
        return library.attribute(self.budget, self.value(owner, scope), name)

    def of_item(self, scope, owner, index):
        owner = defined(self.value(owner, scope))
        if index[0] == "slice":
            start, stop, step = (None if part is None else self.value(part, scope) for part in index[1])
            return library.sliced(self.budget, owner, start, stop, step)
        return library.item(owner, self.value(index, scope))

    def of_call(self, scope, function, positional, named):
        function = defined(self.value(function, scope))
        if not callable(function):
            raise Stopped(f"a {kind(function)} cannot be called")
        given = [self.value(node, scope) for node in positional]
        return function(*given, **{name: self.value(node, scope) for name, node in named})

    def of_filter(self, scope, value, name, positional, named):
        value = self.value(value, scope)
        given = [self.value(node, scope) for node in positional]
        return library.filtered(self.budget, name, value, given, {key: self.value(node, scope) for key, node in named})

    def of_test(self, scope, value, name, arguments):
        return library.tested(self.budget, name, self.value(value, scope), [self.value(node, scope) for node in arguments])

    def of_not(self, scope, value):
        return not self.value(value, scope)

    def of_and(self, scope, first, second):
        value = self.value(first, scope)
        return self.value(second, scope) if value else value

    def of_or(self, scope, first, second):
        value = self.value(first, scope)
        return value or self.value(second, scope)

    def of_choice(self, scope, test, value, otherwise):
        if self.value(test, scope):
            return self.value(value, scope)
        return Undefined("an if without else") if otherwise is None else self.value(otherwise, scope)

    def of_compare(self, scope, first, steps):
        left = self.value(first, scope)
        for operator, node in steps:
            right = self.value(node, scope)
            if not self.compare(operator, left, right):
                return False
            left = right
        return True

    def compare(self, operator, left, right):
        budget = self.budget
        if operator in ("==", "!="):
            return equal(budget, left, right) == (operator == "==")
        if operator in ("in", "not in"):
            return contains(budget, right, left) == (operator == "in")
        left, right = defined(left), defined(right)
        if operator in (">", "<="):
            return less(budget, right, left) == (operator == ">")
        return less(budget, left, right) == (operator == "<")

    def of_join(self, scope, nodes):
        return joined(self.budget, "", [to_text(self.budget, self.value(node, scope)) for node in nodes])

    def of_sign(self, scope, sign, value):
        value = library.number(self.value(value, scope))
        return -value if sign == "-" else value

    def of_math(self, scope, operator, first, second):
        return library.calculated(self.budget, operator, self.value(first, scope), self.value(second, scope))

    # ---- functions ----

    def namespace(self, *given, **parts):
        return Namespace(dict(given[0]) | parts if given and isinstance(given[0], dict) else parts)

    def range(self, *bounds):
        found = range(*map(as_whole, bounds))
        if len(found) > RANGE:
            raise Stopped(f"a range of more than {RANGE}")
        return list(self.budget.made(found))

    def strftime_now(self, form):
        from time import strftime

        self.budget.make(100 * len(as_text(form)))
        return strftime(form)
