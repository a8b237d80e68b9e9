"""Programs made by hand, lowered as any program is and run launch by launch in the emulator, or by the references of their
operations.
"""

import emulator
import numpy
from blocks import random_blocks

from reflex import ops, quant
from reflex.backends.cuda import launch, memory
from reflex.backends.cuda.lowering import lowering
from reflex.gguf.header import Tensor
from reflex.kernels.cuda.compile import load_all
from reflex.program.records import Program
from reflex.quant.types import by_name, row_bytes

KERNELS = load_all()
ALIGN = 256
KINDS = {"F": "f4", "U": "u4", "I": "i4", "H": "u2", "B": "u1", "L": "i8", "D": "f8"}  # of pointers, by the letters of a signature
MULTIPROCESSORS = 4


class Weights:
    """Tensors of random numbers, one behind the other, as a file has them; also the Layout of such a file."""

    expanded = {}  # noqa: RUF012
    begins = {}  # noqa: RUF012

    def __init__(self, seed=0):
        self.random = numpy.random.default_rng(seed)
        self.tensors, self.values, self.data = {}, {}, numpy.zeros(0, "u1")

    def add(self, name, kind, *shape):
        """A tensor of `shape`, the columns first, whose values are of the size 1 / sqrt(columns)."""
        block, count = by_name(kind), int(numpy.prod(shape))
        if block.elements == 1:
            values = self.random.standard_normal(count, "f4") / shape[0] ** 0.5
            data = values.astype("f4" if kind == "F32" else "f2").view("u1")
        else:
            data = random_blocks(block, count // block.elements, self.random).reshape(-1)
        at = len(self.data)
        filler = numpy.zeros(-len(data) % ALIGN, "u1")
        self.data = numpy.concatenate([self.data, data, filler])
        self.tensors[name] = Tensor(name, block.id, shape, at, count // shape[0] * row_bytes(block.id, shape[0]), count)
        self.values[name] = quant.decode(kind, data).reshape(shape[::-1])

    def kind(self, tensor):
        return tensor.type

    def place(self, address):
        return address


class Images:
    """Every kernel there is for compute capability 9.0 that `allowed` takes."""

    block_shared_bytes, most_shared_bytes, multiprocessor_shared_bytes = 99 << 10, 227 << 10, 228 << 10

    def __init__(self, allowed):
        self.allowed = allowed

    def __contains__(self, name):
        return name in KERNELS and KERNELS[name].since <= 90 < KERNELS[name].before and self.allowed(name)

    def kernel(self, name):
        assert name in self, name
        found = KERNELS[name]
        found.registers, found.shared = 80, 0
        return found


class Launches(list):
    def add(self, kernel, grid, values, shared=0, overlap=True):
        self.append((kernel, grid, list(values), shared))


class Run:
    """A program's steps over one batch in the emulator. `shape`: rows, wanted rows, reach."""

    def __init__(self, program, weights, shape, allowed=lambda name: True):
        self.program, self.weights = program, weights
        self.memory = memory.Memory(weights, program, shape[0])
        self.launches = Launches()
        self.lowering = lowering(program)(Images(allowed), MULTIPROCESSORS, self.launches, weights, program, self.memory, *shape)
        self.lowering._lower(0, len(program.steps))
        number, size, constants = self.memory.seal()
        self.arena = numpy.full(size + ALIGN, 0xFF, "u1")  # poison
        for at, content in constants:
            self.arena[at : at + len(content)] = numpy.frombuffer(content, "u1")
        self.areas = {number: self.arena, memory.WEIGHTS: numpy.concatenate([weights.data, numpy.zeros(ALIGN, "u1")])}

    def names(self):
        return [kernel.name for kernel, *_ in self.launches]

    def put(self, name, values):
        at = memory.offset(self.memory.buffer(name))
        self.arena[at : at + values.nbytes] = values.reshape(-1).view("u1")

    def get(self, name):
        address, rows = self.lowering._at(name)
        at, columns = memory.offset(address), self.program.widths[name]
        return self.arena[at : at + 4 * rows * columns].view("f4").reshape(rows, columns).copy()

    def run(self):
        for kernel, grid, values, shared in self.launches:
            arguments = [self._argument(*pair) for pair in zip(kernel.signature, values, strict=True)]
            emulator.launch(kernel.function, grid, kernel.threads, arguments, shared)

    def _argument(self, letter, value):
        if letter not in KINDS:
            return value
        if value == 0:
            return numpy.zeros(1, KINDS[letter])
        area = self.areas[value >> 48 & 0xFF]
        assert value >> 56 == launch.TAG >> 8
        rest = area[memory.offset(value) :]
        return rest[: len(rest) // 8 * 8].view(KINDS[letter])


def program_of(steps, widths):
    made = Program("steps", 64, 4096, widths["x"])
    made.widths.update(widths)
    made.steps += steps
    made.layers.append(len(steps))
    return made


def expected(program, weights, buffers):
    """What the references make of the steps, in float32; changes `buffers`."""
    for step in program.steps:
        own = [None if name is None else weights.values[name] for name in step.weights]
        given = [buffers[name].copy() for name in step.ins]
        buffers[step.out] = ops.find(step.op).reference(*given, *own, **step.args)
    return buffers
