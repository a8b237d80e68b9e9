"""A grammar as a network of nodes over bytes, built from a tree, and what each node still costs until its end.

A tree is nested tuples:
    ("text", bytes)                       exactly these bytes
    ("texts", (bytes, ...))               one of them
    ("set", ((first, last), ...))         one code point as UTF-8; ranges ascend and do not touch
    ("seq", [tree, ...])  ("alt", [tree, ...])
    ("repeat", tree, least, most)         most None: no limit
    ("array", [tree, ...], tree, least, most)            JSON: leading items, the others, numbers of all
    ("object", [(key, required, tree), ...], key tree, value tree)   JSON: members in order, then others (None: no others)
    ("rule", name)                        a named tree, which may contain itself
    ("made", function)                    function(grammar, target) -> node
Numbers of repetitions are counted while the text is read, so a large one costs nothing. Refuses networks beyond LIMIT nodes.
Called by regex, schema and Constraint; states.py reads the network.
"""

from _heapq import heappop, heappush
from math import inf

from ..errors import InvalidInputError
from .utf8 import spans

BYTES, SPLIT, CALL, LOOP, END = range(5)
LIMIT = 200_000  # nodes
NEVER = inf  # cost of what has no end
RARE = 1 << 80  # cost of a byte that no token spells alone
DEEPEST = 64  # rules inside rules


def _following(flags):
    """For each byte the next one, itself included, that is flagged; 256 where none is."""
    found, nearest = [0] * 256, 256
    for byte in range(255, -1, -1):
        nearest = byte if flags[byte] else nearest
        found[byte] = nearest
    return found


class Grammar:
    """kind[i] and data[i] of each node:
    BYTES ((first, last, node), ...) ascending; SPLIT (node, ...); CALL (rule name, node after);
    LOOP (body, body with what separates it from the one before, least, most, node after); END: of a body, a rule, or all.
    """

    def __init__(self):
        self.kind, self.data = [], []
        self.rules = {}  # name -> first node
        self.start = None
        self.costs = self.heights = None  # per node: bytes to its end, rules inside each other on that way
        self._sets = {}
        self.end = self.add(END, None)

    def add(self, kind, data):
        if len(self.kind) == LIMIT:
            remedy = "simplify it, or give lists and numbers of repetitions that are shorter"
            raise InvalidInputError("the constraint is too large", f"at most {LIMIT} parts", remedy=remedy)
        self.kind.append(kind)
        self.data.append(data)
        return len(self.kind) - 1

    def define(self, name, tree):
        self.rules[name] = self.build(tree, self.end)

    def build(self, tree, target):
        """The first node of a network for `tree` that goes on to `target`."""
        return getattr(self, "_" + tree[0])(target, *tree[1:])

    def bind(self, session):
        """The Constraint of this grammar for the model of a session. The costs are the model's, so it gets a copy."""
        from .guide import Constraint

        copy = object.__new__(Grammar)
        vars(copy).update(vars(self))
        return Constraint(copy, session.tokenizer, session.plan.vocabulary)

    # ---- texts ----

    def _text(self, target, text):
        for byte in reversed(text):
            target = self.add(BYTES, ((byte, byte, target),))
        return target

    def _texts(self, target, texts):
        """The tree of prefixes, equal ends shared; a node is frozen once no later text can extend it."""
        texts, frozen, path, before = sorted(set(texts)), {}, [([], False)], b""
        for text in [*texts, None]:
            common = 0
            while text is not None and common < min(len(text), len(before)) and text[common] == before[common]:
                common += 1
            while len(path) - 1 > common:
                node = self._frozen(frozen, target, *path.pop())
                path[-1][0].append((before[len(path) - 1],) * 2 + (node,))
            if text is not None:
                path += [([], False) for _ in text[common:]]
                path[-1] = path[-1][0], True
                before = text
        return self._frozen(frozen, target, *path[0])

    def _frozen(self, frozen, target, edges, ended):
        key = tuple(edges), ended
        if key not in frozen:
            node = self.add(BYTES, key[0]) if edges or not ended else target
            frozen[key] = self.add(SPLIT, (node, target)) if edges and ended else node
        return frozen[key]

    def _set(self, target, ranges):
        key = ranges, target
        if key not in self._sets:
            self._sets[key] = self._spans(target, tuple(spans(ranges)))
        return self._sets[key]

    def _spans(self, target, sequences):
        """One node for byte ranges after each other; equal ends are shared."""
        key = sequences, target, 0
        if key in self._sets:
            return self._sets[key]
        groups = {}
        for sequence in sequences:
            groups.setdefault(sequence[0], []).append(sequence[1:])
        edges = []
        for (first, last), rest in groups.items():
            node = self._spans(target, tuple(rest)) if rest[0] else target
            if edges and edges[-1][1] == first - 1 and edges[-1][2] == node:
                edges[-1] = (edges[-1][0], last, node)
            else:
                edges.append((first, last, node))
        found = self._sets[key] = self.add(BYTES, tuple(edges))
        return found

    # ---- combinations ----

    def _seq(self, target, trees):
        for tree in reversed(trees):
            target = self.build(tree, target)
        return target

    def _alt(self, target, trees):
        return self.add(SPLIT, tuple(self.build(tree, target) for tree in trees))

    def _repeat(self, target, tree, least, most):
        if most == 0:
            return target
        if (least, most) == (1, 1):
            return self.build(tree, target)
        if (least, most) == (0, 1):
            return self.add(SPLIT, (self.build(tree, target), target))
        if most is None and least < 2:
            node = self.add(SPLIT, ())
            body = self.build(tree, node)
            self.data[node] = (body, target)
            return body if least else node
        body = self.build(tree, self.end)
        return self.add(LOOP, (body, body, least, most, target))

    def _rule(self, target, name):
        return self.add(CALL, (name, target))

    def _made(self, target, function):
        return function(self, target)

    # ---- JSON ----

    def _array(self, target, leading, item, least, most):
        close = self._text(target, b"]")
        after, empty = self._others(close, len(leading), item, least, most)
        for number in range(len(leading) - 1, -1, -1):
            value = self.build(leading[number], after)
            after, empty = self._text(value, b","), value
            if number >= least:
                after, empty = self.add(SPLIT, (after, close)), self.add(SPLIT, (empty, close))
        return self._text(empty, b"[")

    def _others(self, close, leading, item, least, most):
        """(node after a leading item, node where there is none) of the items behind `leading` ones."""
        least, most = max(0, least - leading), None if most is None else most - leading
        if item is None or most == 0:
            return close, close
        if most is None and least < 2:
            after = self.add(SPLIT, ())
            value = self.build(item, after)
            comma = self._text(value, b",")
            self.data[after] = (comma, close)
            return (comma if least else after), (value if least else self.add(SPLIT, (value, close)))
        value = self.build(item, self.end)
        comma = self._text(value, b",")
        return self.add(LOOP, (comma, comma, least, most, close)), self.add(LOOP, (value, comma, least, most, close))

    def _object(self, target, members, key, value):
        close = self._text(target, b"}")
        later, first = close, close
        if key is not None:
            later = self.add(SPLIT, ())
            first = self.build(key, self._text(self.build(value, later), b":"))
            self.data[later] = (self._text(first, b","), close)
            first = self.add(SPLIT, (first, close))
        for name, required, tree in reversed(members):
            node = self._text(self.build(tree, later), name + b":")
            comma = self._text(node, b",")
            later = comma if required else self.add(SPLIT, (comma, later))
            first = node if required else self.add(SPLIT, (node, first))
        return self._text(first, b"{")

    # ---- costs ----

    def settle(self, single, inner):
        """Work out costs and heights for a vocabulary: 256 truth values, whether a byte is a token of its own, and is in any."""
        self.single, self.inner = _following(single), _following(inner)
        count = len(self.kind)
        self.costs, self.heights = [NEVER] * count, [0] * count
        before = [[] for _ in range(count)]  # nodes that lead to each
        for node in range(count):
            for target in self._targets(node):
                before[target].append(node)
        heap, settled = [(0, 0, self.end)], [False] * count
        self.costs[self.end] = 0
        while heap:  # Dijkstra's way, as Knuth generalized it: a node is settled before those it makes dearer
            _, _, node = heappop(heap)
            if settled[node]:
                continue
            settled[node] = True
            for other in before[node]:
                if not settled[other]:
                    found = self._cost(other)
                    if found < (self.costs[other], self.heights[other]):
                        self.costs[other], self.heights[other] = found
                        heappush(heap, (*found, other))

    def _targets(self, node):
        """The nodes that the cost of a node hangs on."""
        kind, data = self.kind[node], self.data[node]
        if kind == BYTES:
            return [target for _, _, target in data]
        if kind == SPLIT:
            return data
        if kind == CALL:
            return self.rules[data[0]], data[1]
        return (data[0], data[1], data[4]) if kind == LOOP else ()

    def edge_cost(self, first, last):
        """What the cheapest byte of a range costs."""
        return 1 if self.single[first] <= last else RARE if self.inner[first] <= last else NEVER

    def edge_byte(self, first, last):
        """That byte."""
        return self.single[first] if self.single[first] <= last else self.inner[first]

    def _cost(self, node):
        """(bytes, height) of the shortest way from a node to its END, from what is known of its neighbours."""
        kind, data, costs, heights = self.kind[node], self.data[node], self.costs, self.heights
        if kind == BYTES:
            found = min(((self.edge_cost(a, z) + costs[t], heights[t]) for a, z, t in data), default=(NEVER, 0))
        elif kind == SPLIT:
            found = min(((costs[t], heights[t]) for t in data), default=(NEVER, 0))
        elif kind == CALL:
            start, after = self.rules[data[0]], data[1]
            found = costs[start] + costs[after], max(1 + heights[start], heights[after])
        elif kind == LOOP:
            body, again, least, most, after = data
            if most is not None and most < least:
                return NEVER, 0
            cost, height = costs[after], heights[after]
            if least:
                cost += costs[body] + ((least - 1) * costs[again] if least > 1 else 0)
                height = max(height, heights[body], heights[again] if least > 1 else 0)
            found = cost, height
        else:
            found = 0, 0
        return found if found[0] < NEVER else (NEVER, 0)
