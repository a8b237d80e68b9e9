"""Writing GGUF: the header of a new file from the keys of an open one, and from lists of tensors.

Keys are copied as the bytes they are, whatever their type, in their order. Writes no files; called by reflex/tools.
"""

from .. import native
from .layout import ARRAY, MAGIC, STRING, U32

VERSION = 3


def u32(number):
    return number.to_bytes(4, "little")


def u64(number):
    return number.to_bytes(8, "little")


def text(data):
    """A string as GGUF has it; bytes or str."""
    data = data if isinstance(data, bytes) else data.encode()
    return u64(len(data)) + data


def u32_value(number):
    """Type and value of an unsigned number."""
    return u32(U32) + u32(number)


def text_value(value):
    return u32(STRING) + text(value)


def texts_value(values):
    """Type and value of an array of strings."""
    return u32(ARRAY) + u32(STRING) + u64(len(values)) + b"".join(text(value) for value in values)


def kept_value(metadata, key):
    """Type and value of a key of an open file, as it is there."""
    kind, element, count, address, nbytes = metadata.raw(key)
    data = native.bytes_at(address, nbytes) if nbytes else b""
    if kind == STRING:
        return u32(kind) + text(data)
    return u32(kind) + (u32(element) + u64(count) if kind == ARRAY else b"") + data


def padded(size, alignment):
    return (size + alignment - 1) & -alignment


def header(values, tensors, alignment):
    """The bytes before the data, and the offset of each tensor from the start of the file.

    values: {key: type and value}; tensors: rows of (name, ggml type id, shape in GGUF's order, bytes)."""
    parts = [MAGIC, u32(VERSION), u64(len(tensors)), u64(len(values))]
    parts += [text(key) + value for key, value in values.items()]
    offsets, end = [], 0
    for name, type_id, shape, nbytes in tensors:
        parts += [text(name), u32(len(shape)), *map(u64, shape), u32(type_id), u64(end)]
        offsets.append(end)
        end = padded(end + nbytes, alignment)
    data = b"".join(parts)
    start = padded(len(data), alignment)
    return data.ljust(start, b"\0"), [start + offset for offset in offsets]
