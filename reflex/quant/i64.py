"""I64: one signed integer of 64 bits, little-endian; read as the nearest float32."""


def decode(blocks):
    """uint8 [n, 8] -> float32 [n, 1]."""
    return blocks.view("<i8").astype("f4")


def unpack(memory):
    i64 = memory.i64

    def element(address, index):
        return i64(address + 8 * index)

    return element
