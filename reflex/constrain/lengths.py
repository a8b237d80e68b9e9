"""Strings that match a pattern and have so many characters: the places of the pattern, once for each number of characters.

Refuses patterns and lengths whose product is beyond MOST. Called by strings.
"""

from .grammar import SPLIT

MOST = 50_000  # places times lengths


class Positions:
    """The characters of a tree, copies of repeated ones included, and which may follow which (Glushkov's automaton)."""

    def __init__(self, tree, limit):
        self.limit = limit
        self.sets = [None]  # code points of each position; 0 is before the first character
        self.follow = {0: []}
        nullable, first, last = self.walk(tree)
        self.follow[0] = first
        self.last = {0, *last} if nullable else set(last)

    def walk(self, tree):
        """(whether nothing matches, first positions, last positions); None for the tree where it has too many."""
        if tree[0] == "set":
            if len(self.sets) > self.limit:
                raise OverflowError
            self.sets.append(tree[1])
            self.follow[len(self.sets) - 1] = []
            return False, [len(self.sets) - 1], [len(self.sets) - 1]
        if tree[0] == "alt":
            parts = [self.walk(part) for part in tree[1]]
            return any(n for n, _, _ in parts), [p for _, f, _ in parts for p in f], [p for _, _, z in parts for p in z]
        if tree[0] == "seq":
            return self.chain([self.walk(part) for part in tree[1]])
        return self.repeat(*tree[1:])

    def chain(self, parts):
        nullable, first, last = True, [], []
        for empty, begins, ends in parts:
            for position in last:
                self.follow[position] = list(dict.fromkeys([*self.follow[position], *begins]))
            first = [*first, *begins] if nullable else first
            last = [*last, *ends] if empty else ends
            nullable &= empty
        return nullable, first, last

    def repeat(self, tree, least, most):
        if max(least, most or 0) > self.limit:
            raise OverflowError
        parts = [self.walk(tree) for _ in range(least)]
        if most is None:
            _, first, last = self.walk(tree)
            self.chain([(False, first, last), (False, first, last)])
            parts.append((True, first, last))
        else:
            parts += [(True, *self.walk(tree)[1:]) for _ in range(most - least)]
        return self.chain(parts)


def within(tree, least, most, character):
    """The tree of the texts of `tree` that have from `least` to `most` characters, spelled by `character`; None: it is too much."""
    span = least if most is None else most
    try:
        positions = Positions(tree, MOST // (span + 1))
    except OverflowError:
        return None

    def made(grammar, target):
        nodes, pending = {}, []

        def node(place):
            if place not in nodes:
                nodes[place] = grammar.add(SPLIT, ())
                pending.append(place)
            return nodes[place]

        start, spelled = node((0, 0)), {}
        while pending:
            position, count = place = pending.pop()
            ways = [target] if position in positions.last and count >= least else []
            after = min(count + 1, least) if most is None else count + 1
            for following in positions.follow[position] if most is None or count < most else ():
                key = following, after
                if key not in spelled:
                    spelled[key] = grammar.build(character(positions.sets[following]), node(key))
                ways.append(spelled[key])
            grammar.data[nodes[place]] = tuple(ways)
        return start

    return ("made", made)
