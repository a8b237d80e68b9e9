"""The states that reading a grammar can be in, made when they are met, with their table of transitions in native memory.

A state is the set of places in the network where the text so far can have led: (node, frame), a frame being what follows the
end of the rule or of the repetition that the node lies in. Owns the table that kernels/host/constrain.py reads.

Nothing here can fail or run away: of more than WIDTH places those nearest to their end are kept, so that the worst a pattern
can do is to lose some of its texts, never the way to an end. Called by guide.
"""

from _heapq import heappop, heappush

from .. import native
from ..errors import InternalError
from .grammar import BYTES, CALL, DEEPEST, END, LOOP, NEVER, RARE, SPLIT

DEAD, UNKNOWN = -1, -2
WIDTH = 512  # places of a state
STEPS = 8192  # places looked at for one state before the nearest are preferred
ROOM = 1 << 17  # states in the table; pages of it cost memory once touched
FULL = 1 << 15  # states after which the table is emptied, between tokens
NEAR = 16  # bytes: most words are no longer
FEW, IMPOSSIBLE = 1 << 28, 1 << 29  # RARE and IMPOSSIBLE of kernels/host/constrain.py
ROW = 1024  # bytes of a table's row


class Frame:
    """What follows the end of a body: the rest of a rule (`count` -1), or further rounds of a loop (`count` rounds done)."""

    __slots__ = ("cost", "count", "depth", "far", "node", "outline", "parent")

    def __init__(self, node, count, parent, cost, depth, far, outline):
        self.node = node
        self.count = count
        self.parent = parent
        self.cost = cost  # bytes from the end of the body to the end of everything
        self.depth = depth  # rules around
        self.far = far  # whether this or a frame around it is a loop that NEAR rounds cannot fill
        self.outline = outline  # a number that frames share which differ only in how far they are


class States:
    """Numbered states; 0 is the first. `costs[s]` in native memory is the number of bytes to the nearest end."""

    def __init__(self, grammar):
        self.grammar = grammar
        self.maps = [native.alloc(size, "constraint states") for size in (ROW * ROOM, 4 * ROOM, 4 * ROOM)]
        self.table, self.costs_at, self.exact_at = (mapping.address for mapping in self.maps)
        self.rows = native.view(self.table, ROW * ROOM)
        self.cells = self.rows.cast("i")
        self.costs = native.view(self.costs_at, ROOM, "i")
        self.exact = native.view(self.exact_at, ROOM, "i")
        self.work = 0  # places looked at, ever
        self.lost = False  # whether a state had to leave places out
        self.epoch = 0
        self.restart()

    def restart(self):
        """Forget all states but the first; a state that is still needed is made again by `revive`."""
        self.epoch += 1
        self.lost = False
        self.places = []  # per state: ((node, frame), ...)
        self.ends = []  # whether the text may end here
        self.goes_on = []  # whether anything may follow
        self._numbers = {}
        self._frames = {}
        self._outlines = {}
        self._next = {}
        self.start = self._state(self._closed([(self.grammar.start, None)]))

    def revive(self, places):
        """The number of a state of another epoch, by its places."""
        return self._state(tuple((node, self._again(frame)) for node, frame in places))

    def _again(self, frame):
        return frame and self._frame(frame.node, frame.count, self._again(frame.parent))

    # ---- places ----

    def _frame(self, node, count, parent):
        """The one frame of these values, or None where its rest cannot be."""
        key = node, count, id(parent)
        if key in self._frames:
            return self._frames[key]
        grammar = self.grammar
        costs, heights = grammar.costs, grammar.heights
        after, depth = (parent.cost, parent.depth) if parent else (0, 0)
        if count < 0:
            cost, height, inner = costs[node] + after, heights[node], depth + 1
        else:
            body, again, least, most, behind = grammar.data[node]
            left = max(0, least - count - 1) if costs[body] else 0
            cost = (left * costs[again] if left else 0) + costs[behind] + after
            height, inner = max(heights[again] if left else 0, heights[behind]), depth
        found = None
        if cost < NEVER and depth + height <= DEEPEST:
            far = count >= 0 and not left and most is not None and most - count > NEAR + 2
            name = node, -2 if far else count, parent.outline if parent else 0
            outline = self._outlines.setdefault(name, len(self._outlines) + 1)
            found = Frame(node, count, parent, cost, inner, far or (parent is not None and parent.far), outline)
        self._frames[key] = found
        return found

    def _expanded(self, node, frame, fresh):
        """Where a place leads without a byte; None for a place that waits for one or is the end of all.

        `fresh`: nothing was read since the body of a loop began, so that its end here would be an empty round."""
        kind, data = self.grammar.kind[node], self.grammar.data[node]
        if kind == BYTES:
            return None
        if kind == SPLIT:
            return [(target, frame, fresh) for target in data]
        if kind == CALL:
            inner = self._frame(data[1], -1, frame)
            return [(self.grammar.rules[data[0]], inner, fresh)] if inner else []
        if kind == LOOP:
            body, _, least, most, after = data
            found = [] if least and self.grammar.costs[body] else [(after, frame, fresh)]
            inner = self._frame(node, 0, frame) if most != 0 else None
            return [*found, (body, inner, True)] if inner else found
        if frame is None:
            return None
        if frame.count < 0:
            return [(frame.node, frame.parent, fresh)]
        return [] if fresh else self._round(frame)

    def _round(self, frame):
        """The places after one more round of a loop."""
        body, again, least, most, after = self.grammar.data[frame.node]
        least = least if self.grammar.costs[body] else 0
        done = frame.count + 1
        found = [(after, frame.parent, False)] if done >= least else []
        if most is None or done < most:
            inner = self._frame(frame.node, min(done, least) if most is None else done, frame.parent)
            if inner:
                found.append((again, inner, True))
        return found

    def cost(self, node, frame):
        return self.grammar.costs[node] + (frame.cost if frame else 0)

    def _alive(self, node, frame):
        return self.cost(node, frame) < NEVER and (frame.depth if frame else 0) + self.grammar.heights[node] <= DEEPEST

    def _closed(self, seeds):
        """The waiting places that `seeds` lead to."""
        found, seen = {}, set()
        pending = [(node, frame, False) for node, frame in reversed(seeds)]
        while pending:
            place = pending.pop()
            if place in seen or not self._alive(place[0], place[1]):
                continue
            seen.add(place)
            if len(seen) > STEPS:
                found = self._nearest(seeds)
                break
            further = self._expanded(*place)
            if further is None:
                found[place[:2]] = None
            else:
                pending += reversed(further)
        self.work += len(seen)
        if len(found) > WIDTH:
            self.lost = True
            return tuple(sorted(found, key=lambda place: self.cost(*place))[:WIDTH])
        return tuple(found)

    def _nearest(self, seeds):
        """As _closed, the cheapest places first, as many as a state may have."""
        self.lost = True
        found, seen, heap = {}, set(), []
        for node, frame in seeds:
            heappush(heap, (self.cost(node, frame), len(heap), (node, frame, False)))
        count = len(heap)
        while heap and len(found) < WIDTH and len(seen) < STEPS:
            place = heappop(heap)[2]
            if place in seen or not self._alive(place[0], place[1]):
                continue
            seen.add(place)
            further = self._expanded(*place)
            if further is None:
                found[place[:2]] = None
                continue
            for item in further:
                count += 1
                heappush(heap, (self.cost(item[0], item[1]), count, item))
        return found

    # ---- states ----

    def _state(self, places):
        """The number of a set of places."""
        key = frozenset(places)
        number = self._numbers.get(key)
        if number is not None:
            return number
        number = self._numbers[key] = len(self.places)
        if number == ROOM:
            raise InternalError("a constraint has more states than there is room for", f"at most {ROOM}")
        self.places.append(places)
        row, end = bytearray(b"\xff" * ROW), False
        for node, _ in places:
            if self.grammar.kind[node] == END:
                end = True
                continue
            for first, last, _ in self.grammar.data[node]:
                row[4 * first : 4 * last + 4] = UNKNOWN.to_bytes(4, "little", signed=True) * (last - first + 1)
        self.ends.append(end)
        self.goes_on.append(len(places) > end)
        self.rows[ROW * number : ROW * number + ROW] = row
        self.costs[number] = self._short(self.distance(number))
        self.exact[number] = UNKNOWN
        return number

    def outline(self, state):
        """What states share that allow the same words of up to NEAR bytes; None for a state that is alone."""
        places = self.places[state]
        if not any(frame and frame.far for _, frame in places):
            return None
        return frozenset((node, frame.outline if frame else 0) for node, frame in places)

    def distance(self, state):
        """Bytes to the nearest end, each RARE where no token spells it alone."""
        return min((self.cost(*place) for place in self.places[state]), default=NEVER)

    @staticmethod
    def _short(cost):
        """A cost as the kernel reads it."""
        if cost == NEVER:
            return IMPOSSIBLE
        size = cost // RARE + cost % RARE
        return IMPOSSIBLE if size >= FEW else FEW + size if cost >= RARE else size

    def step(self, state, byte):
        """The state after one more byte, or DEAD; fills in the table for all bytes that lead there for the same reasons."""
        known = self.cells[256 * state + byte]
        if known >= DEAD:
            return known
        low, high, seeds = 0, 255, {}
        for node, frame in self.places[state]:
            for first, last, target in self.grammar.data[node] or ():
                if byte > last:
                    low = max(low, last + 1)
                elif byte < first:
                    high = min(high, first - 1)
                    break
                else:
                    low, high = max(low, first), min(high, last)
                    seeds[target, frame] = None
                    break
        self.work += len(self.places[state])
        places = self._closed(list(seeds))
        found = self._state(places) if places else DEAD
        at = ROW * state
        self.rows[at + 4 * low : at + 4 * high + 4] = found.to_bytes(4, "little", signed=True) * (high - low + 1)
        return found

    def nearest(self, state):
        """(byte, state after it) on the shortest way to the end, which `state` must not be."""
        found = self._next.get(state)
        if found is None:
            grammar = self.grammar
            node = min(self.places[state], key=lambda place: self.cost(*place))[0]
            ways = ((grammar.edge_cost(a, z) + grammar.costs[t], grammar.heights[t], a, z) for a, z, t in grammar.data[node])
            first, last = min(ways)[2:]
            byte = grammar.edge_byte(first, last)
            found = self._next[state] = byte, self.step(state, byte)
        return found

    def close(self):
        self.rows = self.cells = self.costs = self.exact = None
        for mapping in self.maps:
            mapping.free()
        self.maps = []
