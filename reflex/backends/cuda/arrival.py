"""Slots of a state file on their way to the device, while the caller goes on: the first evaluation computes a layer as soon as its
keys and values are there.

Layers come in groups, each half of what is left, so that little is left to do when the last has come. Nothing is copied that was
not found right, and whoever computes with the slots waits here for the last of them, and gets the error, before there is a result.
Made by state.py; used by backend.py where one is under way.
"""

import _thread
import posix
from time import sleep

from ... import native
from ...errors import ReflexError
from ...native import Int64
from . import driver
from .memory import new_page
from .ring import DAMAGED, ENDED, Ring

POLL = 5e-5  # seconds between looks at what has been queued
CACHED = "attention_", "latent_"  # how the names of kernels begin that read or write the cache
OPERATIONS = "attention", "latent_attention"  # steps that do


class Block:
    """A block of a file: where it lies, number of its first piece, address of that piece's digest, runs (kernels/host/ring.py)."""

    __slots__ = ("digests", "ends", "first", "offset", "runs", "size")

    def __init__(self, offset, size, first, digests, ends):
        self.offset = offset
        self.size = size  # bytes
        self.first = first
        self.digests = digests
        self.ends = ends  # bytes of the block that the layers of each group end before
        self.runs = None


class Arrival:
    """What is under way."""

    def __init__(self, plan, found, blocks, piece, digests, runs, layers):
        """`found`: a reflex.state.layout.Found, which may be closed afterwards. `piece`: bytes under one digest. `digests`: what
        those lie in. `runs`: function from (number of a block, its page) to its runs. `layers`: of the cache, that each group ends
        before."""
        self.plan = plan
        self.piece = piece
        self.layers = layers
        self.pages = []  # of the plan once this has begun
        self.short, self.unlike = found.short, found.unlike
        self._descriptor = posix.dup(found.descriptor)
        self._digests = digests
        self._blocks, self._runs = blocks, runs
        self._places, self._ends = [], []  # (offset, bytes) of every unit; units up to the end of each group
        self._ring = self._problem = None
        self._begun = _thread.allocate_lock()

    # ---- beginning ----

    def begin(self, device):
        """Start copying, from the thread at hand. The pages are the plan's, and new ones where it has too few."""
        made, plan = [], self.plan
        try:
            for _ in range(len(plan.page_addresses), len(self._blocks)):
                made.append(new_page(device, plan.memory.page_bytes, len(self._blocks)))
            self.pages = [*plan.page_addresses, *made]
            for number, block in enumerate(self._blocks):
                block.runs = self._runs(number, self.pages[number])
            if plan.ring is None:
                plan.ring = Ring(device, self.piece)
            units = self._units(plan.ring.unit_bytes)
            plan.ring.lead()  # what was queued before may still use what is written to
        except BaseException:
            for page in made:
                device.free(page)
            raise
        plan.ring.begin(units, len(self._places))
        self._ring = plan.ring

    def begin_later(self, starting):
        """Start copying on a thread of its own as soon as the device has a context."""
        self._begun.acquire()
        starting.then(lambda device: native.start_thread(self._begin_here, (device,), "state file"))

    def _begin_here(self, device):
        try:
            device.attach()
            self.begin(device)
        except BaseException as problem:
            self._problem = problem
        finally:
            self._begun.release()

    def _units(self, size):
        """The units in the order of the layers, as fill_ring reads them."""
        words, starts = [], [0] * len(self._blocks)
        for group in range(len(self.layers)):
            for number, block in enumerate(self._blocks):
                runs = native.address_of(block.runs), len(block.runs) // 3
                for at in range(starts[number], block.ends[group], size):
                    piece = at // self.piece
                    self._places.append((block.offset + at, min(size, block.size - at)))
                    words += self._descriptor, *self._places[-1], *runs, block.first + piece, block.digests + 8 * piece
                    starts[number] = at + size
            self._ends.append(len(self._places))
        return (Int64 * len(words))(*words)

    # ---- waiting ----

    def begun(self):
        """Wait until copying has started; raises what prevented it. The pages of the plan."""
        if self._begun.locked():
            self.plan.gpu.starting.ready()  # raises where it will never begin
        with self._begun:
            if self._problem is not None:
                raise self._problem
        return self.pages

    def wait(self, group):
        """Let everything queued on the device's stream from now on wait for the layers of a group."""
        self.begun()
        if self._ring.alone:
            self._join()
        while not self._ring.queued(self._ends[group]):
            sleep(POLL)
        self._ring.follow()

    def land(self):
        """Let all that is queued from now on find every slot; raises what prevented it, StateError where the file is damaged."""
        try:
            self.plan.open()
            self.plan.grow(0)
            self._join()
        finally:
            self._close()

    def drop(self):
        """Wait for the end of what nobody wants any more."""
        try:
            self.land()
        except ReflexError:  # of a file that is not used, or of a device, which says so again
            return

    def _join(self):
        found = self._ring.join()
        self._ring.follow()
        if found:
            number, part, status = found
            offset, size = self._places[number]
            at = part * self.piece
            if status == ENDED:
                raise self.short(offset + at, size - at)
            if status == DAMAGED:
                raise self.unlike(offset + at)
            raise driver.failure("a copy to the device", status)

    def _close(self):
        self.plan.arriving = None
        if self._ring is not None:
            self._ring.join()  # of what was interrupted
        if self._descriptor >= 0:
            posix.close(self._descriptor)
            self._descriptor = -1

    # ---- launches ----

    def run(self, shape):
        """Queue the launches of a backend.Shape, each part as soon as its weights and the slots that it reads are there."""
        plan = self.plan
        weights = [(None, shape.first, shape.last)] if plan.arrived else shape.parts
        for group, begun, end in self.parts(shape.chain, shape.first, shape.last):
            if group >= 0:
                self.wait(group)
            for mark, first, last in weights:
                if max(first, begun) < min(last, end):
                    if mark is not None:
                        plan.gpu.upload.wait(mark)
                    shape.chain.run_alone(max(first, begun), min(last, end))
        self.land()

    def parts(self, chain, first, last):
        """Rows [first, last) of a chain as [(group to wait for, -1: none, first, last)]; none starts before the slots it reads."""
        layers = [step.args["layer"] for step in self.plan.program.steps if step.op in OPERATIONS]
        starts, inside = [], False
        for row in range(first, last):
            kernel = chain.kernels[row]
            uses = kernel is not None and kernel.name.startswith(CACHED)
            if uses and not inside:
                starts.append(row)
            inside = uses
        if len(starts) != len(layers):
            return [(len(self.layers) - 1, first, last)]
        found, group, begun = [], -1, first
        for row, layer in zip(starts, layers, strict=True):
            while group < 0 or layer >= self.layers[group]:
                if row > begun:
                    found.append((group, begun, row))
                    begun = row
                group += 1
        return [*found, (group, begun, last)]


def groups(count):
    """Layers that each group ends before: half of them, half of what is left, and so on."""
    ends, end = [], 0
    while end < count:
        end += (count - end + 1) // 2
        ends.append(end)
    return ends
