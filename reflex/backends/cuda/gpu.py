"""A device on its way to a model's weights: driver, context, kernels and upload pass on threads of their own.

Made before the model file is opened, because a context takes longer than everything else in a cold start. Called by open.py
and by the Plan (backend.py).
"""

import _thread

from ...errors import ReflexError
from ...quant.types import by_id
from . import device, module, upload
from .launch import Chain
from .memory import EXPANDED_AT_ONCE, WEIGHTS, Layout

LEAST_PART = 16 << 20  # bytes of weights that are waited for by themselves
LAST = "output"  # how the names of tensors begin that follow all layers
STACK, BIASES = "_exps.weight", "_exps.bias"  # how the names of tensors end that hold something for each expert


class Gpu:
    """A device on its way to a model's weights.

    `experts`: lazy (those of a mixture stay in the file until they are asked for, where a batch asks for few) or eager. `most`:
    bytes of device memory for experts, 0 for no limit; with one, they come when they are asked for and leave when others need the
    place."""

    def __init__(self, selection="", weights="quantized", experts="lazy", most=0):
        self.weights = weights
        self.most = most
        self.slots = {}  # of experts for which there is room, by the name of their stack; empty: for all
        self.eager = experts == "eager"
        self.starting = device.begin(selection)
        self.image = self.module = self.layout = self.upload = None
        self.base = self.expanded = 0  # device addresses of the weights
        self._fetches = False  # whether threads read the file, because experts may stay in it
        self.copier = self._buffers = None  # of those threads
        self.arrivals = []  # where in the area each part of the upload ends, by its mark
        self.late = []  # [(begin, end)] of the area that come behind all others
        self.file = None
        self.stacks = {}  # tensors that may stay in the file until experts are asked for, {name: Tensor}
        self.rest = None  # the Upload of those, once it has begun
        self._plan = _thread.allocate_lock()
        self._planned = False

    def load(self, file):
        """Queue the loading of kernels and weights behind the start of the device."""
        self.file = file
        if self.most:
            from .asking import share

            self.slots = share(file, self.most, self.weights)
        sizes = {name: slots * file.tensors[name].nbytes // file.tensors[name].shape[-1] for name, slots in self.slots.items()}
        self.layout = Layout(file, self.weights, sizes)
        self.upload = upload.Upload(file.shards)
        if self.slots:
            self.stacks = {name: file.tensors[name] for name in self.slots}
        elif not (self.eager or self.layout.expanded):
            self.stacks = {name: tensor for name, tensor in file.tensors.items() if name.endswith(STACK)}
        self._fetches = bool(self.stacks)
        if not self.stacks:
            self.plan_upload(False)
        self.starting.then(self._load)

    def plan_upload(self, lazy):
        """Decide, once, what is uploaded: all, or what is not a stack of experts. The first batch decides, or the device when it is
        ready before one is known."""
        with self._plan:
            if self._planned:
                return
            self._planned = True
            if not lazy:
                self.stacks = {}
            tensors = [tensor for name, tensor in self.file.tensors.items() if name not in self.stacks]
            self._fill(self.upload, sorted((self.layout.place(tensor.address), tensor) for tensor in tensors))
            if self._fetches:
                from .fetch import Buffers

                self._buffers = Buffers()
                self.upload.closes = not self.stacks
            else:
                self.upload.populate()

    def upload_rest(self):
        """Let all that is queued from now on find every tensor on the device."""
        if self.stacks:
            found = self.starting.ready()
            self.rest = upload.Upload(self.file.shards)
            if self.copier is not None:
                self.upload.wait()  # until it has offered all: one at a time fills a lane
                self.rest.copier = self.copier
            for tensor in self.stacks.values():
                self.rest.add(self.layout.place(tensor.address), tensor.address, tensor.nbytes)
            self.rest.begin(found, self.base)
            self.rest.wait()
            self.stacks = {}
            if self.copier is not None:
                self.copier.close()
                self.copier = self._buffers = None

    def _fill(self, what, places):
        """[(place, tensor)] in their order in the file, in parts that become half as long: what uses the last part has little to
        do. Where experts stay in the file, in parts of few layers, and what follows all layers comes last."""
        late = [(place, tensor) for place, tensor in places if self.stacks and tensor.name.startswith(LAST)]
        early = [one for one in places if one not in late]
        part = left = sum(tensor.nbytes for _, tensor in early)
        for place, tensor in early:
            what.add(place, tensor.address, tensor.nbytes)
            left -= tensor.nbytes
            if left > 0 and (part - left >= LEAST_PART if self.stacks else left <= part // 2 and part > LEAST_PART):
                self.arrivals.append(place + tensor.nbytes)
                what.mark()
                part = left
        self.arrivals.append(self.layout.size)
        if late:
            what.mark()
            self.late = [(place, place + tensor.nbytes) for place, tensor in late]
            for place, tensor in late:
                what.add(place, tensor.address, tensor.nbytes)
            self.arrivals.append(2 * self.layout.size)

    def _order(self, offset):
        """A place in the area as the upload passes it."""
        return offset + self.layout.size * any(begin <= offset < end for begin, end in self.late)

    def parts(self, chain, first, last):
        """Rows [first, last) of a chain whose addresses are still relative, as [(mark to wait for, first, last)]: a part with
        each mark that its weights need, and no row of a part starts before the wait."""
        found, mark, begun = [], 0, first
        for row in range(first, last):
            most = max(map(self._order, chain.offsets(row, WEIGHTS)), default=-1)
            if most >= self.arrivals[mark]:
                if row > begun:
                    found.append((mark, begun, row))
                    chain.alone(row)
                    begun = row
                while most >= self.arrivals[mark]:
                    mark += 1
        return [*found, (mark, begun, last)]

    def _load(self, found):
        self.module = module.Module(found, self.choose(found))
        self.base = found.allocate(self.layout.size, "the weights")
        if self.layout.expanded_size:
            self.expanded = found.allocate(self.layout.expanded_size, f"weights as {self.weights}")
        found.mark("arena")
        self.plan_upload(True)
        if self._buffers:
            from .fetch import Copier

            self.upload.copier = self.copier = Copier(found, self._buffers)
        self.upload.begin(found, self.base)

    def prepare(self, kernels):
        """Let the device thread load these kernels while the weights are on their way."""
        self.starting.then(lambda found: [self.module.handle(kernel) for kernel in kernels if kernel is not None])

    def expand(self, library):
        """Queue the expansion of quantized matrices, where that was asked for."""
        if not self.layout.expanded:
            return
        found = self.starting.ready()
        chain = Chain(library)
        for name, (offset, kind) in self.layout.expanded.items():
            tensor = self.file.tensors[name]
            source, target = self.base + self.layout.place(tensor.address), self.expanded + offset
            kernel, wide = self.image.kernel("expand_" + by_id(tensor.type).name), int(by_id(kind).nbytes == 4)
            grid = (tensor.elements + EXPANDED_AT_ONCE - 1) // EXPANDED_AT_ONCE
            chain.add(kernel, grid, (source, target, tensor.elements, wide))
        chain.bind(found, self.module)
        chain.run()
        found.synchronize()
        chain.close()

    def choose(self, found):
        """The Images of kernels that fit the device."""
        if self.image is None:
            self.image = module.choose(found)
        return self.image

    def warning(self):
        """What a person should know about the kernels chosen, or None."""
        if not self.image.is_ptx:
            return None
        return "no kernels are compiled for this GPU: the driver compiles portable ones, which takes a second or more per start"

    @property
    def description(self):
        found = self.starting.chosen()
        return f"{found.name}, kernels {self.choose(found).target}"

    def close(self):
        """Give everything back; for a process that lives on."""
        for begun in (self.upload, self.rest):
            if begun is not None:
                begun.finish()
        if self.copier is not None:
            self.copier.close()
        elif self._buffers is not None:
            self._buffers.pages.free()
        try:
            found = self.starting.ready()
        except ReflexError:  # said where the device was wanted
            self.starting.close()
            return
        for address in (self.base, self.expanded):
            if address:
                found.free(address)
        if self.module is not None:
            self.module.close()
        found.close()
