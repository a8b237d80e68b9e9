"""One timeline of tokens over a Plan: what the cache holds, what can be reused, what fits.

Owns the mapping of tokens to cache slots: the token at position p of a timeline lies in slot p, and candidate branches lie
behind it. Refuses, before any work, anything longer than the context. Called by score, generate, check and api.

What recurrent layers remember is kept at few places of a timeline (snapshots.py); `start` says where computing can begin.

A fork is a second timeline over the same cache: both keep their own list of tokens, and whichever is used next reuses the
longest prefix that the cache still holds and computes the rest.
"""

from .errors import ContextOverflowError, InvalidInputError, StateError
from .native import raise_failed
from .program.records import BATCH

EARLY = 1 << 20  # bytes of a text that is tokenized without asking whether the context can hold it


class Batch:
    """Arguments of one `Plan.evaluate`; row i is one token. See the backends for the meaning of each list."""

    __slots__ = ("branch", "first_slot", "ids", "outputs", "plain", "positions", "runs", "shared", "steady", "stops", "strands")

    def __init__(self, first_slot, steady=False):
        self.first_slot = first_slot  # cache slot of row 0
        self.steady = steady  # a row's result, to the bit, is not to depend on how many rows there are
        self.ids = []  # [rows]
        self.positions = []  # [rows] rope position
        self.shared = []  # [rows] attends to slots [0, shared)
        self.runs = []  # [rows] to the slots of these pairs (first, end)
        self.branch = []  # [rows] and to slots [branch, own slot]
        self.outputs = []  # rows whose logits are wanted, ascending
        self.plain = 0  # leading rows that continue the timeline itself
        self.stops = ()  # numbers of tokens behind which recurrent layers keep their state
        self.strands = None  # (first row, count, source, destination) of each run of rows; None: of plain rows, not known yet

    def add(self, token, position, shared, branch, runs=()):
        """Append one token; returns its row."""
        self.ids.append(token)
        self.positions.append(position)
        self.shared.append(shared)
        self.branch.append(branch)
        self.runs.append(runs)
        return len(self.ids) - 1

    def add_plain(self, tokens):
        """Append tokens of the timeline itself, at the position that equals their slot."""
        rows = len(tokens)
        start = self.first_slot + len(self.ids)
        self.ids += tokens
        self.positions += range(start, start + rows)
        self.shared += [0] * rows
        self.branch += [0] * rows
        self.runs += [()] * rows
        self.plain += rows

    def want(self, row):
        """Ask for the logits of `row`; returns their index among the outputs of this batch."""
        if not self.outputs or self.outputs[-1] != row:
            self.outputs.append(row)
        return len(self.outputs) - 1


class _Slots:
    """The tokens whose keys and values the cache holds, slot by slot; shared by a session and its forks."""

    __slots__ = ("ids", "snapshots", "steady", "turn", "watch")

    def __init__(self, recurrent):
        self.ids = []
        self.snapshots = None  # of a plan with recurrent layers
        if recurrent:
            from .snapshots import Snapshots

            self.snapshots = Snapshots()
        self.watch = None  # called before every batch
        self.steady = 0  # leading slots that steady batches have filled
        self.turn = 0  # grows with every use of the plan

    def cut(self, count):
        """Forget what lies in slot `count` and behind."""
        del self.ids[count:]
        self.steady = min(self.steady, count)
        if self.snapshots:
            self.snapshots.cut(count)


class Session:
    """One timeline. `ids`: its tokens so far. Create it over a plan; copy it with `fork`."""

    __slots__ = ("_encoded", "_slots", "_turn", "backend", "ids", "longest", "model", "plan", "tokenizer")

    def __init__(self, plan, tokenizer, model="", backend="", longest=None, encoded=None):
        self.plan = plan
        self.tokenizer = tokenizer
        self.model = model  # path of the file, for results
        self.backend = backend  # name of the backend, for results
        self.longest = plan.context if longest is None else longest  # tokens the model was trained for, for remedies
        self.ids = []
        self._slots = _Slots(getattr(plan, "places", 0))
        self._turn = 0  # of the backend's own run of tokens that this timeline began last, see `follow`
        self._encoded = encoded  # (text, ids) of a text encoded before, or None

    @property
    def context(self):
        """The most tokens a timeline can hold."""
        return self.plan.context

    def encode(self, text):
        """Token ids of a `text` that starts a timeline: a begin token where the file asks for one, never an end token. A list
        of token ids is taken as it is."""
        if isinstance(text, (list, tuple)):
            return checked_ids(text, self.plan.vocabulary)
        if self._encoded and self._encoded[0] == text:
            return list(self._encoded[1])
        self._may_fit(text)
        return prompt_ids(self.tokenizer, text)

    def continued(self, text):
        """Token ids of a `text` that comes behind tokens which stay as they are."""
        self._may_fit(text)
        return self.tokenizer.encode(raw(text), add_special=False, starts=False)

    def extended(self, prompt, text):
        """Token ids of `prompt` and the `text` behind it: as one text, or behind the tokens where `prompt` is a list of ids."""
        if isinstance(prompt, (list, tuple)):
            return [*prompt, *self.continued(text)]
        return self.encode(prompt + text)

    def _may_fit(self, text):
        """Refuse a text whose tokens exceed the context however long they are: tokenizing may take 54 bytes for each of its."""
        size = len(text) if hasattr(text, "__len__") else 0
        if size > EARLY:
            longest = self.tokenizer.longest()
            if longest and size > longest * self.context:
                expected, found = f"at most {self.context} tokens", f"{size} bytes, at least {-(-size // longest)} tokens"
                raise ContextOverflowError("the text does not fit the context", expected, found, remedy="shorten the prompt")

    def reserve(self, prompt, wanted):
        """Refuse a timeline of `prompt` + `wanted` tokens that the context cannot hold; nothing has been computed yet."""
        limit = self.plan.context
        if prompt + wanted > limit:
            found = f"{prompt} prompt + {wanted} wanted = {prompt + wanted} tokens"
            remedy = "shorten the prompt or ask for less"
            if self.longest > limit:
                remedy += f", or raise --ctx (this model allows {self.longest})"
            raise ContextOverflowError("the text does not fit the context", f"at most {limit} tokens", found, remedy=remedy)

    def held(self, ids, steady=False):
        """How many leading tokens of `ids` the cache holds; `steady`: as steady batches leave them."""
        have = self._slots.ids
        most = min(self._slots.steady if steady else len(have), len(ids))
        if have[:most] == ids[:most]:
            return most
        count = 0
        while count < most and have[count] == ids[count]:
            count += 1
        return count

    def start(self, ids, steady=False):
        """Where computing `ids` can begin: at most at the last of them, and where recurrent layers have their state."""
        held = min(self.held(ids, steady), len(ids) - 1)
        return self._slots.snapshots.start(held) if self._slots.snapshots else held

    @property
    def snapshots(self):
        """The Snapshots of a plan with recurrent layers, else None."""
        return self._slots.snapshots

    def forget(self):
        """Something else is about to use the plan: what the cache holds is not known any more."""
        if getattr(self.plan, "arriving", None):
            self.plan.arriving.drop()
        self._slots.cut(0)
        self._slots.turn += 1

    def evaluate(self, batch):
        """Run one batch; the record of what the cache holds stays true even when the run is interrupted."""
        have = self._slots.ids
        if self._slots.watch:
            self._slots.watch()
        if batch.plain and batch.first_slot > len(have):
            raise StateError("a batch starts behind the tokens held", f"slot {len(have)} at most", f"slot {batch.first_slot}")
        self._slots.cut(batch.first_slot)
        self._slots.turn += 1
        arriving = getattr(self.plan, "arriving", None)
        try:
            self._compute(batch)
            raise_failed()
        except BaseException:
            if arriving:  # it may be that the cache lacks what was adopted
                self.forget()
            raise
        if self._slots.steady == len(have) and (batch.steady or self.plan.steady):
            self._slots.steady += batch.plain
        have += batch.ids[: batch.plain]

    def _compute(self, b):
        runs, states = b.runs if any(b.runs) else (), self._slots.snapshots
        if states is None:
            self.plan.evaluate(b.ids, b.first_slot, b.positions, b.shared, b.branch, b.outputs, runs, b.steady)
            return
        if b.strands is None:
            b.strands = states.strands(b.first_slot, b.plain, b.stops)
        self.plan.evaluate(b.ids, b.first_slot, b.positions, b.shared, b.branch, b.outputs, runs, b.steady, b.strands)
        states.done()

    def sync(self, ids):
        """Make `ids` this timeline; computes what the cache lacks, and always the last token, whose logits are then row 0.

        Returns the number of tokens reused. Raises ContextOverflowError before any work."""
        if not ids:
            raise InvalidInputError("a timeline needs at least one token", "1 token", "0 tokens")
        self.reserve(len(ids), 0)
        reused = start = self.start(ids)
        stops = [stop for stop in (self.held(ids), len(ids) - 1) if stop > start]
        while start < len(ids):
            batch = Batch(start)
            batch.stops = stops
            batch.add_plain(ids[start : start + BATCH])
            start += len(batch.ids)
            if start == len(ids):
                batch.want(len(batch.ids) - 1)
            self.evaluate(batch)
        self.ids = list(ids)
        return reused

    def settle(self, ids):
        """Make `ids` this timeline, by steady batches alone, so that a score may build on any beginning of it. Recurrent
        layers keep their state behind all but the last."""
        self.reserve(len(ids), 0)
        start, before = self.held(ids, steady=True), len(ids) - 1
        if self.snapshots and (start < len(ids) or not self.snapshots.has(before)):
            start = self.start(ids, steady=True)
        while start < len(ids):
            batch = Batch(start, steady=True)
            batch.stops = (before,)
            batch.add_plain(ids[start : start + BATCH])
            start += len(batch.ids)
            self.evaluate(batch)
        self.ids = list(ids)

    def adopt(self, ids, behind=0):
        """The cache holds `ids` now, which something else than `evaluate` put there, as steady batches leave them, and place 0 of
        recurrent layers the state behind the first `behind`. Slots may still be on their way: see `landed`."""
        self._slots.cut(0)
        self._slots.turn += 1
        if behind:
            self.snapshots.adopt(behind, 0)
        self._slots.ids += ids
        self._slots.steady = len(ids)
        self.ids = list(ids)

    def landed(self):
        """Wait until the cache holds all of what was adopted. What raises leaves nothing of it."""
        if getattr(self.plan, "arriving", None):
            try:
                self.plan.arriving.land()
            except BaseException:
                self.forget()
                raise

    def append(self, token):
        """Extend the timeline by one token; its logits are then row 0."""
        self.sync([*self.ids, token])

    def follow(self, token, sampling, draws, ends, most):
        """An iterator of (id, log-probability) of the tokens after `token`, the next of this timeline, which the backend makes
        by itself; None where it cannot. Whatever is taken from it must be told to `accept`, `token` first."""
        start = getattr(self.plan, "follow", None)
        if start is None:
            return None
        self.landed()
        slots, states = self._slots, self.snapshots
        if self.held(self.ids) < len(self.ids) or (states and not states.has(len(self.ids))):
            self.sync(self.ids)  # another timeline has used the cache since
        del slots.ids[len(self.ids) :]  # the backend writes there before it is asked for tokens
        slots.turn += 1
        self._turn = slots.turn
        slot = len(self.ids)
        places = (lambda number: states.run(slot, number)) if states else None
        return start(token, slot, sampling, draws, [*self.ids, token], ends, most, places)

    @property
    def disturbed(self):
        """Whether the plan computed something else since `follow`, so that its run of tokens is worth nothing any more."""
        return self._turn != self._slots.turn

    def accept(self, token):
        """The backend has computed `token` as the next of this timeline (see `follow`)."""
        self._slots.cut(len(self.ids))
        self.ids.append(token)
        self._slots.ids.append(token)
        if self.snapshots:
            self.snapshots.moved(len(self.ids))

    def rewind(self, count):
        """Keep the first `count` tokens of the timeline; what the cache holds of them is reused later."""
        if not 0 <= count <= len(self.ids):
            raise StateError("cannot rewind to this length", f"0 to {len(self.ids)}", str(count))
        del self.ids[count:]

    def fork(self):
        """A second timeline that starts with the same tokens and shares the cache."""
        copy = Session(self.plan, self.tokenizer, self.model, self.backend, self.longest)
        copy.ids = list(self.ids)
        copy._slots = self._slots
        return copy

    def watch(self, call):
        """Have `call` called before every batch of all timelines that share this cache; what it raises ends the work there."""
        self._slots.watch = call

    def close(self):
        """Give back the memory of the plan; no fork may be used afterwards."""
        self._slots.ids.clear()
        self.plan.close()


def prompt_ids(tokenizer, text):
    """See Session.encode."""
    ids = list(tokenizer.encode(raw(text)))
    if tokenizer.add_eos and ids and ids[-1] == tokenizer.eos:
        del ids[-1]
    if not ids:
        remedy = "give at least one character: this model has no begin token to start from"
        raise InvalidInputError("the prompt is empty", "at least 1 token", "0 tokens", remedy=remedy)
    return ids


def checked_ids(ids, vocabulary):
    """Token ids as a list of int, refused where there is none or one that the model does not have."""
    if not ids:
        raise InvalidInputError("the prompt is empty", "at least 1 token", "0 tokens")
    if set(map(type, ids)) == {int} and min(ids) >= 0 and max(ids) < vocabulary:
        return list(ids)
    found = []
    for index, token in enumerate(ids):
        number = token.__index__() if hasattr(token, "__index__") else -1
        if not 0 <= number < vocabulary:
            expected, where = f"a whole number from 0 to {vocabulary - 1}", f"token {index}"
            raise InvalidInputError("this is no token of the model", expected, repr(token), where)
        found.append(number)
    return found


def raw(text):
    """UTF-8 bytes of `text`; bytes pass through, and undecodable bytes of an argument come out as they went in."""
    if isinstance(text, str):
        try:
            return text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            found = f"U+{ord(text[error.start]):04X} at character {error.start}"
            raise InvalidInputError("the text holds a lone surrogate", "Unicode text or bytes", found) from None
    if isinstance(text, (bytes, bytearray, memoryview)):
        return bytes(text)
    raise InvalidInputError("this is not text", "str or bytes", type(text).__name__)
