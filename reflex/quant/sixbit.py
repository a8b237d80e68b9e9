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
