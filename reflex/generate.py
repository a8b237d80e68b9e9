"""Continues a text token by token: the loop, the stops, and which text may be shown already.

Owns the hold-back of text (partial UTF-8 by the tokenizer's stream, beginnings of stop strings here) and the reason for ending.
Refuses, before any work, a prompt and length that the context cannot hold. Called by the API and the command line.
"""

from .errors import InternalError, InvalidInputError
from .records import Record
from .sample import Sampling, penalize, restore, uniform, whole

DEFAULT_TOKENS = 256  # where the caller names no length: this many, or as many as the context holds
MOST_LIKELY = 20  # tokens that are named at each step, at most


class Token(Record):
    """One step of a generation."""

    index: int  # number of the token
    id: int | None  # None in a last event that only brings text which was held back
    text: str  # what may be shown now; may be empty
    bytes: bytes  # what the token itself stands for; may be a part of a character
    logprob: float | None  # natural logarithm of the model's own probability: no temperature, no filter, no penalty
    __slots__ = (*__annotations__,)


class Generated(Record):
    """A finished generation."""

    command: str
    model: str  # path of the file
    backend: str
    text: str  # ends before a stop string
    token_ids: tuple[int, ...]  # all that were computed, but the end token
    finish_reason: str  # stop, length or interrupt
    prompt_tokens: int
    logprobs: tuple[float, ...] | None  # one per token where they were asked for, see Token
    __slots__ = (*__annotations__,)

    def __str__(self):
        return self.text

    def to_dict(self):
        """Fields by name; log-probabilities only where they were asked for."""
        fields = super().to_dict()
        return fields if self.logprobs is not None else {name: value for name, value in fields.items() if name != "logprobs"}


class Generation:
    """An iterator of Token events. Afterwards, or after `interrupt()`, `finish_reason` is stop, length or interrupt.

    Attributes at any time: `text` (shown so far), `token_ids`, `finish_reason` (None while running), `prompt_tokens`, `seed`.
    `top_logprobs`: how many of the most likely tokens `likely` is to hold after each event, [(id, log-probability)]."""

    def __init__(self, session, prompt, max_tokens=None, stop=(), logprobs=False, sampling=None, constraint=None, top_logprobs=0):
        self.session = session
        self.sampling = sampling or Sampling()
        self.seed = self.sampling.seed
        self.logprobs = logprobs
        self.likely = []
        self._most = most_likely(top_logprobs, session.plan.vocabulary)
        self.token_ids = []
        self._values = []  # their log-probabilities
        self.text = ""
        self.finish_reason = None
        self._brought = 0  # characters of `text` that events have brought
        self._rest = ""  # held back when Ctrl-C came
        self._run = None  # tokens that the backend makes by itself, from the second on
        self._stops = stop
        self._holder = StopHolder(stop)
        self._prompt = session.encode(prompt)
        self.prompt_tokens = len(self._prompt)
        self.max_tokens = self._length(max_tokens)
        self._stream = session.tokenizer.stream()
        self._ends = session.tokenizer.eog
        self._walk = constraint and constraint.begin(session, self.max_tokens, self._holder.stops)

    def _length(self, wanted):
        """How many tokens to make; refuses what does not fit."""
        if wanted is None:
            self.session.reserve(self.prompt_tokens, 1)
            return min(DEFAULT_TOKENS, self.session.context - self.prompt_tokens)
        wanted = whole("max_tokens", wanted, "a whole number, 1 or more", least=1)
        self.session.reserve(self.prompt_tokens, wanted)
        return wanted

    def __iter__(self):
        return self

    def __next__(self):
        if self.finish_reason is not None:
            raise StopIteration
        try:
            return self._step()
        except KeyboardInterrupt:
            self._rest = self._broken_off()
            raise

    def _step(self):
        """Compute one token; returns its event, or the last event."""
        count = len(self.token_ids)
        if self._walk and self._walk.finished:
            return self._finish("stop")
        if count == self.max_tokens:
            return self._finish("length")
        token, logprob = self._next(count)
        if token in self._ends:
            return self._finish("stop")
        self.token_ids.append(token)
        self._values.append(logprob)
        if self._walk:
            self._walk.accept(token)
        shown = self._show(self._stream.feed(token))
        if self._holder.found:
            self.finish_reason = "stop"
        self._brought = len(self.text)
        return Token(count, token, shown, self.session.tokenizer.piece(token, False), logprob)

    def _next(self, count):
        """(the next token, its log-probability where that was asked for)."""
        session = self.session
        if count == 0:
            session.sync(self._prompt)
        else:
            last = self.token_ids[-1]
            if (count == 1 and not self._walk and not self._most) or (self._run is not None and session.disturbed):
                self._run = session.follow(last, self.sampling, count, self._ends, self.max_tokens - count)
            if self._run is not None:
                token, logprob = next(self._run)
                session.accept(last)
                return token, logprob if self.logprobs else None
            session.append(last)
        token = self._pick(count)
        if self._most:
            ids = largest(session.plan.logits(0), self._most)
            self.likely = list(zip(ids, session.plan.logprobs(0, ids), strict=True))
        return token, session.plan.logprobs(0, [token])[0] if self.logprobs else None

    def _pick(self, count):
        """The next token by the sampling settings; `count` numbers the draws."""
        plan, sampling = self.session.plan, self.sampling
        old = None
        if sampling.repeat_penalty != 1 and sampling.repeat_last:
            logits = plan.logits(0)
            old = penalize(logits, set(self.session.ids[-sampling.repeat_last :]), sampling.repeat_penalty)
        try:
            if self._walk:
                token = self._walk.pick(plan.logits(0), sampling, count)
                usable = token >= 0
            elif sampling.temperature == 0:
                token = plan.argmax(0)
                usable = token >= 0
            else:
                random = uniform(sampling.seed, count)
                token = plan.sample(0, sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p, random)
                usable = token >= 0
            if not usable:
                raise InternalError("the logits are not numbers", where=f"token {count + 1}", remedy="reflex check")
            return token
        finally:
            if old:
                restore(logits, old)

    def _show(self, text):
        shown = self._holder.feed(text)
        self.text += shown
        return shown

    def _flush(self, reason):
        """End for `reason`; returns the text that was held back and is now known not to begin a stop string."""
        shown = self._holder.feed(self._stream.finish())
        if not self._holder.found:
            shown += self._holder.finish()
        self.text += shown
        self.finish_reason = "stop" if self._holder.found else reason
        return shown

    def _broken_off(self):
        """End where Ctrl-C came, be it in the middle of a step: the text is made again from the tokens there are. Returns what no
        event has brought."""
        self._stream, self._holder, self.text = self.session.tokenizer.stream(), StopHolder(self._stops), ""
        for token in self.token_ids:
            self._show(self._stream.feed(token))
        self._flush("interrupt")
        return self.text[self._brought :]

    def _finish(self, reason):
        shown = self._flush(reason)
        if not shown:
            raise StopIteration
        self._brought = len(self.text)
        return Token(len(self.token_ids), None, shown, b"", None)

    def interrupt(self):
        """End now, or after Ctrl-C ended it; returns, once, the text that was held back and no event has brought."""
        if self.finish_reason is None:
            self._rest = self._broken_off()
        rest, self._rest = self._rest, ""
        return rest

    def result(self):
        """Run to the end if it has not ended; returns the Generated record."""
        for _ in self:
            pass
        session = self.session
        ids, values = tuple(self.token_ids), tuple(self._values) if self.logprobs else None
        return Generated(
            "generate", session.model, session.backend, self.text, ids, self.finish_reason, self.prompt_tokens, values
        )


def most_likely(count, vocabulary):
    """How many of the most likely tokens are to be named, checked."""
    count = whole("top_logprobs", count, f"a whole number, 0 (off) to {MOST_LIKELY}")
    if count > MOST_LIKELY:
        raise InvalidInputError("top_logprobs has no meaning", f"a whole number, 0 (off) to {MOST_LIKELY}", count)
    return min(count, vocabulary)


def largest(logits, count):
    """The ids of the `count` largest logits, the lower id first among equals."""
    from heapq import nlargest

    values = logits.tolist()
    least = nlargest(count, values)[-1]
    found = [token for token, value in enumerate(values) if value >= least]
    return sorted(found, key=lambda token: (-values[token], token))[:count]


class StopHolder:
    """Passes text through until a stop string appears; holds back an end that could begin one."""

    def __init__(self, stops):
        if isinstance(stops, str):
            stops = (stops,)
        self.stops = tuple(stops)
        for text in self.stops:
            if not isinstance(text, str) or not text or any("\ud800" <= letter <= "\udfff" for letter in text):
                raise InvalidInputError("a stop string has no meaning", "at least one character, all Unicode", repr(text))
        self.found = False
        self._held = ""

    def feed(self, text):
        """Add text; returns what may be shown. After the first stop string (`found`) nothing more is."""
        if self.found:
            return ""
        text = self._held + text
        # The stop string that is whole first counts, so that it makes no difference where tokens end.
        places = [(at + len(stop), at) for stop in self.stops if (at := text.find(stop)) >= 0]
        if places:
            self.found = True
            self._held = ""
            return text[: min(places)[1]]
        keep = self._possible(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def _possible(self, text):
        """Length of the longest end of `text` that begins a stop string."""
        longest = max(map(len, self.stops), default=1) - 1
        for size in range(min(longest, len(text)), 0, -1):
            end = text[len(text) - size :]
            if any(stop.startswith(end) for stop in self.stops):
                return size
        return 0

    def finish(self):
        """The held text: nothing follows that could complete a stop string."""
        text, self._held = self._held, ""
        return text


def generate(session, prompt, max_tokens=None, stop=(), logprobs=False, constraint=None, top_logprobs=0, **settings):
    """Start a Generation of `prompt`; `settings` are those of Sampling (temperature, top_k, top_p, min_p, repeat_penalty, seed)."""
    return Generation(session, prompt, max_tokens, stop, logprobs, Sampling(**settings), constraint, top_logprobs)
