"""What state files need of native code: a digest of many bytes, and values moved between two arrangements."""

from ..digest import digest_of
from ..export import export, helper
from ..intrinsics import load_f32, load_i64, load_u16, load_u32, store_16, store_32, store_f16, store_f32
from ..memory import f16


@export
def digest(address, size, seed):
    """See digest_of."""
    return digest_of(address, size, seed)


# Words of the block of `rearrange`: addresses, bytes of a value in each (2: float16, 4: float32), then four pairs of dimensions,
# outermost first: (count, bytes from one to the next in the source, in the target).
SOURCE, TARGET, SOURCE_BYTES, TARGET_BYTES, DIMENSIONS = 0, 8, 16, 24, 32


@helper
def line(source, target, block, count, step, out):
    """The innermost dimension."""
    narrow, wide = load_i64(block + SOURCE_BYTES), load_i64(block + TARGET_BYTES)
    if narrow == wide:
        if narrow == 4:
            for i in range(count):
                store_32(target + i * out, load_u32(source + i * step))
        else:
            for i in range(count):
                store_16(target + i * out, load_u16(source + i * step))
    elif narrow == 4:
        for i in range(count):
            store_f16(target + i * out, load_f32(source + i * step))
    else:
        for i in range(count):
            store_f32(target + i * out, f16(source + i * step))
    return 0


@export
def rearrange(block):
    """Copy values from one arrangement of four dimensions to another, as the words of `block` say."""
    dims = block + DIMENSIONS
    source, target = load_i64(block + SOURCE), load_i64(block + TARGET)
    for i in range(load_i64(dims)):
        for j in range(load_i64(dims + 24)):
            for k in range(load_i64(dims + 48)):
                x = source + i * load_i64(dims + 8) + j * load_i64(dims + 32) + k * load_i64(dims + 56)
                y = target + i * load_i64(dims + 16) + j * load_i64(dims + 40) + k * load_i64(dims + 64)
                line(x, y, block, load_i64(dims + 72), load_i64(dims + 80), load_i64(dims + 88))
    return 0
