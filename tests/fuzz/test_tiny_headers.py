"""The header of a real file: cut at every byte, and every field of 4 or 8 bytes set to the values where arithmetic goes wrong.

What the reader takes goes on through tokenizer, record, program and plan to the logits of a batch: a refusal with its words, or a
result, from memory whose last byte borders on a page that cannot be touched.
"""

import struct

import pytest
import tiny
from changes import CODES, STRING, Tree
from guarded import Guarded

from reflex import native, tokenizer
from reflex.arch import load_spec
from reflex.backends.cpu import Plan
from reflex.errors import ModelFileError, ReflexError
from reflex.gguf.header import Header, parse
from reflex.gguf.reader import File
from reflex.native import Mapping
from reflex.program import build

EXTREMES = (0, 1, 1 << 31, 1 << 32, 1 << 63, (1 << 64) - 1)
MODELS = ("llama-smollm", "gemma3", "gpt-oss", "nemotron_h_moe")  # merges, scores, experts, states


@pytest.fixture(scope="module", params=MODELS)
def content(request, tmp_path_factory):
    return tiny.write(request.param, tmp_path_factory.mktemp("models") / "m.gguf").read_bytes()


def fields(data):
    """(offset, bytes) of every field of 4 or 8 bytes before the data, those within arrays included."""
    tree, at = Tree(data), 24
    found = [(4, 4), (8, 8), (16, 8)]
    for entry in tree.keys:
        found += [(at, 8), (at + 8 + len(entry.name), 4)]
        value = at + 12 + len(entry.name)
        at = value + len(entry.value)
        if entry.kind == 9:
            inner, count = struct.unpack("<IQ", entry.value[:12])
            found += [(value, 4), (value + 4, 8), *elements(data, value + 12, inner, count)]
        elif len(entry.value) in (4, 8) or entry.kind == STRING:
            found.append((value, 8 if entry.kind == STRING else len(entry.value)))
    for name, dims, _, _ in tree.tensors:
        found += [(at, 8), (at + 8 + len(name), 4)]
        at += 12 + len(name)
        found += [(at + 8 * i, 8) for i in range(len(dims))] + [(at + 8 * len(dims), 4), (at + 8 * len(dims) + 4, 8)]
        at += 8 * len(dims) + 12
    return found, at


def elements(data, at, kind, count):
    """The lengths of strings, or the numbers, of an array."""
    for _ in range(count):
        size = 8 if kind == STRING else struct.calcsize("<" + CODES[kind])
        if size >= 4:
            yield at, size
        at += size + (int.from_bytes(data[at : at + 8], "little") if kind == STRING else 0)


def header(address, size):
    return Header("memory", Mapping(address, size), size, None)


def compute(header):
    """From a header to logits."""
    parse(header)
    file = File([header])
    words, plan = tokenizer.load(file), None
    try:
        spec = load_spec(file)
        context = min(spec.context_length, 64)
        plan = Plan(file, build(spec, context), context, 1)
        ids = (words.encode(b"the quick brown") or [0])[:context]
        count = len(ids)
        plan.evaluate(ids, 0, list(range(count)), [0] * count, [0] * count, [count - 1], strands=((0, count, -1, 0),))
        assert len(plan.logits(0)) == spec.vocabulary
    finally:
        words.close()
        if plan:
            plan.close()


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
    compute(header(address, len(content)))
    results = 0
    for at, size in places:
        field = native.view(address + at, size)
        for value in EXTREMES:
            field[:] = (value % (1 << 8 * size)).to_bytes(size, "little")
            try:
                compute(header(address, len(content)))
                results += 1
            except ReflexError as error:
                assert error.exit_code in (3, 5) and str(error).isprintable(), error.line()
        field[:] = content[at : at + size]
    memory.free()
    assert len(places) > 1000 and 100 < results < len(places) * len(EXTREMES)
