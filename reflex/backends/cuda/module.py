"""The kernels of one device: which file of `cache/` fits it, that the file is whole, images and handles by kernel name.

A file is one line `RFXCUDA3 target offset bytes checksum`, one line `name at size pieces checksum threads registers shared
letters` per kernel, an empty line, zeros, and from the offset on the images: cubins, or PTX texts that end in a zero byte, each an
.xz stream. Of a cubin that shares bytes with others, `at` is the place of its pieces: two words for each, its place in the file and
its size in units of 16 bytes. Kernels with the same `at` share an image; an image is read, verified and loaded when the first of
its kernels is used.
Refuses a device or a driver that no file fits (DeviceError) and a file that is missing or damaged (KernelCacheError).
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

MAGIC = b"RFXCUDA3"
UNIT = 16  # bytes
DEFAULT_SHARED_BYTES = 48 << 10  # static and dynamic shared memory beyond it must be asked for
MOST_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
PTX = "ptx"
PTX_CAPABILITY = 80  # the feature level of the PTX file
PTX_DRIVER = 11040  # compiles PTX 7.4
BLOCK_SHARED_BYTES = {"sm_75": 64 << 10}  # that a block may have, static and dynamic; others: at least the 99 KB of 8.6 and 12.0
MOST_BLOCK_SHARED_BYTES = 99 << 10
ROOMY_SHARED_BYTES = {"sm_90": 227 << 10, "sm_100": 227 << 10}  # what a block of these may have that asks for more than others
MULTIPROCESSOR_SHARED_BYTES = {"sm_75": 64 << 10, "sm_90": 228 << 10, "sm_100": 228 << 10}  # others: at least 100 KB
LEAST_MULTIPROCESSOR_SHARED_BYTES = 100 << 10
CUBIN_DRIVER = {100: 12080, 120: 12080}  # the oldest driver that loads a cubin of CUDA 12.8; 12000 for other targets


class Kernel:
    """What a launch must know of an entry point."""

    __slots__ = ("at", "checksum", "dynamic", "letters", "name", "pieces", "registers", "shared", "size", "threads")

    def __init__(self, name, at, size, pieces, checksum, threads, registers, shared, letters):
        self.name = name
        self.at, self.size = int(at), int(size)  # the image, in bytes of the file
        self.pieces = int(pieces)  # of the image, 0 where all of it lies at `at`
        self.checksum = checksum  # of the image
        self.threads = int(threads)  # per block
        self.registers = int(registers)  # per thread
        self.shared = int(shared)  # static bytes
        self.letters = "" if letters == "-" else letters  # one per parameter, as in kernels/cuda/export.py
        self.dynamic = 0  # most dynamic bytes any launch so far asked for

    def need_shared(self, size):
        if size > self.dynamic:
            self.dynamic = size


class Images:
    """A mapped file of kernels for one target; needs no device."""

    def __init__(self, path, target, listing, mapping):
        self.path = path
        self.target = target  # sm_90, or ptx
        self._listing = listing
        self._mapping = mapping
        self._kernels = {}
        self._whole = None  # the image that was last put together

    @property
    def is_ptx(self):
        return self.target == PTX

    @property
    def block_shared_bytes(self):
        """Shared memory that a block may have on every device that runs these images."""
        return BLOCK_SHARED_BYTES.get(self.target, MOST_BLOCK_SHARED_BYTES)

    @property
    def most_shared_bytes(self):
        """The same where nothing else will do."""
        return ROOMY_SHARED_BYTES.get(self.target, self.block_shared_bytes)

    @property
    def multiprocessor_shared_bytes(self):
        """What the blocks of a multiprocessor share, and 1 KB more of each."""
        return MULTIPROCESSOR_SHARED_BYTES.get(self.target, LEAST_MULTIPROCESSOR_SHARED_BYTES)

    def _find(self, name):
        return self._listing.find(b"\n%s " % name.encode())

    def __contains__(self, name):
        return self._find(name) >= 0

    def kernel(self, name):
        """The Kernel called `name`; one object per name."""
        found = self._kernels.get(name)
        if found is None:
            at = self._find(name)
            if at < 0:
                near = f"kernels like {closest(name, self.names())}"
                raise KernelCacheError(f"no CUDA kernel named {name!r}", found=near, where=self.path, remedy=REPAIR)
            words = self._listing[at + 1 : self._listing.index(b"\n", at + 1)].decode().split()
            found = self._kernels[name] = Kernel(*words)
        return found

    def names(self):
        return [line.split()[0].decode() for line in self._listing.split(b"\n") if line]

    def address(self, kernel):
        """Address of the verified image that holds a kernel, until the next one is asked for."""
        address = self._mapping.address + kernel.at
        if kernel.at + (8 * kernel.pieces or kernel.size) > self._mapping.size:
            raise KernelCacheError("CUDA kernel file has a malformed listing", where=self.path, remedy=REPAIR)
        if kernel.pieces:
            self._whole = driver.array(self._joined(address, kernel))
            address = native.address_of(self._whole)
        found = native.checksum_of(native.view(address, kernel.size))
        if found != kernel.checksum:
            raise KernelCacheError("CUDA kernel file is corrupt", f"checksum {kernel.checksum}", found, self.path, REPAIR)
        return address

    def _joined(self, address, kernel):
        """The bytes of an image from its pieces."""
        file = native.view(self._mapping.address, self._mapping.size)
        words = native.view(address, 2 * kernel.pieces, "I").tolist()
        places = zip(words[::2], words[1::2], strict=True)
        data = b"".join([file[UNIT * place : UNIT * (place + count)] for place, count in places])
        if len(data) != kernel.size:
            raise KernelCacheError("CUDA kernel file is corrupt", f"{kernel.size} bytes", f"{len(data)} bytes", self.path, REPAIR)
        return data

    def text(self, kernel):
        """The PTX of a kernel's image, as a zero-terminated array."""
        try:
            from lzma import decompress  # not in every Python; a device with a cubin does without
        except ImportError:
            need, remedy = "a Python that has the module lzma", "use another Python, or --backend cpu"
            raise DeviceError("the kernels for this device cannot be unpacked", need, "none", self.path, remedy) from None
        address = self.address(kernel)
        return driver.array(decompress(native.view(address, kernel.size)))

    def verify(self):
        """Check every image."""
        for kernel in {kernel.at: kernel for kernel in map(self.kernel, self.names())}.values():
            self.address(kernel)

    def close(self):
        self._mapping.free()


def open_images(path):
    """Map one file and verify its listing."""
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
        target, listing = _read_header(path, native.view(mapping.address, total))
    except BaseException:
        mapping.free()
        raise
    return Images(path, target, listing, mapping)


def _read_header(path, data):
    """(target, listing from the newline that ends the first line)."""
    start = bytes(data[:128])
    if start[:8] != MAGIC:
        raise KernelCacheError("not a CUDA kernel file", MAGIC.decode(), repr(start[:8]), path, REPAIR)
    try:
        first = start.index(b"\n")
        _, target, offset, size, checksum = start[:first].decode("ascii").split()
        total = int(offset) + int(size)
        head = bytes(data[: int(offset)])
        end = head.index(b"\n\n") + 2
    except ValueError:
        raise KernelCacheError("CUDA kernel file has a malformed header", where=path, remedy=REPAIR) from None
    if total != len(data):
        raise KernelCacheError("CUDA kernel file is cut short", f"{total} bytes", f"{len(data)} bytes", path, REPAIR)
    found = native.checksum_of(head[first + 1 : end])
    if found != checksum:
        raise KernelCacheError("CUDA kernel file is corrupt", f"checksum {checksum}", found, path, REPAIR)
    return target, head[first : end - 1]


# ---- which file -----------------------------------------------------------------------------------------


def targets(folder):
    """{target: path} of the CUDA files in a folder, like {"sm_90": ..., "ptx": ...}."""
    try:
        names = listdir(folder)
    except OSError:
        return {}
    return {name[5:-4]: f"{folder}/{name}" for name in names if name.startswith("cuda-") and name.endswith(".bin")}


def roomiest(folder):
    """The Images of a folder for the GPUs with the most shared memory, the newest of them; None where it has none."""
    known = targets(folder)
    found = max(known, key=lambda name: (ROOMY_SHARED_BYTES.get(name, 0), name != PTX, _number(name)), default=None)
    return open_images(known[found]) if found else None


def _number(target):
    """The capability a target is for: 90 of sm_90 and sm_90a."""
    digits = "".join(c for c in target if c.isdigit())
    return int(digits) if digits else PTX_CAPABILITY


def candidates(names, capability):
    """Targets of `names` that a device of this capability can run, best first: its own cubin (one with an architecture suffix
    before the plain one), those of lower minor versions, then PTX."""
    major, minor = capability
    own = major * 10 + minor
    cubins = [n for n in names if n != PTX]
    exact = sorted((n for n in cubins if _number(n) == own), key=len, reverse=True)
    lower = [n for n in cubins if n[-1].isdigit() and _number(n) // 10 == major and _number(n) < own]
    texts = [PTX] if PTX in names and own >= PTX_CAPABILITY else []
    return [*exact, *sorted(lower, key=_number, reverse=True), *texts]


def driver_for(target):
    """The oldest driver that takes a target's images."""
    return PTX_DRIVER if target == PTX else CUBIN_DRIVER.get(_number(target) // 10 * 10, 12000)


def choose(device, folder=None):
    """The Images for a device. Where the driver is too old for a cubin, PTX is taken; the caller prints that."""
    folder = folder or native.cache_folder()
    known = targets(folder)
    if not known:
        raise KernelCacheError("no CUDA kernels in the cache", "cuda-*.bin", "none", folder, REPAIR)
    names = candidates(known, device.capability)
    if not names:
        have = ", ".join(sorted(known, key=lambda n: (n == PTX, _number(n))))
        own = f"sm_{device.capability[0]}{device.capability[1]} ({device.name})"
        raise DeviceError("no kernels for this device", have, own, folder, "use --backend cpu")
    for name in names:
        if device.driver >= driver_for(name):
            native.refuse_stale(folder, "cuda")
            return open_images(known[name])
    need = f"a driver for CUDA {driver.version_text(min(driver_for(n) for n in names))} or newer"
    found = f"CUDA {driver.version_text(device.driver)}"
    raise DeviceError("the CUDA driver is too old", need, found, device.name, driver.UPDATE)


class Module:
    """Images loaded into the device's context, each when one of its kernels is first asked for."""

    def __init__(self, device, images):
        self.device = device
        self.images = images
        self._modules = {}  # place of an image in the file -> CUmodule
        self._handles = {}
        self._dynamic = {}  # kernel name -> bytes allowed

    def _load(self, kernel):
        cell, images = native.Int64(), self.images
        text = images.text(kernel) if images.is_ptx else None
        image = images.address(kernel) if text is None else native.address_of(text)
        status = driver.function("cuModuleLoadData")(native.address_of(cell), image)
        if status:
            raise self._refused(status)
        self._modules[kernel.at] = cell.value
        return cell.value

    def _refused(self, status):
        what = f"the driver refuses the kernels for {self.images.target}"
        if (self.images.is_ptx and status in driver.REFUSED_CODE) or status in driver.REFUSED_VERSION:
            need = f"CUDA {driver.version_text(driver_for(self.images.target))} or newer"
            found = f"CUDA {driver.version_text(self.device.driver)}, {driver.status_name(status)}"
            return DeviceError(what, need, found, self.images.path, driver.UPDATE)
        return driver.failure("cuModuleLoadData", status, what)

    def handle(self, kernel):
        """The driver's handle of a Kernel, allowed the dynamic shared memory that its launches asked for."""
        handle = self._handles.get(kernel.name)
        if handle is None:
            handle = self._handles[kernel.name] = self._look_up(kernel)
        if kernel.dynamic + kernel.shared > DEFAULT_SHARED_BYTES and kernel.dynamic > self._dynamic.get(kernel.name, 0):
            call("cuFuncSetAttribute", handle, MOST_DYNAMIC_SHARED, kernel.dynamic)
            self._dynamic[kernel.name] = kernel.dynamic
        return handle

    def _look_up(self, kernel):
        module = self._modules.get(kernel.at) or self._load(kernel)
        name, cell = driver.text(kernel.name), native.Int64()
        status = driver.function("cuModuleGetFunction")(native.address_of(cell), module, native.address_of(name))
        if status == driver.NOT_FOUND:
            found = driver.status_name(status)
            raise KernelCacheError(f"no CUDA kernel named {kernel.name!r}", found=found, where=self.images.path, remedy=REPAIR)
        if status:
            raise driver.failure("cuModuleGetFunction", status)
        return cell.value

    def resident(self, kernel, shared=0):
        """Blocks of a kernel that run at once on one multiprocessor."""
        return word("cuOccupancyMaxActiveBlocksPerMultiprocessor", self.handle(kernel), kernel.threads, shared)

    def close(self):
        for module in self._modules.values():
            call("cuModuleUnload", module)
        self.images.close()
