"""`inspect` on files written here: every part of the description against what was written, and the text made of it."""

import json

import pytest
from gguf_bytes import Gguf, model
from tiny import write

from reflex.cli.jsonline import encode
from reflex.errors import ModelFileError
from reflex.inspect import amount, describe, render, size
from reflex.program.records import PLACES

HEAD = 8  # width of one head
WIDTH, LAYERS, FEED, VOCABULARY = 32, 2, 64, 300


def byte_letters():
    """The printable stand-ins of byte-level BPE, for bytes 0 to 255."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    extra = iter(range(0x100, 0x200))
    return [chr(b) if b in kept else chr(next(extra)) for b in range(256)]


def runnable(architecture="llama", pre="llama-bpe", context=128, **changes):
    """A whole small model of a family this engine runs."""
    tokens = [*byte_letters(), *(f"<|t{i}|>" for i in range(VOCABULARY - 256))]
    keys = [
        ("general.architecture", "string", architecture),
        ("general.name", "string", "Small one"),
        (f"{architecture}.block_count", "u32", LAYERS),
        (f"{architecture}.context_length", "u32", context),
        (f"{architecture}.embedding_length", "u32", WIDTH),
        (f"{architecture}.feed_forward_length", "u32", FEED),
        (f"{architecture}.attention.head_count", "u32", 4),
        (f"{architecture}.attention.head_count_kv", "u32", 2),
        (f"{architecture}.attention.layer_norm_rms_epsilon", "f32", 1e-5),
        ("tokenizer.ggml.model", "string", "gpt2"),
        ("tokenizer.ggml.pre", "string", pre),
        ("tokenizer.ggml.tokens", "array", ("string", tokens)),
        ("tokenizer.ggml.token_type", "array", ("i32", [1] * 256 + [3] * (VOCABULARY - 256))),
        ("tokenizer.ggml.merges", "array", ("string", ["a b"])),
        ("tokenizer.ggml.bos_token_id", "u32", 256),
        ("tokenizer.ggml.eos_token_id", "u32", 257),
        ("tokenizer.ggml.add_bos_token", "bool", 1),
        ("tokenizer.chat_template", "string", "{{ messages }}\n" * 20),
    ]
    tensors = [("token_embd.weight", (WIDTH, VOCABULARY), 8), ("output_norm.weight", (WIDTH,), 0)]
    for i in range(LAYERS):
        layer = {
            "attn_norm": (WIDTH,), "attn_q": (WIDTH, 4 * HEAD), "attn_k": (WIDTH, 2 * HEAD), "attn_v": (WIDTH, 2 * HEAD),
            "attn_output": (4 * HEAD, WIDTH), "ffn_norm": (WIDTH,), "ffn_gate": (WIDTH, FEED), "ffn_up": (WIDTH, FEED),
            "ffn_down": (FEED, WIDTH),
        }  # fmt: skip
        tensors += [(f"blk.{i}.{name}.weight", dims, 0 if len(dims) == 1 else 8) for name, dims in layer.items()]
    return Gguf(**{"keys": keys, "tensors": tensors, **changes})


@pytest.fixture
def described(tmp_path):
    def describe_it(content, name="m.gguf"):
        return describe(content.write(tmp_path / name))

    return describe_it


def test_a_model_that_runs(described, tmp_path):
    content = runnable()
    d = described(content)
    assert list(d)[:4] == ["schema_version", "type", "command", "model"]
    assert (d["schema_version"], d["type"], d["command"], d["model"]) == (1, "result", "inspect", str(tmp_path / "m.gguf"))
    assert (d["architecture"], d["name"]) == ("llama", "Small one")
    matrices = WIDTH * VOCABULARY + LAYERS * (2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 64)
    norms = WIDTH * (1 + 2 * LAYERS)
    assert d["parameters"] == matrices + norms
    assert d["memory"]["weights_bytes"] == matrices // 32 * 34 + 4 * norms
    assert d["run"]["supported"] and d["run"]["reason"] is None and d["run"]["layers"] == LAYERS
    assert d["memory"]["cache_values_per_token"] == LAYERS * 2 * (HEAD + HEAD)
    assert d["memory"]["cache_bytes_per_token"] == {"f32": 4 * LAYERS * 32, "f16": 2 * LAYERS * 32}
    assert d["memory"]["context_length"] == 128
    assert d["file"]["version"] == 3 and d["file"]["bytes"] == len(content.data)
    assert d["notes"] == []


def test_states_of_recurrent_layers(tmp_path):
    """A delta rule keeps heads * key_dim * value_dim numbers, its convolution three of each channel."""
    d = describe(str(write("qwen35", tmp_path / "m.gguf")))
    each = 3 * (4 * 4 * 16 * 16 + 4 * 3 * (2 * 32 + 64))
    assert (d["memory"]["state_bytes"], d["memory"]["state_places"]) == (each, PLACES)
    assert d["memory"]["cache_values_per_token"] == 2 * 2 * 32, "one layer of four has attention"
    assert f"at most {PLACES} at a time" in render(d)
    plain = describe(str(write("qwen3", tmp_path / "p.gguf")))
    assert (plain["memory"]["state_bytes"], plain["memory"]["state_places"]) == (0, 0)
    assert "states " not in render(plain)


def test_tensors_and_their_types(described):
    d = described(runnable())
    assert [t["name"] for t in d["tensors"]][:2] == ["token_embd.weight", "output_norm.weight"]
    assert d["tensors"][0] == {"name": "token_embd.weight", "type": "Q8_0", "shape": [32, 300], "bytes": 300 * 34}
    assert [row["type"] for row in d["types"]] == ["Q8_0", "F32"]
    assert [row["bits_per_weight"] for row in d["types"]] == [8.5, 32.0]
    for field in ("bytes", "elements", "tensors"):
        total = {"bytes": d["memory"]["weights_bytes"], "elements": d["parameters"], "tensors": len(d["tensors"])}[field]
        assert sum(row[field] for row in d["types"]) == total


def test_the_vocabulary(described):
    t = described(runnable())["tokenizer"]
    assert (t["model"], t["pre"], t["size"], t["merges"]) == ("gpt2", "llama-bpe", VOCABULARY, 1)
    assert t["special_ids"] == {"bos": 256, "eos": 257}
    assert t["kinds"] == {"normal": 256, "control": VOCABULARY - 256}
    assert t["chat_template_bytes"] == 300
    assert t["supported"] and t["adds_bos"] and not t["adds_eos"] and 257 in t["end_ids"]


def test_an_unknown_vocabulary_is_described_with_the_reason(described):
    d = described(runnable(pre="nonesuch"))
    assert d["run"]["supported"] and not d["tokenizer"]["supported"] and "nonesuch" in d["tokenizer"]["reason"]
    assert "not usable" in render(d)


def test_an_unknown_architecture_is_described_with_the_reason(described):
    d = described(runnable(architecture="lama"))
    assert not d["run"]["supported"] and "lama" in d["run"]["reason"] and "llama" in d["run"]["reason"]
    assert d["memory"]["weights_bytes"] > 0 and d["memory"]["cache_bytes_per_token"] is None
    assert "runs       no: " in render(d)


def test_keys_are_clipped_not_dumped(described):
    keys = {k["key"]: k for k in described(runnable())["keys"]}
    assert keys["general.architecture"] == {"key": "general.architecture", "type": "string", "bytes": 5, "value": "llama"}
    assert keys["llama.block_count"] == {"key": "llama.block_count", "type": "u32", "value": LAYERS}
    tokens = keys["tokenizer.ggml.tokens"]
    assert (tokens["type"], tokens["element"], tokens["count"], len(tokens["first"])) == ("array", "string", VOCABULARY, 4)
    template = keys["tokenizer.chat_template"]
    assert template["bytes"] == 300 and len(template["value"]) == 200


def test_every_kind_of_value_becomes_json(described):
    keys = [("nan", 6, b"\0\0\xc0\x7f"), ("raw", "string", b"\xff\xfe"), ("none", "array", ("f64", [])), ("yes", "bool", 1)]
    keys += [("deep", "array", ("array", [("u8", [1])])), ("words", "array", ("string", ["a", "b\n", "c", "d", "e"]))]
    d = described(Gguf(keys))
    read = {k["key"]: k for k in json.loads(encode(d))["keys"]}
    assert read["nan"]["value"] is None and read["yes"]["value"] is True and read["none"]["first"] == []
    assert read["deep"]["first"] is None and read["words"]["first"] == ["a", "b\n", "c", "d"]
    assert d["tokenizer"] is None and d["architecture"] is None
    text = render(d)
    assert "no architecture" in text and "tokenizer  none" in text and "no tensors" in text


def test_notes(described):
    tail = described(runnable(tail=bytes(70)))
    assert len(tail["notes"]) == 1 and "are ignored" in tail["notes"][0]
    assert tail["file"]["shards"][0]["trailing_bytes"] > 0
    short = described(Gguf([], [("a", (3,), 0)]))
    assert "without the padding" in short["notes"][0]
    empty = described(Gguf([], [("a", (8,), 0), ("zero", (0, 4), 0)]))
    assert "1 tensors are empty: zero" in empty["notes"][0]
    assert empty["types"][0]["tensors"] == 2


def test_control_codes_of_a_file_do_not_reach_the_terminal(described):
    keys = [("general.name", "string", "\x1b[31mred\n"), ("\x1b[0m", "string", "\x07"), ("general.architecture", "string", "\x1bc")]
    text = render(described(Gguf([*keys, ("tokenizer.ggml.model", "string", "\x1bm")])))
    assert all(c.isprintable() for line in text.split("\n") for c in line)


def test_the_text(described):
    text = render(described(runnable()))
    assert text.startswith("Small one: llama, ") and text.endswith("\n")
    for words in ("GGUF 3", "2 layers", "Q8_0", "8.50", "300 tokens", "44 control", "bos 256", "chat template of 300 bytes"):
        assert words in text
    assert max(map(len, text.split("\n"))) < 200


def test_split_files_list_their_shards(tmp_path):
    for i in range(2):
        keys = [("split.no", "u16", i), ("split.count", "u16", 2)]
        Gguf(keys, [(f"t{i}", (8,), 0)]).write(tmp_path / f"m-0000{i + 1}-of-00002.gguf")
    d = describe(str(tmp_path / "m-00001-of-00002.gguf"))
    assert [s["tensors"] for s in d["file"]["shards"]] == [1, 1] and len(d["tensors"]) == 2
    assert render(d).count("shard      ") == 2


def test_a_damaged_file_is_refused(tmp_path):
    with pytest.raises(ModelFileError, match="truncated"):
        describe(model(cut=10).write(tmp_path / "m.gguf"))


def test_units():
    assert [size(n) for n in (0, 1023, 1024, 1536 << 10, 5 << 30)] == ["0 bytes", "1023 bytes", "1.0 KiB", "1.5 MiB", "5.0 GiB"]
    assert [amount(n) for n in (0, 999, 1500, 134_515_008, 7_000_000_000)] == ["0", "999", "1.5K", "134.5M", "7.0B"]
