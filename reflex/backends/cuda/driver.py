"""The CUDA driver library: bound function by function on first use, every status checked and explained.

Owns the dlopen of libcuda.so.1 and the meaning of status codes. All arguments are 64-bit integers: on x86-64 and AArch64
an int, a size or a pointer travels in the same register or stack slot, and no function used here takes a float by value.
Calls release the GIL. Raises DeviceError, OutOfMemoryError, or KernelCacheError for code that the driver refuses.
"""

from _ctypes import CFuncPtr, _SimpleCData, addressof, dlopen, dlsym

from ...errors import DeviceError, KernelCacheError, OutOfMemoryError
from ...native import REPAIR, Int64, UInt8

LIBRARY = "libcuda.so.1"
# Arguments of every function in use, under the versioned names that the library exports.
ARITY = {
    "cuInit": 1, "cuDriverGetVersion": 1, "cuGetErrorName": 2,
    "cuDeviceGetCount": 1, "cuDeviceGet": 2, "cuDeviceGetName": 3, "cuDeviceGetAttribute": 3, "cuDeviceTotalMem_v2": 2,
    "cuDeviceGetUuid_v2": 2,
    "cuDevicePrimaryCtxRetain": 2, "cuDevicePrimaryCtxRelease_v2": 1, "cuCtxSetCurrent": 1,
    "cuModuleLoadData": 2, "cuModuleUnload": 1, "cuModuleGetFunction": 3, "cuFuncSetAttribute": 3, "cuFuncGetAttribute": 3,
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": 4,
    "cuMemAlloc_v2": 2, "cuMemFree_v2": 1, "cuMemGetInfo_v2": 2, "cuMemHostAlloc": 3, "cuMemFreeHost": 1,
    "cuMemHostRegister_v2": 3, "cuMemHostUnregister": 1,
    "cuMemcpyAsync": 4, "cuMemcpyHtoDAsync_v2": 4, "cuMemcpyDtoHAsync_v2": 4, "cuMemsetD32Async": 4,
    "cuStreamCreate": 2, "cuStreamDestroy_v2": 1, "cuStreamSynchronize": 1, "cuStreamWaitEvent": 3, "cuStreamQuery": 1,
    "cuEventCreate": 2, "cuEventDestroy_v2": 1, "cuEventRecord": 2, "cuEventSynchronize": 1, "cuEventElapsedTime": 3,
    "cuLaunchKernel": 11, "cuLaunchKernelEx": 4,
    "cuStreamBeginCapture_v2": 2, "cuStreamEndCapture": 2, "cuGraphInstantiateWithFlags": 3, "cuGraphLaunch": 2,
    "cuGraphUpload": 2, "cuGraphExecDestroy": 1, "cuGraphDestroy": 1,
}  # fmt: skip

OUT_OF_MEMORY, NO_DEVICE, NOT_FOUND, NOT_READY = 2, 100, 500, 600
REFUSED_CODE = (200, 209, 218, 300)  # invalid image, no binary for this device, invalid PTX, invalid source
REFUSED_VERSION = (222, 223)  # PTX, or an ELF version, newer than the driver
LOST = (214, 219, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 720, 721, 999)  # the context cannot be used any more
ABSENT = NO_DRIVER, NO_DEVICE_FOUND = "no CUDA driver", "no CUDA device"  # messages of errors that mean: nothing is there
UPDATE = "update the NVIDIA driver, or use --backend cpu"
RUN_AGAIN = "run again; if it happens again look into dmesg for NVRM Xid messages, or use --backend cpu"
SEE_NVIDIA_SMI = "check that nvidia-smi works, or use --backend cpu"
REMEDIES = {
    OUT_OF_MEMORY: "free device memory (nvidia-smi lists what holds it), use a shorter context (--ctx) or --backend cpu",
    3: SEE_NVIDIA_SMI,
    34: "the driver library is a stub for linking; install the NVIDIA driver or remove the stub from LD_LIBRARY_PATH",
    35: UPDATE,
    46: "another process uses the device exclusively (nvidia-smi -q -d COMPUTE); end it or use --backend cpu",
    NO_DEVICE: "check nvidia-smi and CUDA_VISIBLE_DEVICES, start the container with --gpus all, or use --backend cpu",
    101: "check CUDA_VISIBLE_DEVICES",
    221: "the driver's PTX compiler (libnvidia-ptxjitcompiler) is missing; use a device that has a cubin, or --backend cpu",
    NOT_FOUND: REPAIR,
    801: UPDATE,
    802: "start the fabric manager (systemctl start nvidia-fabricmanager), or use --backend cpu",
    803: "driver library and kernel module differ: reboot or reload the driver, or use --backend cpu",
    804: "the CUDA compatibility library does not support this device; remove it from LD_LIBRARY_PATH",
}


class Int32(_SimpleCData):
    _type_ = "i"


class Function(CFuncPtr):
    """int f(int64 ...), called with the GIL released."""

    _flags_ = 1  # FUNCFLAG_CDECL
    _restype_ = Int32


_opened = []
_functions = {}


def load():
    """Open the driver library; DeviceError where there is none. Touches no device."""
    if not _opened:
        try:
            _opened.append(dlopen(LIBRARY, 2))  # RTLD_NOW
        except OSError as error:
            remedy = "install the NVIDIA driver (in a container: start it with --gpus all), or use --backend cpu"
            raise DeviceError(NO_DRIVER, LIBRARY, str(error), remedy=remedy) from None


def address(name):
    """Entry address of a driver function, to hand to native code."""
    load()
    try:
        return dlsym(_opened[0], name)
    except OSError:
        need = f"a driver with {name}"
        raise DeviceError("the CUDA driver is too old", need, f"version {version_text()}", LIBRARY, UPDATE) from None


def function(name):
    """The driver function `name`; it returns the status unchecked."""
    f = _functions.get(name)
    if f is None:
        f = Function(address(name))
        f.argtypes = (Int64,) * ARITY[name]
        _functions[name] = f
    return f


def call(name, *arguments):
    """Call `name`; raises for any status but success."""
    status = (_functions.get(name) or function(name))(*arguments)
    if status:
        raise failure(name, status)


def word(name, *arguments):
    """Call a function whose first parameter points to the result; the result as an unsigned 64-bit integer."""
    cell = Int64()
    call(name, addressof(cell), *arguments)
    return cell.value & 0xFFFFFFFFFFFFFFFF


def text(string):
    """A zero-terminated array of the text's bytes, for `addressof`; it must outlive the call."""
    return array(string.encode() + b"\0")


def array(data):
    """A copy of bytes, for `addressof`."""
    return (UInt8 * len(data)).from_buffer_copy(data)


def string_at(place):
    """The zero-terminated text at an address, '' for address 0."""
    out = bytearray()
    while place and (byte := UInt8.from_address(place + len(out)).value):
        out.append(byte)
    return out.decode("utf-8", "replace")


def version():
    """The newest CUDA version the driver supports, like 12080 for 12.8; 0 when it does not say."""
    cell = Int64()
    return 0 if function("cuDriverGetVersion")(addressof(cell)) else cell.value


def version_text(number=None):
    number = version() if number is None else number
    return f"{number // 1000}.{number % 1000 // 10}"


def status_name(status):
    """A status as the driver names it, with its number."""
    cell = Int64()
    known = function("cuGetErrorName")(status, addressof(cell)) == 0 and string_at(cell.value)
    return f"{known or 'unknown status'} ({status})"


def failure(name, status, what=None, remedy=None):
    """The error for a status other than success; `what` replaces the message 'NAME failed'."""
    found = status_name(status)
    if status == OUT_OF_MEMORY:
        return OutOfMemoryError(what or "out of device memory", found=found, where=name, remedy=remedy or REMEDIES[status])
    if status in REFUSED_CODE + REFUSED_VERSION:
        return KernelCacheError(what or "the driver refuses the kernels", found=found, where=name, remedy=remedy or REPAIR)
    if status in LOST:
        return DeviceError(what or "the device failed while computing", found=found, where=name, remedy=remedy or RUN_AGAIN)
    usual = REMEDIES.get(status, SEE_NVIDIA_SMI)
    return DeviceError(what or "the CUDA driver failed", found=found, where=name, remedy=remedy or usual)
