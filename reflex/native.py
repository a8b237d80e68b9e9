"""The bridge to ahead-of-time compiled code: maps a blob of `cache/`, calls its functions, owns raw memory.

Every exported function takes and returns 64-bit integers; addresses are integers. `_ctypes` is used instead of
`ctypes` because the public module costs 1.5 ms of a cold start and only adds conveniences.
Refuses: a blob that is missing, for another CPU, of another build, or damaged (KernelCacheError).
"""

from _ctypes import CFuncPtr, _SimpleCData, addressof, dlopen, dlsym
from _imp import source_hash
from _thread import start_new_thread
from posix import O_CLOEXEC, O_RDONLY
from posix import close as _close
from posix import fstat as _fstat
from posix import open as _open
from posix import read as _read
from posix import stat as _stat

from .errors import InternalError, KernelCacheError, OutOfMemoryError, ReflexError

MAGIC = b"RFXHOST1"
CHECKSUM_KEY = 0x5246
PAGE = 4096
MOST_BYTES = 1 << 47  # of one buffer: what a process can address
REPAIR = "run: python precompile.py (or reinstall the wheel)"


class Int64(_SimpleCData):
    _type_ = "q"


class Double(_SimpleCData):
    _type_ = "d"


class UInt8(_SimpleCData):
    _type_ = "B"


class Object(_SimpleCData):
    _type_ = "O"


class Function(CFuncPtr):
    """int64 f(int64 ...), called with the GIL released."""

    _flags_ = 1  # FUNCFLAG_CDECL
    _restype_ = Int64


def function(address, arity):
    """The C function at `address` taking `arity` 64-bit integers."""
    f = Function(address)
    f.argtypes = (Int64,) * arity
    return f


class _Python(CFuncPtr):
    """A function of Python's C API that returns an object."""

    _flags_ = 1 | 4  # FUNCFLAG_CDECL | FUNCFLAG_PYTHONAPI: the GIL stays held, errors are raised
    _restype_ = Object


_memoryview, _bytes = (_Python(dlsym(dlopen(None, 0), name)) for name in ("PyMemoryView_FromMemory", "PyBytes_FromStringAndSize"))
_memoryview.argtypes = (Int64, Int64, Int64)
_bytes.argtypes = (Int64, Int64)
WRITABLE = 0x200  # PyBUF_WRITE
ITEM_SIZES = {"B": 1, "b": 1, "H": 2, "h": 2, "I": 4, "i": 4, "q": 8, "Q": 8, "f": 4, "d": 8}


def view(address, count, code="B"):
    """A writable memoryview of `count` items at `address`; `code` is a struct code (B b H h I i q d f)."""
    raw = _memoryview(address, count * ITEM_SIZES[code], WRITABLE)
    return raw if code == "B" else raw.cast(code)


def address_of(array):
    """Address of an array of the number types above; it must outlive the use of the address."""
    return addressof(array)


def bytes_at(address, size):
    """A copy of `size` bytes at `address`."""
    return _bytes(address, size)


_libc = {}


def libc(name, arity):
    """A function of the C library of this process."""
    f = _libc.get(name)
    if f is None:
        f = _libc[name] = function(libc_address(name), arity)
    return f


def libc_address(name):
    """Entry address of a C library function, to hand to native code."""
    return dlsym(dlopen(None, 0), name)


PROT_READ, PROT_WRITE, PROT_EXEC = 1, 2, 4
MAP_SHARED, MAP_PRIVATE, MAP_ANONYMOUS, MAP_NORESERVE = 1, 2, 0x20, 0x4000


class Mapping:
    """A range of pages: an anonymous buffer of zeros or a read-only file. `free()` unmaps; views must not outlive it."""

    __slots__ = ("address", "size")

    def __init__(self, address, size):
        self.address = address
        self.size = size

    def free(self):
        if self.size:
            libc("munmap", 2)(self.address, self.size)
            self.address = self.size = 0


def _mmap(size, protection, flags, descriptor, offset, what):
    address = libc("mmap", 6)(0, size, protection, flags, descriptor, offset)
    if address == -1:
        raise OutOfMemoryError(f"cannot map {size} bytes", where=what, remedy="free memory or raise the limit (ulimit -v)")
    return Mapping(address, size)


def alloc(size, what="buffer"):
    """A zeroed, page-aligned buffer of at least `size` bytes; pages cost memory only once touched."""
    size = max(PAGE, (size + PAGE - 1) & -PAGE)
    if size > MOST_BYTES:  # a C argument would silently lose the bits above 64
        raise OutOfMemoryError(f"cannot map {size} bytes", where=what, remedy="use a shorter context (--ctx)")
    return _mmap(size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0, what)


def map_descriptor(descriptor, size, what="file", shared=False):
    """A read-only mapping of the first `size` bytes of an open file; `size` must be positive. Only a shared one may be
    registered with the CUDA driver."""
    return _mmap(size, PROT_READ, MAP_SHARED if shared else MAP_PRIVATE, descriptor, 0, what)


# ---- threads, and pages that a file has lost -------------------------------------------------------------

lost_words = []  # where the process is ours alone, the command line: what makes (bytes for stderr, bytes for stdout) of a path
lost_pages = []  # the LostPages of this process (gguf/header.py), once it has mapped a model


def watch_thread():
    """Called by every thread that reads a mapped model."""
    for lost in lost_pages:
        lost.watch()


failed = []  # (what a thread was for, the exception) of threads that ended in one which nobody waits for


def start_thread(function, arguments, where, *held):
    """Run a function on a thread of its own; OutOfMemoryError where the system has none to give. `where`: what it is for. `held`:
    locks that are released once it has ended, or was not started. What it raises is noted before, and raised by `raise_failed`."""
    try:
        start_new_thread(_run, (function, arguments, where, held))
    except RuntimeError as error:
        for lock in held:
            lock.release()
        remedy = "use --threads 1, or raise the limits (ulimit -u, ulimit -v)"
        raise OutOfMemoryError("cannot start a thread", found=str(error), where=where, remedy=remedy) from None


def _run(function, arguments, where, held):
    try:
        function(*arguments)
    except BaseException as problem:  # Python would print it, and nobody would know
        failed.append((where, problem))
    finally:
        for lock in held:
            lock.release()


def raise_failed():
    """Raise what ended a thread of `start_thread` that had nobody to tell: before a result is given, at the end of a process."""
    if failed:
        where, problem = failed[0]
        failed.clear()
        if isinstance(problem, (ReflexError, MemoryError)):
            raise problem
        remedy = "run again with --trace and report it"
        raise InternalError(f"{type(problem).__name__}: {problem}", where=f"a thread of: {where}", remedy=remedy) from problem


# ---- choosing and loading a blob ------------------------------------------------------------------------

MACHINE_LEVELS = {  # machine -> the ISA levels built for it, best first, with the /proc/cpuinfo flags each needs
    "x86_64": (
        ("x86-64-v4", frozenset(["avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx2", "fma", "f16c", "bmi2"])),
        ("x86-64-v3", frozenset(["avx2", "fma", "f16c", "bmi1", "bmi2", "movbe"])),
        ("x86-64-v2", frozenset(["ssse3", "sse4_1", "sse4_2", "popcnt", "cx16"])),
    ),
    "aarch64": (("aarch64", frozenset()),),  # vectors are of the architecture, and emulators and containers may list nothing
}


def machine():
    from posix import uname

    return uname().machine


LEAVES = (  # names in /proc/cpuinfo: what glibc calls the leaf, the register (eax, ebx, ecx, edx), and bits of it
    (0, 2, {"ssse3": 9, "fma": 12, "cx16": 13, "sse4_1": 19, "sse4_2": 20, "movbe": 22, "popcnt": 23, "f16c": 29}),
    (1, 1, {"bmi1": 3, "avx2": 5, "bmi2": 8, "avx512f": 16, "avx512dq": 17, "avx512bw": 30, "avx512vl": 31}),
    (1, 2, {"avx512vbmi": 1, "gfni": 8, "avx512_vnni": 11, "avx512_bitalg": 12}),
    (1, 3, {"avx512_fp16": 23}),
)
# Second kernels, by the feature words of the processors that they are for, the best first. That of gathers is one that only
# processors with fast ones have: with microcode against Downfall, older ones take eight times as long.
WAYS = {"gathered": {"avx512_fp16"}, "permuted": {"avx512vbmi", "avx512_bitalg", "gfni"}}


def cpu_flags():
    """Feature words of the processor that the machine levels name: from glibc, else from /proc/cpuinfo, which takes the kernel
    0.1 ms to write and more where there are many processors."""
    try:
        leaf = function(libc_address("__x86_get_cpuid_feature_leaf"), 1)  # glibc 2.33 and later, x86 only
    except OSError:
        return described_flags()
    found = []
    for number, register, names in LEAVES:
        address = leaf(number)
        bits = view(address + 16, 4, "I")[register] if address else 0  # after what the processor has: what may be used
        found += [name for name, bit in names.items() if bits >> bit & 1]
    return frozenset(found)


def described_flags():
    """Feature words of the first processor in /proc/cpuinfo."""
    try:
        descriptor = _open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC)
    except OSError:
        return frozenset()
    text = _read(descriptor, 8192)
    _close(descriptor)
    for line in text.split(b"\n"):
        if line.startswith((b"flags", b"Features")):
            return frozenset(line.decode("ascii", "replace").split())
    return frozenset()


def usable_levels():
    """ISA levels this machine can run, best first."""
    flags = cpu_flags()
    return [level for level, needs in MACHINE_LEVELS.get(machine(), ()) if needs <= flags]


def cache_folder():
    """Where the ahead-of-time code lies: in the installed package, or beside it in a source tree."""
    here = __file__.rpartition("/")[0]
    inside = here + "/cache"
    try:
        _stat(inside)
        return inside
    except OSError:
        return here.rpartition("/")[0] + "/cache"


def refuse_stale(folder, kind):
    """See stale.py; the cache in the package itself has no sources."""
    if folder != __file__.rpartition("/")[0] + "/cache":
        from .stale import refuse_stale

        refuse_stale(folder, kind)


class Library:
    """A mapped blob. Attribute access gives the exported function; `address(name)` gives a table or entry address."""

    def __init__(self, path, level, listing, mapping):
        self.path = path
        self.level = level
        self._listing = listing  # b"\nname offset arity\n...": read when a name is asked for; arity -1: a table of bytes
        self._base = mapping.address
        self.ways = None  # those of WAYS that this processor takes: asked where it matters
        self._variants = {}

    def _find(self, name):
        """(address, arity) of a symbol, or None."""
        at = self._listing.find(b"\n%s " % name.encode())
        if at < 0:
            return None
        _, offset, arity = self._listing[at + 1 : self._listing.index(b"\n", at + 1)].split()
        return self._base + int(offset), int(arity)

    def _symbol(self, name):
        found = self._find(name)
        if found is None:
            raise KernelCacheError(f"no kernel named {name!r}", where=self.path, remedy=REPAIR)
        return found

    def __getattr__(self, name):
        f = function(*self._symbol(name))
        self.__dict__[name] = f
        return f

    def __contains__(self, name):
        return self._find(name) is not None

    def address(self, name):
        return self._symbol(name)[0]

    def variant(self, name):
        """Which kernel does a kernel's work on this processor: a second one that is for it, or itself."""
        found = self._variants.get(name)
        if found is None:
            found = next((f"{name}_{way}" for way in WAYS if f"{name}_{way}" in self and way in self._own_ways()), name)
            self._variants[name] = found
        return found

    def _own_ways(self):
        if self.ways is None:
            flags = cpu_flags()
            self.ways = [way for way in WAYS if WAYS[way] <= flags]
        return self.ways

    def names(self):
        return [line.split()[0].decode() for line in self._listing.split(b"\n") if line]


def checksum_of(data):
    """SipHash-1-3 of what follows a blob's first line, as hex: CPython's own check of compiled modules, built in where
    zlib costs a dlopen."""
    return source_hash(CHECKSUM_KEY, data).hex()


def read_header(data, path):
    """Split a blob's first page(s): returns (level, code offset, code size, checksum, symbol listing)."""
    if data[:8] != MAGIC:
        raise KernelCacheError("not a kernel blob", expected=MAGIC.decode(), found=repr(data[:8]), where=path, remedy=REPAIR)
    first, end = data.find(b"\n"), data.find(b"\n\n")
    if end < 0:
        raise KernelCacheError("kernel blob is cut short in its header", where=path, remedy=REPAIR)
    try:
        _, level, offset, size, checksum = data[:first].decode("ascii", "replace").split()
        return level, int(offset), int(size), checksum, data[first : end + 1]
    except ValueError:
        raise KernelCacheError("kernel blob has a malformed header", where=path, remedy=REPAIR) from None


def load(path, expected_level=None):
    """Map one blob read-execute after checking presence, ISA level, size and checksum."""
    try:
        descriptor = _open(path, O_RDONLY | O_CLOEXEC)
    except OSError as error:
        raise KernelCacheError("kernel cache file cannot be opened", found=error.strerror, where=path, remedy=REPAIR) from None
    try:
        total = _fstat(descriptor).st_size
        if total < 16:
            raise KernelCacheError("kernel blob is cut short", found=f"{total} bytes", where=path, remedy=REPAIR)
        mapping = _mmap(total, PROT_READ | PROT_EXEC, MAP_PRIVATE, descriptor, 0, path)
    finally:
        _close(descriptor)
    data = view(mapping.address, total)
    head = bytes(data[: min(total, 65536)])
    level, offset, size, checksum, listing = read_header(head, path)
    if expected_level is not None and level != expected_level:
        raise KernelCacheError("kernel blob is for another CPU", expected_level, level, path, REPAIR)
    if offset + size != total:
        raise KernelCacheError("kernel blob is cut short", f"{offset + size} bytes", f"{total} bytes", path, REPAIR)
    found = checksum_of(data[head.index(b"\n") + 1 :])
    if found != checksum:
        raise KernelCacheError("kernel blob is corrupt", f"checksum {checksum}", found, path, REPAIR)
    return Library(path, level, listing, Mapping(mapping.address + offset, size))


_library = []


def best_blob(kind):
    """Map `<kind>-<level>.bin` of the best ISA level this machine runs and the cache holds; a Library."""
    levels = usable_levels()
    folder = cache_folder()
    if not levels:
        known = " or ".join(MACHINE_LEVELS)
        raise KernelCacheError("no kernels exist for this CPU", known, machine(), remedy="use --backend reference")
    for level in levels:
        path = f"{folder}/{kind}-{level}.bin"
        try:
            _stat(path)
        except OSError:
            continue
        found = load(path, level)
        refuse_stale(folder, "host")
        return found
    raise KernelCacheError("kernel cache is missing", f"{kind}-{levels[0]}.bin", "no blob for this CPU", folder, REPAIR)


def library():
    """The kernels that run models; mapped once per process."""
    if not _library:
        _library.append(best_blob("host"))
    return _library[0]
