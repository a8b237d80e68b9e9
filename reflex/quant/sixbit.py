"""The twelve bytes that hold eight scales and eight minima of six bits, in the 4-bit and 5-bit formats of 256 elements.

    0   u8[4]   scale j in bits 0-5; bits 4-5 of scale j + 4 in bits 6-7
    4   u8[4]   minimum j in bits 0-5; bits 4-5 of minimum j + 4 in bits 6-7
    8   u8[4]   bits 0-3 of scale j + 4 in the low half, of minimum j + 4 in the high half

Called by those formats only; a field of its own because both must agree.
"""


def decode(blocks, at):
    """(scales, minima) at byte `at` of every block, uint8 [n, 8] each."""
    import numpy as np

    first, second, third = (blocks[:, at + i : at + i + 4] for i in (0, 4, 8))
    scales = np.concatenate([first & 63, third & 15 | first >> 6 << 4], axis=1)
    minima = np.concatenate([second & 63, third >> 4 | second >> 6 << 4], axis=1)
    return scales, minima


def unpack(memory, at):
    """Functions (block address, j) -> scale j and -> minimum j. Without branches, so that compilers can share their work."""
    u8 = memory.u8

    def scale(address, j):
        upper, byte = j >> 2, address + at + (j & 3)
        return (u8(byte + 8 * upper) & 15) | (((u8(byte) >> (4 + 2 * upper)) & 3) << 4)

    def minimum(address, j):
        upper, byte = j >> 2, address + at + 4 + (j & 3)
        return ((u8(byte + 4 * upper) >> (4 * upper)) & 15) | (((u8(byte) >> (4 + 2 * upper)) & 3) << 4)

    return memory.function(scale), memory.function(minimum)


def fragment(ptx):
    """Function (the four words in front of the codes: d and dmin, then the twelve bytes; t) -> for groups 2t and 2t + 1
    (d * scale, d * scale, -dmin * minimum, -dmin * minimum). See fragment.py."""
    uint32, float32 = ptx.u32, ptx.f32

    def scales(step, first, second, third, t):
        place = uint32((t & 1) << 4)
        first, second, third = uint32(first >> place), uint32(second >> place), uint32(third >> place)
        scale = uint32(uint32(third & uint32(0x0F0F)) | uint32(uint32(first >> uint32(2)) & uint32(0x3030)))
        minimum = uint32(
            uint32(uint32(third >> uint32(4)) & uint32(0x0F0F)) | uint32(uint32(second >> uint32(2)) & uint32(0x3030))
        )
        if t < 2:
            scale = uint32(first & uint32(0x3F3F))
            minimum = uint32(second & uint32(0x3F3F))
        scale = ptx.prmt(scale, uint32(0), uint32(0x4140))  # bytes as subnormal halves, 2**-24 of them
        minimum = ptx.prmt(minimum, uint32(0), uint32(0x4140))
        d = float32(ptx.h2f_lo(step) * float32(16777216))
        dmin = float32(ptx.h2f_hi(step) * float32(-16777216))
        return (
            float32(d * ptx.h2f_lo(scale)),
            float32(d * ptx.h2f_hi(scale)),
            float32(dmin * ptx.h2f_lo(minimum)),
            float32(dmin * ptx.h2f_hi(minimum)),
        )

    return scales


def stream(ptx):
    """Function (the four words in front of the codes; p, t) -> for group 4p + t (d * scale, -dmin * minimum). See stream.py."""
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32

    def scales(step, first, second, third, p, t):
        place = uint32(8 * t)
        first, second, third = uint32(first >> place), uint32(second >> place), uint32(third >> place)
        scale, minimum = uint32(first & uint32(63)), uint32(second & uint32(63))
        if p > 0:
            scale = uint32(uint32(third & uint32(15)) | uint32(uint32(first >> uint32(2)) & uint32(48)))
            minimum = uint32(uint32(uint32(third >> uint32(4)) & uint32(15)) | uint32(uint32(second >> uint32(2)) & uint32(48)))
        return (
            float32(ptx.h2f_lo(step) * float32(int32(scale))), float32(float32(-ptx.h2f_hi(step)) * float32(int32(minimum))),
        )  # fmt: skip

    return scales
