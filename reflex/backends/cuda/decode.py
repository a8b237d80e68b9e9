"""Tokens one after another without the host between them: a graph of one evaluation, the choice of a token and its step to the
input of the next evaluation. The host launches a few graphs ahead and reads tokens from a ring in memory it shares.

What a run needs to know (sampling settings, end tokens, the last ids) lies in one block, written once per run. Choosing is
the same arithmetic as on the host (kernels/cuda/sample.py, reflex/sample.py). Called by Plan.follow in backend.py.
"""

from time import sleep

from ... import native
from ...errors import DeviceError, InternalError
from ...sample import uniform
from .dense import dense
from .launch import Chain
from .parameters import COLUMNS, blocks

AHEAD = 4  # graphs in flight
PLACES = AHEAD + 1  # of states that they leave: those of the graphs in flight, and that behind the last token which was taken
RING = 16  # entries of the history, a power of two and more than AHEAD
ENDS, LAST = 64, 64  # most end tokens, and ids that a repeat penalty looks back
SETTINGS, STATE = 6, 5  # float64 and int64 words (kernels/cuda/sample.py, advance.py)
BLOCK = 8 * (SETTINGS + STATE) + 4 * (ENDS + LAST + PLACES)  # bytes of a run's facts
STOP_NO_NUMBER = 3
MOST_SORTED = 2048  # tokens that the kernel `sample` sorts at once
ENTRIES = 4  # words of the history before its ring: number of tokens, stop flag, two unused


def supports(sampling, ends):
    """Whether a run can do this on the device; the host does what it cannot."""
    return len(ends) <= ENDS and (sampling.repeat_penalty == 1 or sampling.repeat_last in (0, LAST))


class Decoder:
    """The graphs of one plan, by what they do with the logits: greedy or drawn, with or without a repeat penalty."""

    def __init__(self, plan):
        self.plan = plan
        m = plan.memory
        self.block = m.named("decode block", BLOCK)
        self.saved = m.named("penalized logits", 4 * LAST)
        self.changed = m.named("penalized stats", 16)
        self.chosen = m.named("chosen token", 4)
        self.scratch = m.zeros("sampling scratch", 8 * COLUMNS)
        self.counters = m.zeros("sampling counters", 8)
        self.host = native.alloc(BLOCK, "decode block")
        self.history = plan.device.pinned(4 * ENTRIES + 8 * RING)
        self.graphs = {}  # (drawn, penalized, by the persistent kernel) -> (Graph, Chain)
        self.dense, self.why = dense(plan)  # the persistent kernel, or why not

    def graph(self, drawn, penalized, slots=0):
        """The graph of a kind for a cache of up to `slots` slots."""
        dense = self.dense if self.dense and slots <= self.dense.sizes.reach() else None
        key = drawn, penalized, dense is not None
        found = self.graphs.get(key)
        if found is None:
            chain = Chain(self.plan.library)
            if dense:
                dense.add(chain)
            else:
                self.plan.lower(chain, 1, 1)
            self._choose(chain, drawn, penalized)
            self.plan.settle(chain)
            if dense and not any(by_one for _, _, by_one in self.graphs):
                dense.send()
            self.plan.device.mark("decode by one kernel" if dense else "decode by separate kernels")
            found = self.graphs[key] = chain.capture(), chain
        return found[0]

    def _choose(self, chain, drawn, penalized):
        """Launches from logits to the next input."""
        plan, m = self.plan, self.plan.memory
        kernel = plan.image.kernel
        logits, stats, columns = m.places["logits"], m.stats, plan.vocabulary
        settings, state = self.block, self.block + 8 * SETTINGS
        ends = state + 8 * STATE
        recent, count = ends + 4 * ENDS, LAST if penalized else 0
        parts = blocks(columns, COLUMNS)
        changed = stats
        if penalized:
            chain.add(kernel("penalize"), 1, (logits, recent, self.saved, settings, LAST))
            changed = self.changed
            partials, counters = m.places["stats partials"], m.places["stats counters"]
            chain.add(kernel("logits_stats"), (parts, 1), (logits, changed, partials, counters, columns))
        chosen = changed + 8
        if drawn:
            chosen = self.chosen
            chain.add(kernel("sample_bins"), parts, (logits, changed, settings, self.scratch, columns))
            values = (logits, changed, settings, self.scratch, self.counters, chosen, columns, MOST_SORTED)
            chain.add(kernel("sample"), parts, values)
        values = (
            chosen, logits, stats, m.ids, m.positions, m.cells, ends, ENDS, state, settings, self.history, RING, recent, count,
            self.saved, *((m.strands, recent + 4 * LAST, PLACES) if plan.places else (0, 0, 0)),
        )  # fmt: skip
        chain.add(kernel("advance"), 1, values)

    def close(self):
        for graph, chain in self.graphs.values():
            graph.close()
            chain.close()
        self.graphs.clear()
        self.plan.device.free_pinned(self.history)
        self.host.free()


class Run:
    """An iterator of (id, log-probability): the tokens after `token`, which is the input in slot `slot`. Ends after an end token
    or `most` tokens; whoever wants fewer just stops asking. `states`, of a plan that has any: a function of a number that gives the
    place of the state before and so many for those behind, which evaluations leave there in turn, round and round."""

    def __init__(self, decoder, token, slot, sampling, draws, recent, ends, most, states=None):
        self.decoder, self.plan = decoder, decoder.plan
        self.slot, self.most = slot, most
        self.launched = self.taken = 0
        penalized = sampling.repeat_penalty != 1 and sampling.repeat_last == LAST
        self.graph = decoder.graph(sampling.temperature != 0, penalized, slot + most)
        start, ring = states(PLACES) if states else (-1, ())
        self._write(sampling, draws, recent, ends, ring)
        if states:
            from .recurrent import reach

            reach(self.plan, max(ring))
        self.plan.place_request(token, slot, [(0, 1, start, ring[0])] if states else ())
        self.ring = native.view(decoder.history, ENTRIES + 2 * RING, "I")
        self.values = native.view(decoder.history, ENTRIES + 2 * RING, "f")
        self.ring[0] = self.ring[1] = 0

    def _write(self, sampling, draws, recent, ends, ring):
        plan, address = self.plan, self.decoder.host.address
        plan.device.synchronize()  # a run before this one may still read the block
        settings = native.view(address, SETTINGS, "d")
        random = uniform(sampling.seed, draws) if sampling.temperature else 0.0
        values = sampling.temperature, sampling.top_k or 0, sampling.top_p, sampling.min_p, random, sampling.repeat_penalty
        for i, value in enumerate(values):
            settings[i] = value
        state = native.view(address + 8 * SETTINGS, STATE, "q")
        recent = list(recent)[-LAST:]
        seed = sampling.seed - (1 << 64) * (sampling.seed >> 63)
        facts = seed, draws, 0, self.most, len(recent) % LAST
        for i, value in enumerate(facts):
            state[i] = value
        ids = native.view(address + 8 * (SETTINGS + STATE), ENDS + LAST + PLACES, "i")
        for i in range(ENDS + LAST):
            ids[i] = -1
        for i, token in enumerate(ends):
            ids[i] = token
        for i, token in enumerate(recent):
            ids[ENDS + i] = token
        for i, place in enumerate(ring, ENDS + LAST):
            ids[i] = place
        plan.device.copy_in(plan.address(self.decoder.block), address, BLOCK)

    def __iter__(self):
        return self

    def __next__(self):
        if self.taken == self.most:
            raise StopIteration
        while self.launched < min(self.taken + AHEAD, self.most):
            self.plan.grow(self.slot + self.launched + 1)
            self.graph.launch()
            self.launched += 1
        self._wait()
        at = ENTRIES + 2 * (self.taken % RING)
        self.taken += 1
        token, logprob = self.ring[at], self.values[at + 1]
        if self.ring[1] == STOP_NO_NUMBER and self.taken == self.ring[0]:
            raise InternalError("the logits are not numbers", where=f"token {self.taken}", remedy="reflex check")
        return token, logprob

    def _wait(self):
        """Until the device has written the next token; asks the driver now and then whether it still runs."""
        polls = 0
        while self.ring[0] <= self.taken:
            polls += 1
            if polls % 64 == 0:
                sleep(0.00005)
            if polls % 4096 == 0 and self.plan.device.idle() and self.ring[0] <= self.taken:
                raise DeviceError("the device stopped before the next token", where=f"token {self.taken}")
