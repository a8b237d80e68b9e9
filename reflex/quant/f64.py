"""F64: one IEEE double, little-endian; read as the nearest float32."""


def decode(blocks):
    """uint8 [n, 8] -> float32 [n, 1]; values beyond float32 become infinite."""
    import numpy as np

    with np.errstate(over="ignore"):
        return blocks.view("<f8").astype("f4")


def unpack(memory):
    f64 = memory.f64

    def element(address, index):
        return f64(address + 8 * index)

    return element
