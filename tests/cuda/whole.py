"""Whole programs in the emulator: the launches that the cuda backend makes of a batch, one after another, over arenas of numpy.

`Emulated` has the part of a Plan's interface that evaluates batches. Memory that nobody wrote is NaN, so that a buffer which is
read too early, or from another's place, shows in the logits.
"""

from types import SimpleNamespace

import emulator
import numpy
import twins
import twins_attention  # noqa: F401
import twins_experts  # noqa: F401
import twins_recurrent  # noqa: F401
import twins_streams  # noqa: F401
from run import Addresses

from reflex import native
from reflex.backends.cuda.launch import TAG
from reflex.backends.cuda.lowering import lowering
from reflex.backends.cuda.memory import CELLS, WEIGHTS, Layout, Memory
from reflex.backends.cuda.parameters import lists_of_runs
from reflex.backends.layers import checked
from reflex.kernels.cuda import export
from reflex.kernels.cuda.compile import load_all
from reflex.program.records import PLACES

REGISTERS, CAPABILITY = 64, 90
MULTIPROCESSORS = 4  # of a device that even tiny models keep busy
DTYPES = {letter: numpy.dtype(str(kind)) for letter, kind in export.POINTERS.items()}


class Images:
    """Every kernel there is, as the lowering wants to know it."""

    block_shared_bytes, most_shared_bytes, multiprocessor_shared_bytes = 99 << 10, 227 << 10, 228 << 10

    def __init__(self):
        self.known = {k.name: k for k in load_all().values() if k.since <= CAPABILITY < k.before}

    def __contains__(self, name):
        return name in self.known

    def kernel(self, name):
        found = self.known[name]
        sizes = {"threads": found.threads, "registers": REGISTERS, "shared": 0}
        facts = {"letters": found.signature, "function": found.function, **sizes}
        return SimpleNamespace(name=name, **facts)


class Launches(list):
    """A chain: (kernel, grid, values, dynamic shared bytes) of each launch."""

    def add(self, kernel, grid, values, shared=0, overlap=True):
        self.append((kernel, (*grid, 1, 1)[:3], list(values), shared))

    def repeat(self, first, last, changes=()):
        start = len(self)
        self.extend((kernel, grid, list(values), shared) for kernel, grid, values, shared in self[first:last])
        for row, parameter, value in changes:
            self[start + row - first][2][parameter] = value


class Emulated:
    """A program with its weights and cache of at most `context` slots."""

    def __init__(self, file, program, context, multiprocessors=MULTIPROCESSORS, quick=True):
        """`quick`: launches whose kernel has a twin (twins.py) are done by that."""
        self.file, self.program, self.multiprocessors = file, program, multiprocessors
        self.images, self.layout = Images(), Layout(file)
        self.memory = Memory(self.layout, program, context)
        self.areas = {WEIGHTS: emulator.aligned(self.layout.size)}
        for address, size, at in self.layout.shards:
            self.areas[WEIGHTS][at : at + size] = numpy.frombuffer(native.bytes_at(address, size), numpy.uint8)
        self.pages = []
        for _ in range(self.memory.page_count):
            page = emulator.aligned(self.memory.page_bytes)
            page[:] = 0  # as the backend hands them out
            self.pages.append(page.view(numpy.uint8))
        size = sum(program.states)
        self.places = [numpy.full(size, numpy.nan, numpy.float32) for _ in range(PLACES if size else 0)]
        self.quick = quick
        self.used = {}  # kernel -> launches

    def evaluate(self, ids, first_slot, positions, shared, branch, outputs, reach=0, tree=0, strands=(), runs=()):
        """Logits [len(outputs), vocabulary] of one batch; `reach` and `tree` as Batch (batch.py) has them. Without `strands` its
        rows go on from place 0 and leave their state there."""
        memory, chain = self.memory, Launches()
        facts = self.images, self.multiprocessors, chain, self.file, self.program, memory
        lowering(self.program)(*facts, len(ids), len(outputs), reach, tree).lower()
        self._allocate()
        self.accept(ids, first_slot, positions, shared, branch, outputs, runs, strands)
        self.launch(chain)
        count = len(outputs) * self.program.vocabulary
        logits = self._view(memory.logits(len(outputs)), numpy.float32)[:count]
        return logits.reshape(len(outputs), -1).copy()

    def accept(self, ids, first_slot, positions, shared, branch, outputs, runs=(), strands=()):
        """Write a batch where launches read it."""
        memory = self.memory
        cells = self._view(memory.cells, numpy.int32)
        plain = next((row for row, start in enumerate(branch) if start), len(branch))
        cells[:5] = len(ids), first_slot, len(outputs), 0, plain
        for number, values in enumerate((ids, positions, shared, branch, outputs)):
            start = CELLS + number * memory.rows
            cells[start : start + len(values)] = values
        if self.places:
            words = checked(strands or ((0, len(ids), 0 if first_slot else -1, 0),), len(ids))
            self._view(memory.strands, numpy.int32)[: len(words)] = words
        if runs:
            words = lists_of_runs(runs, memory.rows)
            self._view(memory.lists, numpy.int32)[: len(words)] = words

    def launch(self, rows):
        """Do launches of a chain."""
        for kernel, grid, values, dynamic in rows:
            self.used[kernel.name] = self.used.get(kernel.name, 0) + 1
            arguments = [self._argument(letter, value) for letter, value in zip(kernel.letters, values, strict=True)]
            self._launch(kernel, grid, arguments, dynamic)

    def follow(self, ids, first_slot=0, step=0):
        """Logits behind the last of `ids`, which continue a plain text; in batches of `step` tokens (0: one batch)."""
        count = len(ids)
        for at in range(0, count, step or count):
            part = ids[at : at + (step or count)]
            place = first_slot + at
            zeros = [0] * len(part)
            found = self.evaluate(part, place, list(range(place, place + len(part))), zeros, zeros, [len(part) - 1])
        return found[0]

    def _launch(self, kernel, grid, arguments, dynamic):
        if self.quick and twins.known(kernel.name):
            twins.run(kernel.name, grid, arguments)
        else:
            emulator.launch(kernel.function, grid, kernel.threads, arguments, dynamic)

    def _allocate(self):
        sealed = self.memory.seal()
        if sealed is not None:
            number, size, constants = sealed
            self.areas[number] = emulator.aligned(size)
            for at, content in constants:
                self.areas[number][at : at + len(content)] = numpy.frombuffer(content, numpy.uint8)

    def _view(self, address, dtype):
        assert address >> 56 == TAG >> 8, hex(address)
        data = self.areas[address >> 48 & 0xFF][address & ((1 << 48) - 1) :]
        return data[: data.size // dtype().itemsize * dtype().itemsize].view(dtype)

    def _argument(self, letter, value):
        if letter not in DTYPES:
            return value
        dtype = DTYPES[letter].type
        if not value:
            return numpy.zeros(0, dtype)
        if value == self.memory.pages:
            return Addresses(self.pages)
        if self.places and value == self.memory.place_table:
            return Addresses(self.places)
        return self._view(value, dtype)
