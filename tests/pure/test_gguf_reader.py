"""What the reader gives for sound files: against the `gguf` package's writer and reader, and against bytes written by hand."""

import time

import gguf
import numpy as np
import pytest
from gguf_bytes import Gguf, model

from reflex import native
from reflex.errors import ModelFileError
from reflex.gguf.ahead import Ahead
from reflex.gguf.reader import REQUIRED, open_model

SCALARS = {
    "UINT8": 200, "INT8": -5, "UINT16": 65535, "INT16": -32768, "UINT32": 1 << 31, "INT32": -7, "UINT64": (1 << 64) - 1,
    "INT64": -(1 << 63), "FLOAT32": 0.25, "FLOAT64": 1e300, "BOOL": True,
}  # fmt: skip


def written(path, add):
    writer = gguf.GGUFWriter(path, "tiny")
    add(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)


@pytest.fixture
def opened(tmp_path):
    """open(Gguf) -> File; closed at the end of the test."""
    files = []

    def open_it(content, name="m.gguf"):
        files.append(open_model(content.write(tmp_path / name)))
        return files[-1]

    yield open_it
    for file in files:
        file.close()


def test_every_scalar_type_of_the_gguf_package(tmp_path):
    def add(writer):
        for name, value in SCALARS.items():
            writer.add_key_value(name, value, gguf.GGUFValueType[name])
        writer.add_string("text", "zwölf €")

    file = open_model(written(tmp_path / "m.gguf", add))
    assert list(file.metadata) == ["general.architecture", *SCALARS, "text"]
    for name, value in SCALARS.items():
        assert file.metadata.value(name) == value
        read = file.b if name == "BOOL" else file.f if name.startswith("FLOAT") else file.u
        assert read(name) == value and type(read(name)) is type(value)
    assert file.f("INT8") == -5.0 and type(file.f("INT8")) is float
    assert file.s("text") == "zwölf €" and file.bytes("text") == "zwölf €".encode()
    assert file.s("general.architecture") == "tiny"
    assert file.version == 3 and file.alignment == 32
    file.close()


def test_arrays_and_tensors_of_the_gguf_package(tmp_path):
    rng = np.random.default_rng(1)
    arrays = {
        "norm": rng.standard_normal(64, dtype=np.float32),
        "half": rng.standard_normal((3, 32)).astype(np.float16),
        "deep": rng.standard_normal((2, 3, 4, 32)).astype(np.float32),
        "bytes": np.arange(96, dtype=np.int8),
    }
    quantized = gguf.quants.quantize(rng.standard_normal((4, 256), dtype=np.float32), gguf.GGMLQuantizationType.Q8_0)

    def add(writer):
        writer.add_array("ints", [1, -2, 3])
        writer.add_array("floats", [0.5, -1.5])
        writer.add_array("words", ["a", "", "ü"])
        writer.add_array("flags", [True, False])
        for name, value in arrays.items():
            writer.add_tensor(name, value)
        writer.add_tensor("quantized", quantized, raw_dtype=gguf.GGMLQuantizationType.Q8_0)

    path = written(tmp_path / "m.gguf", add)
    file = open_model(path)
    assert file.ints("ints") == [1, -2, 3]
    assert file.floats("floats") == [0.5, -1.5] and file.floats("ints") == [1.0, -2.0, 3.0]
    assert file.strings("words") == [b"a", b"", "ü".encode()]
    assert file.metadata.bools("flags") == [True, False]
    words = file.array("words")
    assert (words.type, words.count, words.nbytes) == (8, 3, 8 * 3 + 3)
    assert native.bytes_at(words.address, 9) == (1).to_bytes(8, "little") + b"a"

    reference = {t.name: t for t in gguf.GGUFReader(path).tensors}
    assert list(file.tensors) == list(reference)
    for name, tensor in file.tensors.items():
        other = reference[name]
        assert tensor.name == name and tensor.type == other.tensor_type
        assert tensor.shape == tuple(int(d) for d in other.shape)
        assert (tensor.nbytes, tensor.elements) == (other.n_bytes, other.n_elements)
        assert native.bytes_at(tensor.address, tensor.nbytes) == other.data.tobytes()
    file.close()


def test_version_2_loads_as_version_3(opened):
    three = opened(model(), "three.gguf")
    two = opened(model(version=2), "two.gguf")
    assert (two.version, three.version) == (2, 3)
    assert list(two.metadata) == list(three.metadata)
    assert [two.metadata.value(k) for k in two.metadata] == [three.metadata.value(k) for k in three.metadata]
    for a, b in zip(two.tensors.values(), three.tensors.values(), strict=True):
        assert (a.name, a.shape, a.type) == (b.name, b.shape, b.type)
        assert native.bytes_at(a.address, a.nbytes) == native.bytes_at(b.address, b.nbytes)


@pytest.mark.parametrize("kind", ["u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "u64", "i64", "f64", "string", "array"])
def test_an_empty_array_keeps_its_type(opened, kind):
    from gguf_bytes import TYPE_IDS

    file = opened(Gguf([("empty", "array", (kind, [])), ("after", "u32", 7)]))
    array = file.array("empty")
    assert (array.type, array.count, array.nbytes) == (TYPE_IDS[kind], 0, 0)
    assert file.u("after") == 7
    if kind == "string":
        assert file.strings("empty") == []
    elif kind != "array":
        assert file.metadata.value("empty") == []


def test_nested_arrays_are_stepped_over(opened):
    nested = ("array", [("array", [("u8", [1]), ("string", ["x", "yz"])]), ("array", []), ("f64", [1.0])])
    file = opened(Gguf([("deep", "array", nested), ("after", "string", "ok")]))
    assert file.s("after") == "ok"
    assert (file.array("deep").type, file.array("deep").count) == (9, 3)
    assert file.metadata.value("deep") is None


def test_unaligned_values_and_a_custom_alignment(opened):
    for alignment in (8, 64, 65536):
        keys = [("a", "u8", 1), ("general.alignment", "u32", alignment), ("b", "f64", 0.1), ("c", "array", ("i64", [-1, 2]))]
        content = Gguf(keys, [("t", (2,), 0), ("u", (5,), 0)], alignment=alignment)
        file = opened(content, f"{alignment}.gguf")
        assert file.alignment == alignment and file.f("b") == 0.1 and file.ints("c") == [-1, 2]
        assert native.bytes_at(file.tensors["u"].address, 20) == content.data[content.data_start + alignment :][:20]


def test_per_layer_repeats_a_scalar_and_checks_an_array(opened):
    arrays = [("l", "array", ("i32", [1, 2, 3])), ("b", "array", ("bool", [1, 0, 1]))]
    file = opened(Gguf([("n", "u32", 4), *arrays, ("s", "string", "x")]))
    assert file.per_layer("n", 3) == [4, 4, 4]
    assert file.per_layer("l", 3) == [1, 2, 3]
    assert file.per_layer("b", 3) == [True, False, True]
    assert file.per_layer("none", 2, 9) == [9, 9]
    with pytest.raises(ModelFileError, match=r"one per layer, 4.*found 3.*key l"):
        file.per_layer("l", 4)
    with pytest.raises(ModelFileError, match=r"found string.*key s"):
        file.per_layer("s", 3)
    with pytest.raises(ModelFileError, match="missing key none"):
        file.per_layer("none", 3)


@pytest.mark.parametrize(
    ("read", "key", "expected", "found"),
    [
        ("u", "f", "an integer", "f32"), ("u", "s", "an integer", "string"), ("u", "b", "an integer", "bool"),
        ("u", "a", "an integer", "array of i32"), ("f", "s", "a number", "string"), ("b", "u", "a bool", "u32"),
        ("s", "u", "a string", "u32"), ("bytes", "a", "a string", "array of i32"), ("array", "u", "an array", "u32"),
        ("ints", "w", "an array of integers", "array of string"), ("floats", "w", "an array of numbers", "array of string"),
        ("strings", "a", "an array of strings", "array of i32"), ("ints", "u", "an array of integers", "u32"),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_refused(opened, read, key, expected, found):
    arrays = [("a", "array", ("i32", [1])), ("w", "array", ("string", ["x"]))]
    file = opened(Gguf([("u", "u32", 1), ("f", "f32", 1.0), ("s", "string", "x"), ("b", "bool", 0), *arrays]))
    with pytest.raises(ModelFileError) as caught:
        getattr(file, read)(key)
    assert (caught.value.expected, caught.value.found) == (expected, found)
    assert caught.value.where.endswith(f"key {key}")


@pytest.mark.parametrize("read", ["u", "f", "b", "s", "bytes", "array", "ints", "floats", "strings"])
def test_a_missing_key_has_a_default_or_is_named(opened, read):
    file = opened(model())
    marker = object()
    assert getattr(file, read)("tiny.block_counts", marker) is marker
    assert getattr(file, read)("tiny.block_counts", None) is None
    with pytest.raises(ModelFileError, match=r"missing key tiny\.block_counts; found keys like tiny\.block_count"):
        getattr(file, read)("tiny.block_counts")
    assert not file.has("tiny.block_counts") and file.has("tiny.block_count")
    assert REQUIRED is not None


@pytest.mark.parametrize("bits", [0x7F800000, 0xFF800000, 0x7FC00000])
def test_numbers_that_are_not_finite_are_refused(opened, bits):
    file = opened(Gguf([("x", 6, bits.to_bytes(4, "little"))]))
    with pytest.raises(ModelFileError, match="not finite"):
        file.f("x")


def test_bad_text_and_bad_bools_are_refused_when_read(opened):
    file = opened(Gguf([("s", "string", b"ab\xffc"), ("b", 7, b"\x02")]))
    assert file.bytes("s") == b"ab\xffc"
    with pytest.raises(ModelFileError, match=r"not UTF-8; found byte 0xff; at .*key s"):
        file.s("s")
    with pytest.raises(ModelFileError, match=r"bad bool; expected 0 or 1; found 2"):
        file.b("b")


@pytest.mark.parametrize("block", gguf.GGMLQuantizationType)
def test_the_size_of_every_tensor_type(opened, block):
    elements, nbytes = gguf.GGML_QUANT_SIZES[block]
    if block.name == "Q8_1":  # the package still lists the layout with two float32 scales
        nbytes = 36
    file = opened(Gguf([], [("t", (3 * elements, 5, 2), int(block))], tail=bytes(30 * nbytes)))
    tensor = file.tensors["t"]
    assert (tensor.type, tensor.elements, tensor.nbytes) == (block, 30 * elements, 30 * nbytes)


def test_a_missing_tensor_is_named_with_close_ones(opened):
    with pytest.raises(ModelFileError, match=r"missing tensor blk\.0\.attn_nor; found tensors like blk\.0\.attn_norm\.weight"):
        opened(model()).tensor("blk.0.attn_nor")


def test_a_file_without_tensors_loads(opened):
    file = opened(Gguf([("general.architecture", "string", "tiny")]))
    assert file.tensors == {} and file.s("general.architecture") == "tiny"


def test_a_file_that_changed_after_opening_is_noticed(tmp_path):
    path = tmp_path / "m.gguf"
    file = open_model(model().write(path))
    assert file.changed() == []
    path.write_bytes(model().data + b"more")
    assert file.changed() == [str(path)]
    path.unlink()
    assert file.changed() == [str(path)]
    file.close()


def test_closing_drops_everything(tmp_path):
    file = open_model(model().write(tmp_path / "m.gguf"))
    file.close()
    assert file.tensors == {} and not file.has("general.architecture")
    file.close()


@pytest.mark.parametrize("tensors", [0, 1, 12])
def test_reading_ahead_reads_every_stretch_of_the_tensors_and_ends_before_the_file_is_unmapped(tmp_path, tensors):
    def add(writer):
        for i in range(tensors):
            writer.add_tensor(f"t{i}", np.full(200_000 if i % 5 == 0 else 3_000, i + 1, "f4"))

    path = written(tmp_path / "model.gguf", add)
    for wait in (0, 0.02):
        file = open_model(path)
        file.read_ahead()
        time.sleep(wait)
        file.stop_ahead()
        file.close()
    file = open_model(path)
    ahead = Ahead(file)
    ahead.done.acquire()
    words = native.view(ahead.block.address, 2 * ahead.count + 1, "q").tolist()
    ranges = list(zip(words[1::2], words[2::2], strict=True))
    held = {(t.address, t.address + t.nbytes) for t in file.tensors.values()}
    assert all(any(start <= a and b <= start + size for start, size in ranges) for a, b in held)
    assert sum(size for _, size in ranges) == file.shards[0].data_end - file.shards[0].data_start
    total = 0
    for start, size in ranges:
        at = start
        while at < start + size:
            total += native.view(at, 1)[0]
            at = (at & -65536) + 65536
    assert native.library().touch(ahead.block.address + 8, ahead.count, ahead.block.address) == total
    ahead.done.release()
    ahead.close()
    file.close()
