"""A long text in pieces has the tokens of the whole, and takes the memory of a piece."""

import random

import pytest
from test_pretypes import texts
from test_stem import LOCAL, WORDS
from vocabularies import MERGES, PIECES, SPECIALS, USER, bpe_keys, spm_keys

from reflex import native, tokenizer
from reflex.tokenizer import long, pretypes, stem, vocabulary

PRES = ["gpt-2", "llama3", "qwen2", "deepseek-v3", "gpt-4o", "tekken", "falcon"]


def pieces_of(monkeypatch, t, data, piece=700, **words):
    """(ids, bytes of what was encoded at once) where texts are cut that short."""
    taken = []
    inner = t._words.encode
    monkeypatch.setattr(tokenizer, "LONG", 0)
    monkeypatch.setattr(long, "PIECE", piece)
    monkeypatch.setattr(t._words, "encode", lambda data, *flags: taken.append(len(data)) or inner(data, *flags))
    ids = t.encode(data, **words)
    monkeypatch.undo()
    return ids, [size for size in taken if size > 50]  # without pairs of tokens


def prose(seed, words=400):
    """Plain words with any text among them."""
    source, odd = random.Random(seed), list(texts(seed, 20))
    return " ".join(source.choice(odd) if source.random() < 0.1 else source.choice(WORDS) for _ in range(words)).encode()


@pytest.mark.parametrize("pre", PRES)
def test_byte_level_texts(load, monkeypatch, pre):
    assert pretypes.rows()[pre].rules in LOCAL
    t = load(bpe_keys(pre, [*MERGES, "l o", "o \u0120", "h i"]))
    for seed in range(8):
        data = prose(f"{pre}{seed}")
        ids, sizes = pieces_of(monkeypatch, t, data)
        assert ids == t.encode(data) and len(sizes) > 2 and len(data) - 50 <= sum(sizes) <= len(data)


def test_unigram_texts(load, monkeypatch):
    t = load(spm_keys())
    for seed in range(8):
        data = prose(f"plain{seed}")
        for starts in (True, False):
            ids, sizes = pieces_of(monkeypatch, t, data, starts=starts)
            assert ids == t.encode(data, starts=starts) and len(sizes) > 2 and len(data) - 50 <= sum(sizes) <= len(data)


def test_a_token_over_a_border_takes_the_whole(load, monkeypatch):
    joined = [*PIECES, *((text, score, 1) for text, score in (("o", -2.0), ("w", -2.0), ("\u2581w", -3.0), ("o\u2581w", -1.5)))]
    t = load(spm_keys(joined))
    data = b" ".join([b"wo"] * 2000)
    ids, sizes = pieces_of(monkeypatch, t, data)
    assert ids == t.encode(data) and sizes[-1] == len(data) > sizes[0]


@pytest.mark.parametrize("special", ["of the", "hello ", "a b"])
def test_special_tokens_over_blanks_take_the_whole(load, monkeypatch, special):
    t = load(bpe_keys(specials=[*SPECIALS, (special, USER)]))
    data = b" ".join([b"hello world he", special.encode()] * 100)
    assert pieces_of(monkeypatch, t, data) == (t.encode(data), [len(data)])


def test_a_special_token_before_the_border(load, monkeypatch):
    t = load(bpe_keys(specials=[*SPECIALS, ("world", USER)]))
    data = b" ".join([b"hello world he hell quick"] * 100)
    assert pieces_of(monkeypatch, t, data)[0] == t.encode(data)


def test_texts_without_such_blanks_are_one_piece(load, monkeypatch):
    t = load(bpe_keys())
    for data in ("\u4e2d\u6587".encode() * 2000, b"x" * 9000, b"A B " * 2000, b" " * 9000):
        assert pieces_of(monkeypatch, t, data) == (t.encode(data), [len(data)])


def test_memory_is_that_of_a_piece(load, monkeypatch):
    """Counted: scratch for 4 MB of text, and objects of its tokens."""
    t, asked = load(bpe_keys()), []
    inner = native.alloc
    monkeypatch.setattr(native, "alloc", lambda size, *words: asked.append(size) or inner(size, *words))
    ids = t.encode(b"hello world he the quick " * 160_000)
    assert max(asked) <= vocabulary.KEEP_SCRATCH < 4 * 50 * 160_000
    assert len(ids) > 1_000_000 and len({id(token) for token in ids}) <= t.size
    assert stem.SEARCHED < long.PIECE < tokenizer.LONG
