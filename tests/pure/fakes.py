"""A model without weights: a Plan whose logits are a hash of what the token may see, and a tokenizer that merges greedily.

Any mistake in slots, positions, visibility or reuse changes every logit, so equality here means equal computation.
"""

import math
import random
from array import array
from hashlib import blake2b

from reflex import native
from reflex.sample import choose, penalize, uniform

PIECES = ["is ", " is", " Paris", " Lon", "don", " the", "the", "aa", " b", "\n\n", "\u00e9", "ab", " P"]


class FakeTokenizer:
    """Ids: 0 begin, 1 and 2 end of generation, 3 to 258 the bytes, then PIECES; the longest match from the left wins."""

    def __init__(self, add_bos=False, add_eos=False):
        self.specials = {b"<s>": 0, b"</s>": 1, b"<end>": 2}
        self.pieces = [*self.specials, *(bytes([value]) for value in range(256)), *(text.encode() for text in PIECES)]
        self.size = len(self.pieces)
        self.bos, self.eos, self.eot = 0, 1, 2
        self.add_bos, self.add_eos = add_bos, add_eos
        self.eog = frozenset((1, 2))
        self._known = {piece: token for token, piece in enumerate(self.pieces)}
        self._longest = max(map(len, self.pieces))
        self._memory = None

    def layout(self):
        """As Vocabulary.layout: what constraints read."""
        data = b"".join(len(piece).to_bytes(8, "little") + piece for piece in self.pieces)
        if self._memory is None:
            self._memory = native.alloc(len(data))
            native.view(self._memory.address, len(data))[:] = data
        return (self._memory.address, len(data), self.size), 0, "plain", {0: 3}

    def encode(self, text, add_special=True, parse_special=True, starts=True):
        data = text.encode() if isinstance(text, str) else bytes(text)
        ids = [self.bos] if add_special and self.add_bos else []
        at = 0
        while at < len(data):
            for size in range(self._longest, 0, -1):
                piece = data[at : at + size]
                token = self._known.get(piece)
                if token is not None and len(piece) == size and (parse_special or piece not in self.specials):
                    break
            ids.append(token)
            at += size
        return ids + ([self.eos] if add_special and self.add_eos else [])

    def stem(self, prompt, encode):
        return None

    def decode(self, ids, special=True):
        return b"".join(self.piece(token, special) for token in ids)

    def piece(self, token, special=True):
        return b"" if not special and self.is_special(token) else self.pieces[token]

    def token_bytes(self, token):
        return self.pieces[token]

    def is_special(self, token):
        return token < 3

    is_control = is_special

    def close(self):
        self._known = None

    def stream(self):
        return FakeStream(self)


class FakeStream:
    def __init__(self, tokenizer):
        import codecs

        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token):
        return self._decoder.decode(self._tokenizer.piece(token, False))

    def finish(self):
        return self._decoder.decode(b"", True)


class FakePlan:
    """`script`: {number of visible tokens: id} forces those ids to win, for tests that need a known text."""

    def __init__(self, vocabulary, context=64, script=None):
        self.context = context
        self.vocabulary = vocabulary
        self.most_outputs = 512
        self.steady = True
        self.steadies = []  # whether each evaluate was to be steady
        self.script = script or {}
        self.calls = []  # rows and outputs of every evaluate
        self.interrupt_at = None  # number of the evaluate that Ctrl-C meets
        self.closed = False
        self._slots = [None] * context
        self._rows = []

    def evaluate(self, ids, first_slot, positions, shared, branch, outputs, runs=(), steady=True):
        count = len(ids)
        runs = runs or [()] * count
        assert count and len(positions) == len(shared) == len(branch) == len(runs) == count
        assert first_slot >= 0 and first_slot + count <= self.context
        assert list(outputs) == sorted(set(outputs)) and all(0 <= row < count for row in outputs)
        self.calls.append((count, len(outputs)))
        self.steadies.append(steady)
        if self.interrupt_at == len(self.calls):
            self._slots[first_slot : first_slot + count] = [None] * count
            raise KeyboardInterrupt
        for row in range(count):
            self._slots[first_slot + row] = (positions[row], ids[row])
        self._rows = [self._see(first_slot + row, positions[row], shared[row], runs[row], branch[row]) for row in outputs]

    def _see(self, slot, position, shared, runs, branch):
        assert shared <= branch <= slot or (shared == 0 and branch <= slot)
        visible = [entry for first, end in ((0, shared), *runs, (branch, slot + 1)) for entry in self._slots[first:end]]
        assert [at for at, _ in visible] == list(range(position + 1)), "every earlier position exactly once"
        noise = random.Random(blake2b(repr(visible).encode(), digest_size=8).digest())
        logits = array("f", (noise.gauss(0, 3) for _ in range(self.vocabulary)))
        if len(visible) in self.script:
            logits[self.script[len(visible)]] = 100.0
        return logits

    def logits(self, row):
        return memoryview(self._rows[row])

    def logprobs(self, row, token_ids):
        values = self._rows[row]
        top = max(values)
        total = top + math.log(math.fsum(math.exp(value - top) for value in values))
        return [values[token] - total for token in token_ids]

    def logprobs_of_rows(self, rows, ids):
        return list(map(self.logprobs, rows, ids))

    def argmax(self, row):
        return self._rows[row].index(max(self._rows[row]))

    def sample(self, row, temperature, top_k, top_p, min_p, random):
        return choose(self._rows[row], temperature, top_k, top_p, min_p, random)

    def close(self):
        self.closed = True


class FollowingPlan(FakePlan):
    """Makes tokens by itself, as the cuda backend does: up to AHEAD of them before they are asked for, in the one place there is,
    so that any other use of the plan spoils a run that is under way."""

    AHEAD = 4

    def __init__(self, *args):
        super().__init__(*args)
        self.follows = 0
        self._owner = None

    def evaluate(self, *args):
        self._owner = None
        super().evaluate(*args)

    def follow(self, token, slot, sampling, draws, recent, ends, most, states=None):
        assert [held and held[1] for held in self._slots[:slot]] == recent[:-1], "the cache lacks what comes before"
        self.follows += 1
        self._owner = run = self._make(token, slot, sampling, draws, list(recent), ends, most)
        return run

    def _make(self, token, slot, sampling, draws, recent, ends, most):
        ready, me = [], None
        while most or ready:
            me = me or self._owner
            if self._owner is not me:
                raise AssertionError("a run goes on although the plan was used for something else")
            while most and len(ready) < self.AHEAD and not (ready and ready[-1][0] in ends):
                super().evaluate([token], slot, [slot], [0], [0], [0])
                row = self._rows[0]
                token = self._choose(row, sampling, recent, uniform(sampling.seed, draws))
                ready.append((token, self.logprobs(0, [token])[0]))
                recent.append(token)
                slot, draws, most = slot + 1, draws + 1, most - 1
            yield ready.pop(0)

    def _choose(self, row, sampling, recent, random):
        changed = row[:]
        if sampling.repeat_penalty != 1 and sampling.repeat_last:
            penalize(changed, set(recent[-sampling.repeat_last :]), sampling.repeat_penalty)
        return choose(changed, sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p, random)


def session(context=64, script=None, plan=FakePlan, **options):
    """A Session over a FakePlan."""
    from reflex.session import Session

    tokenizer = FakeTokenizer(**options)
    return Session(plan(tokenizer.size, context, script), tokenizer, "fake.gguf", "fake")
