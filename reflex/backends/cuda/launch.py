"""Chains of kernel launches in raw memory, queued by one native call, and CUDA graphs made from them.

Rows and parameter cells are laid out as kernels/host/launch.py reads them. A parameter cell may hold an address inside an
area that does not exist yet (`relative`); `rebase` fills those in when the area has been allocated. Used by the lowering,
which writes rows, and the backend, which runs them.
"""

from _ctypes import addressof

from ... import native
from ...errors import DeviceError, InternalError
from ...native import Int64
from . import driver
from .driver import call, word

ROW_WORDS = 10  # kernels/host/launch.py
CELLS_WORD, COUNT_WORD, ATTRIBUTES_WORD, HANDLE_WORD, SHARED_WORD, STREAM_WORD = 8, 9, 5, 7, 3, 4
MOST_PARAMETERS = 128
TAG = 0x5200  # above every address and every 32-bit value
ATTRIBUTE_WORDS = 9  # sizeof(CUlaunchAttribute) / 8: id, then a union of 64 bytes
COOPERATIVE, CLUSTER, OVERLAP = 2, 4, 6  # CUlaunchAttributeID; 6 is programmatic stream serialization
EXTENDED_SINCE, OVERLAP_SINCE = 11080, 12030  # drivers: cuLaunchKernelEx; overlap inside captured graphs


def relative(area, offset):
    """A parameter value that means `offset` bytes into area number `area` (0 to 255); see `Chain.rebase`."""
    return (TAG | area) << 48 | offset


def float_bits(value):
    """Bits of the float32 nearest to a Python float."""
    view = memoryview(bytearray(4)).cast("f")
    view[0] = value
    return view.cast("B").cast("I")[0]


class Chain:
    """A growing list of launches on one device. `overlap` lets kernels start before the one before them has ended."""

    def __init__(self, library, rows=16384, cells=1 << 18):
        """The limits cost address space only. Needs no device yet: see `bind`."""
        self._library = library
        self._tables = native.alloc(8 * ROW_WORDS * rows, "launch table"), native.alloc(8 * cells, "launch parameters")
        self._table = native.view(self._tables[0].address, ROW_WORDS * rows, "q")
        self._cells = native.view(self._tables[1].address, cells, "q")
        self._scratch = (Int64 * MOST_PARAMETERS)()
        self._attributes = {}  # (overlap, cooperative, cluster) -> (array, number of attributes)
        self._limits = rows, cells
        self._entries = None
        self.kernels = []  # Kernel of every row, None for a copy
        self.cells = 0  # cells in use
        self.device = None

    def __len__(self):
        return len(self.kernels)

    # ---- writing rows ----

    def add(self, kernel, grid, values, shared=0, overlap=True, cooperative=False, cluster=0):
        """Append a launch of `kernel` (module.Kernel) and return its row number.

        `grid`: blocks, as x, (x,), (x, y) or (x, y, z). `values`: one per parameter: ints (addresses, `relative` ones, numbers),
        floats for the letter f. `shared`: bytes of dynamic shared memory. `overlap` is taken back where the hardware has none
        and behind a copy. `cluster`: blocks per cluster in x, 0 for none."""
        if len(values) != len(kernel.letters):
            raise InternalError(f"kernel {kernel.name} has other parameters", len(kernel.letters), len(values))
        row = self._append(kernel, values)
        x, y, z = (*grid, 1, 1)[:3] if isinstance(grid, tuple) else (grid, 1, 1)
        behind_copy = row > 0 and self.kernels[row - 1] is None
        at = row * ROW_WORDS
        table = self._table
        table[at], table[at + 1], table[at + 2] = x | y << 32, z | kernel.threads << 32, 1 | 1 << 32
        table[at + SHARED_WORD] = shared
        kernel.need_shared(shared)
        self._attribute_row(at, overlap and not behind_copy, cooperative, cluster)
        return row

    def copy(self, target, source, size):
        """Append a copy between device memory and pinned host memory, either way or on the device; returns its row."""
        return self._append(None, (target, source, size))

    def repeat(self, first, last, changes=()):
        """Append a copy of rows [first, last); returns its first row. `changes`: ((row of the original, parameter, value))."""
        start, count = len(self.kernels), last - first
        rows, cells = self._limits
        from_cell = self._table[first * ROW_WORDS + CELLS_WORD] >> 3
        to_cell = self._table[last * ROW_WORDS + CELLS_WORD] >> 3 if last < start else self.cells
        shift = self.cells - from_cell
        if start + count > rows or self.cells + to_cell - from_cell > cells:
            raise InternalError("a launch table is full", self._limits, (start + count, self.cells))
        self._table[start * ROW_WORDS : (start + count) * ROW_WORDS] = self._table[first * ROW_WORDS : last * ROW_WORDS]
        self._cells[self.cells : to_cell + shift] = self._cells[from_cell:to_cell]
        for at in range(start * ROW_WORDS + CELLS_WORD, (start + count) * ROW_WORDS, ROW_WORDS):
            self._table[at] += 8 * shift
        self.kernels += self.kernels[first:last]
        self.cells = to_cell + shift
        for row, parameter, value in changes:
            self.set(start + row - first, parameter, value)
        return start

    def set(self, row, parameter, value):
        """Change one parameter of a row; graphs captured before keep the old one."""
        if isinstance(value, float):
            value = float_bits(value)
        self._cells[(self._table[row * ROW_WORDS + CELLS_WORD] >> 3) + parameter] = value

    def grid(self, row, x, y=1, z=1):
        """Change the number of blocks of a row."""
        at = row * ROW_WORDS
        self._table[at] = x | y << 32
        self._table[at + 1] = self._table[at + 1] & ~0xFFFFFFFF | z

    def offsets(self, row, area):
        """The offsets of the row's parameters that are relative to `area`. Before `rebase`."""
        at = row * ROW_WORDS
        first, tag = self._table[at + CELLS_WORD] >> 3, TAG | area
        return [cell & (1 << 48) - 1 for cell in self._cells[first : first + self._table[at + COUNT_WORD]] if cell >> 48 == tag]

    def alone(self, row):
        """Let a row start only when all before it has ended."""
        self._attribute_row(row * ROW_WORDS, False, False, 0)

    def rebase(self, area, base):
        """Give every parameter that is relative to `area` its address; returns how many there were."""
        return self._library.rebase(self._tables[1].address, self.cells, TAG | area, base)

    def _append(self, kernel, values):
        row, count = len(self.kernels), len(values)
        if row == self._limits[0] or self.cells + count > self._limits[1] or count > MOST_PARAMETERS:
            raise InternalError("a launch table is full", self._limits, (row, self.cells))
        at = row * ROW_WORDS
        self._table[at + CELLS_WORD], self._table[at + COUNT_WORD] = 8 * self.cells, count
        cells = self._cells
        for at, value in enumerate(values, self.cells):
            cells[at] = float_bits(value) if type(value) is float else value
        self.cells += count
        self.kernels.append(kernel)
        return row

    def _attribute_row(self, at, overlap, cooperative, cluster):
        key = overlap, cooperative, cluster
        block = self._attributes.get(key)
        if block is None:
            rows = [(COOPERATIVE, 1)] * cooperative + [(CLUSTER, cluster)] * bool(cluster) + [(OVERLAP, 1)] * overlap
            block = (Int64 * (ATTRIBUTE_WORDS * max(1, len(rows))))(), len(rows)
            for i, (number, value) in enumerate(rows):
                block[0][i * ATTRIBUTE_WORDS] = number
                block[0][i * ATTRIBUTE_WORDS + 1] = value | (1 << 32) * (number == CLUSTER)
                block[0][i * ATTRIBUTE_WORDS + 2] = int(number == CLUSTER)
            self._attributes[key] = block
        self._table[at + ATTRIBUTES_WORD] = addressof(block[0])
        self._table[at + ATTRIBUTES_WORD + 1] = block[1]

    # ---- running ----

    def bind(self, device, module):
        """Give the rows their stream, kernel handles and, by what the hardware can, their attributes. Call it before `run`,
        after the last row was added."""
        self.device = device
        extended = device.driver >= EXTENDED_SINCE
        self._entries = (
            driver.address("cuLaunchKernelEx" if extended else "cuLaunchKernel"), int(extended), driver.address("cuMemcpyAsync"),
        )  # fmt: skip
        if not extended and any(cooperative or cluster for _, cooperative, cluster in self._attributes):
            need, found = (f"CUDA {driver.version_text(v)}" for v in (EXTENDED_SINCE, device.driver))
            raise DeviceError("the CUDA driver is too old for this kernel", need, found, device.name, driver.UPDATE)
        if not (device.capability >= (9, 0) and device.driver >= OVERLAP_SINCE):
            for (overlap, _, _), (array, count) in self._attributes.items():
                if overlap:  # the last attribute of its block
                    array[(count - 1) * ATTRIBUTE_WORDS] = 0  # CU_LAUNCH_ATTRIBUTE_IGNORE
        handles = {}
        table = self._table
        for row, kernel in enumerate(self.kernels):
            at = row * ROW_WORDS
            table[at + STREAM_WORD] = device.stream
            if kernel is not None:
                handle = handles.get(kernel.name)
                if handle is None:
                    own = module.images.kernel(kernel.name)  # the rows may have been written from another target's listing
                    own.need_shared(kernel.dynamic)
                    handle = handles[kernel.name] = module.handle(own)
                table[at + HANDLE_WORD] = handle
        device.mark("kernels")

    def run(self, first=0, last=None):
        """Queue rows [first, last); returns before the device has run them."""
        last = len(self.kernels) if last is None else last
        table, cells = self._tables[0].address, self._tables[1].address
        done = self._library.launch_rows(table, first, last, cells, addressof(self._scratch), *self._entries)
        if done >= 0:
            row, status = done >> 32, done & 0xFFFFFFFF
            kernel = self.kernels[row]
            raise driver.failure(f"launch {row} ({'copy' if kernel is None else kernel.name})", status)

    def run_alone(self, first, last):
        """The same, of which the first starts only when all before it has ended; later runs are as before."""
        at = first * ROW_WORDS + ATTRIBUTES_WORD
        kept = self._table[at : at + 2].tolist()
        self.alone(first)
        try:
            self.run(first, last)
        finally:
            self._table[at], self._table[at + 1] = kept

    def capture(self, first=0, last=None):
        """Rows [first, last) as a Graph, with the parameters they have now."""
        stream = self.device.stream
        call("cuStreamBeginCapture_v2", stream, 2)  # CU_STREAM_CAPTURE_MODE_RELAXED
        cell = Int64()
        try:
            self.run(first, last)
        finally:
            status = driver.function("cuStreamEndCapture")(stream, addressof(cell))
        if status:
            raise driver.failure("cuStreamEndCapture", status)
        return Graph(cell.value, stream)

    def close(self):
        self._table.release()
        self._cells.release()
        for mapping in self._tables:
            mapping.free()


class Graph:
    """Launches that the device takes in one go."""

    def __init__(self, graph, stream):
        self._graph, self._stream = graph, stream
        self._launch = driver.function("cuGraphLaunch")
        self._ready = word("cuGraphInstantiateWithFlags", graph, 0)
        call("cuGraphUpload", self._ready, stream)

    def launch(self):
        """Queue all of it."""
        status = self._launch(self._ready, self._stream)
        if status:
            raise driver.failure("cuGraphLaunch", status)

    def close(self):
        call("cuGraphExecDestroy", self._ready)
        call("cuGraphDestroy", self._graph)
