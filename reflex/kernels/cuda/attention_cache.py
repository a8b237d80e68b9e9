"""Which slots a row sees, where their keys and values lie, and how 256 threads bring a tile of them to shared memory.

The slots of a row are numbered in the order of their positions, and tiles are cut along these numbers: what a row computes does not
depend on where its slots are.
"""

from numba import cuda
from numba.types import int32, int64, uint32

from . import ptx
from .export import device

PARTED = 16  # flag: the batch's first cells[PLAIN] rows are attention_tile's, the others attention_tree's
PLAIN = 4  # cell: how many rows continue the timeline itself; they come first
MOST_PARTS = 64  # that sums over a row's slots in a tree have
REST, RING = 256, 1024  # flag: there is what float16 leave of the batch's own keys and values, in a ring of slots without pages


@device
def over(a, b):
    """a // b of numbers that are not negative, in 32 bits."""
    return int32(uint32(a) // uint32(b))


@device
def slot_at(index, low, first, branch, lists, at, before, middle):
    """The slot of the index-th visible one: [low, low + first), then from branch on."""
    slot = int32(low + index)
    if index >= first:
        slot = int32(branch + index - first)
    return slot


@device
def tree_slot_at(index, low, first, branch, lists, at, before, middle):
    """The same with `middle` slots of runs in between: lists[at:] holds (first slot, slots) of each, of which the window hides the
    first `before` slots."""
    slot = int32(low + index)
    if index >= first:
        left = int32(index - first)
        slot = int32(branch + left - middle)
        if left < middle:
            left = int32(left + before)
            run = at
            slots = int32(ptx.ldg32(lists, int32(run + 1)))
            while left >= slots:
                left = int32(left - slots)
                run = int32(run + 2)
                slots = int32(ptx.ldg32(lists, int32(run + 1)))
            slot = int32(int32(ptx.ldg32(lists, run)) + left)
    return slot


@device
def page_of(pages, slot):
    """Address of the page of a slot. Only the host writes the table."""
    low, high = ptx.ldg64(pages, int32(slot >> 8))
    return int64(int64(low) | (int64(high) << 32))


def make_copy(dim, slot_at, rest=False):
    """copy(...): rows of keys or values of one tile on their way into shared memory; dim 0 serves any. `rest`, of dim 0: from the
    ring that begins at `pages`, zeros for slots before `least`."""
    rounding = 64 if dim else 32
    parts = dim // 8 if dim else 1
    step = 256 // parts
    passes = 128 // step if dim else 1

    @device
    def copy(
        sh, to, pitch, pages, offset, width, unit, start, count, skip, low, first, branch, lists, at, before, middle, tid, least
    ):  # fmt: skip
        """Rows start..start + count of the visible slots, zeros up to a multiple of `rounding`; `skip`: an index to leave out.

        offset: bytes of this head in a page; width: values of a row, padded with zeros to a multiple of `unit`.
        """
        full = int32((count + rounding - 1) & -rounding)
        padded = int32((width + unit - 1) & -unit)
        if dim:
            chunk = int32(tid % parts)
            row = int32(tid // parts)
            places = cuda.local.array(passes, int64)
            for i in range(passes):
                index = int32(start + min(int32(row + i * step), int32(count - 1)))
                slot = slot_at(index, low, first, branch, lists, at, before, middle)
                places[i] = page_of(pages, slot) + offset + int64((slot & 255) * (2 * dim) + 16 * chunk)
            for i in range(passes):
                if row + i * step < full and start + row + i * step != skip:
                    size = uint32(16)
                    if row + i * step >= count:
                        size = uint32(0)
                    ptx.cp_async16z(sh, int32(to + (row + i * step) * pitch + 4 * chunk), places[i], 0, size)
        else:
            warp = int32(tid >> 5)
            lane = int32(tid & 31)
            r = warp
            while r < full:
                if start + r != skip:
                    index = int32(start + min(r, int32(count - 1)))
                    slot = slot_at(index, low, first, branch, lists, at, before, middle)
                    present = r < count
                    if rest:
                        here = ptx.address(pages, int64(0)) + offset + int64(slot & (RING - 1)) * (2 * width)
                        present = r < count and slot >= least
                    else:
                        here = page_of(pages, slot) + offset + int64((slot & 255) * (2 * width))
                    if width & 7 == 0:
                        c = lane
                        while 8 * c < padded:
                            size = uint32(16)
                            part = int32(min(c, int32((width >> 3) - 1)))
                            if not present or c > part:
                                size = uint32(0)
                            ptx.cp_async16z(sh, int32(to + r * pitch + 4 * c), here, int64(16 * part), size)
                            c = int32(c + 32)
                    else:
                        c = lane
                        while 2 * c < padded:
                            word = uint32(0)
                            if present and 2 * c < width:
                                word = uint32(ptx.ld16(here, int64(4 * c)))
                            if present and 2 * c + 1 < width:
                                word = uint32(word | (ptx.ld16(here, int64(4 * c + 2)) << 16))
                            ptx.sts32(sh, int32(to + r * pitch + c), word)
                            c = int32(c + 32)
                r = int32(r + 8)

    return copy


@device
def window_at(window, position):
    """The window of a row at `position`. A `window` of -c is chunks of c positions: what of the row's own chunk lies up to it."""
    if window < 0:
        window = int32(position + over(position, int32(-window)) * window + 1)
    return window


@device
def seen_slots(early, flags, row, window, cells, lists, positions, shared, branches):
    """(rows, own slot, low, count of the first range, branch, 0, 0, 0) of a row; waits for earlier kernels unless `early`."""
    rows = int32(1)
    own = int32(0)
    branch = int32(0)
    first = int32(0)
    low = int32(0)
    if early != 0:
        own = int32(ptx.ldg32(cells, 1))
        branch = int32(ptx.ldg32(branches, 0))
        first = int32(ptx.ldg32(shared, 0))
        low = int32(ptx.ldg32(positions, 0))
    else:
        ptx.pdl_wait()
        rows = int32(cells[0])
        if row < rows:
            own = int32(cells[1] + row)
            branch = int32(branches[row])
            first = int32(shared[row])
            low = int32(positions[row])
    first = int32(min(first, branch))
    window = window_at(window, low)
    low = int32(max(int32(0), int32(low - window + 1)))
    if window > 0:
        branch = int32(max(branch, int32(own - window + 1)))
    else:
        low = int32(0)
    return rows, own, low, int32(max(int32(0), int32(first - low))), branch, int32(0), int32(0), int32(0)


@device
def own_row(flags, cells, z):
    return z


@device
def row_in_branch(flags, cells, z):
    """The row of a block: with flag PARTED rows are counted from the first behind the plain ones."""
    row = z
    if flags & PARTED != 0:
        row = int32(row + int32(ptx.ldg32(cells, PLAIN)))
    return row


@device
def tree_slots(early, flags, row, window, cells, lists, positions, shared, branches):
    """(rows, own slot, low, count of the first range, branch, where the runs are listed, slots of them that the window hides,
    their slots). With flag PARTED no rows but those behind the plain ones."""
    ptx.pdl_wait()
    rows = int32(cells[0])
    own = int32(0)
    branch = int32(0)
    stop = int32(0)
    position = int32(0)
    at = int32(0)
    if row < rows:
        own = int32(cells[1] + row)
        branch = int32(branches[row])
        stop = int32(shared[row])
        position = int32(positions[row])
        at = int32(lists[row])
        if flags & PARTED != 0 and row < cells[PLAIN]:
            rows = int32(0)
    low = int32(0)
    window = window_at(window, position)
    if window > 0:
        low = int32(max(int32(0), int32(position - window + 1)))
        branch = int32(max(branch, int32(own - window + 1)))
    first = int32(max(int32(0), int32(stop - low)))
    middle = int32(position + 1 - low - first - (own + 1 - branch))
    return rows, own, low, first, branch, at, int32(max(int32(0), int32(low - stop))), middle


@device
def share_of(tiles, least, split, splits):
    """(first, last) tile of a split, how many splits have tiles, and how many each."""
    each = int32(max(least, int32(1)))
    if tiles > each * splits:
        each = over(int32(tiles + splits - 1), splits)
    return int32(split * each), int32(min(int32((split + 1) * each), tiles) - 1), over(int32(tiles + each - 1), each), each


@device
def part_of(tiles, least, split, splits):
    """The same where a split is one of up to 64 parts that depend on the row alone, or all of them where it is the only one."""
    each = int32(max(int32(max(least, int32(1))), over(int32(tiles + MOST_PARTS - 1), int32(MOST_PARTS))))
    first, last = int32(0), int32(tiles - 1)
    if splits > 1:
        first, last = int32(split * each), int32(min(int32((split + 1) * each), tiles) - 1)
    return first, last, over(int32(tiles + each - 1), each), each
