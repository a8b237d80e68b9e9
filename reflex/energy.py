"""The energy that a GPU takes for a call, by NVML: joules less what the idle device would have taken in the same time.

What the idle device takes is measured before anything of the call touches it. Read is the device's total energy counter, from one
of its updates to another; devices without one have their power sampled. Both are of the whole device, whoever uses it. While NVML
is open the device is awake. Called for --energy alone; needs the package nvidia-ml-py.
"""

import time

from . import native
from .backends import choice
from .errors import DeviceError, InvalidInputError

IDLE = 1.5  # seconds over which the idle device is measured
STILL = 0.5  # seconds after which a counter that was not updated is taken as it is
PAUSE = 0.002  # seconds between two readings of a counter
SAMPLE = 0.02  # and of the power
COUNTER, SAMPLES = "total energy counter", "sampled power"


def library():
    """NVML, started."""
    try:
        import pynvml
    except ModuleNotFoundError:
        remedy = "pip install 'reflex-gguf[energy]'"
        raise DeviceError("energy needs NVML's bindings", "the package nvidia-ml-py", "nothing", remedy=remedy) from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        remedy = "it comes with the driver; in a container ask for its `utility` capability"
        raise DeviceError("NVML does not start", "libnvidia-ml.so.1", str(error), remedy=remedy) from None
    return pynvml


class Counter:
    """The total energy counter of a device. `read`: (seconds, joules) at its next update."""

    method = COUNTER

    def __init__(self, nvml, handle, clock, sleep):
        self.nvml, self.handle, self.clock, self.sleep = nvml, handle, clock, sleep
        self.name = nvml.nvmlDeviceGetName(handle)
        self.state()

    def state(self):
        """Joules, as the device says now; changes with each update."""
        return self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.handle) / 1000

    def read(self):
        first, until = self.state(), self.clock() + STILL
        while self.clock() < until:
            self.sleep(PAUSE)
            state = self.state()
            if state != first:
                return self.clock(), state
        return self.clock(), first

    def close(self):
        """Nothing runs."""


class Samples(Counter):
    """The same by readings of the power, in a thread of their own: what was read holds until it is read again."""

    method = SAMPLES

    def __init__(self, nvml, handle, clock, sleep):
        self.joules, self.problem, self.over = 0.0, None, False
        super().__init__(nvml, handle, clock, sleep)
        native.start_thread(self._run, (self.clock(), self.power()), "energy")

    def power(self):
        """Watts."""
        return self.nvml.nvmlDeviceGetPowerUsage(self.handle) / 1000

    def state(self):
        if self.problem is not None:
            raise self.problem
        return self.joules

    def _run(self, before, watts):
        try:
            while not self.over:
                self.sleep(SAMPLE)
                now, next_watts = self.clock(), self.power()
                self.joules += (now - before) * (watts + next_watts) / 2
                before, watts = now, next_watts
        except Exception as problem:
            self.problem = problem

    def close(self):
        self.over = True


class Meter:
    """Made before a device is started, which takes IDLE seconds; then `result` says what a plan's device took since.

    `backend`: what will compute, which must be a GPU. DeviceError where NVML is missing or tells nothing."""

    def __init__(self, backend="cuda", nvml=None, clock=time.monotonic, sleep=time.sleep):
        if choice.resolve(backend) != "cuda":
            found, remedy = f"{backend}, which is a CPU", "use --backend cuda, or leave out --energy"
            raise InvalidInputError("energy is measured on GPUs alone", "the backend cuda", found, remedy=remedy)
        self.nvml = nvml or library()
        self.clock, self.sleep = clock, sleep
        self.plan = None  # what computes, given later
        with Complaints(self.nvml):
            self.devices = self._devices()
            before = self._read()
            sleep(IDLE)
            self.begun = self._read()
        self.idle = {name: power(before[name], at) for name, at in self.begun.items()}

    def _devices(self):
        nvml, found = self.nvml, {}
        for number in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(number)
            name = nvml.nvmlDeviceGetUUID(handle)
            for kind in (Counter, Samples):
                try:
                    found[name] = kind(nvml, handle, self.clock, self.sleep)
                    break
                except nvml.NVMLError_NotSupported:
                    continue
        if not found:
            remedy = "virtual GPUs say nothing of it: measure on the host"
            raise DeviceError("no device tells its energy or its power", "one that does", "none", remedy=remedy)
        return found

    def _read(self):
        return {name: device.read() for name, device in self.devices.items()}

    def restart(self):
        """What is measured begins now."""
        with Complaints(self.nvml):
            self.begun = self._read()

    def _device(self, uuid):
        """The NVML device of a CUDA device's UUID, which is that of an instance where the device is a MIG instance."""
        from .backends.cuda.device import dashed

        name = f"GPU-{dashed(uuid)}"
        if name not in self.devices:
            try:
                instance = self.nvml.nvmlDeviceGetHandleByUUID(f"MIG-{dashed(uuid)}")
                name = self.nvml.nvmlDeviceGetUUID(self.nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instance))
            except self.nvml.NVMLError:
                pass  # the error below says it
        if name not in self.devices:
            found = ", ".join(self.devices)
            raise DeviceError("the device in use tells no energy", name, found, remedy="choose another one by --device")
        return name

    def result(self):
        """What the device in use took since the beginning: {method, device, joules (idle subtracted), gross_joules, idle_watts,
        seconds}."""
        device = getattr(self.plan, "device", None)
        if device is None:
            raise DeviceError("nothing was computed on a GPU", "the backend cuda", "none", remedy="use --backend cuda")
        device.synchronize()
        with Complaints(self.nvml):
            name = self._device(device.uuid)
            (begun, before), (now, after) = self.begun[name], self.devices[name].read()
        seconds, gross, idle = now - begun, after - before, self.idle[name]
        return {
            "method": self.devices[name].method,
            "device": self.devices[name].name,
            "joules": round(gross - idle * seconds, 3),
            "gross_joules": round(gross, 3),
            "idle_watts": round(idle, 2),
            "seconds": round(seconds, 4),
        }

    def close(self):
        """End the threads that read; NVML stays loaded."""
        for device in self.devices.values():
            device.close()


class Complaints:
    """A context in which an error of NVML is a DeviceError."""

    def __init__(self, nvml):
        self.kind = nvml.NVMLError

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if isinstance(error, self.kind):
            remedy = "look at the device with nvidia-smi"
            raise DeviceError("NVML does not tell the energy", "a reading", str(error), remedy=remedy) from None


def power(before, after):
    """Watts between two readings."""
    return (after[1] - before[1]) / (after[0] - before[0])


def text(found):
    """A result as a line for a person."""
    spent = f"{found['joules']:.2f} J in {found['seconds']:.2f} s beside {found['idle_watts']:.1f} W when idle"
    return f"energy        {spent} ({found['method']}, {found['device']})"
