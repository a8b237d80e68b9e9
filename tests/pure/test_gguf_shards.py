"""Split files: what the `gguf` package writes loads as one model; anything incomplete or mixed up is named."""

import gguf
import numpy as np
import pytest
from gguf_bytes import Gguf

from reflex import native
from reflex.errors import ModelFileError
from reflex.gguf.reader import open_model, shard_name


@pytest.fixture
def split(tmp_path):
    """Three shards of six tensors written by the `gguf` package; (paths, arrays by name)."""
    arrays = {f"t{i}": np.arange(32 * (i + 1), dtype=np.float32) + i for i in range(6)}
    writer = gguf.GGUFWriter(tmp_path / "big.gguf", "tiny", split_max_tensors=2)
    writer.add_string("general.name", "split")
    for name, value in arrays.items():
        writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    paths = sorted(tmp_path.glob("big-*.gguf"))
    assert len(paths) == 3
    return paths, arrays


def refusal(path):
    with pytest.raises(ModelFileError) as caught:
        open_model(str(path))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_shards_load_as_one_model(split):
    paths, arrays = split
    file = open_model(str(paths[0]))
    assert list(file.tensors) == list(arrays)
    for name, value in arrays.items():
        assert native.bytes_at(file.tensors[name].address, file.tensors[name].nbytes) == value.tobytes()
    assert file.s("general.name") == "split"
    assert file.size == sum(p.stat().st_size for p in paths)
    assert [(shard.path, len(shard.tensors)) for shard in file.shards] == [(str(p), 2) for p in paths]
    file.close()


def test_a_shard_without_its_folder_in_the_path(split, monkeypatch):
    paths, arrays = split
    monkeypatch.chdir(paths[0].parent)
    file = open_model(paths[0].name)
    assert len(file.tensors) == len(arrays)
    file.close()
    paths[2].unlink()
    assert f"no {paths[2].name}; at ." in refusal(paths[0].name)


def test_all_missing_shards_are_listed(split):
    paths, _ = split
    paths[1].unlink()
    paths[2].unlink()
    line = refusal(paths[0])
    assert f"2 of 3 shards are missing; found no {paths[1].name}, {paths[2].name}; at {paths[0].parent}" in line


def test_a_later_shard_names_the_first(split):
    paths, _ = split
    line = refusal(paths[1])
    assert "file is shard 2 of 3; expected the first shard" in line and f"give {paths[0]}" in line


def test_joined_shards_are_recognized(split, tmp_path):
    paths, _ = split
    joined = tmp_path / "joined.gguf"
    joined.write_bytes(b"".join(p.read_bytes() for p in paths))
    line = refusal(joined)
    assert (
        "file is shard 1 of 3, not a whole model" in line and "another GGUF file after its own data" in line and "not cat" in line
    )


def test_a_renamed_shard_is_not_a_model(split, tmp_path):
    paths, _ = split
    plain = paths[0].rename(tmp_path / "model.gguf")
    line = refusal(plain)
    assert "file is shard 1 of 3, not a whole model; expected a name ending in -00001-of-00003.gguf" in line
    wrong = plain.rename(tmp_path / "big-00001-of-00004.gguf")
    assert "shard has the wrong name; expected 00001-of-00003; found 00001-of-00004" in refusal(wrong)


def test_shards_in_each_others_place(split):
    paths, _ = split
    content = paths[1].read_bytes()
    paths[1].write_bytes(paths[2].read_bytes())
    paths[2].write_bytes(content)
    assert f"shard does not belong here; expected shard 2 of 3; found shard 3 of 3; at {paths[1]}" in refusal(paths[0])


def test_a_damaged_later_shard_is_named(split):
    paths, _ = split
    paths[2].write_bytes(paths[2].read_bytes()[:-40])
    line = refusal(paths[0])
    assert line.startswith("truncated: need") and str(paths[2]) in line


def shard(number, count, tensors, total=None):
    keys = [("split.no", "u16", number), ("split.count", "u16", count)]
    return Gguf([*keys, *([("split.tensors.count", "i32", total)] if total is not None else [])], tensors)


def test_a_tensor_in_two_shards(tmp_path):
    shard(0, 2, [("a", (4,), 0)]).write(tmp_path / "m-00001-of-00002.gguf")
    second = shard(1, 2, [("a", (4,), 0)]).write(tmp_path / "m-00002-of-00002.gguf")
    assert f"tensor 'a' is in two shards; at {second}" in refusal(tmp_path / "m-00001-of-00002.gguf")


def test_the_announced_number_of_tensors_is_checked(tmp_path):
    shard(0, 2, [("a", (4,), 0)], total=3).write(tmp_path / "m-00001-of-00002.gguf")
    shard(1, 2, [("b", (4,), 0)]).write(tmp_path / "m-00002-of-00002.gguf")
    assert "wrong number of tensors in all shards; expected 3; found 2" in refusal(tmp_path / "m-00001-of-00002.gguf")


def test_a_shard_is_read_from_its_own_start(tmp_path):
    """Weight bytes that look like lengths and a magic do not mislead the walk of the next file."""
    for i in range(2):
        content = shard(i, 2, [(f"t{i}", (64, 3), 39)])
        content.data = content.data[: content.data_start] + (b"GGUF" + b"\xff" * 8) * 8 + b"\xff" * 6
        content.write(tmp_path / f"m-0000{i + 1}-of-00002.gguf")
    file = open_model(str(tmp_path / "m-00001-of-00002.gguf"))
    assert [t.nbytes for t in file.tensors.values()] == [102, 102]
    assert native.bytes_at(file.tensors["t1"].address, 12) == b"GGUF" + b"\xff" * 8
    file.close()


@pytest.mark.parametrize("keys", [[], [("split.no", "u16", 0), ("split.count", "u16", 1)], [("split.count", "u16", 0)]])
def test_one_of_one_loads(tmp_path, keys):
    file = open_model(Gguf(keys, [("a", (4,), 0)]).write(tmp_path / "m-00001-of-00001.gguf"))
    assert list(file.tensors) == ["a"]
    file.close()


@pytest.mark.parametrize("count", [-1, 65535, 1025])
def test_an_impossible_number_of_shards(tmp_path, count):
    path = Gguf([("split.count", "i32", count)]).write(tmp_path / "m.gguf")
    assert f"impossible number of shards; expected 1 to 1024; found {count}" in refusal(path)


def test_shard_names():
    assert shard_name("a/b-00002-of-00003.gguf") == ("a/b", 2, 3)
    assert shard_name("-00002-of-00003.gguf") == ("", 2, 3)
    for name in (
        "b.gguf",
        "b-2-of-3.gguf",
        "b-00002-of-00003",
        "b-0000x-of-00003.gguf",
        "b_00002-of-00003.gguf",
        "b-00002-to-00003.gguf",
        "",
    ):
        assert shard_name(name) is None
