"""Experts that stay in the file until a router asks for them.

The launches of a batch are queued up to where a router has chosen; the host reads the choice, has the experts that are not on the
device copied there (fetch.py), and queues the rest behind the copies. An expert lies where it would lie had all been uploaded, so
that the launches, and every bit of their results, are the same. Called by backend.py for programs with experts.
"""

from ... import native
from .upload import Shard

MOST_SHARE = 0.75  # of the experts: a batch that is likely to ask for more of them is served quicker by uploading all
BUFFER = 1 << 20  # bytes copied at once, at most


class Mixture:
    """The experts of one layer: where their matrices lie and which are on the device."""

    def __init__(self, experts, used):
        self.here = bytearray(experts)
        self.used = used  # experts of a row
        self.matrices = []  # (Shard, offset in the file, offset in the area of the weights, bytes of one expert)


class Experts:
    """All mixtures of a program. `asked`, `fetched`, `bytes`: experts chosen by batches, those copied, and what that took."""

    def __init__(self, gpu, program, rows):
        """`rows`: of the largest batch."""
        self.gpu = gpu
        self.shards = [Shard(header) for header in gpu.file.shards]
        self.mixtures = {}  # id of a step `route` -> Mixture
        self.asked = self.fetched = self.bytes = 0
        self._rows = rows
        self._copier = self._routes = None
        for step in program.steps:
            if step.op == "route":
                route = step
            elif step.op == "expert_linear" and step.weights[0] in gpu.stacks:
                self._add(route, gpu.stacks[step.weights[0]])

    def _add(self, route, tensor):
        mixture = self.mixtures.get(id(route))
        if mixture is None:
            mixture = self.mixtures[id(route)] = Mixture(tensor.shape[2], route.args["used"])
        shard = next(s for s in self.shards if s.start <= tensor.address < s.start + s.size)
        place = self.gpu.layout.place(tensor.address)
        matrix = shard, tensor.address - shard.start, place, tensor.nbytes // tensor.shape[2]
        if matrix not in mixture.matrices:  # gate and up may be rows of one tensor
            mixture.matrices.append(matrix)

    def few(self, rows):
        """Whether a batch of so many rows is likely to leave most experts unasked, if each row chooses by itself."""
        shares = [1 - (1 - m.used / len(m.here)) ** rows for m in self.mixtures.values()]
        return max(shares, default=1.0) <= MOST_SHARE

    def run(self, plan, shape):
        """Queue the launches of a batch."""
        if self._copier is None:
            from .fetch import Copier

            self._copier = Copier(plan.device)
            widest = max(2 * mixture.used for mixture in self.mixtures.values())
            self._routes = plan.device.pinned(4 * self._rows * widest)
        parts = [(-1, shape.first, shape.last)]
        if not plan.arrived:
            parts = shape.parts or parts
        stops = iter([*shape.stops, (shape.last, None, 0, 0)])
        stop, *choice = next(stops)
        for mark, row, last in parts:
            if not plan.arrived:
                self.gpu.upload.wait(mark)
            while row < last:
                end = min(stop, last)
                shape.chain.run(row, end)
                row = end
                if row == stop < shape.last:
                    self._ask(plan, *choice)
                    stop, *choice = next(stops)

    def _ask(self, plan, step, routes, rows):
        """Have the experts on the device that `rows` rows were routed to by `step`, which wrote `routes`."""
        mixture = self.mixtures[id(step)]
        used, here, size = mixture.used, mixture.here, 2 * rows * mixture.used
        plan.device.copy_out(self._routes, plan.address(routes), 4 * size)
        plan.device.synchronize()
        values, chosen = native.view(self._routes, size, "f"), set()
        for at in range(used, size, 2 * used):
            chosen.update(map(int, values[at : at + used]))
        missing = sorted(expert for expert in chosen if not here[expert])
        if missing:
            self._copier.run(self._pieces(mixture, missing))
        for expert in missing:
            here[expert] = 1
        self.asked += len(chosen)
        self.fetched += len(missing)

    def _pieces(self, mixture, missing):
        """(device address, Shard, offset in its file, bytes) of what experts are made of, none larger than BUFFER."""
        pieces = []
        for shard, offset, place, size in mixture.matrices:
            self.bytes += size * len(missing)
            for expert in missing:
                end = (expert + 1) * size
                for at in range(expert * size, end, BUFFER):
                    pieces.append((self.gpu.base + place + at, shard, offset + at, min(BUFFER, end - at)))
        return pieces

    def close(self):
        if self._copier is not None:
            self._copier.close()
            self._copier.device.free_pinned(self._routes)
            self._copier = None
        for shard in self.shards:
            shard.close()
