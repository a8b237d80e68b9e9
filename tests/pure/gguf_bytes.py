"""Writes GGUF files byte by byte for the reader's tests, independent of any library, so that every field can be wrong."""

import struct

NAMES = ("u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64")
TYPE_IDS = {name: i for i, name in enumerate(NAMES)}
CODES = dict(zip(NAMES, "BbHhIifB  Qqd", strict=True))
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 8: (32, 34), 12: (256, 144), 39: (32, 17)}  # elements, bytes; others hold no data


class Writer:
    """Appends little-endian fields and remembers where each 4- or 8-byte field lies."""

    def __init__(self):
        self.data = bytearray()
        self.fields = []  # (offset, bytes, what)

    def integer(self, value, size, what):
        self.fields.append((len(self.data), size, what))
        self.data += (value % (1 << 8 * size)).to_bytes(size, "little")

    def string(self, text, what):
        data = text if isinstance(text, bytes) else text.encode()
        self.integer(len(data), 8, f"{what} length")
        self.data += data

    def value(self, kind, value):
        if kind == "string":
            self.string(value, "string")
        elif kind == "array":
            element, items = value
            self.integer(TYPE_IDS.get(element, element), 4, "element type")
            self.integer(len(items), 8, "count")
            for item in items:
                self.value(element, item)
        elif kind == "raw":
            self.data += value
        elif kind in ("u32", "i32", "u64", "i64"):
            self.integer(value, 4 if kind.endswith("32") else 8, "value")
        else:
            self.data += struct.pack("<" + CODES[kind], value)


def tensor_bytes(dims, type_id):
    elements, nbytes = BLOCKS.get(type_id, (1, 0))
    total = 1
    for d in dims:
        total *= d
    return total // elements * nbytes


class Gguf:
    """A file as bytes: `data`, `header` (bytes before padding) and `fields` of its header.

    keys: (name, type, value); type may be a number with a raw payload. tensors: (name, dims, type id[, offset]).
    """

    def __init__(self, keys=(), tensors=(), version=3, alignment=32, counts=None, tail=b"", cut=0):
        writer = Writer()
        writer.data += b"GGUF"
        writer.integer(version, 4, "version")
        tensor_count, key_count = counts or (len(tensors), len(keys))
        writer.integer(tensor_count, 8, "tensor count")
        writer.integer(key_count, 8, "key count")
        for name, kind, value in keys:
            writer.string(name, "key")
            writer.integer(TYPE_IDS.get(kind, kind), 4, "value type")
            writer.value(kind if kind in TYPE_IDS else "raw", value)
        at, end = 0, 0
        for name, dims, type_id, *offset in tensors:
            size = tensor_bytes(dims, type_id)
            at = offset[0] if offset else at
            writer.string(name, "tensor name")
            writer.integer(len(dims), 4, "dimension count")
            for d in dims:
                writer.integer(d, 8, "dimension")
            writer.integer(type_id, 4, "tensor type")
            writer.integer(at, 8, "tensor offset")
            end = max(end, at + size)
            at = (at + size + alignment - 1) // alignment * alignment
        self.header = len(writer.data)
        self.fields = writer.fields
        self.data_start = (self.header + alignment - 1) // alignment * alignment
        content = bytes(i * 7 % 251 for i in range(min(end, 1 << 20)))
        data = bytes(writer.data).ljust(self.data_start, b"\0") + content + tail
        self.data = data[: len(data) - cut]

    def write(self, path):
        path.write_bytes(self.data)
        return str(path)


def model(**changes):
    """A small file with the shape of a real one: keys of many types, a vocabulary, a few tensors."""
    keys = [
        ("general.architecture", "string", "tiny"),
        ("general.alignment", "u32", 32),
        ("tiny.block_count", "u32", 2),
        ("tiny.attention.scale", "f32", 0.5),
        ("tiny.attention.head_count_kv", "array", ("u32", [2, 1])),
        ("tokenizer.ggml.tokens", "array", ("string", ["a", "bc", "", "\u2581d"])),
        ("tokenizer.ggml.scores", "array", ("f32", [0.0, -1.0, -2.0, 0.5])),
        ("tokenizer.ggml.add_bos_token", "bool", 1),
        ("tokenizer.ggml.bos_token_id", "u64", 1),
        ("nested", "array", ("array", [("u8", [1, 2, 3]), ("string", ["x"]), ("array", [("u16", [])])])),
    ]
    tensors = [("token_embd.weight", (32, 4), 8), ("blk.0.attn_norm.weight", (32,), 0), ("blk.0.ffn_down.weight", (256, 2), 12)]
    return Gguf(**{"keys": keys, "tensors": tensors, **changes})
