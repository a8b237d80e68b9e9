"""attention_inputs: head norm and rotation of q (in place) and k, then k and v to the cache as float16; one launch per layer.

    attention_inputs_<128|512>: the smallest that is >= key_dim and >= value_dim. 128 threads, a warp per head.
    grid (ceil((heads + 2 kv_heads) / 4), rows)

q [.., heads * key_dim], k, v: rows of q_stride, k_stride, v_stride floats. angles [rows][pairs][cos, sin] (rope_angles); pairs
0: no rotation. layer_at: place of the layer in a page, in units of 512 bytes. q_norm, k_norm: [key_dim] where flags ask.
flags: 1 q has a norm, 2 k has one, 4 the norm comes after the rotation, 8 neox pairs (i, i + pairs) instead of (2i, 2i + 1), 256
what float16 leave of k and v is wanted too: in rest [2][kv_heads][RING slots][dim], slot s at place s modulo RING.
Reads cells: 0 rows, 1 first_slot; rows of the grid beyond them do nothing.
"""

from numba import cuda
from numba.types import float32, int32, int64, uint32

from . import ptx
from .attention_cache import REST, RING
from .export import device, kernel

Q_NORM, K_NORM, NORM_AFTER, NEOX = 1, 2, 4, 8
LARGEST = 65504.0  # of float16


@device
def warp_sum(x):
    x += ptx.shfl_xor(x, 16)
    x += ptx.shfl_xor(x, 8)
    x += ptx.shfl_xor(x, 4)
    x += ptx.shfl_xor(x, 2)
    return x + ptx.shfl_xor(x, 1)


@device
def half_pair(a, b):
    """Two float16 in a word; what is too large becomes the largest."""
    return ptx.f2h2(
        min(max(a, float32(-LARGEST)), float32(LARGEST)),
        min(max(b, float32(-LARGEST)), float32(LARGEST)),
    )


def make_turned(chunks):
    """turned(...) for heads of at most 128 * chunks values: all loads are issued before the first value is used."""
    values, turns = 4 * chunks, 2 * chunks

    @device
    def turned(stage, base, source, at, norm, angles, angle_at, dim, pairs, normed, after, neox, eps, lane):
        """A warp reads source[at:at + dim] and leaves the normed, rotated head in the float32 words stage[base:base + dim]."""
        x = cuda.local.array(values, float32)
        w = cuda.local.array(values, float32)
        c = cuda.local.array(turns, float32)
        s = cuda.local.array(turns, float32)
        if normed != 0:
            for j in range(values):
                w[j] = ptx.ldgf(norm, int32(min(int32(lane + 32 * j), int32(dim - 1))))
        if pairs > 0:
            for j in range(turns):
                c[j], s[j] = ptx.ldf2(angles, int32(angle_at + 2 * min(int32(lane + 32 * j), int32(pairs - 1))))
        for j in range(values):
            x[j] = ptx.ldf(source, int32(at + min(int32(lane + 32 * j), int32(dim - 1))))
        inverse = float32(1)
        total = float32(0)
        for j in range(values):
            if lane + 32 * j < dim:
                total += x[j] * x[j]
        if normed != 0 and after == 0:
            inverse = ptx.rsqrt(warp_sum(total) / float32(dim) + eps)
            for j in range(values):
                x[j] *= inverse * w[j]
        for j in range(values):
            if lane + 32 * j < dim:
                ptx.stsf(stage, int32(base + lane + 32 * j), x[j])
        cuda.syncwarp()
        if pairs > 0:
            for j in range(turns):
                pair = int32(lane + 32 * j)
                if pair < pairs:
                    i = int32(2 * pair)
                    k = int32(i + 1)
                    if neox != 0:
                        i = pair
                        k = int32(pair + pairs)
                    y = ptx.ldsf(stage, int32(base + i))
                    z = ptx.ldsf(stage, int32(base + k))
                    ptx.stsf(stage, int32(base + i), y * c[j] - z * s[j])
                    ptx.stsf(stage, int32(base + k), y * s[j] + z * c[j])
            cuda.syncwarp()
        if normed != 0 and after != 0:
            total = float32(0)
            for j in range(values):
                if lane + 32 * j < dim:
                    x[j] = ptx.ldsf(stage, int32(base + lane + 32 * j))
                    total += x[j] * x[j]
            inverse = ptx.rsqrt(warp_sum(total) / float32(dim) + eps)
            for j in range(values):
                if lane + 32 * j < dim:
                    ptx.stsf(stage, int32(base + lane + 32 * j), x[j] * inverse * w[j])
            cuda.syncwarp()

    return turned


@device
def append(stage, base, address, dim, lane):
    """A warp writes the float32 words stage[base:base + dim] as float16 to a device address."""
    if dim & 1 == 0:
        d = int32(2 * lane)
        while d < dim:
            a, b = ptx.ldsf2(stage, int32(base + d))
            ptx.st32(address, int64(2 * d), half_pair(a, b))
            d = int32(d + 64)
    else:
        d = lane
        while d < dim:
            a = ptx.ldsf(stage, int32(base + d))
            ptx.sth(address, int64(2 * d), min(max(a, float32(-LARGEST)), float32(LARGEST)))
            d = int32(d + 32)


@device
def append_rest(stage, base, address, dim, lane):
    """The same of what the float16 leave."""
    d = lane
    while d < dim:
        a = ptx.ldsf(stage, int32(base + d))
        a = float32(a - ptx.h2f_lo(half_pair(a, a)))
        ptx.sth(address, int64(2 * d), min(max(a, float32(-LARGEST)), float32(LARGEST)))
        d = int32(d + 32)


def make(limit):
    chunks, words = limit // 128, 4 * limit
    turned = make_turned(chunks)

    @kernel("FFFFFFILUiiiiiiiiiif", threads=128, blocks=8 if limit == 128 else 4, name=f"attention_inputs_{limit}")
    def attention_inputs(
        q, k, v, q_norm, k_norm, angles, cells, pages, rest,
        q_stride, k_stride, v_stride, heads, kv_heads, key_dim, value_dim, pairs, layer_at, flags, eps,
    ):  # fmt: skip
        ptx.pdl_launch()
        stage = cuda.shared.array(words, float32)
        lane = int32(cuda.threadIdx.x & 31)
        warp = int32(cuda.threadIdx.x >> 5)
        item = int32(cuda.blockIdx.x * 4 + warp)
        row = int32(cuda.blockIdx.y)
        ptx.pdl_wait()
        rows = int32(cells[0])
        source = q
        norm = q_norm
        at = int32(row * q_stride + item * key_dim)
        dim = key_dim
        turns = pairs
        normed = int32(flags & Q_NORM)
        if item >= heads and item < heads + kv_heads:
            source = k
            norm = k_norm
            at = int32(row * k_stride + (item - heads) * key_dim)
            normed = int32(flags & K_NORM)
        if item >= heads + kv_heads:
            source = v
            at = int32(row * v_stride + (item - heads - kv_heads) * value_dim)
            dim = value_dim
            turns = int32(0)
            normed = int32(0)
        if row < rows and item < heads + 2 * kv_heads:
            base = int32(warp * limit)
            turned(
                stage, base, source, at, norm, angles, int32(2 * row * pairs), dim, turns, normed,
                int32(flags & NORM_AFTER), int32(flags & NEOX), eps, lane,
            )  # fmt: skip
            if item < heads:
                d = lane
                while d < dim:
                    q[at + d] = stage[uint32(base + d)]
                    d = int32(d + 32)
            else:
                slot = int32(cells[1] + row)
                address = int64(pages[slot >> 8]) + int64(layer_at) * 512
                head, before = int32(item - heads), int64(0)
                if head >= kv_heads:
                    head, before = int32(head - kv_heads), int64(kv_heads) * (2 * key_dim)
                append(stage, base, address + 256 * before + int64(head * 256 + (slot & 255)) * (2 * dim), dim, lane)
                if flags & REST != 0:
                    address = ptx.address(rest, int64(0)) + RING * before
                    append_rest(stage, base, address + int64(head * RING + (slot & (RING - 1))) * (2 * dim), dim, lane)


for limit in (128, 512):
    make(limit)
