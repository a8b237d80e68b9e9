"""Log-probabilities of single tokens after an evaluation. Called by backend.py."""

from ... import native
from .launch import Chain

QUERIES = 4096  # log-probabilities asked for at once


class Query:
    """Log-probabilities of single tokens: one launch, one small copy each way."""

    def __init__(self, plan):
        self.plan = plan
        m = plan.memory
        self.place = m.named("query", 12 * QUERIES)  # rows, ids, results
        self.host = native.alloc(12 * QUERIES, "query")
        self.chain = Chain(plan.library)
        values = plan.logits_at, plan.stats_at, self.place, self.place + 4 * QUERIES, self.place + 8 * QUERIES, plan.vocabulary, 0
        self.chain.add(plan.image.kernel("logprobs"), 1, values)
        plan.settle(self.chain)

    def run(self, pairs):
        """Values of (row, id), in their order."""
        return [value for at in range(0, len(pairs), QUERIES) for value in self._run(pairs[at : at + QUERIES])]

    def _run(self, pairs):
        count, device, address = len(pairs), self.plan.device, self.host.address
        numbers = native.view(address, 2 * QUERIES, "i")
        for i, (row, token) in enumerate(pairs):
            numbers[i], numbers[QUERIES + i] = row, token
        self.chain.set(0, 0, self.plan.address(self.plan.logits_at))
        self.chain.set(0, 1, self.plan.address(self.plan.stats_at))
        self.chain.set(0, 6, count)
        self.chain.grid(0, (count + 127) // 128)
        place = self.plan.address(self.place)
        device.copy_in(place, address, 4 * (QUERIES + count))
        self.chain.run()
        results = 8 * QUERIES
        device.copy_out(address + results, place + results, 4 * count)
        device.synchronize()
        return native.view(address + results, count, "f").tolist()

    def close(self):
        self.chain.close()
        self.host.free()
