"""Python twins of the memory instructions in reflex/kernels/cuda/ptx.py and of the accessors in memory.py.

Every access is checked: bounds, alignment, no read-only load from an array that the launch writes, nothing but read-only
loads before `pdl_wait`. Copies of `cp_async*` and `bulk_g2s` arrive only at the wait; until then the place holds NaN.
"""

import struct
from functools import partial

import numpy
from emulated_numbers import CASTS, bits2f, float32, half, half_bits


class EmulationError(Exception):
    """What a device would do silently wrong."""


class State:
    """The thread that runs now, and the arrays of the launch."""

    thread = None
    arrays = ()  # every Array in global memory



class Array:
    """A flat array in global, shared or local memory that checks every index."""

    def __init__(self, data, space="global"):
        self.data = data.reshape(-1)
        if self.data.size and not numpy.shares_memory(self.data, data):
            raise ValueError("the array of a launch must be contiguous")
        self.raw = memoryview(self.data).cast("B") if self.data.size else memoryview(bytearray(0))
        self.integer = data.dtype.kind in "iu"
        self.items = memoryview(self.data) if self.integer else self.data
        self.size, self.item, self.space = self.data.size, data.dtype.itemsize, space
        self.cast = CASTS.get(data.dtype.name)
        self.address = self.data.ctypes.data
        self.written = self.read_only = False

    def changes(self):
        """A store: not before pdl_wait, and not to what read-only loads see."""
        if self.space == "global":
            self.written = True
            if self.read_only:
                raise EmulationError("a store to an array that read-only loads (ldg) of the same launch read")
            _after_wait()

    def __getitem__(self, index):
        index = int(index)
        if not 0 <= index < self.size:
            raise EmulationError(f"out of bounds: element {index} of {self.size} in {self.space} memory")
        if self.space == "global":
            _after_wait()
        return self.items[index]

    def __setitem__(self, index, value):
        index = int(index)
        if not 0 <= index < self.size:
            raise EmulationError(f"out of bounds: element {index} of {self.size} in {self.space} memory")
        self.changes()
        self.items[index] = self.cast(value) if self.integer else value


def _after_wait():
    if State.thread is not None and not State.thread.waited:
        raise EmulationError("memory of earlier kernels is touched before pdl_wait")


def bytes_at(place, index, size, align, space):
    """(array, byte offset) of `size` bytes at an element of an array or at a device address."""
    if isinstance(place, Array):
        array, offset = place, int(index) * place.item
    else:
        address = int(place) + int(index)
        array = next((a for a in State.arrays if a.address <= address < a.address + a.raw.nbytes), None)
        if array is None:
            raise EmulationError(f"out of bounds: {size} bytes at address {address} lie in no array of the launch")
        offset = address - array.address
    if offset < 0 or offset + size > array.raw.nbytes:
        raise EmulationError(f"out of bounds: bytes {offset} to {offset + size} of {array.raw.nbytes} in {array.space} memory")
    if offset % align:
        raise EmulationError(f"misaligned: {size} bytes at byte {offset}")
    if (array.space == "shared") != (space == "s"):
        raise EmulationError(f"an instruction for {'shared' if space == 's' else 'global'} memory in {array.space} memory")
    return array, offset


def _loader(code, space="g", read_only=False, align=None):
    """A load of struct `code`; floats come as float32, one value alone or several as a tuple."""
    layout = struct.Struct("<" + code)
    size, single, floats = layout.size, len(code) == 1, code[-1] in "fe"
    align = size if align is None else align

    def load(place, index):
        array, offset = bytes_at(place, index, size, align, space)
        if read_only:
            array.read_only = True
            if array.written:
                raise EmulationError("a read-only load (ldg) from an array that this launch writes")
        elif space == "g":
            _after_wait()
        values = layout.unpack_from(array.raw, offset)
        values = tuple(map(float32, values)) if floats else values
        return values[0] if single else values

    return load


def _storer(code, space="g"):
    layout = struct.Struct("<" + code)
    floats, masks = code[-1] in "fe", {"H": 0xFFFF, "I": 0xFFFFFFFF}

    def store(place, index, *values):
        array, offset = bytes_at(place, index, layout.size, layout.size, space)
        array.changes()
        if code == "e":  # too large gives infinity, which struct refuses
            struct.pack_into("<H", array.raw, offset, half_bits(values[0]))
        else:
            mask = masks.get(code[-1])
            layout.pack_into(array.raw, offset, *(map(float, values) if floats else (int(v) & mask for v in values)))

    return store


ldg8, ldg16, ldg32, ldg64, ldg128 = (_loader(c, read_only=True) for c in ("B", "H", "I", "2I", "4I"))
ldgh, ldgf, ldgf2, ldgf4 = (_loader(c, read_only=True) for c in ("e", "f", "2f", "4f"))
ldg32_stream, ldg64_stream, ldg128_stream = ldg32, ldg64, ldg128
ldg_run1, ldg_run2, ldg_run3, ldg_run4, ldg_run8 = (_loader(c, read_only=True, align=2) for c in ("I", "2I", "3I", "4I", "8I"))
ldg_run4_stream, ldg_run8_stream = ldg_run4, ldg_run8


def _unless_skipped(load, count):
    def load_if(place, index, wanted):
        return load(place, index) if wanted else (0xBADBAD,) * count if count > 1 else 0xBADBAD

    return load_if


ldg8_if, ldg16_if, ldg32_if = (_unless_skipped(f, 1) for f in (ldg8, ldg16, ldg32))
ldg64_if, ldg128_if = _unless_skipped(ldg64, 2), _unless_skipped(ldg128, 4)


def _staged(code):
    """A load from dynamic shared memory by its address (kernels/cuda/staged.py)."""
    layout = struct.Struct("<" + code)

    def load(place, index):
        data, offset = State.thread.block.dynamic.data.cast("B"), int(place) + int(index)
        if offset % layout.size or not 0 <= offset <= len(data) - layout.size:
            raise EmulationError(f"{layout.size} bytes at byte {offset} of {len(data)} in shared memory")
        values = layout.unpack_from(data, offset)
        return values if len(code) > 1 else values[0]

    return load


AT = {f"at{8 * struct.calcsize(c)}": partial(_staged(c), 0) for c in ("B", "H", "I", "2I", "4I")}  # kernels/cuda/streamed.py
AT["look"] = AT["at32"]
AT["at128_if"] = lambda place, wanted: AT["at128"](place) if wanted else (0,) * 4
STAGED = {f"ldg{8 * struct.calcsize(c)}_if": _unless_skipped(_staged(c), struct.calcsize(c) // 4) for c in ("H", "I", "2I", "4I")}
ld8, ld16, ld32, ld64, ld128 = (_loader(c) for c in ("B", "H", "I", "2I", "4I"))
ldh, ldf, ldf2, ldf4 = (_loader(c) for c in ("e", "f", "2f", "4f"))
ldgf4_if, ldf4_if = _unless_skipped(ldgf4, 4), _unless_skipped(ldf4, 4)
ldcg32, ldcg64, ldcg128, ldcgf4 = ld32, ld64, ld128, ldf4
st16, st32, st64, st128 = (_storer(c) for c in ("H", "I", "2I", "4I"))
sth, stf, stf2, stf4 = (_storer(c) for c in ("e", "f", "2f", "4f"))
lds16, lds32, lds64, lds128 = (_loader(c, "s") for c in ("H", "I", "2I", "4I"))
ldsf, ldsf2, ldsf4 = (_loader(c, "s") for c in ("f", "2f", "4f"))
sts16, sts32, sts64, sts128 = (_storer(c, "s") for c in ("H", "I", "2I", "4I"))
stsf, stsf2, stsf4 = (_storer(c, "s") for c in ("f", "2f", "4f"))
st_release = st_rel32 = st_release_sys = st32
st_ll = st64


def lookup(data, count):
    """What reads a table: signed bytes, or entries of `count` words; below 0, what copies it, which nothing needs here."""
    if count < 0:
        return lambda index: None
    if not count:
        return memoryview(data).cast("b").__getitem__
    entries = memoryview(data).cast("I")
    return entries.__getitem__ if count == 1 else lambda index: tuple(entries[count * index : count * index + count])


def prefetch_l2(place, index):
    bytes_at(place, index, 1, 1, "g")


def bulk_prefetch(place, index, size):
    if size % 16:
        raise EmulationError(f"a bulk prefetch of {size} bytes")
    bytes_at(place, index, size, 16, "g")


def address(place, index):
    return place.address + int(index) * place.item if isinstance(place, Array) else int(place) + int(index)


def smem_addr(array, index):
    return int(index) * array.item


def _exchange(operation, space="g"):
    """A read-modify-write of one word, at once; gives the old value."""
    load, store = (_loader("I", space), _storer("I", space))

    def atomic(place, index, value):
        old = load(place, index)
        store(place, index, operation(old, int(value) & 0xFFFFFFFF))
        return old

    return atomic


atom_add = atom_acqrel_add = red_release_add = red_relaxed_add = _exchange(lambda old, value: old + value)
atom_max = _exchange(max)
atom_acqrel_inc = _exchange(lambda old, value: 0 if old >= value else old + 1)


def red_add64(place, index, value):
    low, high = _loader("2I")(place, index)
    total = (high << 32 | low) + int(value)
    _storer("2I")(place, index, total, total >> 32)


atoms_add, atoms_max = _exchange(lambda old, value: old + value, "s"), _exchange(max, "s")

# ---- copies that arrive later ----------------------------------------------------------------------------


def _start(to, i, place, j, size):
    """Where a copy goes and what it brings; the goal holds NaN until it has arrived."""
    goal, at = bytes_at(to, i, size, min(size, 16), "s")
    source, start = bytes_at(place, j, size, min(size, 16), "g") if place is not None else (None, 0)
    goal.raw[at : at + size] = b"\xff" * size
    return goal, at, source, start, size


def _arrive(goal, at, source, start, size):
    goal.raw[at : at + size] = source.raw[start : start + size] if source is not None else bytes(size)


def cp_async16(to, i, place, j):
    State.thread.copies.append(_start(to, i, place, j, 16))


def cp_async8(to, i, place, j):
    State.thread.copies.append(_start(to, i, place, j, 8))


def cp_async4(to, i, place, j):
    State.thread.copies.append(_start(to, i, place, j, 4))


def cp_async16z(to, i, place, j, size):
    if size not in (0, 16):
        raise EmulationError(f"cp_async16z of {size} bytes")
    State.thread.copies.append(_start(to, i, place if size else None, j, 16))


def cp_async_commit():
    State.thread.groups.append(State.thread.copies)
    State.thread.copies = []


def cp_async_wait(left):
    groups = State.thread.groups
    while len(groups) > left:
        for copy in groups.pop(0):
            _arrive(*copy)


class Barrier:
    """An mbarrier: `missing` arrivals and `bytes` of bulk copies until its phase is over."""

    def __init__(self, count):
        self.count = self.missing = count
        self.bytes, self.phase, self.copies = 0, 0, []

    def arrived(self, arrivals, size):
        self.missing -= arrivals
        self.bytes += size
        if self.missing < 0:
            raise EmulationError("more arrivals at an mbarrier than it counts")
        if not self.missing and not self.bytes:
            self.phase, self.missing = self.phase ^ 1, self.count


def _barrier(place, index):
    array, offset = bytes_at(place, index, 8, 8, "s")
    try:
        return State.thread.block.barriers[array.address + offset]
    except KeyError:
        raise EmulationError("an mbarrier is used before mbar_init") from None


def mbar_init(place, index, count):
    array, offset = bytes_at(place, index, 8, 8, "s")
    State.thread.block.barriers[array.address + offset] = Barrier(count)


def mbar_expect(place, index, size):
    _barrier(place, index).arrived(1, size)


def mbar_arrive(place, index):
    _barrier(place, index).arrived(1, 0)


def bulk_g2s(to, i, place, j, barrier, k, size):
    if size % 16:
        raise EmulationError(f"a bulk copy of {size} bytes")
    goal, at = bytes_at(to, i, size, 16, "s")
    source, start = bytes_at(place, j, size, 16, "g")
    goal.raw[at : at + size] = b"\xff" * size
    _barrier(barrier, k).copies.append((goal, at, source, start, size))


def try_wait(place, index, parity):
    barrier = _barrier(place, index)
    while barrier.copies:
        copy = barrier.copies.pop(0)
        _arrive(*copy)
        barrier.arrived(0, -copy[4])
    return int(barrier.phase != parity)

# ---- nothing to do on one processor ----------------------------------------------------------------------


def pdl_wait():
    State.thread.waited = True


def pdl_beside():
    State.thread.waited = True


def pdl_launch():
    pass


mbar_fence = fence_async = fence_gpu = pdl_launch


def nanosleep(nanoseconds):
    pass


def clock32():
    return 0


def globaltimer():
    return 0


# ---- accessors of kernels/cuda/memory.py -----------------------------------------------------------------


def _accessor(code, align, kind):
    load = _loader(code, read_only=True, align=align)
    return lambda where: kind(load(where, 0))


MEMORY = {
    **{name: _accessor(code, align, int) for name, code, align in (
        ("u8", "B", 1), ("i8", "b", 1), ("u16", "H", 2), ("i16", "h", 2), ("u32", "I", 2), ("i32", "i", 4))},
    **{name: _accessor(code, align, float32) for name, code, align in (
        ("f16", "e", 2), ("f32", "f", 4), ("f64", "d", 8), ("i64", "q", 8))},
    "float32": float32, "float_of_bits": bits2f, "half_of_bits": half,
}  # fmt: skip
