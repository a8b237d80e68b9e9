"""Python's first import in a cold start. Installed as `encodings.py`, alone in a folder, it stands in for the package of that name.

The `reflex` program gives Python this folder as all there is on its path: `python._pth` beside this file says so. Python then
neither looks for its library nor lists it to import `encodings` and the codec of its streams, and starts 0.7 to 1.2 ms sooner.
`start`, called by `-c`, makes it what `python -IS` of the venv is and goes on to the command. Every codec but UTF-8, and all else
that is asked of `encodings`, comes from the real package, which is then executed in this module.
"""

import sys
from _codecs import register, utf_8_decode, utf_8_encode
from posix import open, read, readlink, stat


def decode(data, errors="strict"):
    return utf_8_decode(data, errors, True)


class IncrementalEncoder:
    def __init__(self, errors="strict"):
        self.errors = errors

    def encode(self, text, final=False):
        return utf_8_encode(text, self.errors)[0]

    def reset(self):
        pass

    def getstate(self):
        return 0

    def setstate(self, state):
        pass


class IncrementalDecoder:
    def __init__(self, errors="strict"):
        self.errors = errors
        self.buffer = b""

    def decode(self, data, final=False):
        data = self.buffer + data
        text, used = utf_8_decode(data, self.errors, final)
        self.buffer = data[used:]
        return text

    def reset(self):
        self.buffer = b""

    def getstate(self):
        return self.buffer, 0

    def setstate(self, state):
        self.buffer = state[0]


class Utf8(tuple):
    """What codecs.lookup gives for UTF-8; attributes it lacks are those of the real one."""

    name = "utf-8"
    encode = staticmethod(utf_8_encode)
    decode = staticmethod(decode)
    incrementalencoder = IncrementalEncoder
    incrementaldecoder = IncrementalDecoder
    _is_text_encoding = True

    def __getattr__(self, name):
        return getattr(real("utf_8"), name)


def reader(*arguments):
    return real("utf_8").streamreader(*arguments)


def writer(*arguments):
    return real("utf_8").streamwriter(*arguments)


UTF_8 = Utf8((utf_8_encode, decode, reader, writer))


def library():
    """The folder of Python's library, as every installation has it beside the interpreter."""
    home = readlink("/proc/self/exe").rpartition("/bin/")[0]
    return f"{home}/{sys.platlibdir}/python{sys.version_info[0]}.{sys.version_info[1]}"


def become_real():
    """Execute the real package in this module, once."""
    from _frozen_importlib_external import SourceFileLoader

    names = globals()
    if names.pop("__getattr__", None):
        folder = f"{library()}/encodings"
        names["__path__"] = __spec__.submodule_search_locations = [folder]
        names["__package__"] = "encodings"
        names["__file__"] = __spec__.origin = f"{folder}/__init__.py"
        exec(SourceFileLoader("encodings", __file__).get_code("encodings"), names)


def real(name):
    become_real()
    return globals()["search_function"](name)


def search(name):
    return UTF_8 if name in ("utf-8", "utf_8") and "__getattr__" in globals() else real(name)


def __getattr__(name):
    if name not in ("aliases", "normalize_encoding", "CodecRegistryError", "search_function"):
        raise AttributeError(f"module 'encodings' has no attribute {name!r}")
    become_real()
    return globals()[name]


register(search)


def open_library(lib):
    """Let modules be imported from Python's library."""
    sys.modules.pop("linecache", None)  # the one beside this file
    __spec__.submodule_search_locations = globals()["__path__"] = [f"{lib}/encodings"]
    sys.path[:] = lib, f"{lib}/lib-dynload"
    sys.prefix = sys.exec_prefix = sys.base_prefix = sys.base_exec_prefix = lib.rpartition(f"/{sys.platlibdir}/")[0]


def start():
    """Become `python -IS` of the venv, load the modules of the cold path from their one file, and run the command."""
    from time import perf_counter_ns, process_time_ns

    first = perf_counter_ns(), process_time_ns()
    import _signal
    import gc

    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # see the launcher
    gc.disable()  # one request and out: looking for cycles among freshly imported modules costs 1 ms and finds none
    here = sys.path[0]
    packages = here.rpartition("/reflex/cache/")[0]
    home = packages.rpartition("/lib/")[0]
    script = f"{home}/bin/reflex-python"
    lib = library()
    try:
        stat(f"{lib}/os.py")
        file = open(f"{here}/../cold-{sys.implementation.cache_tag}.bin", 0x80000)  # O_CLOEXEC
        head = read(file, 16384)
    except OSError:
        head = b""
    from _frozen_importlib_external import MAGIC_NUMBER

    if head[:4] != MAGIC_NUMBER or "--trace" in sys.argv:
        from posix import execv

        execv(f"{home}/bin/python", ["python", "-IS", script, *sys.argv[1:]])
    from marshal import loads

    open_library(lib)
    sys.path.append(packages)
    sys.executable = f"{home}/bin/python"
    sys.argv[0] = script
    code, index = loads(memoryview(head)[4:])
    bundle = {"__name__": "reflex.bundle"}
    exec(code, bundle)
    finder = bundle["install"](index, file, packages)
    finder.run(finder.groups[0])
    sys.modules["reflex.cli.front"].main(first)
