"""Reading the fields of packed blocks, in the two ways a quantization file needs: many blocks at once with numpy (for
`decode`), and one element at a time from memory accessors (for `unpack`).

Both know one packing: bytes are taken in groups of `group`; a group is cut into planes of `width` bits, lowest bits
first, and a plane holds `group` consecutive values, one per byte. It covers every nibble, crumb and bit array in ggml.
Called only by the files of this folder. numpy is imported on use: at run time nothing here needs it.
"""


def _numbers(blocks, at, count, code, size):
    return blocks[:, at : at + count * size].view(code)


def f16(blocks, at, count=1):
    """`count` half floats at byte `at` of every block: float32 [n, count]."""
    return _numbers(blocks, at, count, "<f2", 2).astype("f4")


def f32(blocks, at, count=1):
    return _numbers(blocks, at, count, "<f4", 4)


def u16(blocks, at, count=1):
    return _numbers(blocks, at, count, "<u2", 2)


def u32(blocks, at, count=1):
    return _numbers(blocks, at, count, "<u4", 4)


def i8(blocks, at, count):
    return _numbers(blocks, at, count, "i1", 1)


def planes(blocks, at, count, group, width):
    """The values in `count` bytes at byte `at` of every block: uint8 [n, count * 8 / width]."""
    import numpy as np

    n = len(blocks)
    data = blocks[:, at : at + count].reshape(n, count // group, 1, group)
    shifts = np.arange(0, 8, width, dtype=np.uint8).reshape(1, 1, -1, 1)
    return (data >> shifts & np.uint8((1 << width) - 1)).reshape(n, count * 8 // width)


def plane(memory, at, group, width):
    """Function (block address, index) -> the value that `planes(blocks, at, ...)[:, index]` has."""
    u8 = memory.u8
    group_bits = group.bit_length() - 1
    span_bits = (group * 8 // width).bit_length() - 1
    last_plane, last_byte, mask = 8 // width - 1, group - 1, (1 << width) - 1

    def value(address, index):
        byte = u8(address + at + ((index >> span_bits) << group_bits) + (index & last_byte))
        return (byte >> (((index >> group_bits) & last_plane) * width)) & mask

    return memory.function(value)


def scaled(scales, values):
    """Each of the k scales of a block times its share of the values: [n, k], [n, elements] -> float32 [n, elements]."""
    n, k = scales.shape
    return (scales[:, :, None] * values.astype("f4").reshape(n, k, values.shape[1] // k)).reshape(values.shape)


def signed(values, bits):
    """Negate int [n, 8 * k] where the bit in uint8 [n, k], lowest bit first, is set."""
    return values * (1 - 2 * planes(bits, 0, bits.shape[1], 1, 1).astype("i2"))
