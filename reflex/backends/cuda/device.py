"""One CUDA device: chosen, started on a thread of its own, its memory, its stream.

`begin(selection)` returns at once; the driver's start (a tenth of a second) passes while the caller reads the model. Whoever
knows even before that says `expect`. Jobs given with `then` run on the device thread afterwards; `ready()` waits for all of it,
makes the device current in the calling thread and raises what went wrong. Refuses use after a fork: a child process cannot use
its parent's device.
"""

import _thread
from _ctypes import addressof
from posix import getpid
from sys import setswitchinterval
from time import perf_counter_ns

from ... import native
from ...errors import DeviceError, OutOfMemoryError, ReflexError
from ...native import Int64, UInt8, libc
from . import driver
from .driver import call, word

MULTIPROCESSORS, MAJOR, MINOR, INTEGRATED, L2_BYTES = 16, 75, 76, 18, 38
MEMORY_CLOCK, BUS_BITS, SHARED_BYTES, COOPERATIVE = 36, 37, 97, 95
HANDOVER = 0.0001  # seconds after which a busy thread lets the device's go on
MEBIBYTE = 1 << 20


def describe(facts):
    """One line about a device for a person; `facts` as trial.py gives them."""
    major, minor = facts["capability"]
    memory = f"{facts['free_bytes'] / 1e9:.1f} of {facts['total_bytes'] / 1e9:.1f} GB free"
    version = driver.version_text(facts["driver"])
    return f"{facts['name']}, sm_{major}{minor}, driver for CUDA {version}, {memory}, {facts['target']} kernels"


class Device:
    """A started device, current in the thread that made it. All copies and launches are queued on `stream`."""

    def __init__(self, ordinal, handle):
        self.ordinal = ordinal
        self.handle = handle
        self.name = name_of(handle)
        self.uuid = uuid_of(handle)
        self.capability = self.attribute(MAJOR), self.attribute(MINOR)
        self.driver = driver.version()  # 12080: supports CUDA 12.8
        self.context = self.stream = 0
        self.marks = []  # (phase, perf_counter_ns at its end), of the device thread
        self.process = getpid()

    def mark(self, name):
        """The phase `name` of the device thread ends now, if it has not ended before."""
        if all(name != known for known, _ in self.marks):
            self.marks.append((name, perf_counter_ns()))

    def open(self):
        """Make the primary context and the stream."""
        try:
            self.context = word("cuDevicePrimaryCtxRetain", self.handle)
        except OutOfMemoryError as error:
            error.message = "no device memory left for a context"
            raise
        self.attach()
        self.stream = word("cuStreamCreate", 1)  # CU_STREAM_NON_BLOCKING
        return self

    def attach(self):
        """Make the device current in this thread; every thread that uses it needs this once."""
        if getpid() != self.process:
            remedy = "open the model after the fork, or start processes with the spawn method"
            raise DeviceError("the device was started before this process was forked", remedy=remedy)
        call("cuCtxSetCurrent", self.context)

    def attribute(self, number):
        """A CUdevice_attribute."""
        return word("cuDeviceGetAttribute", number, self.handle)

    @property
    def multiprocessors(self):
        return self.attribute(MULTIPROCESSORS)

    @property
    def bandwidth(self):
        """Memory bandwidth in bytes per second, from clock and bus width; 0 where the driver does not say."""
        return self.attribute(MEMORY_CLOCK) * 1000 * 2 * self.attribute(BUS_BITS) // 8

    # ---- memory ----

    def memory(self):
        """(free, total) bytes."""
        cells = (Int64 * 2)()
        call("cuMemGetInfo_v2", addressof(cells), addressof(cells) + 8)
        return cells[0], cells[1]

    def allocate(self, size, what):
        """Address of `size` bytes of device memory; OutOfMemoryError says what needs how much and what is free."""
        cell = Int64()
        status = driver.function("cuMemAlloc_v2")(addressof(cell), size)
        if status == driver.OUT_OF_MEMORY:
            free, total = self.memory()
            found = f"{free // MEBIBYTE} of {total // MEBIBYTE} MiB"
            need = f"{-(-size // MEBIBYTE)} MiB free for {what}"
            raise OutOfMemoryError("out of device memory", need, found, self.name, driver.REMEDIES[driver.OUT_OF_MEMORY])
        if status:
            raise driver.failure("cuMemAlloc_v2", status)
        return cell.value

    def free(self, address):
        call("cuMemFree_v2", address)

    def pinned(self, size):
        """Address of `size` bytes of host memory that the device reads and writes directly."""
        return word("cuMemHostAlloc", size, 0)

    def free_pinned(self, address):
        call("cuMemFreeHost", address)

    def pin(self, address, size):
        """Let the device read and write anonymous memory of this process directly, until `unpin`."""
        call("cuMemHostRegister_v2", address, size, 0)

    def unpin(self, address):
        call("cuMemHostUnregister", address)

    def copy_in(self, target, source, size):
        """Queue a copy from host memory; pinned memory must stay unchanged until a synchronize."""
        call("cuMemcpyHtoDAsync_v2", target, source, size, self.stream)

    def copy_out(self, target, source, size):
        """Queue a copy to host memory, there after `synchronize`."""
        call("cuMemcpyDtoHAsync_v2", target, source, size, self.stream)

    def fill(self, target, value, words):
        """Queue storing a 32-bit value `words` times."""
        call("cuMemsetD32Async", target, value, words, self.stream)

    def synchronize(self):
        """Wait until the stream is done; DeviceError when something in it failed."""
        call("cuStreamSynchronize", self.stream)

    def idle(self):
        """Whether nothing is queued; DeviceError when something failed."""
        status = driver.function("cuStreamQuery")(self.stream)
        if status not in (0, driver.NOT_READY):
            raise driver.failure("cuStreamQuery", status)
        return status == 0

    def close(self):
        """Give back stream and context; only a process that lives on needs this."""
        if self.context and getpid() == self.process:
            call("cuCtxSetCurrent", self.context)
            call("cuStreamDestroy_v2", self.stream)
            call("cuDevicePrimaryCtxRelease_v2", self.handle)
        self.context = self.stream = 0


# ---- choosing -------------------------------------------------------------------------------------------


def name_of(handle):
    buffer = (UInt8 * 256)()
    call("cuDeviceGetName", addressof(buffer), 256, handle)
    return driver.string_at(addressof(buffer))


def uuid_of(handle):
    """32 hex digits; of the instance where the device is a MIG instance."""
    buffer = (UInt8 * 16)()
    call("cuDeviceGetUuid_v2", addressof(buffer), handle)
    return bytes(buffer).hex()


def dashed(digits):
    """A UUID as nvidia-smi writes it."""
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def choose(selection):
    """(ordinal, handle) of the device that `selection` names among those the driver shows: None for the first, an
    index, or the beginning of a UUID with GPU- or MIG- before it. DeviceError lists what there is."""
    count = word("cuDeviceGetCount")
    if not count:
        raise driver.failure("cuDeviceGetCount", driver.NO_DEVICE, driver.NO_DEVICE_FOUND)
    wanted = "0" if selection in (None, "") else str(selection)
    if wanted.isascii() and wanted.isdigit():
        if int(wanted) < count:
            return int(wanted), word("cuDeviceGet", int(wanted))
        found = []
    else:
        kind, _, digits = wanted.partition("-")
        digits = digits.replace("-", "").lower()
        handles = [word("cuDeviceGet", i) for i in range(count)]
        known = kind.upper() in ("GPU", "MIG") and len(digits) > 3
        found = [(i, handle) for i, handle in enumerate(handles) if known and uuid_of(handle).startswith(digits)]
    if len(found) == 1:
        return found[0]
    shown = ", ".join(f"{i} (GPU-{dashed(uuid_of(h))}, {name_of(h)})" for i in range(count) for h in (word("cuDeviceGet", i),))
    message = "several devices match" if found else "no such device"
    raise DeviceError(message, f"one of: {shown}", wanted, "--device", "CUDA_VISIBLE_DEVICES may hide others")


def set_environment(name, value):
    """Set a variable for the driver where the user has not set it."""
    name, value = driver.text(name), driver.text(value)
    libc("setenv", 3)(addressof(name), addressof(value), 0)


def find(selection=None):
    """Start the driver and choose a device, which still has no context; its phases are driver and cuInit."""
    # One queue between process and device halves the time to make a context (H200: 105 -> 55 ms); read by cuInit.
    set_environment("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    if str(selection)[:4].upper() == "MIG-":
        set_environment("CUDA_VISIBLE_DEVICES", str(selection))  # without it the driver shows the first instance only
    driver.load()
    opened = perf_counter_ns()
    status = driver.function("cuInit")(0)
    if status:
        what = driver.NO_DEVICE_FOUND if status == driver.NO_DEVICE else "the CUDA driver does not start"
        raise driver.failure("cuInit", status, what, driver.REMEDIES.get(status, driver.SEE_NVIDIA_SMI))
    initialised = perf_counter_ns()
    device = Device(*choose(selection))
    device.marks += (("driver", opened), ("cuInit", initialised))
    return device


def start(selection=None):
    """A device with its context, current in this thread, while the caller waits."""
    device = find(selection).open()
    device.mark("context")
    return device


class Starting:
    """A device on its way. Jobs run in order on its thread; after an error the rest are dropped."""

    def __init__(self, selection):
        self._device = None
        self._problem = None
        self._jobs = []
        self._begun = perf_counter_ns()
        self._work, self._found, self._over = locks = [_thread.allocate_lock() for _ in range(3)]
        for lock in locks:
            lock.acquire()
        native.start_thread(self._run, (selection,), "cuda backend")

    def _run(self, selection):
        try:
            self._start(selection)
            while True:
                self._work.acquire()
                while self._jobs:
                    job = self._jobs.pop(0)
                    if job is None:
                        return
                    job(self._device)
        except BaseException as problem:
            self._problem = problem
        finally:
            self._over.release()

    def _start(self, selection):
        try:
            self._device = find(selection)
            self._device.marks.insert(0, ("begin", self._begun))
        except BaseException as problem:
            self._problem = problem
            raise
        finally:
            self._found.release()
        self._device.open()
        self._device.mark("context")

    def then(self, job):
        """Let the device thread call `job(device)` when it has nothing else to do."""
        self._jobs.append(job)
        try:
            self._work.release()
        except RuntimeError:  # already told to look
            return

    def chosen(self):
        """The Device as soon as it is known; its context may still be in the making. Raises what prevented it."""
        with self._found:
            if self._problem is not None:
                raise self._problem
            return self._device

    @property
    def is_over(self):
        """Whether the thread has ended, so that nothing given to `then` is done any more."""
        return self._over is None

    def ready(self):
        """The Device, current in this thread, after all jobs; raises the first error. May be called again."""
        if self._over is not None:
            self.then(None)
            self._over.acquire()
            self._over = None
        if self._problem is not None:
            raise self._problem
        self._device.attach()
        return self._device

    def close(self):
        """Wait for the thread and give the device back, whatever became of it."""
        if self._over is not None:
            self.then(None)
            self._over.acquire()
            self._over = None
        if self._device is not None:
            try:
                self._device.close()
            except ReflexError:  # a lost device refuses even this
                return


_expected = []  # (selection, Starting) of devices that no one has begun yet


def expect(selection=None):
    """Start a device that is about to be begun: `begin` with the same selection goes on with it."""
    setswitchinterval(HANDOVER)
    _expected.append((selection or None, Starting(selection or None)))


def begin(selection=None):
    """Start the device that `selection` names (None: the first) on a thread; see `Starting`."""
    for i, (name, _) in enumerate(_expected):
        if name == (selection or None):
            return _expected.pop(i)[1]
    return Starting(selection or None)
