"""The forward pass of scoring: the prompt and the prefix tree of all candidates, packed so that no token is computed twice.

A row for every prompt token that the cache lacks (its last one always) and for every distinct inner node of the tree: the last
token of a candidate is only ever predicted. A row sees its own path and nothing else (ops/attention.py), so that a
log-probability depends neither on the other candidates, nor on their order, nor on what was cached.

Nodes are evaluated in the order of a walk that takes the child with most rows below it first. Its slot then follows its parent's,
and only other children begin a run of slots of their own: a path of n rows has at most log2(n) runs besides the latest. Owns the
slots behind the prompt. Called by score.

Recurrent layers cannot look back: their state behind a node that branches is kept until its last child begins (snapshots.py). For
them the child with fewest rows comes first, which keeps few states and makes more runs of slots.
"""

from math import isfinite

from .errors import InternalError
from .program.records import BATCH, RUN_WORDS
from .session import Batch

SPARE_WORDS = 64  # more than any path of runs takes


def evaluate(session, prefix, tails):
    """Log-probabilities of every token of every tail after `prefix`: list of lists of floats.

    One pass where all fits in BATCH rows and the context; the same numbers from several passes otherwise."""
    tree = Tree(tails)
    values = [0.0] * len(tree.tokens)
    for batch, reads in Packing(session, prefix, tree).batches():
        session.evaluate(batch)
        wanted = [tree.children[node] for _, node in reads]
        rows, ids = [row for row, _ in reads], [[tree.tokens[child] for child in children] for children in wanted]
        for children, found in zip(wanted, session.plan.logprobs_of_rows(rows, ids), strict=True):
            for child, value in zip(children, found, strict=True):
                if not isfinite(value):
                    raise InternalError(
                        "a log-probability is not finite", "a number at most 0", repr(value), tree.place(child), "reflex check"
                    )
                values[child] = value
    session.ids = list(prefix)
    return [[values[node] for node in path] for path in tree.paths]


class Tree:
    """The distinct beginnings of `tails`; node 0 is the last token of the prompt, a parent's number is lower than its child's."""

    __slots__ = ("children", "depths", "parents", "paths", "tokens")

    def __init__(self, tails):
        self.tokens, self.parents, self.depths, self.children = [-1], [-1], [0], [[]]
        self.paths = []  # per tail the node of each token
        known = {}
        for tail in tails:
            node, path = 0, []
            for token in tail:
                child = known.setdefault((node, token), len(self.tokens))
                if child == len(self.tokens):
                    self.children[node].append(child)
                    self.tokens.append(token)
                    self.parents.append(node)
                    self.depths.append(self.depths[node] + 1)
                    self.children.append([])
                path.append(child)
                node = child
            self.paths.append(path)

    def rows(self, fewest_first=False):
        """The inner nodes without the root, in the order of evaluation."""
        below = [1 if children else 0 for children in self.children]  # rows of the subtree
        for node in range(len(below) - 1, 0, -1):
            below[self.parents[node]] += below[node]
        order, waiting = [], [0]
        while waiting:
            node = waiting.pop()
            order.append(node)
            inner = [child for child in self.children[node] if self.children[child]]
            waiting += sorted(inner, key=below.__getitem__, reverse=fewest_first)
        return order[1:]

    def place(self, node):
        """Where in the tails a node comes first, for messages."""
        return next(f"candidate {i}, token {path.index(node)}" for i, path in enumerate(self.paths) if node in path)


class Packing:
    """Batches of a tree behind `prefix`, and where each row lies.

    Slots behind a node are free again as soon as the walk has left it. Where the context leaves no room for a whole batch,
    ancestors that do not lie close together are evaluated once more, directly behind the prompt: at most once each, so that
    the work stays linear."""

    def __init__(self, session, prefix, tree):
        self.session, self.prefix, self.tree = session, prefix, tree
        self.most = session.plan.most_outputs
        self.slots, self.branch = [0] * len(tree.tokens), [0] * len(tree.tokens)  # of the nodes evaluated
        self.runs = [()] * len(tree.tokens)
        self.words = 0  # of the lists of runs of this batch
        self.batch, self.reads = None, []
        self.branches = None  # of recurrent layers
        if session.snapshots:
            from .snapshots import Branches

            self.branches = Branches(session.snapshots, tree)

    def batches(self):
        """Yield (batch, reads): `reads` pairs an output with the node it belongs to, whose children it predicts."""
        length, depths = len(self.prefix), self.tree.depths
        start, held = self.session.start(self.prefix, steady=True), self.session.held(self.prefix, steady=True)
        while start < length:
            if self.batch:
                yield self._finish(start)
            self.batch = Batch(start, steady=True)
            self.batch.add_plain(self.prefix[start : start + BATCH])
            if self.branches:
                self.branches.begin(self.batch, (held, length - 1))
            start += len(self.batch.ids)
        self.reads.append((self.batch.want(len(self.batch.ids) - 1), 0))
        trail = []  # rows from the prompt to the parent of the node at hand
        for node in self.tree.rows(fewest_first=self.branches is not None):
            del trail[depths[node] - 1 :]
            if self._full() or self._winds(trail) or self._slot() == self.session.context:
                yield from self._make_room(trail)
            self.reads.append((self.batch.want(self._add(node)), node))
            trail.append(node)
        yield self._finish(0)

    def _make_room(self, trail):
        """End the batch; the next begins behind the parent, or with the ancestors that have to move."""
        length, context = len(self.prefix), self.session.context
        slot, close = self.slots[trail[-1]] + 1 if trail else length, len(trail)
        if slot + BATCH > context or self._winds(trail):
            close = next((k for k, other in enumerate(trail) if self.slots[other] != length + k), close)
            if self.branches:
                close = 0  # only behind the prompt is the state certain to be there
            slot = length + close
        yield self._finish(slot)
        for node in trail[close:]:
            self._add(node, again=True)
            if self._full():
                yield self._finish(self._slot())

    def _slot(self):
        return self.batch.first_slot + len(self.batch.ids)

    def _full(self):
        """Whether another row might not fit; the context is another matter."""
        batch = self.batch
        return len(batch.ids) == BATCH or len(batch.outputs) == self.most or self.words > RUN_WORDS - SPARE_WORDS

    def _winds(self, trail):
        """Whether the path to the next node has more runs of slots than a list of them should."""
        return bool(trail) and 2 * len(self.runs[trail[-1]]) + 3 > SPARE_WORDS

    def _finish(self, slot):
        """The batch so far; the next begins at `slot`."""
        if self.branches:
            self.branches.finish()
        finished = self.batch, self.reads
        self.batch, self.reads, self.words = Batch(slot, steady=True), [], 0
        if self.branches:
            self.batch.strands = self.branches.strands
        return finished

    def _add(self, node, again=False):
        """Append the row of a node; returns its number."""
        parent, slot, length = self.tree.parents[node], self._slot(), len(self.prefix)
        self.slots[node] = slot
        if parent and self.slots[parent] + 1 == slot:
            self.branch[node], self.runs[node] = self.branch[parent], self.runs[parent]
        else:
            self.branch[node] = slot
            self.runs[node] = (*self.runs[parent], (self.branch[parent], self.slots[parent] + 1)) if parent else ()
        runs = self.runs[node]
        if self.branches:
            self.branches.add(len(self.batch.ids), node, again)
        if runs and (not self.batch.runs or self.batch.runs[-1] is not runs):
            self.words += 1 + 2 * len(runs)
        return self.batch.add(self.tree.tokens[node], length + self.tree.depths[node] - 1, length, self.branch[node], runs)
