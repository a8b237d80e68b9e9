"""Vocabularies that must be refused, and hostile ones that must do no harm."""

import random

import pytest
from vocabularies import K, bpe_keys, spm_keys

from reflex import native
from reflex.errors import InvalidInputError, TokenizerError, UnsupportedError


@pytest.mark.parametrize("model", ["bert", "t5", "rwkv", "plamo2", "no_vocab", ""])
def test_other_models_are_unsupported(load, model):
    with pytest.raises(UnsupportedError, match="tokenizer model"):
        load(bpe_keys(model=("string", model)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tokens": None}, "no tokenizer.ggml.tokens"),
        ({"tokens": ("array", ("i32", [1, 2]))}, "wrong element type"),
        ({"tokens": ("array", ("string", []))}, "too short"),
        ({"merges": None}, "no tokenizer.ggml.merges"),
        ({"merges": ("array", ("u32", [1]))}, "wrong element type"),
        ({"token_type": ("array", ("i32", [1, 1]))}, "too short"),
        ({"token_type": ("array", ("f32", [1.0] * 300))}, "wrong element type"),
        ({"scores": ("array", ("f32", [1.0]))}, "too short"),
        ({"bos_token_id": ("u32", 100_000)}, "out of range"),
        ({"eos_token_id": ("u32", 100_000)}, "out of range"),
        ({"bos_token_id": None, "add_bos_token": ("bool", True), "pre": "glm4"}, "no BOS token"),
    ],
)
def test_contradicting_vocabularies_are_refused(load, changes, words):
    with pytest.raises(TokenizerError, match=words):
        load(bpe_keys(**changes))


def test_tables_refuse_a_string_that_leaves_the_array():
    library = native.library()
    data = (5).to_bytes(8, "little") + b"hello" + (2**63).to_bytes(8, "little") + b"x"
    block, text = native.alloc(library.strings_bytes(2)), native.alloc(64)
    native.view(text.address, len(data))[:] = data
    for n in range(len(data) + 1):
        assert library.strings_index(block.address, text.address, n, 2) == -1
        assert library.strings_table(block.address, text.address, n, 2, 1) == -1
    assert library.strings_index(block.address, text.address, 13, 1) == 0


def test_native_code_stays_in_its_buffers(load, monkeypatch):
    """Every buffer ends (to its rounding) where an inaccessible page begins."""

    def guarded(size, what="buffer"):
        pages = (size + native.PAGE - 1) & -native.PAGE
        mapping = real(pages + native.PAGE)
        assert native.libc("mprotect", 3)(mapping.address + pages, native.PAGE, 0) == 0
        return native.Mapping(mapping.address + ((pages - size) & -64), size)

    real = native.alloc
    monkeypatch.setattr(native, "alloc", guarded)
    monkeypatch.setattr(native.Mapping, "free", lambda self: None)
    source = random.Random(9)
    pool = ["<tag>", "<|im_end|>", "hello", " world", "\u00e9\u00e9!", "\n\n", "\U0001f642", "   ", "a" * 50, "<"]
    tokenizers = [load(bpe_keys("gpt-2")), load(bpe_keys("llama-bpe")), load(bpe_keys("deepseek-v3")), load(spm_keys())]
    for t in tokenizers:
        for n in range(60):
            text = "".join(source.choice(pool) for _ in range(n % 30))
            assert t.decode(t.encode(text, add_special=False)).replace(b" ", b"") == text.encode().replace(b" ", b"")
            t.encode(bytes(source.choice((0xFF, 0xC3, 0xF0, 0x80, 0x20)) for _ in range(n)))


def test_hostile_vocabularies_do_no_harm(load):
    """Random strings, types, scores and merges: every text encodes to ids in range or the file is refused."""
    source = random.Random(4)
    alphabet = [
        b"a",
        b"b",
        b" ",
        b"<0x41>",
        "\u2581".encode(),
        "\u0120".encode(),
        b"\xff",
        b"\xe2\x96",
        b"",
        b"<|im_end|>",
        b"x" * 300,
    ]

    def word():
        return b"".join(source.choice(alphabet) for _ in range(source.randrange(4)))

    scores = [0.0, -0.0, 1e38, -1e38, float("inf"), float("-inf"), float("nan"), -1.5]
    for _ in range(80):
        count = source.randint(1, 60)
        keys = {
            "model": ("string", source.choice(["gpt2", "llama", "gemma4"])),
            "pre": ("string", source.choice(["default", "llama-bpe", "deepseek-v3", "sarvam-moe", "kimi-k2"])),
            "tokens": ("array", ("string", [word() for _ in range(count)])),
            "token_type": ("array", ("i32", [source.choice([-1, 0, 1, 2, 3, 4, 5, 6, 7, 2**31 - 1]) for _ in range(count)])),
            "scores": ("array", ("f32", [source.choice(scores) for _ in range(count)])),
            "merges": ("array", ("string", [word() + b" " + word() for _ in range(source.randrange(30))])),
            "bos_token_id": ("u32", 0),
            "add_bos_token": ("bool", True),
        }
        t = load([(K + name, *value) for name, value in keys.items()])
        for _ in range(10):
            data = b"".join(word() for _ in range(source.randrange(20)))
            ids = t.encode(data, parse_special=source.random() < 0.5)
            assert ids[0] == 0 and all(0 <= i < t.size for i in ids)
            t.decode(ids, special=source.random() < 0.5)
        assert all(0 <= i < t.size for i in t.eog)


def test_texts_longer_than_positions_can_count(load):
    t, size = load(bpe_keys()), (1 << 28) + 1
    memory = native.alloc(size)
    with pytest.raises(InvalidInputError, match=f"text is too long; expected at most {1 << 28} bytes; found {size}"):
        t._words.encode(native.view(memory.address, size), True)
    memory.free()
