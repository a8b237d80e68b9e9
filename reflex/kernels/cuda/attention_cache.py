"""Which slots a row sees, where their keys and values lie, and how 256 threads bring a tile of them to shared memory."""

from numba import cuda
from numba.types import int32, int64, uint32

from . import ptx
from .export import device


@device
def over(a, b):
    """a // b of numbers that are not negative, in 32 bits."""
    return int32(uint32(a) // uint32(b))


@device
def slot_at(index, low, first, branch):
    """The slot of the index-th visible one: [low, low + first), then from branch on."""
    slot = int32(low + index)
    if index >= first:
        slot = int32(branch + index - first)
    return slot


@device
def page_of(pages, slot):
    """Address of the page of a slot. Only the host writes the table."""
    low, high = ptx.ldg64(pages, int32(slot >> 8))
    return int64(int64(low) | (int64(high) << 32))


def make_copy(dim):
    """copy(...): rows of keys or values of one tile on their way into shared memory; dim 0 serves any."""
    rounding = 64 if dim else 32
    parts = dim // 8 if dim else 1
    step = 256 // parts
    passes = 128 // step if dim else 1

    @device
    def copy(sh, to, pitch, pages, offset, width, unit, start, count, skip, low, first, branch, tid):
        """Rows start..start + count of the visible slots, zeros up to a multiple of `rounding`; `skip`: an index to leave out.

        offset: bytes of this head in a page; width: values of a row, padded with zeros to a multiple of `unit`.
        """
        full = int32((count + rounding - 1) & -rounding)
        padded = int32((width + unit - 1) & -unit)
        if dim:
            chunk = int32(tid % parts)
            row = int32(tid // parts)
            at = cuda.local.array(passes, int64)
            for i in range(passes):
                slot = slot_at(int32(start + min(int32(row + i * step), int32(count - 1))), low, first, branch)
                at[i] = page_of(pages, slot) + offset + int64((slot & 255) * (2 * dim) + 16 * chunk)
            for i in range(passes):
                if row + i * step < full and start + row + i * step != skip:
                    size = uint32(16)
                    if row + i * step >= count:
                        size = uint32(0)
                    ptx.cp_async16z(sh, int32(to + (row + i * step) * pitch + 4 * chunk), at[i], 0, size)
        else:
            warp = int32(tid >> 5)
            lane = int32(tid & 31)
            r = warp
            while r < full:
                if start + r != skip:
                    slot = slot_at(int32(start + min(r, int32(count - 1))), low, first, branch)
                    here = page_of(pages, slot) + offset + int64((slot & 255) * (2 * width))
                    if width & 7 == 0:
                        c = lane
                        while 8 * c < padded:
                            size = uint32(16)
                            part = int32(min(c, int32((width >> 3) - 1)))
                            if r >= count or c > part:
                                size = uint32(0)
                            ptx.cp_async16z(sh, int32(to + r * pitch + 4 * c), here, int64(16 * part), size)
                            c = int32(c + 32)
                    else:
                        c = lane
                        while 2 * c < padded:
                            word = uint32(0)
                            if r < count and 2 * c < width:
                                word = uint32(ptx.ld16(here, int64(4 * c)))
                            if r < count and 2 * c + 1 < width:
                                word = uint32(word | (ptx.ld16(here, int64(4 * c + 2)) << 16))
                            ptx.sts32(sh, int32(to + r * pitch + c), word)
                            c = int32(c + 32)
                r = int32(r + 8)

    return copy


@device
def seen_slots(early, selected, row, window, cells, wanted, positions, shared, branches):
    """(rows, own slot, low, count of the first range, branch) of a row; waits for earlier kernels unless `early`."""
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
        token = row
        if selected != 0:
            rows = int32(cells[2])
            if row < rows:
                token = int32(wanted[row])
        if row < rows:
            own = int32(cells[1] + token)
            branch = int32(branches[token])
            first = int32(shared[token])
            low = int32(positions[token])
    first = int32(min(first, branch))
    low = int32(max(int32(0), int32(low - window + 1)))
    if window > 0:
        branch = int32(max(branch, int32(own - window + 1)))
    else:
        low = int32(0)
    return rows, own, low, int32(max(int32(0), int32(first - low))), branch


@device
def share_of(tiles, least, split, splits):
    """(first, last) tile of a split, and how many splits have tiles."""
    each = int32(max(least, int32(1)))
    if tiles > each * splits:
        each = over(int32(tiles + splits - 1), splits)
    return int32(split * each), int32(min(int32((split + 1) * each), tiles) - 1), over(int32(tiles + each - 1), each)
