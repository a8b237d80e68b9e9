"""Device memory of the cuda backend as planned: how much it is for real sizes, and that shared places never lose a value."""

from contextlib import closing
from itertools import pairwise

import pytest
import shapes
import tiny
from test_cuda_fusion import parts

from reflex.arch import load_spec
from reflex.backends.cuda import lifetimes, products
from reflex.backends.cuda.fusion import Experts, Linear, Plain, fuse
from reflex.backends.cuda.lowering import lowering
from reflex.backends.cuda.memory import Layout, Memory, up
from reflex.gguf.reader import open_model
from reflex.program import build
from reflex.program.records import Program

ALLOWANCE = 100_000_000  # bytes beyond the file and the cache
CONTEXT = 2048


class Kernel:
    """As much of a kernel as the lowering asks for."""

    registers, shared = 96, 0

    def __init__(self, name):
        self.name = name


class Images:
    """Has every kernel."""

    block_shared_bytes, most_shared_bytes, multiprocessor_shared_bytes = 99 << 10, 227 << 10, 228 << 10
    kernel = Kernel

    def __contains__(self, name):
        return True


class Chain:
    """Takes launches: (kernel's name, values) of each."""

    def __init__(self):
        self.rows = []

    def __len__(self):
        return len(self.rows)

    def add(self, kernel, grid, values, *more, **options):
        self.rows.append((kernel.name, values))

    def repeat(self, first, last, changes):
        self.rows += self.rows[first:last]


def lowered(file, program, sizes):
    """The Memory after evaluations of these (rows, wanted)."""
    memory = Memory(Layout(file), program, CONTEXT)
    for rows, wanted in sizes:
        lowering(program)(Images(), 132, Chain(), file, program, memory, rows, min(wanted, rows, memory.wanted_rows)).lower()
    return memory


BEYOND = [("0.6B", 45_000_000), ("4B", 60_000_000), ("8B", 65_000_000), ("32B", ALLOWANCE)]


@pytest.mark.parametrize(("name", "most"), BEYOND)
def test_bytes_beyond_weights_and_cache(name, most, tmp_path):
    with closing(open_model(str(shapes.write(name, tmp_path / "m.gguf")))) as file:
        program = build(load_spec(file))
        memory = lowered(file, program, [(512, 1), (512, 512), (55, 55), (40, 2), (32, 1), (16, 16), (8, 1), (1, 1)])
        assert memory.size <= most <= ALLOWANCE
        assert memory.wanted_rows * program.vocabulary * 4 <= 32 << 20


def owners(program, memory, selecting):
    """Follow every record of the program over the bytes of the shared buffers; returns who owns what at the end."""
    places = {name: (memory.buffer(name), memory._bytes(name)) for name in lifetimes.moments(program)}
    owned = {}  # name -> (first byte, end), apart from each other

    def write(name):
        first, size = places[name]
        for other, (start, end) in list(owned.items()):
            if start < first + size and first < end:
                del owned[other]
        owned[name] = first, first + size

    bounds = [0, *program.layers, len(program.steps)]
    for first, last in pairwise(bounds):
        for record in fuse(program.steps[first:last], selecting):
            read, made = set(), set()
            for step in parts(record, program.steps[first:last]):
                read |= set(step.ins) - made
                made.add(step.out)
            if isinstance(record, Linear | Experts) and record.norm:
                made.discard(record.norm.out)  # never written
            if isinstance(record, Linear) and record.mode == "add":
                made.discard(record.steps[0].out)  # nor is that
            read, made = read & places.keys(), made & places.keys()
            assert read <= owned.keys(), f"{read - owned.keys()} is lost before it is read"
            for name in [*([lifetimes.INPUT] if isinstance(record, Linear | Experts) else []), *sorted(made)]:
                write(name)
            assert read | made <= owned.keys(), "inputs and outputs of one launch overlap"
    return set(owned)


@pytest.mark.parametrize("selecting", [False, True])
@pytest.mark.parametrize("name", sorted(tiny.MODELS))
def test_no_value_is_lost_to_another(name, selecting, tmp_path):
    with closing(open_model(str(tiny.write(name, tmp_path / "m.gguf")))) as file:
        program = build(load_spec(file))
        memory = lowered(file, program, [(64, 1)])
        assert program.steps[-1].out in owners(program, memory, selecting)


class Watched:
    """In front of a Lowering: every address among the shared buffers that a launch of a record names is where one of the record's
    own begins, or one of the further places in it that the record asks for."""

    def _lower(self, first, last):
        used = lifetimes.moments(self.program)
        begin = self.memory.places["activations"]
        end = begin + lifetimes.arrange({name: up(self.memory._bytes(name)) for name in used}, used)[1]
        for record in fuse(self.program.steps[first:last], self.rows != self.wanted):
            before = len(self.chain)
            getattr(self, "_" + type(record).__name__.lower())(record)
            reads, writes = lifetimes.touched(record)
            own = {self.memory.buffer(name) for name in used.keys() & {*reads, *writes}}
            for kernel, values in self.chain.rows[before:]:
                named = {value for value in values if isinstance(value, int) and begin <= value < end}
                assert named <= own | self._further(record, kernel, writes), (record, kernel)

    def _further(self, record, kernel, writes):
        """Addresses inside a record's buffers that it names too: of the next rows, where a kernel takes UNTILED of them at once,
        and of the part of each head that a rotation turns."""
        memory, found = self.memory, set()
        if isinstance(record, Linear) and kernel.startswith(f"linear_rows_{products.UNTILED}_"):
            columns = self._size(record.steps[0])[1]
            for row in range(products.UNTILED, min(self.rows, products.AGAIN), products.UNTILED):
                found.add(memory.buffer(lifetimes.INPUT) + 2 * row * columns)
                found |= {memory.buffer(name) + 4 * row * self.program.widths[name] for name in writes if name != lifetimes.INPUT}
        if isinstance(record, Plain) and kernel == "rope":
            found.add(memory.buffer(record.step.out) + 4 * record.step.args.get("first", 0))
        return found


@pytest.mark.parametrize("name", sorted(tiny.MODELS))
def test_launches_name_only_what_their_record_touches(name, tmp_path):
    with closing(open_model(str(tiny.write(name, tmp_path / "m.gguf")))) as file:
        program = build(load_spec(file))
        memory, watched = Memory(Layout(file), program, CONTEXT), type("Own", (Watched, lowering(program)), {})
        for rows, wanted in ((1, 1), (2, 1), (16, 16), (24, 2), (64, 1), (64, 64)):
            watched(Images(), 132, Chain(), file, program, memory, rows, wanted).lower()


def test_what_comes_from_another_segment_keeps_its_place():
    program = Program("none", 8, 8, 8)
    program.emit("embed", "x", (), ("e",))
    program.layers = [1, 3]
    program.emit("add", "y", ("y", "x"))
    program.emit("scale", "z", ("y",), args={"factor": 2.0})
    program.emit("softcap", "logits", ("z",))
    used = lifetimes.moments(program)
    assert used["x"] == used["y"] == used["z"] == lifetimes.ALWAYS != used["logits"]


def test_places_are_shared_only_where_no_moment_is():
    used = {"a": 0b1, "b": 0b10, "c": 0b11, "d": lifetimes.ALWAYS}
    assert lifetimes.arrange({"a": 10, "b": 20, "c": 30, "d": 40}, used) == ({"d": 0, "c": 40, "b": 70, "a": 70}, 90)
