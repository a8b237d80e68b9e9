"""How a long text is cut into windows that a model can see at once, and which tokens of each are scored.

    sliding     each window goes on `stride` tokens behind the one before and scores what that did not. The last keeps its length
    llama.cpp   what llama.cpp's perplexity program does: windows side by side, the second half of each is scored

Where the model's texts start with a begin token, every window does; that token is never scored. Special tokens that the text spells
out are text here. Refuses texts too short to score and windows beyond the context. Called by perplexity, compare and sensitivity.
"""

from ..errors import ContextOverflowError, InternalError, InvalidInputError
from ..program.records import BATCH
from ..sample import whole
from ..session import Batch, raw

METHODS = ("sliding", "llama.cpp")
USUAL = 512  # tokens of a window, where the context allows so many


class Windows:
    """The windows of a text for a Session: an iterable of (ids, index of the first one that is scored).

    `window`, `stride`: tokens, 0 for the usual ones; a window counts its begin token. `tokens`: use the first so many of the text,
    0 for all."""

    def __init__(self, session, text, method=METHODS[0], window=0, stride=0, tokens=0):
        if method not in METHODS:
            raise InvalidInputError("no such way to cut a text", " or ".join(METHODS), repr(method))
        tokenizer = session.tokenizer
        self.method = method
        self.begin = tokenizer.bos if tokenizer.add_bos else None  # id of the begin token
        self.spelled = None if self.begin is None else tokenizer.token_bytes(self.begin).decode("utf-8", "replace")
        self.window = self._length(session, whole("the window", window, "a number of tokens, 2 or more; 0 is the usual one"))
        self.ids = tokenizer.encode(raw(text), add_special=False, parse_special=False)
        most = whole("the number of tokens", tokens, "a whole number, 0 (all) or more")
        if most:
            del self.ids[most:]
        stride = whole("the stride", stride, "a number of tokens, 1 or more; 0 is the usual one")
        cut = self._side_by_side if method == "llama.cpp" else self._sliding
        self.places = cut(stride)  # (first and end of each window's tokens in the text, how many of its last are scored)

    def _length(self, session, window):
        window = window or min(USUAL, session.context)
        if window < 2:
            raise InvalidInputError("a window is too short to score anything", "2 tokens or more", f"{window}")
        if window > session.context:
            remedy = "ask for a shorter window"
            if window <= session.longest:
                remedy += f", or raise --ctx (this model allows {session.longest})"
            raise ContextOverflowError(
                "the window does not fit the context", f"at most {session.context} tokens", f"{window}", remedy=remedy
            )
        return window

    def _sliding(self, stride):
        self.stride = stride = stride or self.window // 2
        if stride >= self.window:
            raise InvalidInputError("the stride leaves tokens without context", f"1 to {self.window - 1} tokens", str(stride))
        count, unseen = len(self.ids), 0 if self.begin is not None else 1  # tokens that nothing precedes
        if count <= unseen:
            raise InvalidInputError("the text is too short", f"at least {unseen + 1} tokens", f"{count}")
        room = self.window - 1 + unseen
        end = min(room, count)
        places = [(0, end, end - unseen)]
        while end < count:
            before, end = end, min(end + stride, count)
            places.append((end - room, end, end - before))
        return places

    def _side_by_side(self, stride):
        window = self.window
        if stride not in (0, window):
            raise InvalidInputError("windows like llama.cpp's lie side by side", f"a stride of {window}", str(stride))
        self.stride = window
        if window < 3:
            raise InvalidInputError("a window is too short to score its second half", "3 tokens or more", str(window))
        count = len(self.ids) + (self.begin is not None)
        if count < 2 * window:
            remedy = "give more text or a shorter window"
            raise InvalidInputError("the text is too short", f"{2 * window} tokens, two windows", f"{count}", remedy=remedy)
        # llama.cpp puts the begin token before the text and then over the first token of every window.
        shift, lost = (-1, 1) if self.begin is not None else (0, 0)
        return [(k * window + shift + lost, (k + 1) * window + shift, window - 1 - window // 2) for k in range(count // window)]

    def __len__(self):
        return len(self.places)

    def __iter__(self):
        begin = [] if self.begin is None else [self.begin]
        for first, end, scored in self.places:
            ids = begin + self.ids[first:end]
            yield ids, len(ids) - scored

    @property
    def scored(self):
        """How many tokens are scored in all windows together."""
        return sum(scored for _, _, scored in self.places)

    def facts(self):
        """What a result says about its windows, by field name."""
        return {"method": self.method, "window": self.window, "stride": self.stride, "begin": self.spelled, "tokens": len(self.ids)}


def batches(session, ids, first):
    """Compute a window; after each batch yield the ids that its outputs, in order, should predict; in the end ids[first:]."""
    most = min(BATCH, session.plan.most_outputs)
    last = len(ids) - 1  # nothing follows the last token
    for start in range(0, last, most):
        end = min(start + most, last)
        batch = Batch(start)
        batch.add_plain(ids[start:end])
        batch.outputs = list(range(max(0, first - 1 - start), end - start))
        session.evaluate(batch)
        if batch.outputs:
            yield ids[max(first, start + 1) : end + 1]
    session.ids = ids[:last]


def logprobs(session, ids, first):
    """Log-probabilities of ids[first:], each after all that is before it in the window. InternalError where one is no number."""
    found = []
    for wanted in batches(session, ids, first):
        rows = session.plan.logprobs_of_rows(list(range(len(wanted))), [[token] for token in wanted])
        found += [values[0] for values in rows]
    for value in found:
        if not value - value == 0:
            raise not_numbers(session)
    return found


def not_numbers(session):
    """The error of a model whose logits are no numbers."""
    return InternalError("the logits are not numbers", where=session.model, remedy="reflex check")
