"""The kernels of one device: which file of `cache/` fits it, that the file is whole, handles by name.

A file is one line `RFXCUDA1 target image-offset image-bytes driver checksum`, one line `name letters threads blocks shared
registers` per kernel, an empty line, zeros, and at the offset the image: a cubin, or PTX text ending in a zero byte. `driver`
is the oldest CUDA version that loads it; the checksum is of all that follows the first line. Refuses a device or a driver that
no file fits (DeviceError) and a file that is missing or damaged (KernelCacheError).
"""

from posix import O_CLOEXEC, O_RDONLY, listdir
from posix import close as _close
from posix import fstat as _fstat
from posix import open as _open

from ... import native
from ...errors import DeviceError, KernelCacheError, closest
from ...native import REPAIR
from . import driver
from .driver import call, word

MAGIC = b"RFXCUDA1"
STATIC_SHARED_BYTES = 48 << 10  # dynamic shared memory beyond it must be asked for
MOST_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
CARVEOUT = 9  # CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT


class Kernel:
    """What a launch must know of an entry point. `letters`: one per parameter, as in kernels/cuda/export.py."""

    __slots__ = ("blocks", "dynamic", "letters", "name", "registers", "shared", "threads")

    def __init__(self, name, letters, threads, blocks, shared, registers):
        self.name = name
        self.letters = "" if letters == "-" else letters
        self.threads = int(threads)  # per block
        self.blocks = int(blocks)  # per multiprocessor that registers are left for
        self.shared = int(shared)  # static bytes
        self.registers = int(registers)
        self.dynamic = 0  # most dynamic bytes any launch so far asked for

    def need_shared(self, size):
        if size > self.dynamic:
            self.dynamic = size


class Image:
    """A mapped and verified file of kernels for one target; needs no device."""

    def __init__(self, path, target, needs, listing, address, size, mapping):
        self.path = path
        self.target = target  # sm_90, compute_75
        self.needs = needs  # driver version, like 12000
        self.address = address
        self.size = size
        self._listing = listing
        self._mapping = mapping
        self._kernels = {}

    @property
    def is_ptx(self):
        return self.target.startswith("compute_")

    def __contains__(self, name):
        return self._listing.find(b"\n%s " % name.encode()) >= 0

    def kernel(self, name):
        """The Kernel called `name`; one object per name."""
        found = self._kernels.get(name)
        if found is None:
            at = self._listing.find(b"\n%s " % name.encode())
            if at < 0:
                near = f"kernels like {closest(name, self.names())}"
                raise KernelCacheError(f"no CUDA kernel named {name!r}", found=near, where=self.path, remedy=REPAIR)
            words = self._listing[at + 1 : self._listing.index(b"\n", at + 1)].decode().split()
            found = self._kernels[name] = Kernel(*words)
        return found

    def names(self):
        return [line.split()[0].decode() for line in self._listing.split(b"\n") if line]

    def close(self):
        self._mapping.free()


def open_image(path):
    """Map one file and verify it."""
    try:
        descriptor = _open(path, O_RDONLY | O_CLOEXEC)
    except OSError as error:
        raise KernelCacheError("CUDA kernel file cannot be opened", found=error.strerror, where=path, remedy=REPAIR) from None
    try:
        total = _fstat(descriptor).st_size
        if total < 16:
            raise KernelCacheError("CUDA kernel file is cut short", found=f"{total} bytes", where=path, remedy=REPAIR)
        mapping = native.map_descriptor(descriptor, total, path)
    finally:
        _close(descriptor)
    try:
        return _verified(path, native.view(mapping.address, total), mapping)
    except BaseException:
        mapping.free()
        raise


def _verified(path, data, mapping):
    head = bytes(data[: min(len(data), 1 << 16)])
    if head[:8] != MAGIC:
        raise KernelCacheError("not a CUDA kernel file", MAGIC.decode(), repr(head[:8]), path, REPAIR)
    first, end = head.find(b"\n"), head.find(b"\n\n")
    try:
        _, target, offset, size, needs, checksum = head[:first].decode("ascii").split()
        offset, size, needs = int(offset), int(size), int(needs)
    except ValueError:
        end = -1
    if end < 0:
        raise KernelCacheError("CUDA kernel file has a malformed header", where=path, remedy=REPAIR)
    if offset + size != len(data) or offset < end or size < 4:
        raise KernelCacheError("CUDA kernel file is cut short", f"{offset + size} bytes", f"{len(data)} bytes", path, REPAIR)
    found = native.checksum_of(data[first + 1 :])
    if found != checksum:
        raise KernelCacheError("CUDA kernel file is corrupt", f"checksum {checksum}", found, path, REPAIR)
    return Image(path, target, needs, head[first : end + 1], mapping.address + offset, size, mapping)


# ---- which file -----------------------------------------------------------------------------------------


def targets(folder):
    """{target: path} of the CUDA files in a folder, like {"sm_90": ..., "compute_75": ...}."""
    try:
        names = listdir(folder)
    except OSError:
        return {}
    return {name[5:-4]: f"{folder}/{name}" for name in names if name.startswith("cuda-") and name.endswith(".bin")}


def _number(target):
    """90 of sm_90, sm_90a and compute_90."""
    digits = target.rpartition("_")[2]
    return int("".join(c for c in digits if c.isdigit()) or 0)


def candidates(names, capability):
    """Targets of `names` that a device of this capability can run, best first: its own cubin (one with an architecture suffix
    before the plain one), those of lower minor versions, then PTX of lower versions."""
    major, minor = capability
    own = major * 10 + minor
    cubins = [n for n in names if n.startswith("sm_")]
    exact = sorted((n for n in cubins if _number(n) == own), key=len, reverse=True)
    lower = [n for n in cubins if n[-1].isdigit() and _number(n) // 10 == major and _number(n) < own]
    texts = [n for n in names if n.startswith("compute_") and n[-1].isdigit() and _number(n) <= own]
    return [*exact, *sorted(lower, key=_number, reverse=True), *sorted(texts, key=_number, reverse=True)]


def choose(device, folder=None):
    """The Image for a device. Where the driver is too old for a cubin the next file that fits is taken."""
    folder = folder or native.cache_folder()
    known = targets(folder)
    if not known:
        raise KernelCacheError("no CUDA kernels in the cache", "cuda-*.bin", "none", folder, REPAIR)
    names = candidates(known, device.capability)
    own = f"sm_{device.capability[0]}{device.capability[1]}"
    if not names:
        have = ", ".join(sorted(known, key=lambda n: (n[0], _number(n))))
        raise DeviceError("no kernels for this device", have, f"{own} ({device.name})", folder, "use --backend cpu")
    oldest = None
    for name in names:
        image = open_image(known[name])
        if device.driver >= image.needs:
            return image
        oldest = image.needs if oldest is None else min(oldest, image.needs)
        image.close()
    need, found = f"a driver for CUDA {driver.version_text(oldest)} or newer", f"CUDA {driver.version_text(device.driver)}"
    raise DeviceError("the CUDA driver is too old", need, found, device.name, driver.UPDATE)


class Module:
    """An image loaded into the device's context."""

    def __init__(self, device, image):
        self.image = image
        self._handles = {}
        self._dynamic = {}  # kernel name -> bytes allowed
        status, cell = self._load(image.address)
        if status:
            raise self._refused(device, status)
        self._module = cell
        device.mark("module")

    @staticmethod
    def _load(address):
        cell = native.Int64()
        return driver.function("cuModuleLoadData")(native.address_of(cell), address), cell.value

    def _refused(self, device, status):
        what = f"the driver refuses the kernels for {self.image.target}"
        if status in (222, 221, 218) or (self.image.is_ptx and status in driver.REFUSED_CODE):
            need, found = f"CUDA {driver.version_text(self.image.needs)} or newer", f"CUDA {driver.version_text(device.driver)}"
            return DeviceError(what, need, f"{found}, {driver.status_name(status)}", self.image.path, driver.UPDATE)
        return driver.failure("cuModuleLoadData", status, what)

    def handle(self, kernel):
        """The driver's handle of a Kernel, allowed the dynamic shared memory that its launches asked for."""
        handle = self._handles.get(kernel.name)
        if handle is None:
            name = driver.text(kernel.name)
            cell = native.Int64()
            status = driver.function("cuModuleGetFunction")(native.address_of(cell), self._module, native.address_of(name))
            if status:
                raise self._missing(kernel, status)
            handle = self._handles[kernel.name] = cell.value
        if kernel.dynamic + kernel.shared > STATIC_SHARED_BYTES and kernel.dynamic > self._dynamic.get(kernel.name, 0):
            call("cuFuncSetAttribute", handle, MOST_DYNAMIC_SHARED, kernel.dynamic)
            self._dynamic[kernel.name] = kernel.dynamic
        return handle

    def _missing(self, kernel, status):
        if status != driver.NOT_FOUND:
            return driver.failure("cuModuleGetFunction", status)
        found = driver.status_name(status)
        return KernelCacheError(f"no CUDA kernel named {kernel.name!r}", found=found, where=self.image.path, remedy=REPAIR)

    def resident(self, kernel, shared=0):
        """Blocks of a kernel that run at once on one multiprocessor."""
        return word("cuOccupancyMaxActiveBlocksPerMultiprocessor", self.handle(kernel), kernel.threads, shared) & 0xFFFFFFFF

    def close(self):
        call("cuModuleUnload", self._module)
        self.image.close()
