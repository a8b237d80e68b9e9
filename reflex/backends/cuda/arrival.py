"""What a state file holds on its way to the device, while the caller goes on: the first evaluation computes a layer as soon as its
keys and values are there.

States of recurrent layers come first, since such layers do; then slots, by layers in small groups, so that computing begins early
and little is left to do when the last has come. Nothing is copied that was not found right, and whoever computes with it waits here
for the last, and gets the error, before there is a result. Made by state.py; used by backend.py where one is under way.
"""

import _thread
import posix

from ... import native
from ...errors import OutOfMemoryError, ReflexError
from ...native import Int64
from . import driver
from .memory import new_page, new_place, place_bytes
from .ring import DAMAGED, ENDED, UNIT_WORDS, ring_of, room, slots_for

CACHED = "attention_", "latent_"  # how the names of kernels begin that read or write the cache
MOST_GROUPS = 18  # each costs a wait, some 10 us of the host and fewer of the device
OPERATIONS = "attention", "latent_attention"  # steps that do


class Arrival:
    """What is under way."""

    def __init__(self, plan, found, blocks, state, piece, digests, runs, layers):
        """`found`: a reflex.state.layout.Found, which may be closed afterwards. `blocks`: of slots. `state`: the Block of what goes
        to place 0 of recurrent layers, or None. `piece`: bytes under one digest. `digests`: what those lie in. `runs`: function
        from (number of a block, its page) to its runs. `layers`: of the cache, that each group ends before."""
        self.plan = plan
        self.piece = piece
        self.layers = layers
        self.pages, self.places = [], []  # of the plan once this has begun
        self.short, self.unlike = found.short, found.unlike
        self._descriptor = posix.dup(found.descriptor)
        self._digests = digests
        self._blocks, self._state, self._runs = blocks, state, runs
        self._size = sum(block.size for block in (*blocks, *([state] if state else ())))
        self._words, self._first, self._ends = [], 0, []  # of every unit; units of the state, and up to the end of each group
        self._ring = self._problem = self._room = None
        self._begun, self._touched = _thread.allocate_lock(), _thread.allocate_lock()

    # ---- beginning ----

    def begin(self, device):
        """Start copying, from the thread at hand. Pages and places are the plan's, and new ones where it has too few."""
        made, plan = [], self.plan
        try:
            for _ in range(len(plan.page_addresses), len(self._blocks)):
                made.append(new_page(device, plan.memory.page_bytes, len(self._blocks)))
            self.pages = [*plan.page_addresses, *made]
            for number, block in enumerate(self._blocks):
                block.runs = self._runs(number, self.pages[number])
            self.places = list(plan.place_addresses)
            if self._state is not None:
                if not self.places:
                    made.append(new_place(device, plan.program))
                    self.places = made[-1:]
                self._state.runs = (Int64 * 3)(self._state.offset, place_bytes(plan.program), self.places[0])
            self._ring = ring_of(plan, device, self.piece, self._size, self._take_room)
            self._list_units(self._ring.unit_bytes)
            self._ring.lead()  # what was queued before may still use what is written to
        except BaseException:
            for address in made:
                device.free(address)
            raise
        self._ring.begin(self._words)

    def begin_later(self, starting):
        """Start copying on a thread of its own as soon as the device has a context."""
        self._begun.acquire()
        ring = self.plan.ring
        if ring is None or ring.slots < slots_for(self.piece, self._size):
            self._touched.acquire()
            native.start_thread(self._touch, (), "state file", self._touched)
        starting.then(lambda device: native.start_thread(self._begin_here, (device,), "state file", self._begun))

    def _touch(self):
        """Memory for the ring, while there is no device that could pin it."""
        try:
            self._room = room(self.piece, self._size)
        except OutOfMemoryError:
            return  # whoever needs it tries again

    def _take_room(self, piece, size):
        with self._touched:
            taken, self._room = self._room, None
        return taken or room(piece, size)

    def _begin_here(self, device):
        try:
            device.attach()
            self.begin(device)
        except BaseException as problem:
            self._problem = problem

    def _list_units(self, size):
        """The units as kernels/host/ring.py reads them: those of the state, then the first of all blocks, then the second of all:
        in the order of layers."""
        words = []
        for number in range(-(-self._state.size // size) if self._state else 0):
            words += self._state.unit(number, self._descriptor, self.piece)
        self._first, counts = len(words) // UNIT_WORDS, []
        for number in range(-(-max((block.size for block in self._blocks), default=0) // size)):
            for block in self._blocks:
                words += block.unit(number, self._descriptor, self.piece)
            counts.append(len(words) // UNIT_WORDS)
        for group in range(len(self.layers)):
            self._ends.append(counts[max(-(-block.ends[group] // size) for block in self._blocks) - 1])
        self._words = words

    # ---- waiting ----

    def begun(self):
        """Wait until copying has started; raises what prevented it. Returns this, whose pages and places are the plan's."""
        if self._begun.locked():
            self.plan.gpu.starting.ready()  # raises where it will never begin
        with self._begun:
            if self._problem is not None:
                raise self._problem
        return self

    def wait(self, group):
        """Let everything queued on the device's stream from now on wait for the layers of a group, -1: for the state."""
        self.begun()
        self._ring.queue(self._ends[group] if group >= 0 else self._first)
        self._ring.follow()

    def land(self):
        """Let all that is queued from now on find every slot; raises what prevented it, StateError where the file is damaged."""
        try:
            self.plan.open()
            self.plan.grow(0)
            if self._state is not None:
                from .recurrent import reach

                reach(self.plan, -1)
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
            offset, size = self._words[UNIT_WORDS * number + 1 : UNIT_WORDS * number + 3]
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
        with self._touched:
            if self._room is not None:
                self._room.free()
                self._room = None
        if self._descriptor >= 0:
            posix.close(self._descriptor)
            self._descriptor = -1

    # ---- launches ----

    def run(self, shape):
        """Queue the launches of a backend.Shape, each part as soon as its weights and the slots that it reads are there."""
        plan = self.plan
        weights = [(None, shape.first, shape.last)] if plan.arrived else shape.parts
        if self._state is not None:
            self.wait(-1)
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
    """Layers that each group ends before. A group is little, because computing with the first begins when it has come."""
    each = max(1, -(-count // MOST_GROUPS))
    return [min(count, end) for end in range(each, count + each, each)]
