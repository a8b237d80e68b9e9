"""The header of a real file: cut at every byte, and every field of 4 or 8 bytes set to the values where arithmetic goes wrong."""

import struct

import pytest
import tiny
from changes import Tree
from guarded import Guarded

from reflex.errors import ModelFileError, ReflexError
from reflex.gguf.header import Header, parse
from reflex.native import Mapping

EXTREMES = (0, 1, 1 << 31, 1 << 32, 1 << 63, (1 << 64) - 1)


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    return tiny.write("llama-smollm", tmp_path_factory.mktemp("models") / "m.gguf").read_bytes()


def fields(data):
    """(offset, bytes) of every field of 4 or 8 bytes before the data."""
    tree, at = Tree(data), 24
    found = [(4, 4), (8, 8), (16, 8)]
    for entry in tree.keys:
        found += [(at, 8), (at + 8 + len(entry.name), 4)]
        value = at + 12 + len(entry.name)
        at = value + len(entry.value)
        if entry.kind == 9:
            inner, count = struct.unpack("<IQ", entry.value[:12])
            found += [(value, 4), (value + 4, 8)]
            place = value + 12
            for _ in range(count if inner == 8 else 0):
                found.append((place, 8))
                place += 8 + int.from_bytes(data[place : place + 8], "little")
        elif len(entry.value) in (4, 8) or entry.kind == 8:
            found.append((value, 8 if entry.kind == 8 else len(entry.value)))
    for name, dims, _, _ in tree.tensors:
        found += [(at, 8), (at + 8 + len(name), 4)]
        at += 12 + len(name)
        found += [(at + 8 * i, 8) for i in range(len(dims))] + [(at + 8 * len(dims), 4), (at + 8 * len(dims) + 4, 8)]
        at += 8 * len(dims) + 12
    return found, at


def header(address, size):
    return Header("memory", Mapping(address, size), size, None)


def test_cut_at_every_byte_of_the_header(content):
    _, end = fields(content)
    memory = Guarded(end)
    for size in range(24, end):
        with pytest.raises(ModelFileError):
            parse(header(memory.put(content[:size], True), size))
    memory.free()


def test_every_field_at_extreme_values(content):
    places, _ = fields(content)
    memory = Guarded(len(content))
    address = memory.put(content, True)
    loads = 0
    for at, size in places:
        before = content[at : at + size]
        for value in EXTREMES:
            memory_at(address + at, size)[:] = (value % (1 << 8 * size)).to_bytes(size, "little")
            try:
                parse(header(address, len(content)))
                loads += 1
            except ReflexError as error:
                assert error.exit_code == 3 and str(error).isprintable()
        memory_at(address + at, size)[:] = before
    memory.free()
    assert 0 < loads < len(places) * len(EXTREMES) / 2


def memory_at(address, size):
    from reflex import native

    return native.view(address, size)
