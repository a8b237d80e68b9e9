"""I32: one signed integer of 32 bits, little-endian; read as the nearest float32."""


def decode(blocks):
    """uint8 [n, 4] -> float32 [n, 1]."""
    return blocks.view("<i4").astype("f4")


def unpack(memory):
    i32, float32 = memory.i32, memory.float32

    def element(address, index):
        return float32(i32(address + 4 * index))

    return element
