"""A timeline to work with by hand: text or tokens in; decisions, continuations, logits and log-probabilities out.

    s = m.session("The capital of France is")
    s.system1([" Paris", " London"]).best_text
    s.append(" Paris. The capital of Spain is").generate(max_tokens=4)
    other = s.fork()

`Model.session()` makes one. Nothing is computed before a result is asked for, and then only what the cache lacks: timelines of
one model share it. Refuses what the context cannot hold when it is appended. Owns the tokens; the cache is the session's.
"""

from math import exp, fsum
from posix import fspath

from .errors import InvalidInputError, StateError
from .generate import generate as _generate
from .records import Record, table
from .rules import DEFAULT
from .sample import whole
from .score import score as _score
from .tree import evaluate


class Logprobs(Record):
    """How likely a text is, token by token: entry i of each tuple is token i, its log-probability after the tokens before it."""

    token_ids: tuple[int, ...]
    texts: tuple[str, ...]  # of each token; a part of a character shows as U+FFFD
    logprobs: tuple[float | None, ...]  # natural logarithms after all tokens before; None for one that nothing precedes
    sum: float  # of those that there are
    mean: float  # per token
    __slots__ = (*__annotations__,)

    @property
    def perplexity(self):
        """exp(-mean): as unsure as a choice among so many equal tokens."""
        return exp(-self.mean)

    def table(self):
        """One dictionary per token: token_id, text, logprob."""
        columns = zip(self.token_ids, self.texts, self.logprobs, strict=True)
        return [dict(zip(("token_id", "text", "logprob"), row, strict=True)) for row in columns]

    def _repr_html_(self):
        shown = ["" if value is None else f"{value:.4f}" for value in self.logprobs]
        page = table(("token", "id", "logprob"), list(zip(self.texts, self.token_ids, shown, strict=True)))
        return page + table(("sum", "mean", "perplexity"), [(f"{self.sum:.4f}", f"{self.mean:.4f}", f"{self.perplexity:.4f}")])


class Likely(Record):
    """One token that may come next."""

    id: int
    text: str
    logprob: float
    __slots__ = (*__annotations__,)


class Timeline:
    """Tokens so far: `ids`, `text`, `len()`. `append`, `rewind` and `generate` change them, all else leaves them as they are."""

    __slots__ = ("_ids", "core")

    def __init__(self, core, ids=()):
        self.core = core  # a Session over the shared cache
        self._ids = list(ids)

    @property
    def ids(self):
        """The token ids, a copy."""
        return list(self._ids)

    @property
    def text(self):
        """The text of all tokens, special ones spelled out; bytes that are no UTF-8 become U+FFFD."""
        return self.core.tokenizer.decode(self._ids).decode("utf-8", "replace")

    @property
    def context(self):
        """The most tokens a timeline can hold."""
        return self.core.context

    def __len__(self):
        return len(self._ids)

    def __repr__(self):
        text = self.text
        shown = text if len(text) <= 40 else "…" + text[-39:]
        return f"<timeline of {len(self._ids)} of {self.context} tokens, {self.core.backend}: {shown!r}>"

    # ---- changing it ----

    def append(self, what):
        """Add a text, or token ids; returns this timeline. The first text begins as the model's texts do (with a begin token where
        the file asks for one); later ones are tokenized by themselves, and tokens that are there stay."""
        more = self._tokens(what)
        self.core.reserve(len(self._ids) + len(more), 0)
        self._ids += more
        return self

    def rewind(self, count):
        """Keep the first `count` tokens; returns this timeline."""
        count = whole("the length to keep", count, "a whole number, 0 or more")
        if count > len(self._ids):
            raise StateError("cannot rewind to this length", f"0 to {len(self._ids)}", str(count))
        del self._ids[count:]
        return self

    def fork(self):
        """A second timeline that starts with the same tokens; from here on the two are apart."""
        return Timeline(self.core.fork(), self._ids)

    def generate(self, stream=False, max_tokens=None, stop=(), logprobs=False, constraint=None, **settings):
        """Continue: a Generated, or with `stream` an iterator of Token events. The timeline then holds the new tokens too, all that
        were computed but the end token. Options as in Model.generate."""
        constraint = constrained(self.core, constraint, settings)
        generation = _generate(self.core.fork(), self._start(), max_tokens, stop, logprobs, constraint, **settings)
        if stream:
            return self._follow(generation)
        try:
            return generation.result()
        finally:
            self._ids = [*self._start(), *generation.token_ids]

    def _follow(self, generation):
        self._ids = self._start()
        for event in generation:
            if event.id is not None:
                self._ids.append(event.id)
            yield event

    def export_state(self, path, kind=None):
        """Write what the model keeps of these tokens to a file, for `Model.import_state` and --import-state; returns this timeline.
        What the cache lacks of them is computed. `kind`: f32, or f16 for half the bytes; by default as the backend keeps it."""
        from .state import export_state

        export_state(self.core, self._start(), fspath(path), kind)
        return self

    # ---- asking ----

    def system1(self, candidates, rule=DEFAULT, temperature=1.0, terminator="", prior=""):
        """Score candidate continuations of this timeline; returns a Decision. Options as in Model.system1."""
        return _score(self.core, self._start(), candidates, rule, temperature, terminator, prior)

    def logits(self):
        """Logits of the next token, a float32 array [vocabulary]."""
        import numpy

        self.core.sync(self._start())
        return numpy.array(self.core.plan.logits(0), numpy.float32)

    def top(self, count=10):
        """The `count` most likely next tokens, a tuple of Likely; the lower id first among equals."""
        import numpy

        logits, plan = self.logits(), self.core.plan
        ids = numpy.argsort(-logits, kind="stable")[: whole("the number of tokens", count, "1 or more", least=1)].tolist()
        return tuple(map(Likely, ids, self._spelled(ids), plan.logprobs(0, ids)))

    def logprobs(self, what):
        """How likely a text, or token ids, would be next; returns Logprobs. On an empty timeline: how likely it is as a whole."""
        more = self._tokens(what)
        prefix, tail = (self._ids, more) if self._ids else (more[:1], more[1:])
        self.core.reserve(len(prefix), len(tail))
        found = evaluate(self.core, prefix, [tail])[0] if tail else []
        total = fsum(found)
        values = (*[None] * (len(more) - len(found)), *found)
        return Logprobs(tuple(more), tuple(self._spelled(more)), values, total, total / len(found) if found else 0.0)

    # ---- tokens ----

    def _start(self):
        """The tokens to continue; what a text begins with where there are none."""
        return list(self._ids) or self.core.encode("")

    def _tokens(self, what):
        """Ids of a text that comes next, or of ids, which are checked."""
        if isinstance(what, (list, tuple)) or not self._ids:
            return self.core.encode(what)
        ids = self.core.continued(what)
        if not ids:
            raise InvalidInputError("there is nothing to add", "at least one character", repr(what))
        return ids

    def _spelled(self, ids):
        return [self.core.tokenizer.piece(token).decode("utf-8", "replace") for token in ids]


def constrained(session, constraint, settings):
    """The constraint of a generation: the given one, or that of choices, regex or json_schema, which leave `settings`."""
    asked = [settings.pop(name, default) for name, default in (("choices", ()), ("regex", None), ("json_schema", None))]
    if asked == [(), None, None]:
        return constraint
    if constraint is not None:
        raise InvalidInputError("one constraint at a time", "constraint, or choices, regex or json_schema", "both")
    from .constrain import grammar_of

    return grammar_of(*asked).bind(session)
