"""The reader: bytes as a GGUF file between guard pages, walked, and every key and tensor read the way callers read them."""

from changes import Tree, change, damage
from gguf_bytes import Gguf, model
from guarded import Guarded

from reflex.errors import ModelFileError, ReflexError
from reflex.gguf.header import Header, parse
from reflex.native import Mapping

ROOM = 1 << 16


def seeds():
    """Small files of every kind of value and shape."""
    nested = ("array", [("array", [("u8", [1, 2, 3]), ("string", ["x"])]), ("u16", []), ("string", ["yz", ""])])
    yield model().data
    yield model(version=2).data
    yield Gguf(
        [("a", "array", (kind, [1, 0])) for kind in ("u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "u64", "i64", "f64")]
    ).data
    yield Gguf([("n", "array", nested), ("s", "string", "text")], [("t", (32, 2, 2, 1), 8), ("u", (4,), 0), ("z", (4, 0), 0)]).data
    yield Gguf(
        [("split.no", "u16", 0), ("split.count", "u16", 3), ("general.alignment", "u32", 64)], [("t", (256, 2), 12)], alignment=64
    ).data


class Target:
    def __init__(self):
        self.files = list(seeds())
        self.trees = [Tree(data) for data in self.files]
        self.memory = Guarded(ROOM)
        self.turn = False

    def make(self, random):
        if random.random() < 0.6:
            return change(random.choice(self.trees), random)[:ROOM]
        return damage(random.choice(self.files), random)[:ROOM]

    def again(self, data, random):
        return damage(data, random)[:ROOM]

    def run(self, data):
        """The outcome in a word."""
        if len(data) < 24:
            return "short"  # refused before anything is mapped
        self.turn = not self.turn
        address = self.memory.put(data, self.turn)
        header = Header("memory", Mapping(address, len(data)), len(data), None)
        try:
            parse(header)
        except ReflexError as error:
            line = str(error)
            if error.exit_code != 3 or not line.isprintable() or len(line) > 3000:
                raise AssertionError(line) from error
            return error.category
        self.read(header)
        return "loads"

    @staticmethod
    def read(header):
        metadata = header.metadata
        for key in metadata:
            metadata.value(key)
            reads = (
                metadata.u,
                metadata.f,
                metadata.b,
                metadata.s,
                metadata.ints,
                metadata.floats,
                metadata.bools,
                metadata.strings,
            )
            for read in (*reads, lambda key: metadata.per_layer(key, 2)):
                try:
                    read(key)
                except ModelFileError:
                    continue
        first, last = header.mapping.address + header.data_start, header.mapping.address + header.size
        for tensor in header.tensors.values():
            if tensor.nbytes and not first <= tensor.address <= tensor.address + tensor.nbytes <= last:
                raise AssertionError(f"{tensor} lies outside of the file")
