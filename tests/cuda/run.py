"""Cases of CUDA kernels: one launch with numpy arguments and what must come out. The emulator and a device run the same ones."""

import importlib
from pathlib import Path

import numpy

FOLDER = Path(__file__).parent / "cases"


class Addresses:
    """An argument: an int64 table with the device addresses of these arrays."""

    def __init__(self, arrays):
        self.arrays = list(arrays)

    def copy(self):
        return Addresses(a.copy() for a in self.arrays)


ROOMIEST = 227 << 10  # bytes of shared memory that a block of any device may have


class Case:
    """`args`: numpy arrays (the kernel may write them) and Python numbers. `wanted`: {index of an array argument: expected}.

    `before`: launches before this one, as in `launches`; this one takes the arguments `picks` (all).
    For an Addresses argument `wanted` lists its arrays, None for those that are not compared.
    `tolerance` is relative to the largest wanted magnitude; 0 asks for equality. `emulate=False`: too large for the emulator.
    """

    def __init__(
        self, label, kernel, grid, args, wanted, shared=0, tolerance=1e-5, cooperative=False, emulate=True, before=(), picks=None
    ):  # fmt: skip
        if shared > ROOMIEST:
            raise ValueError(f"{kernel}, case {label}: {shared} bytes of shared memory, and no block has more than {ROOMIEST}")
        self.label = label
        self.kernel = kernel
        self.grid = (*((grid,) if isinstance(grid, int) else grid), 1, 1)[:3]
        self.args = args
        self.wanted = wanted
        self.shared = shared  # bytes of dynamic shared memory
        self.tolerance = tolerance
        self.cooperative = cooperative
        self.emulate = emulate
        self.before = before
        self.picks = picks

    @property
    def launches(self):
        """Of (kernel, grid, bytes of shared memory, which of the arguments) each; of the case as it is now."""
        picks = range(len(self.args)) if self.picks is None else self.picks
        return *self.before, (self.kernel, self.grid, self.shared, picks)

    def fresh(self):
        return [a.copy() if hasattr(a, "copy") else a for a in self.args]

    def check(self, args):
        """Complaints about what a run left in `args`."""
        for index, wanted in self.wanted.items():
            if hasattr(args[index], "arrays"):
                for page, (found, expected) in enumerate(zip(args[index].arrays, wanted, strict=True)):
                    if expected is not None:
                        yield from self._compare(f"argument {index} array {page}", found, expected)
            else:
                yield from self._compare(f"argument {index}", args[index], wanted)

    def _compare(self, what, found, wanted):
        found = found.reshape(wanted.shape)
        if self.tolerance == 0:
            if not numpy.array_equal(found, wanted):
                yield f"{self.label}: {what} differs in {int((found != wanted).sum())} of {wanted.size} places"
            return
        found, wanted = found.astype(numpy.float64), wanted.astype(numpy.float64)
        error = numpy.abs(found - wanted).max() / max(numpy.abs(wanted).max(), 1e-30)
        if not error <= self.tolerance:
            yield f"{self.label}: {what} is off by {error:.3g} of the largest, allowed {self.tolerance:.3g}"


def modules():
    return [importlib.import_module(f"cases.{p.stem}") for p in sorted(FOLDER.glob("*.py")) if p.stem != "__init__"]


def emulate(case):
    """Run a case in the lockstep emulator; returns the arguments afterwards."""
    import emulator

    from reflex.kernels.cuda.compile import load_all

    args = case.fresh()
    for name, grid, shared, picks in case.launches:
        kernel = load_all()[name]
        picked = [args[i] for i in picks]
        emulator.launch(kernel.function, grid, kernel.threads, picked, shared, cooperative=case.cooperative)
    return args
