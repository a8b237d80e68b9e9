"""`reflex quantize` and what is under it: metadata, bytes, importance, whole files or none, one line for every fault."""

import json
import os

import gguf
import numpy as np
import process
import pytest
import tiny

from reflex import quant
from reflex.errors import ModelFileError
from reflex.gguf.reader import open_model
from reflex.lab import imatrix
from reflex.native import bytes_at
from reflex.quant.types import by_id
from reflex.tools import quantize

MODEL = "llama-smollm"
CHANGED = ("general.file_type", "general.quantization_version")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A tiny model, 256 columns wide so that every format fits, with keys of every type that nothing reads."""
    folder = tmp_path_factory.mktemp("quantize")
    tiny.write(MODEL, folder / "plain.gguf", "F32", width=256, feed_forward=512, heads=4, kv_heads=2, head_dim=64)
    reader, path = gguf.GGUFReader(folder / "plain.gguf"), folder / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(64)
    writer.add_int8("odd.i8", -7)
    writer.add_float64("odd.f64", 1e300)
    writer.add_bool("odd.bool", True)
    writer.add_array("odd.empty", [])
    writer.add_array("odd.floats", [0.5, -2.0])
    writer.add_array("odd.nested", [[1, 2], [3]])
    writer.add_string("odd.text", "Größe\n")
    for key, field in reader.fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture":
            main = field.types[0]
            writer.add_key_value(key, field.contents(), main, field.types[-1] if main == gguf.GGUFValueType.ARRAY else None)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def ran(*argv, code=0, **options):
    done = process.reflex("quantize", *argv, **options)
    assert done.returncode == code, done.stderr.decode()
    return done


def refused(code, text, *argv, **options):
    """The command fails with one line."""
    done = ran(*argv, code=code, **options)
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 1 and text in lines[0], lines
    return lines[0]


def raw(path):
    """({key: type, element type, count, bytes of the value}, {tensor: (type, shape, bytes)}) in the file's order."""
    file = open_model(str(path))
    keys = {}
    for key in file.metadata:
        kind, element, count, address, nbytes = file.metadata.raw(key)
        keys[key] = kind, element, count, bytes_at(address, nbytes)
    tensors = {t.name: (by_id(t.type).name, t.shape, bytes_at(t.address, t.nbytes)) for t in file.tensors.values()}
    facts = file.alignment, keys, tensors
    file.close()
    return facts


def values(kind, shape, data):
    return quant.decode(kind, data, shape[::-1])


def test_metadata_order_and_tensors_are_kept(model, tmp_path):
    ran(model, tmp_path / "out.gguf", "--type", "q4_k_m")
    (alignment, keys, tensors), (new_alignment, new_keys, new_tensors) = raw(model), raw(tmp_path / "out.gguf")
    assert new_alignment == alignment == 64
    assert [key for key in new_keys if key not in CHANGED] == [key for key in keys if key not in CHANGED]
    assert {k: v for k, v in new_keys.items() if k not in CHANGED} == {k: v for k, v in keys.items() if k not in CHANGED}
    assert [int.from_bytes(new_keys[key][3], "little") for key in CHANGED] == [15, 2]
    assert list(new_tensors) == list(tensors)
    kinds = {kind for kind, _, _ in new_tensors.values()}
    assert kinds == {"F32", "Q4_K", "Q6_K"}
    for name, (kind, shape, data) in new_tensors.items():
        old, old_shape, old_data = tensors[name]
        assert shape == old_shape
        assert data == (old_data if kind == old else quant.requantize(values(old, shape, old_data), kind).tobytes()), name
    theirs = gguf.GGUFReader(tmp_path / "out.gguf")
    assert [t.name for t in theirs.tensors] == list(tensors) and theirs.fields["odd.bool"].contents() is not False


def test_the_result_runs(model, tmp_path):
    ran(model, tmp_path / "out.gguf", "--type", "Q8_0")
    found = [
        json.loads(process.reflex("system1", path, "The quick", "--candidate", " fox", "--candidate", " dog", "--json").stdout)
        for path in (model, tmp_path / "out.gguf")
    ]
    first, second = ([row["sum"] for row in result["candidates"]] for result in found)
    assert first != second and first == pytest.approx(second, rel=0.01)


def test_a_split_model_becomes_one_file(model, tmp_path):
    source = gguf.GGUFReader(model)
    writer = gguf.GGUFWriter(tmp_path / "big.gguf", "llama", split_max_tensors=5)
    for key, field in source.fields.items():
        if not key.startswith("GGUF.") and key not in ("general.architecture", "odd.nested", "odd.empty", "general.alignment"):
            main = field.types[0]
            writer.add_key_value(key, field.contents(), main, field.types[-1] if main == gguf.GGUFValueType.ARRAY else None)
    for tensor in source.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    first = sorted(tmp_path.glob("big-*.gguf"))[0]
    ran(first, tmp_path / "one.gguf", "--type", "Q5_1")
    ran(model, tmp_path / "other.gguf", "--type", "Q5_1")
    assert raw(tmp_path / "one.gguf")[2] == raw(tmp_path / "other.gguf")[2]
    assert not any(key.startswith("split.") for key in raw(tmp_path / "one.gguf")[1])
    refused(2, "the output is the input", first, sorted(tmp_path.glob("big-*.gguf"))[1], "--type", "Q8_0")


def test_json_and_dry_run_say_the_same(model, tmp_path):
    options = ("--type", "Q4_K_S", "--override", r"blk\.1\.=Q2_K", "--output-type", "F16", "--json")
    (dry,) = map(json.loads, ran(model, tmp_path / "out.gguf", *options, "--dry-run").stdout.splitlines())
    assert not os.listdir(tmp_path) and dry["file"] is None
    (done,) = map(json.loads, ran(model, tmp_path / "out.gguf", *options, "--threads", 1).stdout.splitlines())
    assert {**done, "file": None} == dry
    assert done["file_type"] == 14 and done["type"] == "Q4_K_S" and done["main_type"] == "Q4_K"
    kinds = {name: kind for name, (kind, _, _) in raw(tmp_path / "out.gguf")[2].items()}
    assert {row["name"]: row["to"] for row in done["tensors"]} == kinds
    assert {row["to"] for row in done["tensors"] if row["name"].startswith("blk.1.") and len(row["shape"]) > 1} == {"Q2_K"}
    assert sum(row["bytes"] for row in done["tensors"]) == done["bytes_after"] < done["bytes_before"]
    text = ran(model, tmp_path / "out.gguf", *options[:-1], "--dry-run").stdout.decode()
    assert "blk.1.ffn_up.weight" in text and "bits per weight" in text


# ---- importance ----


def matrices(model):
    """{tensor: (sums of squares [1, columns], rows)} for all matrices."""
    rng = np.random.default_rng(3)
    file = open_model(str(model))
    rows = {t.name: t.shape[0] for t in file.tensors.values() if len(t.shape) == 2 and "token_embd" not in t.name}
    file.close()
    return {name: (rng.random((1, columns)).astype("f4") * 900, [30]) for name, columns in rows.items()}


def dat(sums, path):
    """The older file, by hand."""
    data = len(sums).to_bytes(4, "little")
    for name, (squares, (count,)) in sums.items():
        data += len(name).to_bytes(4, "little") + name.encode() + count.to_bytes(4, "little")
        data += squares.size.to_bytes(4, "little") + squares.astype("<f4").tobytes()
    path.write_bytes(data + (7).to_bytes(4, "little") + (4).to_bytes(4, "little") + b"text")
    return path


def test_importance_is_read_written_and_used(model, tmp_path):
    sums = matrices(model)
    imatrix.write(str(tmp_path / "i.gguf"), sums, ["a", "b"], 7, 512)
    read, older = imatrix.read(str(tmp_path / "i.gguf")), imatrix.read(str(dat(sums, tmp_path / "i.dat")))
    assert (read.datasets, read.chunks, read.chunk_size) == (("a", "b"), 7, 512)
    assert (older.datasets, older.chunks) == (("text",), 7)
    for name, (squares, counts) in sums.items():
        np.testing.assert_array_equal(read.entries[name], squares / np.float32(counts[0]))
        np.testing.assert_array_equal(read.entries[name], older.entries[name])
    for file in ("i.gguf", "i.dat"):
        ran(model, tmp_path / "out.gguf", "--type", "Q4_K_M", "--imatrix", tmp_path / file)
        tensors, new = raw(model)[2], raw(tmp_path / "out.gguf")[2]
        for name, (kind, shape, data) in new.items():
            if kind != "F32":
                importance = read.of(name, shape)
                assert (importance is None) == ("token_embd" in name)
                rows = values("F32", shape, tensors[name][2])
                wanted = quant.requantize(rows, kind, None if importance is None else importance[0])
                assert data == wanted.tobytes(), name


def test_llama_cpp_package_reads_what_is_written(model, tmp_path):
    import libgguf

    sums = matrices(model)
    imatrix.write(str(tmp_path / "i.gguf"), sums)
    theirs = libgguf.load_imatrix(str(tmp_path / "i.gguf"))
    ours = imatrix.read(str(tmp_path / "i.gguf")).entries
    assert set(theirs) == set(ours)
    for name in ours:
        np.testing.assert_allclose(np.asarray(theirs[name]).reshape(-1), ours[name].reshape(-1), rtol=1e-6)


def test_experts_have_importance_of_their_own(tmp_path):
    rng = np.random.default_rng(1)
    stack = rng.standard_normal((3, 5, 256)).astype("f4")
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_block_count(1)
    writer.add_tensor("blk.0.ffn_up_exps.weight", stack)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    squares = rng.random((3, 256)).astype("f4")
    imatrix.write(str(tmp_path / "i.gguf"), {"blk.0.ffn_up_exps.weight": (squares, [4, 0, 2])})
    ran(tmp_path / "m.gguf", tmp_path / "out.gguf", "--type", "Q4_0", "--imatrix", tmp_path / "i.gguf")
    kind, _, data = raw(tmp_path / "out.gguf")[2]["blk.0.ffn_up_exps.weight"]
    means = [squares[0] / np.float32(4), np.ones(256, "f4"), squares[2] / np.float32(2)]
    assert data == b"".join(quant.requantize(stack[e], kind, means[e]).tobytes() for e in range(3))


def test_hostile_importance_files_are_one_line(model, tmp_path):
    sums = dict(list(matrices(model).items())[:2])
    imatrix.write(str(tmp_path / "good.gguf"), sums)
    whole = {"dat": dat(sums, tmp_path / "good.dat").read_bytes(), "gguf": (tmp_path / "good.gguf").read_bytes()}
    bad = tmp_path / "bad"
    for kind, step in (("dat", 7), ("gguf", 41)):
        for cut in range(0, len(whole[kind]) - 80, step):
            bad.write_bytes(whole[kind][:cut])
            with pytest.raises(ModelFileError):
                imatrix.read(str(bad))
    for data in (b"\xff" * 64, (1).to_bytes(4, "little") + (1 << 30).to_bytes(4, "little"), b"\0" * 16):
        bad.write_bytes(data)
        with pytest.raises(ModelFileError):
            imatrix.read(str(bad))
    refused(3, "bad", model, tmp_path / "out.gguf", "--type", "Q4_0", "--imatrix", bad)
    refused(3, "cannot open the importance matrix", model, tmp_path / "out.gguf", "--type", "Q4_0", "--imatrix", tmp_path / "no")
    refused(3, "no importance in the file", model, tmp_path / "out.gguf", "--type", "Q4_0", "--imatrix", model)
    sums["blk.0.attn_q.weight"] = (np.ones((1, 300), "f4"), [1])
    imatrix.write(str(bad), sums)
    refused(2, "importance does not fit the tensor; expected 256 values; found 300", model, bad, "--type", "Q4_0", "--imatrix", bad)
    sums["blk.0.attn_q.weight"] = (np.full((1, 256), np.nan, "f4"), [1])
    imatrix.write(str(bad), sums)
    refused(3, "importance is not a size", model, tmp_path / "out.gguf", "--type", "Q4_0", "--imatrix", bad)


# ---- refusals ----


def test_refusals(model, tmp_path):
    out = tmp_path / "out.gguf"
    refused(2, "no recipe of that name", model, out)
    refused(2, "one like Q4_K_M", model, out, "--type", "Q4_K_X")
    refused(2, "bad override; expected REGEX=TYPE", model, out, "--type", "Q8_0", "--override", "ffn")
    refused(2, "bad regular expression", model, out, "--type", "Q8_0", "--override", "ffn(=Q8_0")
    refused(3, "unknown quantization type", model, out, "--type", "Q8_0", "--override", "ffn=Q9_0")
    refused(3, "nothing can be encoded as Q8_1", model, out, "--type", "Q8_0", "--output-type", "Q8_1")
    refused(2, "rubbish without importance", model, out, "--type", "Q2_K_S")
    refused(2, "the output is the input", model, model, "--type", "Q8_0")
    refused(8, "cannot write the file; found No such file", model, tmp_path / "no" / "x", "--type", "Q8_0")
    assert not os.listdir(tmp_path)
    os.link(model, out)
    before = out.read_bytes()
    refused(2, "the output is the input", model, out, "--type", "Q8_0")
    assert out.read_bytes() == before


def test_a_full_disk_leaves_nothing(model, tmp_path):
    out = tmp_path / "out.gguf"
    out.write_bytes(b"old")
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))"
    line = refused(8, "cannot write the file", model, out, "--type", "Q8_0", before=limit)
    assert "nothing was left" in line and os.listdir(tmp_path) == ["out.gguf"] and out.read_bytes() == b"old"


def test_a_value_that_is_no_number_is_named_and_leaves_nothing(model, tmp_path):
    data = bytearray(model.read_bytes())
    file = open_model(str(model))
    tensor = file.tensor("blk.1.ffn_up.weight")
    at = tensor.address - file.shards[0].mapping.address + 4 * (256 * 3 + 17)
    file.close()
    data[at : at + 4] = np.float32(np.nan).tobytes()
    (tmp_path / "nan.gguf").write_bytes(data)
    line = refused(2, "a value cannot be encoded", tmp_path / "nan.gguf", tmp_path / "out.gguf", "--type", "Q4_K_M")
    assert "tensor blk.1.ffn_up.weight row 3 column 17" in line
    assert os.listdir(tmp_path) == ["nan.gguf"]


def test_values_too_large_for_a_type_are_an_error_and_no_infinity(tmp_path):
    rows = np.full((4, 256), 3e9, "f4")
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_block_count(1)
    writer.add_tensor("blk.0.ffn_up.weight", rows)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    refused(3, "values are too large for Q4_0", tmp_path / "m.gguf", tmp_path / "out.gguf", "--type", "Q4_0")
    refused(3, "values are too large for F16", tmp_path / "m.gguf", tmp_path / "out.gguf", "--type", "F16")
    ran(tmp_path / "m.gguf", tmp_path / "out.gguf", "--type", "BF16")


def test_requantizing_and_replaced_types_are_said(model, tmp_path):
    ran(model, tmp_path / "a.gguf", "--type", "Q8_0")
    done = ran(tmp_path / "a.gguf", tmp_path / "b.gguf", "--type", "Q4_0")
    assert "quantized already (Q8_0) and lose quality a second time" in done.stderr.decode()


def test_progress_is_silent_for_a_second_and_then_says_how_far():
    now, lines = [0.0], []
    meter = quantize.Meter(lines.append, lambda: now[0])
    for now[0], done in ((0.5, 10), (1.5, 25), (1.6, 26), (3.0, 50)):
        meter(done << 20, 100 << 20)
    assert lines == [" 25%  25 of 100 MiB, 4 s left", " 50%  50 of 100 MiB, 3 s left"]
