"""I8: one signed integer of 8 bits; read as the nearest float32."""


def decode(blocks):
    """uint8 [n, 1] -> float32 [n, 1]."""
    return blocks.view("i1").astype("f4")


def unpack(memory):
    i8, float32 = memory.i8, memory.float32

    def element(address, index):
        return float32(i8(address + index))

    return element
