"""Runs CUDA kernels, unchanged, on numpy arrays: one generator per thread, no GPU and no CUDA library.

A kernel's source is rewritten so that each call at which threads meet (`ptx.shfl_xor`, `ptx.mma_f16`, `cuda.syncthreads`,
loads in waiting loops) yields. Warps run ahead one by one in random order up to a barrier, so that what a missing barrier
leaves to chance goes wrong; all lanes of a warp must stand at the same call. Not covered: what the memory model allows
between blocks, bank conflicts, time. Raises EmulationError with block, thread and source line.
"""

import ast
import inspect
import random
import textwrap
import traceback
from functools import cache
from types import ModuleType, SimpleNamespace

import emulated_collectives as collectives
import emulated_memory as memory
import emulated_numbers as numbers
import numpy
from emulated_memory import Array, EmulationError, State

PTX = SimpleNamespace(**vars(numbers), **{k: v for k, v in vars(memory).items() if k not in vars(numbers)})
STAGED = SimpleNamespace(**(vars(PTX) | memory.STAGED))
STREAMED = SimpleNamespace(**(vars(PTX) | memory.AT))
MEETINGS = {*collectives.WARP, *collectives.BLOCK, *collectives.SPIN, collectives.NAMED}
POISON = 0xFF  # bytes of memory that nobody wrote: NaN, or -1
FILES = set()  # of rewritten functions: lines of a traceback there are the kernel's
IDLE_ROUNDS = 3000  # of nothing but waiting loops: nobody will end them


# ---- rewriting -------------------------------------------------------------------------------------------


class _Rewriter(ast.NodeTransformer):
    """Calls at meetings become `yield`, calls of device functions `yield from` where they meet; names find their twins."""

    def __init__(self, scope):
        self.scope, self.meets = scope, False

    def _known(self, node):
        """What a name or a dotted name stands for, None where it is a local variable or an expression."""
        if isinstance(node, ast.Name):
            return self.scope.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = self._known(node.value)
            return getattr(owner, node.attr, None) if isinstance(owner, ModuleType | SimpleNamespace) else None
        return None

    def visit_Call(self, node):
        known, name = self._known(node.func), node.func.attr if isinstance(node.func, ast.Attribute) else None
        self.generic_visit(node)
        if hasattr(known, "py_func"):
            function, meets = _compile(known.py_func)
            symbol = f"_device_{len(self.scope)}"
            self.scope[symbol] = function
            node.func = ast.copy_location(ast.Name(symbol, ast.Load()), node)
            self.meets |= meets
            return ast.copy_location(ast.YieldFrom(node), node) if meets else node
        origin = known._defn.__module__.rpartition(".")[2] if type(known).__name__ == "_Intrinsic" else None
        if origin in ("memory", "stream_tables") and "data" in vars(known):  # a table
            symbol = f"_table_{len(self.scope)}"
            self.scope[symbol] = memory.lookup(known.data, known.words)
            node.func = ast.copy_location(ast.Name(symbol, ast.Load()), node)
        elif origin == "memory":
            node.func = ast.parse(f"_memory[{known._name!r}]", mode="eval").body
        elif origin == "asm" and not isinstance(node.func, ast.Attribute):  # imported by its name
            name = known._name
            node.func = ast.parse(f"_ptx.{name}", mode="eval").body
        if origin in ("memory", "stream_tables"):
            return ast.fix_missing_locations(node)
        if name in MEETINGS:
            self.meets = True
            call = ast.Tuple([ast.Constant(name), ast.Tuple(node.args, ast.Load()), ast.Constant(node.lineno)], ast.Load())
            return ast.fix_missing_locations(ast.copy_location(ast.Yield(call), node))
        return ast.fix_missing_locations(node)


def _twin(value):
    """What a kernel's global stands for here."""
    kind = type(value).__module__ or ""
    if isinstance(value, ModuleType):
        return TWINS.get(value.__name__, value)
    return numbers.CASTS.get(str(value), value) if kind.startswith("numba") else value


@cache
def _compile(function):
    """(the rewritten function, whether it is a generator)."""
    lines, first = inspect.getsourcelines(function)
    tree = ast.parse(textwrap.dedent("".join(lines)))
    ast.increment_lineno(tree, first - 1)
    definition = tree.body[0]
    definition.decorator_list = []
    scope = dict(function.__globals__)
    scope.update(zip(function.__code__.co_freevars, (c.cell_contents for c in function.__closure__ or ()), strict=True))
    scope = {name: _twin(value) for name, value in scope.items()}
    scope |= {"_memory": memory.MEMORY, "_ptx": PTX}
    assigned = {n.id for n in ast.walk(definition) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for name in assigned | {a.arg for a in definition.args.args}:
        scope.pop(name, None)
    rewriter = _Rewriter(scope)
    rewriter.visit(definition)
    ast.fix_missing_locations(tree)
    exec(compile(tree, inspect.getsourcefile(function), "exec"), scope)
    FILES.add(inspect.getsourcefile(function))
    return scope[definition.name], rewriter.meets


def _generator(function, meets):
    """A thread's body as a generator, even where it never meets another."""
    if meets:
        return function

    def alone(*arguments):
        function(*arguments)
        yield from ()

    return alone


# ---- what a kernel sees as `cuda` ------------------------------------------------------------------------


def _exchange(operation):
    def atomic(array, index, value):
        old = array[index]
        array[index] = operation(old, value)
        return old

    return staticmethod(atomic)


class _Atomic:
    add, max, min = _exchange(lambda old, value: old + value), _exchange(max), _exchange(min)


class _Local:
    @staticmethod
    def array(count, kind):
        return Array(numpy.frombuffer(bytearray([POISON]) * (count * kind.dtype.itemsize), kind.dtype), "local")


class _Shared:
    @staticmethod
    def array(count, kind, alignment=None):
        """The thread's next shared array; `count` 0 views the dynamic memory."""
        thread = State.thread
        thread.shared += 1
        arrays = thread.block.shared
        key = (thread.shared, kind)
        if key not in arrays:
            data = thread.block.dynamic if count == 0 else aligned(count * kind.dtype.itemsize)
            arrays[key] = Array(data[: data.size // kind.dtype.itemsize * kind.dtype.itemsize].view(kind.dtype), "shared")
        return arrays[key]


class _Cuda:
    local, shared, atomic = _Local, _Shared, _Atomic
    threadIdx = property(lambda self: State.thread.index)
    blockIdx = property(lambda self: State.thread.block.index)
    blockDim = property(lambda self: State.thread.block.size)
    gridDim = property(lambda self: State.thread.block.grid)
    laneid = property(lambda self: State.thread.index.x & 31)
    warpsize = 32

    def grid(self, dimensions):
        return self.blockIdx.x * self.blockDim.x + self.threadIdx.x

    def gridsize(self, dimensions):
        return self.blockDim.x * self.gridDim.x


CUDA = _Cuda()
KERNELS = "reflex.kernels.cuda"
TWINS = {"numba.cuda": CUDA, f"{KERNELS}.ptx": PTX, f"{KERNELS}.staged": STAGED, f"{KERNELS}.streamed": STREAMED}  # of modules


def aligned(size):
    """`size` poisoned bytes whose address is a multiple of 256."""
    data = numpy.full(size + 256, POISON, numpy.uint8)
    start = -data.ctypes.data % 256
    return data[start : start + size]


def _place(x, y=1, z=1):
    return SimpleNamespace(x=x, y=y, z=z)


# ---- running ---------------------------------------------------------------------------------------------


class _Thread:
    def __init__(self, block, index):
        self.block, self.index = block, _place(index, 0, 0)
        self.shared, self.copies, self.groups = 0, [], []
        self.waited = self.done = False
        self.call = self.answer = None  # (name, arguments, line) it stands at; what it is told there


class _Block:
    def __init__(self, launch, index, grid, threads, arguments, dynamic):
        self.launch, self.index, self.size, self.grid = launch, _place(*index), _place(threads), _place(*grid)
        self.shared, self.barriers, self.dynamic = {}, {}, aligned(dynamic)
        self.threads = [_Thread(self, i) for i in range(threads)]
        self.warps = [self.threads[i : i + 32] for i in range(0, threads, 32)]
        for thread in self.threads:
            thread.run = launch.body(*arguments).send
        self.progress = True

    def _advance(self, thread):
        State.thread = thread
        try:
            thread.call = thread.run(thread.answer)
            thread.answer = None
        except StopIteration:
            thread.done = True
            if not thread.waited:
                self._fail(thread, "the thread ends without pdl_wait")
        except Exception as error:
            lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename in FILES]
            kind = "" if isinstance(error, EmulationError) else f"{type(error).__name__}: "
            self._fail(thread, f"{kind}{error} (line {lines[-1] if lines else '?'})")

    def _fail(self, thread, text):
        place = (self.index.x, self.index.y, self.index.z)
        raise EmulationError(f"{self.launch.name}, block {place}, thread {thread.index.x}: {text}")

    def _answer(self, threads, values):
        for thread, value in zip(threads, values, strict=True):
            thread.answer, thread.call = value, None
        self.progress = True

    def _spin(self, lanes):
        """Answer the lanes in waiting loops; whether there are any."""
        spinning = [t for t in lanes if t.call[0] in collectives.SPIN]
        for thread in spinning:
            State.thread = thread
            name, arguments, _ = thread.call
            thread.answer, thread.call = collectives.SPIN[name](*arguments), None
        return bool(spinning)

    def _run_warp(self, lanes):
        """Run one warp ahead to a barrier of the block, a waiting loop or its end."""
        while True:
            for thread in lanes:
                if not thread.done and thread.call is None:
                    self._advance(thread)
                    self.progress |= thread.done or thread.call[0] not in collectives.SPIN
            live = [t for t in lanes if not t.done]
            if self._spin(live):
                return
            calls = {(t.call[0], t.call[2]) for t in live}
            names = {name for name, _ in calls}
            if names <= collectives.BLOCK.keys() | {collectives.NAMED}:
                return
            if len(calls) > 1 or len(live) != 32:
                self._fail(live[0], f"a divergent warp: {len(live)} live lanes at {sorted(calls)}")
            name = names.pop()
            State.thread = live[0]
            try:
                self._answer(live, collectives.WARP[name]([t.call[1] for t in live]))
            except EmulationError as error:
                self._fail(live[0], f"{error} (line {live[0].call[2]})")

    def _release_named(self, live):
        """Let go of named barriers that all their threads have reached."""
        waiting = {}
        for thread in live:
            if thread.call and thread.call[0] == collectives.NAMED:
                waiting.setdefault(thread.call[1][0], []).append(thread)
        for threads in waiting.values():
            counts = {t.call[1][1] for t in threads}
            if len(counts) > 1 or len(threads) > min(counts):
                self._fail(threads[0], f"a named barrier is reached with different counts: {counts}")
            if len(threads) == counts.pop():
                self._answer(threads, [None] * len(threads))

    def step(self):
        """Run every warp ahead, then release the barriers that are complete; whether any thread is left."""
        self.progress = False
        for lanes in self.launch.random.sample(self.warps, len(self.warps)):
            self._run_warp(lanes)
        live = [t for t in self.threads if not t.done]
        self._release_named(live)
        if live and all(t.call and t.call[0] in collectives.BLOCK for t in live):
            calls = {t.call[0] for t in live}
            if len(calls) > 1 or len(live) < len(self.threads):
                self._fail(live[0], f"{len(live)} of {len(self.threads)} threads are at {sorted(calls)}")
            self._answer(live, collectives.BLOCK[calls.pop()]([t.call[1] for t in live]))
        return bool(live)


class _Launch:
    """A kernel with its rewritten body."""

    def __init__(self, function, seed):
        self.name, self.random = function.__name__, random.Random(seed)
        self.body = _generator(*_compile(function))


def _run(blocks):
    """Step the blocks, which wait for each other, until all are done."""
    idle = 0
    while blocks:
        alive = [block.step() for block in blocks]
        idle = 0 if any(block.progress for block in blocks) else idle + 1
        spinning = any(t.call is None and not t.done for block in blocks for t in block.threads)
        if idle > (IDLE_ROUNDS if spinning else 0):
            stuck = [t for block in blocks for t in block.threads if not t.done]
            places = sorted({f"{t.call[0]} in line {t.call[2]}" if t.call else "a waiting loop" for t in stuck})
            blocks[0]._fail(stuck[0], f"deadlock: {len(stuck)} threads wait at {', '.join(places)}")
        blocks = [block for block, left in zip(blocks, alive, strict=True) if left]


def launch(function, grid, threads, arguments, dynamic=0, cooperative=False, seed=0):
    """Run a kernel. Arguments: numpy arrays, numbers, and address tables (objects with `arrays`, see run.Addresses)."""
    grid = (*((grid,) if isinstance(grid, int) else grid), 1, 1)[:3]
    values, State.arrays = [], []
    for argument in arguments:
        if hasattr(argument, "arrays"):
            State.arrays += [Array(a) for a in argument.arrays]
            argument = numpy.array([a.ctypes.data for a in argument.arrays], numpy.int64)
        values.append(Array(argument) if isinstance(argument, numpy.ndarray) else argument)
    values = [numpy.float32(v) if isinstance(v, float) else v for v in values]
    State.arrays += [v for v in values if isinstance(v, Array)]
    run = _Launch(function, seed)
    places = [(x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])]
    run.random.shuffle(places)
    with numpy.errstate(all="ignore"):
        if cooperative:
            _run([_Block(run, place, grid, threads, values, dynamic) for place in places])
        for place in [] if cooperative else places:
            _run([_Block(run, place, grid, threads, values, dynamic)])
    State.thread = None
