"""What the methods of `Model` that look inside do: text to token ids, names to points, and the arrays into records.

One Looking per backend that was asked, kept by its Model. Refuses, before any work, what the context cannot hold, names that do not
exist, and a text that is patched and longer than a batch.
"""

from ..errors import InvalidInputError, UnsupportedError
from .lens import Lens, chosen_layers, lens
from .patch import Patched, changes
from .taps import HIDDEN, WALKED, Taps, chosen, points
from .trace import Trace, kept_rows, record
from .walk import WALKS


class Looking:
    """A session whose program can be looked into."""

    def __init__(self, session):
        self.session = session
        self.known = points(session.plan.program)
        self.walk = WALKS[session.backend](session.plan)

    def taps(self, names):
        """The Taps that `names` mean; without names all but the numbered steps."""
        known = self.known
        if names is None:
            return Taps(tuple(point.tap() for name, point in known.items() if not name.startswith("steps.")))
        return Taps(tuple(point.tap() for point in chosen(known, names)))

    def trace(self, text, names, rows):
        return self._record(self._ids(text), HIDDEN if names is None else names, rows)

    def patch(self, text, given, names, rows):
        ids = self._ids(text)
        if len(ids) > self.walk.batch:
            expected = f"at most {self.walk.batch} tokens"
            raise InvalidInputError("a text that is patched must fit one batch", expected, f"{len(ids)} tokens")
        return self._record(ids, names, rows, self._changes(given))

    def patched(self, given):
        return Patched(self.session, self._walk(), self._changes(given))

    def lens(self, text, layers, rows, top, logits):
        ids, program = self._ids(text), self.session.plan.program
        layers, kept = chosen_layers(layers, len(program.layers) - 1), kept_rows(rows, len(ids))
        walk = self._walk()
        self.session.forget()
        found = lens(walk, ids, self.known, layers, kept, top, logits)
        texts = tuple(tuple(tuple(self._spelled(best)) for best in row.tolist()) for row in found["top_ids"])
        return Lens(*self._about(ids), tuple(kept.tolist()), tuple(layers), top_texts=texts, **found)

    def _record(self, ids, names, rows, given=()):
        wanted = chosen(self.known, names, self.session.backend)
        kept = kept_rows(rows, len(ids))
        self.session.forget()
        return Trace(*self._about(ids), tuple(kept.tolist()), record(self.walk, ids, wanted, kept, given))

    def _walk(self):
        """The walk of a backend that can be stopped anywhere."""
        if self.session.backend not in WALKED:
            raise UnsupportedError(
                "this backend cannot be stopped between steps", " or ".join(WALKED), self.session.backend, remedy="name a backend"
            )
        return self.walk

    def _changes(self, given):
        return changes(self.known, given, lambda known, name: chosen(known, name, self.session.backend))

    def _ids(self, text):
        ids = self.session.encode(text)
        self.session.reserve(len(ids), 0)
        return ids

    def _spelled(self, ids):
        return [self.session.tokenizer.piece(token).decode("utf-8", "replace") for token in ids]

    def _about(self, ids):
        return self.session.model, self.session.backend, tuple(ids), tuple(self._spelled(ids))
