"""What the reader refuses: one test per kind of fault, each error on one line, with what was found and where."""

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from gguf_bytes import Gguf, model

from reflex.errors import ModelFileError, ReflexError
from reflex.gguf.reader import open_model
from reflex.quant.types import TYPES

ROOT = Path(__file__).parents[2]


@pytest.fixture
def refusal(tmp_path):
    """refusal(bytes or Gguf) -> the error's line; fails if the file loads."""

    def open_it(content, name="m.gguf"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.data)
        with pytest.raises(ReflexError) as caught:
            open_model(str(path)).close()
        line = str(caught.value)
        assert caught.value.exit_code == 3
        assert "\n" not in line and line.isprintable() and len(line) < 700
        assert str(path) in line
        return line.replace(str(path), "FILE")

    return open_it


@pytest.fixture
def loads(tmp_path):
    def open_it(content, name="m.gguf"):
        file = open_model(content.write(tmp_path / name))
        file.close()
        return file

    return open_it


def test_string_length_beyond_the_file(refusal):
    whole = Gguf([("k", "string", "")]).data
    for length in ((1 << 63), (1 << 64) - 1, 1 << 31, 14):
        content = bytearray(whole[:45])
        content[24:32] = struct.pack("<Q", length)
        line = refusal(bytes(content))
        assert line.startswith(f"truncated: key need {length} bytes, have room for 13; at FILE key number 0 offset 32")
        content[24:32] = struct.pack("<Q", 1)
        content[37:45] = struct.pack("<Q", length)
        line = refusal(bytes(content))
        assert line.startswith(f"truncated: string need {length} bytes, have room for 0; at FILE key 'k' offset 45")
    assert "truncated: 1 keys need at least 13 bytes of header, have 12" in refusal(whole[:36])


@pytest.mark.parametrize("count", [1 << 63, (1 << 64) - 1, 1 << 40, 100])
@pytest.mark.parametrize(("element", "least"), [("u8", 1), ("string", 8), ("array", 12), ("f64", 8)])
def test_array_count_beyond_the_file(refusal, element, least, count):
    data = bytearray(Gguf([("k", "array", (element, []))]).data[:49])
    data[41:49] = struct.pack("<Q", count)
    for room in (0, 1, 9):
        line = refusal(bytes(data + bytes(room * least + least - 1)))
        assert f"truncated: array elements need {count} elements, have room for {room}; at FILE key 'k' offset 49" in line


def test_counts_of_nested_arrays_beyond_the_file(refusal):
    content = Gguf([("k", "array", ("array", [("array", [("u8", [1])])])), ("after", "f64", 1.0)])
    for number, (at, _, _) in enumerate([f for f in content.fields if f[2] == "count"]):
        data = bytearray(content.data)
        data[at : at + 8] = struct.pack("<Q", 1 << 40)
        assert f"truncated: array elements need {1 << 40} elements, have room for" in refusal(bytes(data)), number


@pytest.mark.parametrize(("kind", "size"), [("u8", 1), ("i16", 2), ("f32", 4), ("f64", 8)])
def test_the_last_value_cut_short(refusal, kind, size):
    content = Gguf([("the last", kind, 1), ("key", kind, 1)])
    for left in range(size):
        line = refusal(content.data[: content.header - size + left])
        assert f"truncated: value need {size} bytes, have room for {left}; at FILE key 'key'" in line


def test_zero_dimensions_are_empty_tensors(loads):
    file = loads(model(tensors=[("a", (32, 4), 8), ("none", (4, 0), 0), ("zero", (0,), 8), ("b", (0, 1 << 20, 1 << 20), 0)]))
    assert file.shards[0].data_end - file.shards[0].data_start == 4 * 34


def test_a_zero_tensor_after_the_last_byte(loads):
    loads(Gguf([], [("a", (1,), 0), ("none", (0,), 0, 32)]))


def test_the_same_key_twice(refusal):
    keys = [("general.architecture", "string", "a"), ("x", "u8", 1), ("general.architecture", "string", "b")]
    assert "key 'general.architecture' occurs twice" in refusal(Gguf(keys))


def test_the_same_tensor_twice(refusal):
    assert "tensor 'a' occurs twice" in refusal(Gguf([], [("a", (4,), 0), ("a", (4,), 0)]))


def test_tensor_names_up_to_63_bytes(refusal, loads):
    loads(Gguf([], [("n" * 63, (4,), 0)]))
    assert "tensor name is too long; expected at most 63 bytes; found 64" in refusal(Gguf([], [("n" * 64, (4,), 0)]))


def test_keys_up_to_65535_bytes(refusal, loads):
    loads(Gguf([("k" * 65535, "u8", 1)]))
    assert "key is too long; expected at most 65535 bytes; found 65536" in refusal(Gguf([("k" * 65536, "u8", 1)]))


@pytest.mark.parametrize("alignment", [0, 1, 3, 4, 24, 1 << 17, 1 << 31])
def test_bad_alignment(refusal, alignment):
    line = refusal(Gguf([("general.alignment", "u32", alignment)]))
    assert line == f"bad alignment; expected a power of two from 8 to 65536; found {alignment}; at FILE key general.alignment"


def test_alignment_of_another_type(refusal):
    assert "wrong type of value; expected an integer; found string" in refusal(Gguf([("general.alignment", "string", "32")]))


@pytest.mark.parametrize("half", [1, 100, 200])
def test_truncated_tensor_data(refusal, half):
    whole = model()
    line = refusal(model(cut=half))
    assert f"truncated: need {len(whole.data)} bytes, have {len(whole.data) - half}; at FILE tensor 'blk.0.ffn_down.weight'" in line
    assert "download" in line


def test_unknown_value_types(refusal):
    assert "unknown value type; expected 0 to 12; found 13; at FILE key 'k' offset 33" in refusal(Gguf([("k", 13, b"\0" * 8)]))
    line = refusal(Gguf([("k", "array", (99, []))]))
    assert "unknown value type; expected 0 to 12; found 99; at FILE key 'k' offset 37" in line
    nested = refusal(Gguf([("k", "array", ("array", [("u8", [1]), (77, [])]))]))
    assert "found 77" in nested


def test_nesting_has_a_limit(refusal, loads):
    def nested(levels):
        value = ("u8", [1])
        for _ in range(levels - 1):
            value = ("array", [value])
        return Gguf([("k", "array", value)])

    loads(nested(4))
    assert "arrays are nested too deep; expected at most 4 levels" in refusal(nested(6))


@pytest.mark.parametrize("version", [0, 1, 4, 1 << 31])
def test_other_versions_are_named(refusal, version):
    assert f"GGUF version is not supported; expected 2 or 3; found {version}; at FILE offset 4" in refusal(model(version=version))


def test_big_endian_files_are_named(refusal):
    assert "big-endian GGUF file; expected little-endian" in refusal(model(version=3 << 24))


@pytest.mark.parametrize("rank", [0, 5, 1 << 31, (1 << 32) - 1])
def test_number_of_dimensions(refusal, rank):
    content = Gguf([], [("a", (4,), 0)])
    data = bytearray(content.data)
    offset = next(at for at, _, what in content.fields if what == "dimension count")
    data[offset : offset + 4] = struct.pack("<I", rank)
    line = refusal(bytes(data))
    assert f"bad number of dimensions; expected 1 to 4; found {rank}; at FILE tensor 'a' offset {offset}" in line


@pytest.mark.parametrize("type_id", [4, 5, 31, 33, 36, 38, 63, 64, 65, 1000, (1 << 32) - 1])
def test_unknown_tensor_types_are_refused_by_number(refusal, type_id):
    content = Gguf([], [("a", (4,), 0)])
    data = bytearray(content.data)
    offset = next(at for at, _, what in content.fields if what == "tensor type")
    data[offset : offset + 4] = struct.pack("<I", type_id)
    assert f"unknown ggml tensor type {type_id}" in refusal(bytes(data))


@pytest.mark.parametrize("block", [block for block in TYPES.values() if block.elements > 1], ids=lambda block: block.name)
def test_rows_are_whole_blocks(refusal, block):
    """Rows may be any number of blocks: of 32 columns in some formats, of 256 in others."""
    columns = 3 * block.elements + block.elements // 2
    line = refusal(Gguf([], [("a", (columns, 2), block.id)]))
    wanted = f"a row is not a whole number of blocks; expected a multiple of {block.elements} columns; found [{columns}, 2]"
    assert wanted in line


@pytest.mark.parametrize(
    "dims", [(1 << 63,), (1 << 32, 1 << 32), (1 << 16, 1 << 16, 1 << 16, 1 << 16), ((1 << 64) - 1, 2), (1 << 49,)]
)
def test_products_of_dimensions_do_not_wrap(refusal, dims):
    content = Gguf([], [("a", (1,) * len(dims), 0)])
    data = bytearray(content.data)
    places = [at for at, _, what in content.fields if what == "dimension"]
    for at, d in zip(places, dims, strict=True):
        data[at : at + 8] = struct.pack("<Q", d)
    line = refusal(bytes(data))
    assert "tensor is too large" in line and str(list(dims)) in line


def test_the_largest_possible_tensor_is_truncated(refusal):
    content = Gguf([], [("a", (1,), 0)])
    data = bytearray(content.data)
    at = next(at for at, _, what in content.fields if what == "dimension")
    data[at : at + 8] = struct.pack("<Q", 1 << 48)
    assert f"truncated: need {(1 << 50) + content.data_start} bytes" in refusal(bytes(data))


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ((0, 16), "tensor is misaligned; expected a multiple of 32; found offset 16"),
        ((0, (1 << 64) - 32), "tensor overlaps"),
        ((0, (1 << 64) - 1), "tensor is misaligned"),
        ((0, 1 << 62), "truncated: need"),
        ((0, (1 << 63) - 32), "truncated: need"),
        ((0, 0), "tensor overlaps 'a'"),
        ((32, 0), "tensor overlaps 'b'"),
    ],
)
def test_places_of_tensors(refusal, offsets, message):
    content = Gguf([], [("a", (16,), 0), ("b", (16,), 0)], tail=bytes(64))
    data = bytearray(content.data)
    places = [at for at, _, what in content.fields if what == "tensor offset"]
    for at, offset in zip(places, offsets, strict=True):
        data[at : at + 8] = struct.pack("<Q", offset)
    line = refusal(bytes(data))
    if (1 << 63) <= offsets[1] < (1 << 64) - 1:
        assert "tensor is misaligned" in line and str(offsets[1]) in line
    else:
        assert message in line


def test_tensors_in_any_order_and_with_gaps(loads):
    file = loads(Gguf([], [("a", (16,), 0, 128), ("b", (16,), 0, 0), ("c", (8,), 0, 64)]))
    assert file.shards[0].data_end - file.shards[0].data_start == 192


def test_missing_padding_and_junk_at_the_end(loads):
    tensors = [("a", (3,), 0)]
    assert len(Gguf([], tensors).data) % 32
    for tail in (b"", bytes(20), bytes(20) + b"ten junk..", os.urandom(5000)):
        file = loads(Gguf([], tensors, tail=tail))
        assert file.size - file.shards[0].data_end == len(tail)


def test_random_bytes_after_the_magic(refusal):
    import random

    source = random.Random(7)
    for version in (2, 3):
        for _ in range(50):
            counts = struct.pack("<QQ", source.randrange(5), source.randrange(5) + 1)
            refusal(b"GGUF" + struct.pack("<I", version) + counts + source.randbytes(4096))
    refusal(b"GGUF" + source.randbytes(4096))


@pytest.mark.parametrize(
    ("counts", "what"), [((1 << 63, 1), "tensor"), ((1, (1 << 64) - 1), "key"), ((1 << 19, 1), "tensor"), ((1, 1 << 17), "key")]
)
def test_impossible_counts(refusal, counts, what):
    line = refusal(Gguf([("k", "u8", 1)], [("a", (4,), 0)], counts=counts))
    assert f"impossible {what} count" in line and str(counts[what == "key"]) in line


@pytest.mark.parametrize("size", [0, 1, 3, 4, 23])
def test_files_shorter_than_a_header(refusal, size):
    assert f"truncated: need 24 bytes for a header; found {size} bytes" in refusal(model().data[:size])


@pytest.mark.parametrize(
    ("start", "hint"),
    [
        (b"PK\x03\x04", "another model format"), (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"<!DOCTYPE html>", "web page"), (b"\x10\0\0\0\0\0\0\0{\"a\":", "another model format"), (b"GGJT", ""), (b"\x1b[31m", ""),
    ],
)  # fmt: skip
def test_other_files_are_recognized(refusal, start, hint):
    line = refusal(start + bytes(100))
    assert line.startswith("not a GGUF file; expected GGUF; found '") and hint in line


def test_paths_that_are_not_files(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path, message in (
        (tmp_path / "none.gguf", "cannot open the model file; found No such file or directory"),
        (tmp_path, "not a regular file"),
        (tmp_path / "fifo", "not a regular file"),
        (f"{tmp_path}/a\0b", "cannot open the model file"),
    ):
        with pytest.raises(ModelFileError, match=message):
            open_model(str(path))


def test_names_cannot_write_control_codes_into_the_message(refusal):
    assert "\\x1b[31m" in refusal(Gguf([("\x1b[31m\n", 99, b"")]))
    assert "\\x1b" in refusal(Gguf([], [("\x1b\n", (33,), 8)]))
    assert "is not UTF-8" in refusal(Gguf([(b"\xff\xfe", "u8", 1)]))
    assert "is not UTF-8" in refusal(Gguf([], [(b"\xff\xfe", (4,), 0)]))


HOSTILE = """
import sys
sys.path.insert(0, sys.argv[1])
from reflex.errors import ReflexError
from reflex.gguf.reader import open_model
from reflex.quant.types import TYPES
for path in sys.argv[2:]:
    try:
        print(len(open_model(path).tensors))
    except ReflexError as error:
        print(error.category)
print(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
"""


def test_memory_stays_small_whatever_a_file_declares(tmp_path):
    """Counts and lengths of any size, and a sparse 3 GiB file, within 20 MiB, interpreter included."""
    paths = []
    for i, (at, value) in enumerate([(8, 1 << 18), (16, 1 << 16), (24, 1 << 40), (16, 1 << 62)]):
        data = bytearray(model().data + bytes(1 << 22))
        data[at : at + 8] = struct.pack("<Q", value)
        paths.append(tmp_path / f"{i}.gguf")
        paths[-1].write_bytes(data)
    paths.append(tmp_path / "large.gguf")
    paths[-1].write_bytes(Gguf([("k", "u8", 1)], [("large", (1 << 28, 3), 0)], cut=1 << 20).data)
    os.truncate(paths[-1], 4 << 30)
    result = subprocess.run(
        [sys.executable, "-IS", "-c", HOSTILE, str(ROOT), *map(str, paths)], capture_output=True, text=True, timeout=300, check=True
    )
    *outcomes, peak = result.stdout.split()
    assert outcomes == ["model_file"] * 4 + ["1"]
    assert int(peak) < 20_000  # KiB


def test_the_header_has_a_cap(tmp_path):
    """A header that runs past 256 MiB is refused, though the file is long enough."""
    path = tmp_path / "m.gguf"
    content = Gguf([("a", "array", ("u8", [])), ("b", "u8", 1)])
    at = next(at for at, _, what in content.fields if what == "count")
    data = bytearray(content.data)
    data[at : at + 8] = struct.pack("<Q", 300 << 20)
    path.write_bytes(data)
    os.truncate(path, 400 << 20)
    with pytest.raises(ModelFileError, match=r"header is too large; expected at most 268435456 bytes"):
        open_model(str(path))
