"""One draw on the device, for a host that goes on from one token to the next: two launches and twenty bytes instead of all logits.

The same kernels as in a run of tokens (decode.py). Called by Plan.sample in backend.py.
"""

from ... import native
from .decode import MOST_SORTED, SETTINGS
from .launch import Chain
from .parameters import COLUMNS, blocks

STATS, CHOSEN = 16, 16  # bytes of a row's statistics; where the id lies behind them on the host


class Draw:
    """The launches of a draw, made once; the row is filled in each time."""

    def __init__(self, plan):
        self.plan = plan
        m, kernel, columns = plan.memory, plan.image.kernel, plan.vocabulary
        self.place = m.named("draw", 8 * SETTINGS + 4)
        scratch, counters = m.zeros("sampling scratch", 8 * COLUMNS), m.zeros("sampling counters", 8)
        self.host = native.alloc(8 * SETTINGS, "draw")
        self.chain = Chain(plan.library, 4, 64)
        parts = blocks(columns, COLUMNS)
        row = plan.logits_at, plan.stats_at, self.place, scratch
        self.chain.add(kernel("sample_bins"), parts, (*row, columns), overlap=False)
        self.chain.add(kernel("sample"), parts, (*row, counters, self.place + 8 * SETTINGS, columns, MOST_SORTED))
        plan.settle(self.chain)

    def run(self, row, temperature, top_k, top_p, min_p, random):
        """The id drawn from wanted row `row`; -1 where its logits are not numbers."""
        plan, device, address = self.plan, self.plan.device, self.host.address
        settings = native.view(address, SETTINGS, "d")
        for i, value in enumerate((temperature, top_k or 0, top_p, min_p, random, 1.0)):
            settings[i] = value
        place, stats = plan.address(self.place), plan.address(plan.stats_at) + STATS * row
        for launch in (0, 1):
            self.chain.set(launch, 0, plan.address(plan.logits_at) + 4 * plan.vocabulary * row)
            self.chain.set(launch, 1, stats)
        device.copy_in(place, address, 8 * SETTINGS)
        self.chain.run()
        device.copy_out(address, stats, STATS)
        device.copy_out(address + CHOSEN, place + 8 * SETTINGS, 4)
        device.synchronize()
        total = native.view(address, 4, "f")[1]  # not a number where any logit is none
        return native.view(address + CHOSEN, 1, "i")[0] if total == total else -1

    def close(self):
        self.chain.close()
        self.host.free()
