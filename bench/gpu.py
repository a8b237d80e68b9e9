"""CUDA kernel cases on a real device: the same cases that the tests emulate, with guard bytes around every array; and timing.

Used by bench/device.py. Needs the kernels in cache/ and numpy; compiles nothing.
"""

import sys
from _ctypes import addressof

import numpy

from bench.record import ROOT
from reflex import native
from reflex.backends.cuda import device, driver, launch, module

sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "cuda")]

GUARD = 4096  # bytes of known content before and behind every array
POISON = 0x7F7F7F7F
WEIGHTS_RUN = 256 << 20  # bytes of weights that a timed case walks through: more than any cache


def addresses(argument):
    """The arrays of a table of addresses, None for any other argument."""
    return getattr(argument, "arrays", None)


class Buffer:
    """A numpy array on the device between guards."""

    def __init__(self, gpu, array):
        self.gpu, self.size, self.shape, self.dtype = gpu, array.nbytes, array.shape, array.dtype
        self.words = (self.size + 2 * GUARD + 3) // 4
        self.base = gpu.allocate(4 * self.words, "a case")
        self.address = self.base + GUARD
        gpu.fill(self.base, POISON, self.words)
        content = numpy.ascontiguousarray(array)
        if self.size:
            gpu.copy_in(self.address, content.ctypes.data, self.size)
        gpu.synchronize()

    def fetch(self):
        """(array, whether the guards are whole)."""
        whole = numpy.empty(4 * self.words, numpy.uint8)
        self.gpu.copy_out(whole.ctypes.data, self.base, 4 * self.words)
        self.gpu.synchronize()
        inner = whole[GUARD : GUARD + self.size].copy().view(self.dtype).reshape(self.shape)
        outside = numpy.concatenate([whole[:GUARD], whole[GUARD + self.size :]])
        return inner, bool((outside == POISON & 0xFF).all())

    def free(self):
        self.gpu.free(self.base)


class Runner:
    """Cases on one device."""

    def __init__(self, selection=None):
        self.gpu = device.start(selection)
        self.images = module.choose(self.gpu)
        self.module = module.Module(self.gpu, self.images)
        self.library = native.library()

    def _place(self, case):
        """(values for the launch, buffers by argument index, all buffers)."""
        values, buffers, every = [], {}, []
        for index, argument in enumerate(case.fresh()):
            arrays = addresses(argument)
            if arrays is not None:
                inner = [Buffer(self.gpu, array) for array in arrays]
                table = Buffer(self.gpu, numpy.array([b.address for b in inner], numpy.int64))
                buffers[index] = inner
                every += [*inner, table]
                values.append(table.address)
            elif isinstance(argument, numpy.ndarray):
                buffers[index] = Buffer(self.gpu, argument)
                every.append(buffers[index])
                values.append(buffers[index].address)
            else:
                values.append(argument)
        return values, buffers, every

    def _launch(self, chain, case, values):
        for name, grid, shared, picks in case.launches:
            kernel = self.images.kernel(name)
            numbers = [float(v) if c == "f" else v for c, v in zip(kernel.letters, [values[i] for i in picks], strict=True)]
            chain.add(kernel, grid, numbers, shared, cooperative=case.cooperative)

    def run(self, case, times=1):
        """Complaints about one case, launched `times` times in a row on the same data only when that is 1."""
        values, buffers, every = self._place(case)
        chain = launch.Chain(self.library)
        self._launch(chain, case, values)
        chain.bind(self.gpu, self.module)
        chain.run()
        self.gpu.synchronize()
        found, problems = case.fresh(), []
        for index, buffer in buffers.items():
            parts = buffer if isinstance(buffer, list) else [buffer]
            contents = [part.fetch() for part in parts]
            if not all(whole for _, whole in contents):
                problems.append(f"{case.label}: argument {index}: bytes outside the array were written")
            if isinstance(buffer, list):
                for target, (content, _) in zip(addresses(found[index]), contents, strict=True):
                    target[...] = content
            else:
                found[index] = contents[0][0]
        problems += case.check(found)
        for buffer in every:
            buffer.free()
        chain.close()
        return problems

    def time(self, case, launches=40, rounds=5):
        """Median microseconds per launch in a graph; the largest array is walked through in copies that no cache keeps."""
        values, buffers, every = self._place(case)
        single = {i: b for i, b in buffers.items() if not isinstance(b, list)}
        index, largest = max(single.items(), key=lambda item: item[1].size)
        copies = [values[index]]
        if largest.size > 1 << 20:
            count = max(1, min(launches, WEIGHTS_RUN // largest.size + 1)) if largest.size < WEIGHTS_RUN else 2
            for _ in range(count - 1):
                extra = Buffer(self.gpu, largest.fetch()[0])
                every.append(extra)
                copies.append(extra.address)
        chain = launch.Chain(self.library)
        for i in range(launches):
            values[index] = copies[i % len(copies)]
            self._launch(chain, case, values)
        chain.bind(self.gpu, self.module)
        graph = chain.capture()
        spent = [self._elapsed(graph.launch) / launches for _ in range(rounds + 1)][1:]
        graph.close()
        chain.close()
        for buffer in every:
            buffer.free()
        return sorted(spent)[len(spent) // 2]

    def _elapsed(self, action):
        """Microseconds of the device between two events around `action`."""
        events = [driver.word("cuEventCreate", 0) for _ in range(2)]
        driver.call("cuEventRecord", events[0], self.gpu.stream)
        action()
        driver.call("cuEventRecord", events[1], self.gpu.stream)
        driver.call("cuEventSynchronize", events[1])
        cell = (native.Int64 * 1)()
        driver.call("cuEventElapsedTime", addressof(cell), *events)
        for event in events:
            driver.call("cuEventDestroy_v2", event)
        return float(numpy.frombuffer(bytes(cell), numpy.float32)[0]) * 1000


def check_all(runner, only=""):
    """(cases run, complaints, {file: (cases, complaints)}) over every case file."""
    from run import modules

    table = {}
    for cases in modules():
        name = cases.__name__.rpartition(".")[2]
        if only and only not in name:
            continue
        count, problems = 0, []
        for case in cases.cases():
            if case.kernel not in runner.images:
                problems.append(f"{case.label}: no kernel {case.kernel} for {runner.images.target}")
                continue
            count += 1
            try:
                problems += runner.run(case)
            except Exception as error:
                problems.append(f"{case.label}: {case.kernel}: {error}")
                return {**table, name: (count, problems)}  # a failed launch poisons the context
        table[name] = (count, problems)
    return table


def time_all(runner, only=""):
    """[(file, label, kernel, microseconds, GB/s or None, TFLOP/s or None)] over every case file's `bench`."""
    from run import modules

    rows = []
    for cases in modules():
        name = cases.__name__.rpartition(".")[2]
        if not hasattr(cases, "bench") or (only and only not in name):
            continue
        for case in cases.bench():
            if case.kernel not in runner.images:
                continue
            spent = runner.time(case)
            moved, work = getattr(case, "bytes", None), getattr(case, "flops", None)
            rows.append((name, case.label, case.kernel, spent, moved and moved / spent / 1e3, work and work / spent / 1e6))
    return rows
