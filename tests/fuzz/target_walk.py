"""The native header walk alone, as often as possible: walk.c makes the inputs, between guard pages, and checks what comes out."""

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

from child import UnusableError
from guarded import Guarded
from target_header import seeds

from reflex import native
from reflex.gguf import layout, limits

HERE = Path(__file__).resolve().parent
BATCH = 50_000  # walks per run
OUTCOMES = (
    "refused by its counts",
    "walked",
    "short",
    "value type",
    "depth",
    "too long",
    "dimensions",
    "tensor type",
    "ragged row",
    "too large",
)
ADDRESSES = ("scan", "sizes", "room", "room_end", "out", "out_end", "data", "starts", "places", "place_starts")
NUMBERS = ("seeds", "most_keys", "most_tensors", "key_min", "tensor_min", "results", "record")


class Run(ctypes.Structure):
    """`struct run` of walk.c."""

    _fields_ = [(name, ctypes.c_int64) for name in (*ADDRESSES, *NUMBERS)]
    _fields_ += [("before", ctypes.c_uint64), ("tally", ctypes.c_int64 * len(OUTCOMES))]


def compiled():
    """walk_many of walk.c, compiled into build/fuzz when the source is newer."""
    if not shutil.which("cc"):
        raise UnusableError("walk.c needs a C compiler, and there is no cc here")
    source, made = HERE / "walk.c", HERE.parents[1] / "build" / "fuzz" / "walk.so"
    if not made.exists() or made.stat().st_mtime < source.stat().st_mtime:
        made.parent.mkdir(parents=True, exist_ok=True)
        own = made.with_suffix(f".{os.getpid()}")  # several workers may compile at once
        subprocess.run(["cc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(own), str(source)], check=True)
        own.replace(made)
    function = ctypes.CDLL(str(made)).walk_many
    function.restype, function.argtypes = ctypes.c_int64, (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int64)
    return function


class Target:
    took = BATCH

    def __init__(self):
        files = list(seeds())
        self.memory, self.records = Guarded(1 << 14), Guarded(1 << 17)
        library = native.library()
        own = [range(8, len(data) - 8) for data in files]  # a walk led astray reads fields anywhere
        self.held = [ctypes.create_string_buffer(b"".join(files))]
        for numbers in (sums(files), [at for places in own for at in places], sums(own)):
            self.held.append((ctypes.c_int64 * len(numbers))(*numbers))
        data, starts, places, place_starts = map(ctypes.addressof, self.held)
        spans = self.memory.start, self.memory.end, self.records.start, self.records.end
        scan, sizes = library.address("gguf_scan"), library.address("gguf_block_sizes")
        caps = limits.KEYS, limits.TENSORS, limits.KEY_MIN_BYTES, limits.TENSOR_MIN_BYTES
        words = layout.RESULTS_BYTES // 8, layout.RECORD_BYTES // 8
        self.state = Run(scan, sizes, *spans, data, starts, places, place_starts, len(files), *caps, *words)
        self.walk = compiled()

    def make(self, random):
        return random.randbytes(8)

    def again(self, data, random):
        return random.randbytes(8)

    def run(self, data):
        state = int.from_bytes(data[:8].ljust(8, b"\1"), "little") | 1
        if self.walk(ctypes.byref(self.state), state, BATCH) != BATCH:
            raise AssertionError(f"a walk left its bounds, state {self.state.before}")
        return "batch"

    def outcomes(self):
        return dict(zip(OUTCOMES, self.state.tally, strict=True))


def sums(parts):
    """Where each part begins, and where the last one ends."""
    found = [0]
    for part in parts:
        found.append(found[-1] + len(part))
    return found
