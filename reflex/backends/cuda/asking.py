"""Experts that stay in the file until a router asks for them.

The launches of a batch are queued up to where a router has chosen; the host reads the choice, has the experts that are not on the
device copied there (fetch.py), and queues the rest behind the copies. An expert lies where it would lie had all been uploaded, so
that the launches, and every bit of their results, are the same.

Where memory for experts is limited, a layer has fewer slots than experts: launches then see slots in place of experts, and the
expert that was not asked for longest leaves. A batch that asks for more than there are slots has its products computed in rounds,
each for the pairs of a row and an expert that are there.

Without a limit the router of the next layer is asked as well what it thinks of this layer's rows: experts that it would choose are
copied while nothing else is, and what has not been begun when it really chooses is forgotten. Called by backend.py and gpu.py for
programs with experts.
"""

from ... import native
from ...errors import InvalidInputError, UnsupportedError
from ..layers import facts
from .driver import call, word
from .gpu import BIASES, STACK
from .shard import Shard

NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING
MOST_SHARE = 0.75  # of the experts: a batch that is likely to ask for more of them is served quicker by uploading all


def share(file, most, weights):
    """{name of a stack: slots} with which all stacks of a file take at most `most` bytes; every layer has the same number, or one
    for each expert where that is less. Empty where all fit or there are none."""
    stacks = {name: tensor for name, tensor in file.tensors.items() if name.endswith((STACK, BIASES))}
    if not stacks or sum(tensor.nbytes for tensor in stacks.values()) <= most:
        return {}
    if weights != "quantized":
        remedy = "leave one of the two out"
        raise UnsupportedError("a limit for experts needs weights as in the file", "--weights quantized", weights, remedy=remedy)
    for name, tensor in stacks.items():
        if name.endswith(BIASES) and tensor.type:
            raise UnsupportedError("biases of experts must be float32 where memory is limited", "F32", f"type {tensor.type}", name)
    each = sum(tensor.nbytes // tensor.shape[-1] for tensor in stacks.values())  # a slot in every layer
    architecture = file.s("general.architecture")
    used = file.u(f"{architecture}.expert_used_count")
    slots = most // each
    if slots < used:
        raise InvalidInputError("too little memory for the experts of one token", f"{used * each} bytes", most, "--expert-memory")
    return {name: min(slots, tensor.shape[-1]) for name, tensor in stacks.items()}


def following(program, tensors):
    """{id of a step: the step of the next layer with experts} for steps `route`, the routers before them and the norms before
    those, where the next router can be asked about the input of this one's: all sizes and rules are the same."""
    chains, wrote = [], {}
    for step in program.steps:
        if step.op == "route":
            router = wrote[step.ins[0]]
            norm = wrote.get(router.ins[0])
            chains.append([step, router, *([norm] if norm and norm.op == "rmsnorm" else [])])
        wrote[step.out] = step

    known = [[facts([step], tensors) for step in chain] for chain in chains]
    found = {}
    for i in range(len(chains) - 1):
        if known[i] == known[i + 1]:
            found.update(zip(map(id, chains[i]), chains[i + 1], strict=True))
    return found


class Mixture:
    """The experts of one layer: what they are made of and which are on the device."""

    def __init__(self, experts, used, slots):
        self.experts = experts
        self.used = used  # experts of a row
        self.slots = slots
        self.here = {}  # expert -> its slot, in the order in which they were asked for last
        self.parts = []  # (Shard, offset in the file, offset in the area of the weights, bytes of one expert)
        self.next = None  # Mixture whose router is asked ahead
        self.table = None  # the same for a Copier

    def rounds(self, chosen):
        """The chosen experts in as many lists as it takes, those that are here first: they need no copy."""
        order = sorted(chosen, key=lambda expert: (expert not in self.here, expert))
        return [order[at : at + self.slots] for at in range(0, len(order), self.slots)]

    def seat(self, wanted):
        """Give each wanted expert a slot; returns [(expert, slot)] of those whose contents are missing."""
        here, missing = self.here, []
        for expert in wanted:
            if expert in here:
                here[expert] = here.pop(expert)  # now the latest
        for expert in wanted:
            if expert not in here:
                if self.slots == self.experts:
                    slot = expert
                elif len(here) < self.slots:
                    slot = len(here)
                else:
                    slot = here.pop(next(iter(here)))
                here[expert] = slot
                missing.append((expert, slot))
        return missing

    def bytes_of(self, count):
        return count * sum(size for *_, size in self.parts)


class Experts:
    """All mixtures of a program. `asked`: experts chosen by batches; `fetched`, `bytes`: those copied for it, and what that took;
    `guessed`, `right`: those copied before they were asked for, and how many of them then were."""

    def __init__(self, gpu, program, rows):
        """`rows`: of the largest batch."""
        self.gpu = gpu
        self.shards = [Shard(header) for header in gpu.file.shards]
        self.mixtures = {}  # id of a step `route` -> Mixture
        self.asked = self.fetched = self.bytes = self.guessed = self.right = 0
        self._rows = rows
        self._copier = None
        self._routes = self._seen = self._guesses = 0  # in pinned memory: what a router wrote, the same with slots in place of
        # experts, what the next one would write
        self._guess = None  # (Mixture, experts in the order in which they were offered, pieces of each)
        for step in program.steps:
            if step.op == "route":
                route = step
            elif step.op == "expert_linear":
                for name in filter(None, step.weights):
                    if name in gpu.stacks:
                        self._add(route, gpu.stacks[name])
                    elif gpu.slots:
                        remedy = "leave --expert-memory out"
                        raise UnsupportedError("these experts cannot come and go", "stacks of the model", name, remedy=remedy)
        for mixture in self.mixtures.values():
            numbers = [number for shard, *rest in mixture.parts for number in (shard.descriptor, *rest)]
            mixture.table = (native.Int64 * len(numbers))(*numbers)
        for at, step in following(program, gpu.file.tensors).items():
            if at in self.mixtures:
                self.mixtures[at].next = self.mixtures.get(id(step))

    def _add(self, route, tensor):
        mixture = self.mixtures.get(id(route))
        if mixture is None:
            experts = tensor.shape[-1]
            mixture = Mixture(experts, route.args["used"], self.gpu.slots.get(tensor.name, experts))
            self.mixtures[id(route)] = mixture
        shard = next(s for s in self.shards if s.start <= tensor.address < s.start + s.size)
        place = self.gpu.layout.place(tensor.address)
        part = shard, tensor.address - shard.start, place, tensor.nbytes // tensor.shape[-1]
        if part not in mixture.parts:  # gate and up may be rows of one tensor
            mixture.parts.append(part)

    def few(self, rows):
        """Whether a batch of so many rows is to ask for its experts: memory is limited, or it is likely to leave enough of them
        unasked, if each row chooses by itself."""
        shares = [1 - (1 - m.used / m.experts) ** rows for m in self.mixtures.values()]
        return bool(self.gpu.slots) or max(shares, default=1.0) <= MOST_SHARE

    def run(self, plan, shape):
        """Queue the launches of a batch."""
        if self._copier is None:
            self._begin(plan.device)
        parts = [(-1, shape.first, shape.last)]
        if not plan.arrived:
            parts = shape.parts or parts
        row, self._waited = shape.first, -1
        for stop, end, *choice in shape.stops:
            self._through(plan, shape.chain, parts, row, stop)
            self._ask(plan, lambda last=end, first=stop: self._through(plan, shape.chain, parts, first, last), *choice)
            row = end
        self._through(plan, shape.chain, parts, row, shape.last)

    def _begin(self, device):
        from .fetch import ASKED, GUESSED, Counter

        self._copier, self._device = self.gpu.copier, device
        self._lanes = [(ASKED, Counter()), (GUESSED, Counter())]
        self._done = word("cuEventCreate", NO_TIMING)
        size = 8 * self._rows * max(mixture.used for mixture in self.mixtures.values())
        self._routes = device.pinned(3 * size)
        self._seen, self._guesses = self._routes + size, self._routes + 2 * size

    def _through(self, plan, chain, parts, row, last):
        """Queue rows [row, last) of a chain, each part behind the weights it needs."""
        for mark, begun, end in parts:
            first, until = max(row, begun), min(last, end)
            if first < until:
                if not plan.arrived and mark not in range(self._waited + 1):
                    self.gpu.upload.wait(mark)
                    self._waited = mark
                chain.run(first, until)

    def _ask(self, plan, compute, step, routes, rows, guesses):
        """Have the experts on the device that `rows` rows were routed to by `step`, which wrote `routes`, and call `compute` for
        them: more than once where they have too few slots. `guesses`: where the router of the next layer wrote what it would choose
        for the same rows, or 0."""
        mixture, device = self.mixtures[id(step)], plan.device
        guesses = mixture.next and guesses
        used, limited = mixture.used, mixture.slots < mixture.experts
        size, address = 2 * rows * used, plan.address(routes)
        device.copy_out(self._routes, address, 4 * size)
        if guesses:
            device.copy_out(self._guesses, plan.address(guesses), 4 * size)
        device.synchronize()
        asked, seen = (native.view(at, size, "f") for at in (self._routes, self._seen))
        pairs = [at for first in range(used, size, 2 * used) for at in range(first, first + used)]
        chosen = [int(asked[at]) for at in pairs]
        waiting = self._end_guess(set(chosen))
        rounds = mixture.rounds(set(chosen))
        self.asked += sum(map(len, rounds))
        if limited:
            seen[:] = asked
        for number, wanted in enumerate(rounds):
            if number:
                device.synchronize()  # until the slots are free, and the list of the round before was copied
            missing = mixture.seat(wanted)
            self._fetch(mixture, missing, waiting and not number)
            if guesses and not number:
                self._begin_guess(mixture.next, pairs, used)
            if limited:
                slots = {expert: mixture.here[expert] for expert in wanted}
                for at, expert in zip(pairs, chosen, strict=True):
                    seen[at] = slots.get(expert, -1)
                device.copy_in(address, self._seen, 4 * size)
            compute()
        if limited:
            device.copy_in(address, self._routes, 4 * size)  # whoever reads them next wants experts

    def _fetch(self, mixture, missing, waiting):
        """Let the device's stream wait for the missing experts, and for those that were guessed (`waiting`)."""
        (asked, counter), (_, guessed) = self._lanes
        try:
            if missing:
                self.fetched += len(missing)
                self.bytes += mixture.bytes_of(len(missing))
                self._copier.offer(asked, mixture.table, self.gpu.base, missing, counter)
                self._copier.queued(counter)
            if waiting:
                self._copier.queued(guessed)
        except BaseException:
            mixture.here.clear()  # who asks again must not find what never came
            raise
        if missing or waiting:
            call("cuEventRecord", self._done, self._copier.stream)
            call("cuStreamWaitEvent", self._device.stream, self._done, 0)

    def _begin_guess(self, mixture, pairs, used):
        """Offer the experts that the next router would choose, the first choices of all rows first."""
        found = native.view(self._guesses, pairs[-1] + 1, "f")
        order = [int(found[at]) for first in range(used) for at in pairs[first::used]]
        wanted = [expert for expert in dict.fromkeys(order) if 0 <= expert < mixture.experts and expert not in mixture.here]
        if wanted:
            lane, counter = self._lanes[1]
            pieces = self._copier.offer(lane, mixture.table, self.gpu.base, [(expert, expert) for expert in wanted], counter)
            self._guess = mixture, wanted, pieces // len(wanted)

    def _end_guess(self, chosen):
        """Forget what was guessed and not begun; what was copied whole is here. Returns whether copies may be under way."""
        if self._guess is None:
            return False
        (mixture, wanted, each), self._guess = self._guess, None
        taken = len(wanted) * each - self._copier.withdraw(*self._lanes[1])
        whole = wanted[: taken // each]
        mixture.seat(whole)
        self.guessed += len(whole)
        self.right += len(chosen.intersection(whole))
        self.bytes += mixture.bytes_of(len(whole))
        return taken > 0

    def close(self):
        if self._copier is not None:
            call("cuEventDestroy_v2", self._done)
            self._device.free_pinned(self._routes)
            self._copier = None
        for shard in self.shards:
            shard.close()
