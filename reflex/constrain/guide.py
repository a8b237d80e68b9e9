"""Keeps a generation inside a grammar: which tokens may come next, and the draw among them.

A token is allowed where the text with it can still be completed within the tokens that are left, so a result is always complete
and valid. How many tokens the rest takes is known exactly for the shortest way of every state (the fewest bytes, spelled by the
fewest tokens); a grammar whose shortest text does not fit is refused before any work. Called by generate through `begin`.

The order of sampling is that of sample.py with one step more: the repeat penalty on the logits, then only the allowed tokens are
left, then top-k, top-p, min-p and the temperature among them.
"""

from _ctypes import addressof

from .. import native
from ..errors import InvalidInputError
from ..sample import uniform
from .grammar import NEVER, RARE
from .states import DEAD, FEW, FULL, IMPOSSIBLE, NEAR, ROOM, UNKNOWN, States
from .words import Words

TABLE, COSTS, EXACT, TEXT, ENTRIES, FIRST, PENDING, MISSING, INEXACT = range(9)  # int64 of kernels/host/constrain.py
MISSING_COUNT, INEXACT_COUNT, PAIRS, MOST, LONGEST, FROM, TO, FIELDS = range(10, 18)
LISTED = 1 << 16  # questions of a round
ALL = 1 << 40  # bytes that no word has
FREE = 1 << 20  # a number of tokens that limits nothing
WORK = 50_000  # places looked at for one token, the shortest way aside, before the rest of the vocabulary is left out
FRESH = 8192  # the same for states
UNSPELLED = "the tokens of this model cannot spell a text that satisfies the constraint"
MASKS = 1024  # sets of allowed tokens kept


class Constraint:
    """A grammar bound to a vocabulary: `size` logits. Its states and masks are kept from one generation to the next."""

    def __init__(self, grammar, tokenizer, size):
        self.library = native.library()
        self.masks = {}  # state -> (Mapping, most tokens that any of its tokens needs)
        self._short = {}  # outline of states -> (mask of the words up to NEAR bytes, most tokens that any of them needs)
        self._owned = []  # what gives back memory
        self.size = size
        self.tokenizer = tokenizer
        self.ends = sorted(token for token in tokenizer.eog if token < size)
        self.words = words = Words(tokenizer, size)
        self._owned.append(words.close)
        grammar.settle(words.single, words.inner)
        self.states = states = States(grammar)
        self._owned.append(states.close)
        self.mask_bytes = 8 * ((size + 63) // 64)
        sizes = self.mask_bytes, 12 * words.count, 8 * LISTED, 4 * LISTED, (4 + 8 + 16) * size + 64
        blocks = [native.alloc(number, "allowed tokens") for number in sizes]
        self._owned += [block.free for block in blocks]
        self._scratch, self._waiting, self._missing, self._inexact, self.gathered = blocks
        fields = (states.table, states.costs_at, states.exact_at, words.text, words.entries, words.first)
        fields += (self._waiting.address, self._missing.address, self._inexact.address, 0, 0, 0, LISTED, 0, words.longest, 0, ALL)
        self._context = (native.Int64 * FIELDS)(*fields)
        self._fields = native.view(native.address_of(self._context), FIELDS, "q")
        if states.distance(states.start) == NEVER:
            raise self._empty(grammar)

    @staticmethod
    def _empty(grammar):
        """Why there is no text at all, as an error."""
        grammar.settle([True] * 256, [True] * 256)
        if grammar.costs[grammar.start] == NEVER:
            return InvalidInputError("no text satisfies the constraint", remedy="look for bounds that contradict each other")
        return InvalidInputError(UNSPELLED)

    def begin(self, session, most, stops=()):
        """A Walk of at most `most` tokens; refused where no result fits them, or where a stop text could cut one."""
        if session.tokenizer is not self.tokenizer:
            raise InvalidInputError("this constraint was made for another model", remedy="make one with this model")
        if stops:
            remedy = "leave the stop texts out: a constrained text ends by itself"
            raise InvalidInputError("a stop text could cut a constrained result", "no stop texts", repr(stops[0]), remedy=remedy)
        if self.states.lost or len(self.states.places) > FULL:
            self._restart()
        cost = self.states.distance(self.states.start)
        if cost > most:
            least = -(-cost // self.words.longest) if cost < RARE else 1
            if least <= most:
                least = self.need(self.states.start)
            if least >= IMPOSSIBLE:
                raise InvalidInputError(UNSPELLED)
            if least > most:
                remedy = f"allow at least {least} tokens (--max-tokens)"
                raise InvalidInputError("no result of the constraint fits", f"at least {least} tokens", most, remedy=remedy)
        return Walk(self, most)

    def _restart(self):
        """Forget what was worked out."""
        for mapping, _ in self.masks.values():
            mapping.free()
        self.masks.clear()
        self._short.clear()
        self.states.restart()

    # ---- lengths ----

    def need(self, state):
        """Tokens that the shortest way from `state` to the end takes; IMPOSSIBLE where no tokens spell it."""
        states = self.states
        known = states.exact[state]
        if known >= 0:
            return known
        cost = states.costs[state]
        if cost >= IMPOSSIBLE or cost % FEW >= ROOM - 64:  # its bytes: more states than there is room for, so nothing is walked
            states.exact[state] = IMPOSSIBLE
            return IMPOSSIBLE
        chain, text = [state], bytearray()
        room = ROOM - 64 - len(states.places)
        while states.costs[chain[-1]] and states.exact[chain[-1]] < 0 and len(text) < room:
            self._extend(chain, text)
        fresh, reach = len(text), len(text) + self.words.longest
        while states.costs[chain[-1]] and len(text) < min(reach, room):
            self._extend(chain, text)
        found = [states.exact[place] if states.costs[place] else 0 for place in chain]
        if fresh == room:
            found = [IMPOSSIBLE] * len(chain)
        elif fresh:
            block = native.alloc(5 * len(chain), "the shortest way")
            source = block.address + 4 * len(chain)
            native.view(source, len(text))[:] = text
            counts = native.view(block.address, len(chain), "i")
            for place in range(fresh, len(chain)):
                counts[place] = found[place]
            self.library.constrain_cover(native.address_of(self._context), source, fresh, len(text), block.address)
            found = counts.tolist()
            block.free()
        for place, count in zip(chain, found, strict=True):
            states.exact[place] = count
        return found[0]

    def _extend(self, chain, text):
        byte, after = self.states.nearest(chain[-1])
        text.append(byte)
        chain.append(after)

    # ---- allowed tokens ----

    def mask(self, state, limit):
        """Address of the bits of the tokens after which the text can end within `limit` more tokens; with the ends where it may."""
        found = self.masks.get(state)
        if found is None:
            if len(self.masks) == MASKS:
                self.masks.pop(next(iter(self.masks)))[0].free()
            mapping = native.alloc(self.mask_bytes, "allowed tokens")
            found = self.masks[state] = mapping, self._free(state, mapping.address)
        if limit >= found[1]:
            return found[0].address
        self._fill(state, limit, self._scratch.address)
        return self._scratch.address

    def _free(self, state, address):
        """Work out a mask without a limit; most of it may be known from a state that differs in a number of repetitions only."""
        outline = self.states.outline(state)
        if outline is None:
            return self._fill(state, FREE, address)
        bits = native.view(address, self.mask_bytes)
        if outline not in self._short:
            self._fields[TO] = NEAR
            most = self._fill(state, FREE, address)
            self._fields[TO] = ALL
            if len(self._short) == MASKS:
                self._short.clear()
            self._short[outline] = bytes(bits), most
        short, most = self._short[outline]
        self._fields[FROM] = NEAR + 1
        most = max(most, self._fill(state, FREE, address))
        self._fields[FROM] = 0
        both = int.from_bytes(bits, "little") | int.from_bytes(short, "little")
        bits[:] = both.to_bytes(self.mask_bytes, "little")
        return most

    def _fill(self, state, limit, address):
        """Work out a mask; returns the most tokens that the rest takes after any of its tokens."""
        states, context, library = self.states, native.address_of(self._context), self.library
        bits = native.view(address, self.mask_bytes)
        bits[:] = bytes(self.mask_bytes)
        work, count = states.work + WORK, len(states.places) + FRESH
        waiting = library.constrain_begin(context, state, limit, address)
        while waiting and self._answer(work, count):
            waiting = library.constrain_resume(context, limit, address)
        if waiting:
            states.lost = True
            self._keep_nearest(state, limit, bits)
        if states.ends[state]:
            for token in self.ends:
                bits[token >> 3] |= 1 << (token & 7)
        return self._fields[MOST]

    def _answer(self, work, count):
        """Fill in what a round of walks found missing; False where that would be too much."""
        states, cells = self.states, self.states.cells
        pairs = native.view(self._missing.address, 2 * self._fields[MISSING_COUNT], "I").tolist()
        for state, byte in zip(pairs[::2], pairs[1::2], strict=True):
            if states.work < work and len(states.places) < count:
                states.step(state, byte)
            elif cells[256 * state + byte] < DEAD:
                cells[256 * state + byte] = UNKNOWN
        for state in native.view(self._inexact.address, self._fields[INEXACT_COUNT], "I").tolist():
            states.exact[state] = UNKNOWN
            if states.work < work:
                self.need(state)
        return states.work < work and len(states.places) < count

    def _keep_nearest(self, state, limit, bits):
        """Make sure of the token that begins the shortest way, whatever was left out."""
        text, after = b"", state
        self.need(state)
        while self.states.costs[after] and len(text) < self.words.longest:
            byte, after = self.states.nearest(after)
            text += bytes((byte,))
            if self.need(after) == self.need(state) - 1 and self.need(after) <= limit:
                token = self._token(text)
                if token is not None:
                    bits[token >> 3] |= 1 << (token & 7)
                    return

    def _token(self, text):
        """The first token that stands for exactly these bytes, or None."""
        first = native.view(self.words.first, 257, "I")
        entries = native.view(self.words.entries, 3 * self.words.count, "I")
        for entry in range(first[text[0]], first[text[0] + 1]):
            begin, end = entries[3 * entry + 1], entries[3 * entry + 2]
            if end - begin == len(text) and native.bytes_at(self.words.text + begin, end - begin) == text:
                return entries[3 * entry]
        return None

    def close(self):
        """Give back the memory; also done when the last Walk and everything else has let go."""
        for mapping, _ in self.masks.values():
            mapping.free()
        self.masks.clear()
        while self._owned:
            self._owned.pop()()

    __del__ = close


class Walk:
    """One text on its way through a Constraint. `finished`: it is complete, and nothing may follow."""

    def __init__(self, constraint, most):
        self.constraint = constraint
        self.left = most  # tokens
        self._arrive(constraint.states.start)

    def _arrive(self, state):
        owner, states = self.constraint, self.constraint.states
        self._state, self._epoch, self._places = state, states.epoch, states.places[state]
        self.finished = states.ends[state] and not states.goes_on[state]
        if states.ends[state] and not self.finished and self.left and not owner.ends:
            self.finished = not any(native.view(owner.mask(state, self.left - 1), owner.mask_bytes))

    @property
    def state(self):
        """The number of the state, also after another walk had all states forgotten."""
        states = self.constraint.states
        if self._epoch != states.epoch:
            self._state, self._epoch = states.revive(self._places), states.epoch
        return self._state

    def pick(self, logits, sampling, count):
        """The id of draw number `count` among the allowed tokens of a row of logits; -1 where the logits are no numbers."""
        owner = self.constraint
        library, size = owner.library, owner.size
        values = owner.gathered.address
        ids, heap = values + 4 * size, values + 12 * size
        ids = (ids + 7) & -8
        mask = owner.mask(self.state, self.left - 1)
        row = addressof(native.UInt8.from_buffer(logits))
        number = library.constrain_gather(row, mask, size, values, ids)
        if number <= 0:
            return -1
        if sampling.temperature == 0:
            chosen = library.argmax(values, number)
        else:
            random = uniform(sampling.seed, count)
            bits = (native.Double * 5)(sampling.temperature, sampling.top_p, sampling.min_p, random, 0.0)
            chosen = library.sample(values, number, sampling.top_k or 0, native.address_of(bits), (heap + 15) & -8)
        return native.view(ids + 8 * chosen, 1, "q")[0]

    def accept(self, token):
        """The text goes on with `token`."""
        owner, states, state = self.constraint, self.constraint.states, self.state
        for byte in owner.tokenizer.piece(token, False):
            state = states.step(state, byte)
        self.left -= 1
        self._arrive(state)
        if len(states.places) > FULL:
            owner._restart()
