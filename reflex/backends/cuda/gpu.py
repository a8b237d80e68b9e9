"""A device on its way to a model's weights: driver, context, kernels and upload pass on threads of their own.

Made before the model file is opened, because a context takes longer than everything else in a cold start. Called by open.py
and by the Plan (backend.py).
"""

from ...errors import ReflexError
from . import device, module, upload
from .memory import Layout


class Gpu:
    """A device on its way to a model's weights."""

    def __init__(self, selection="", weights="quantized"):
        self.weights = weights
        self.starting = device.begin(selection or None)
        self.image = self.module = self.layout = self.upload = None
        self.base = 0  # device address of the weights

    def load(self, file):
        """Queue the loading of kernels and weights behind the start of the device."""
        self.layout = Layout(file)
        self.upload = upload.Upload(file.shards)
        for tensor in file.tensors.values():
            self.upload.add(self.layout.place(tensor.address), tensor.address, tensor.nbytes)
        self.starting.then(self._load)

    def _load(self, found):
        self.module = module.Module(found, self.choose(found))
        self.base = found.allocate(self.layout.size, "the weights")
        found.mark("arena")
        self.upload.begin(found, self.base)

    def choose(self, found):
        """The Images of kernels that fit the device."""
        if self.image is None:
            self.image = module.choose(found)
        return self.image

    @property
    def description(self):
        found = self.starting.chosen()
        return f"{found.name}, kernels {self.choose(found).target}"

    def close(self):
        """Give everything back; for a process that lives on."""
        if self.upload is not None:
            self.upload.finish()
        try:
            found = self.starting.ready()
        except ReflexError:  # said where the device was wanted
            self.starting.close()
            return
        if self.base:
            found.free(self.base)
        if self.module is not None:
            self.module.close()
        found.close()
