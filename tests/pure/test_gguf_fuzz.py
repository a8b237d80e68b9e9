"""Damaged headers: cut at every byte, every field set to extreme values, random bits flipped, and no byte read outside.

A fault shows as anything but a ReflexError or a sound load: another exception, a crash of the interpreter, a hang.
"""

import random

import pytest
from gguf_bytes import model

from reflex import native
from reflex.errors import ModelFileError, ReflexError
from reflex.gguf.header import Header, parse
from reflex.gguf.reader import open_model

EXTREMES = (0, 1, 1 << 31, 1 << 32, 1 << 63, (1 << 64) - 1)
PAGE = native.PAGE


class Guarded:
    """Memory whose first and last bytes border on pages that cannot be touched."""

    def __init__(self, pages):
        self.size = pages * PAGE
        self.mapping = native.alloc(self.size + 2 * PAGE)
        self.start = self.mapping.address + PAGE
        protect = native.libc("mprotect", 3)
        assert protect(self.mapping.address, PAGE, 0) == 0
        assert protect(self.start + self.size, PAGE, 0) == 0

    def header(self, data, at_end=True):
        """A Header over a copy of `data` that touches the guard page after it, or the one before it."""
        address = self.start + (self.size - len(data) if at_end else 0)
        native.view(address, len(data))[:] = data
        return Header("memory", native.Mapping(address, len(data)), len(data), None)


@pytest.fixture(scope="module")
def guarded():
    memory = Guarded(2)
    yield memory
    memory.mapping.free()


def read_all(metadata):
    """Every value of a header, and every tensor's shape, the way callers read them."""
    for key in metadata:
        metadata.value(key)
        for read in (metadata.u, metadata.f, metadata.b, metadata.s, metadata.ints, metadata.floats, metadata.strings):
            try:
                read(key)
            except ModelFileError:
                continue


def outcome(header):
    """True for a sound load, False for a typed refusal."""
    try:
        parse(header)
    except ReflexError as error:
        assert error.exit_code == 3 and "\n" not in str(error)
        return False
    read_all(header.metadata)
    assert all(t.nbytes == 0 or t.address >= header.mapping.address + header.data_start for t in header.tensors.values())
    assert all(t.nbytes == 0 or t.address + t.nbytes <= header.mapping.address + header.size for t in header.tensors.values())
    return True


def test_the_guard_is_real(guarded):
    """The memory before and after is truly out of reach: the C library refuses to read it for us."""
    for address in (guarded.start - 1, guarded.start + guarded.size):
        assert native.libc("write", 3)(1, address, 1) == -1


def test_a_whole_file_between_guard_pages(guarded):
    assert outcome(guarded.header(model().data))
    assert outcome(guarded.header(model().data, at_end=False))


def test_cut_at_every_byte(guarded):
    """No prefix of a file loads, until only padding after the last tensor is missing."""
    content = model()
    need = len(content.data)
    for size in range(24, need):
        header = guarded.header(content.data[:size])
        with pytest.raises(ModelFileError):
            parse(header)
    assert outcome(guarded.header(content.data))


def test_cut_files_at_every_byte_of_the_header(tmp_path):
    path = tmp_path / "m.gguf"
    content = model()
    path.write_bytes(content.data)
    for size in range(content.data_start, -1, -1):
        with open(path, "r+b") as file:
            file.truncate(size)
        with pytest.raises(ModelFileError) as caught:
            open_model(str(path))
        assert str(path) in str(caught.value)


def test_every_field_at_extreme_values(guarded):
    """Each 4- and 8-byte field in turn: a typed error, or a load that still keeps to its bounds."""
    content = model()
    loads = 0
    for at, size, _ in content.fields:
        for value in EXTREMES:
            for delta in (-1, 0, 1):
                data = bytearray(content.data)
                data[at : at + size] = ((value + delta) % (1 << 8 * size)).to_bytes(size, "little")
                loads += outcome(guarded.header(data))
    assert 0 < loads < len(content.fields) * len(EXTREMES) * 3


def test_pairs_of_fields_at_extreme_values(guarded):
    source = random.Random(3)
    content = model()
    for _ in range(3000):
        data = bytearray(content.data)
        for at, size, _ in source.sample(content.fields, 2):
            data[at : at + size] = (source.choice(EXTREMES) % (1 << 8 * size)).to_bytes(size, "little")
        outcome(guarded.header(data))


def test_random_damage(guarded):
    source = random.Random(5)
    content = model()
    for _ in range(4000):
        data = bytearray(content.data)
        for _ in range(source.choice((1, 1, 2, 8))):
            data[source.randrange(4, content.header)] ^= 1 << source.randrange(8)
        outcome(guarded.header(data))


def test_random_bytes_and_spliced_headers(guarded):
    source = random.Random(9)
    content = model()
    for _ in range(1500):
        data = bytearray(content.data)
        a, b = sorted(source.sample(range(24, content.header), 2))
        kind = source.randrange(3)
        if kind == 0:
            data[a:b] = source.randbytes(b - a)
        elif kind == 1:
            del data[a:b]
        else:
            data[a:a] = data[a:b]
        outcome(guarded.header(data[: guarded.size]))
