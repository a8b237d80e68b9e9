"""I16: one signed integer of 16 bits, little-endian; read as the nearest float32."""


def decode(blocks):
    """uint8 [n, 2] -> float32 [n, 1]."""
    return blocks.view("<i2").astype("f4")


def unpack(memory):
    i16, float32 = memory.i16, memory.float32

    def element(address, index):
        return float32(i16(address + 2 * index))

    return element
