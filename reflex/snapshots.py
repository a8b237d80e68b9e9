"""Where the states of recurrent layers lie: which place of the plan holds the state behind how many tokens of the timeline.

A state cannot be taken back, only kept: keys and values of a timeline's first n tokens are there as long as nobody overwrites them,
its state behind n tokens only where somebody asked for it. So there is one place that moves on with every token, and a few that
stay: before the last token of each text that was computed at once, which is computed again for whoever asks about the same
text, and where another text parted from one that had been computed. A timeline begins again at the longest of them that is not
behind what is wanted, or at its first token; then the rest is computed, never guessed. While the backend makes tokens by itself,
ahead of who takes them, the place that moves on is one of a ring, so that the state behind the last token taken is there.

The states of a candidate tree lie in the places that are left (tree.py): behind every node that branches, until its last child
begins. Owns no memory: the plan has PLACES places of a size that `inspect` tells. Called by session and tree.
"""

from .errors import InvalidInputError, StateError
from .program.records import PLACES

KEPT = 4  # states of the timeline that stay


class Snapshots:
    """Places by what lies in them. A place that is in no list is free."""

    __slots__ = ("branches", "kept", "pending", "places", "ring")

    def __init__(self):
        self.places = {}  # tokens of the timeline -> the place of the state behind them
        self.kept = []  # tokens: those that stay, the least recently used first
        self.pending = []  # (tokens, place) that the batch at hand will leave
        self.branches = {}  # node of a tree -> place
        self.ring = 0, ()  # tokens before a run that the backend makes by itself, and where its states go in turn

    def start(self, most):
        """The longest beginning of the timeline, of at most `most` tokens, behind which the state is there."""
        return max((count for count in self.places if count <= most), default=0)

    def cut(self, count):
        """Forget the states behind more than `count` tokens."""
        for other in [other for other in self.places if other > count]:
            del self.places[other]
        self.kept = [other for other in self.kept if other <= count]

    def strands(self, first, rows, stops):
        """Strands of `rows` tokens that continue the timeline behind its first `first`, in rows 0 and on; states stay at `stops`,
        numbers of tokens. What they leave is only there once `done` was called."""
        self.cut(first)  # as the batch will: places of what lies behind are free
        source = -1
        if first:
            if first not in self.places:
                raise StateError("the state behind these tokens is not there", f"one of {sorted(self.places)}", f"{first} tokens")
            source = self.places[first]
            if first in self.kept or first in stops:
                self.kept = [other for other in self.kept if other != first] + [first]
            else:
                del self.places[first]  # moves on; should the batch fail, nobody knows what it holds
        self.branches.clear()
        self.pending = []
        strands, row, end = [], 0, first + rows
        moving = source if first and first not in self.places else None
        for stop in [*sorted(stop for stop in set(stops) if first < stop < end), end]:
            place = moving if moving is not None else self._free()
            moving = None
            self.pending.append((stop, place))
            strands.append((row, stop - first - row, source, place))
            source, row = place, stop - first
        return strands

    def has(self, count):
        """Whether the state behind so many tokens is there."""
        return not count or count in self.places

    def behind(self, count):
        """The place of the state behind `count` tokens; -1 for none, which is the beginning."""
        return self.places[count] if count else -1

    def adopt(self, count, place):
        """The state behind `count` tokens lies in a place now; nothing else lies anywhere."""
        self.places, self.kept = {count: place}, [count]

    def done(self):
        """The batch of `strands` has run."""
        self.places.update(self.pending)
        self.kept += [count for count, _ in self.pending[:-1]]
        self.pending = []
        while len(self.kept) > KEPT:
            del self.places[self.kept.pop(0)]

    def run(self, count, number):
        """(place of the state behind `count` tokens, `number` free ones that those behind the tokens of a run go to in turn)."""
        self.branches.clear()
        self.pending = []
        for i in range(number):
            self.pending.append((~i, self._free()))
        self.ring = count, [place for _, place in self.pending]
        self.pending = []
        return self.behind(count), self.ring[1]

    def moved(self, count):
        """A run has computed the last of `count` tokens: the state has moved on."""
        first, places = self.ring
        if count - 1 not in self.kept:
            self.places.pop(count - 1, None)
        self.places[count] = places[(count - first - 1) % len(places)]

    def place_of(self, node):
        """A place for the state behind a node of a tree."""
        self.branches[node] = place = self._free()
        return place

    def _free(self):
        """A place that nothing lies in; a state of the timeline goes where there is none left."""
        used = {*self.places.values(), *self.branches.values(), *(place for _, place in self.pending)}
        for place in range(PLACES):
            if place not in used:
                return place
        if not self.kept:
            expected, remedy = f"at most {PLACES - KEPT} states at a time", "score the candidates in several requests"
            raise InvalidInputError("the candidates branch too often", expected, remedy=remedy)
        return self.places.pop(self.kept.pop(0))


class Branches:
    """Strands of a candidate tree: the state behind a node that branches stays until its last child begins.

    The child with fewest rows below it comes first, so that at most log2(rows) nodes wait at a time."""

    def __init__(self, snapshots, tree):
        self.snapshots, self.tree = snapshots, tree
        self.waiting = {}  # node whose state is kept -> strands that will begin there
        self.passing = set()  # those of them that stay from one batch to the next only
        self.strands, self.open = [], None  # of the batch at hand; the last node of its last strand, while nothing keeps its state
        self.root = -1

    def begin(self, batch, stops):
        """The batch's rows so far are the prompt's."""
        batch.strands = self.strands = self.snapshots.strands(batch.first_slot, batch.plain, stops)
        self.root = self.snapshots.pending[-1][1]

    def inner(self, node):
        """How many children of a node have rows."""
        return len([child for child in self.tree.children[node] if self.tree.children[child]])

    def add(self, row, node, again):
        """A row of the batch is that of a node; `again`: of one that was evaluated before and changes its slot only."""
        parent, kept = self.tree.parents[node], self.snapshots.branches
        if self.open == parent and (again or parent not in kept):
            first, count, source, destination = self.strands[-1]
            self.strands[-1] = (first, count + 1, source, destination)
        else:
            self.strands.append((row, 1, self._source(parent, again), -1))
        self.open = node
        if not again and self.inner(node) > 1:
            self._keep(node, self.inner(node))

    def finish(self):
        """The batch ends here; what its last node leads to comes in the next."""
        if self.open is not None and self.inner(self.open) and self.open not in self.snapshots.branches:
            self.passing.add(self.open)
            self._keep(self.open, 1)
        self.strands, self.open = [], None

    def _keep(self, node, strands):
        self.waiting[node] = strands
        first, count, source, _ = self.strands[-1]
        self.strands[-1] = (first, count, source, self.snapshots.place_of(node))
        self.open = None

    def _source(self, parent, again):
        if not parent:
            return self.root
        place = self.snapshots.branches[parent]
        if not again or parent in self.passing:
            self.waiting[parent] -= 1
            if not self.waiting[parent]:  # its place may even be where the strand leaves its own state
                del self.snapshots.branches[parent]
                self.passing.discard(parent)
        return place
