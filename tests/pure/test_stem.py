"""A prompt cut in two: no continuation changes a token before the cut, so that many texts can share it."""

import random

import pytest
from test_pretypes import SNIPPETS, Pieces, alphabet, texts
from vocabularies import MERGES, PIECES, SPECIALS, USER, bpe_keys, spm_keys

from reflex.tokenizer import pretypes, stem
from reflex.tokenizer.rules import RULES

LOCAL = sorted(set(RULES) - set(stem.SPANNING))
WORDS = ["hello", "world", "he", "the", "hell", "quick", "or", "ld"]


def prompts(seed, count=60):
    """Any text, then plain words, then perhaps more of any text."""
    source = random.Random(seed)
    heads = list(texts(seed, count))
    for head in heads:
        words = " ".join(source.choices(WORDS, k=source.randint(5, 8)))
        end = source.choice(["", "", " ", "  ", "\n", ".", "'", "'l", " (", "1", "12", "A", "é", "\u4e2d", "e\u0301", "<", "<|im"])
        yield f"{head}{source.choice(WORDS)} {words}{end}"


def tails(seed, count=12):
    source = random.Random(seed)
    ends = ["s", "ll", "'ll", " ", "  x", "\n", "34", "5678", "Z", "\u0301", "_end|>", "tag>", ")", "", *SNIPPETS]
    return [*texts(seed, count), *source.sample(ends, 8), "".join(source.choices(alphabet(), k=5))]


@pytest.mark.parametrize("rules", LOCAL)
def test_no_continuation_moves_a_word_over_the_cut(rules):
    split = Pieces()
    program = split.library.address(f"split_{rules}")
    for number, prompt in enumerate(prompts(rules)):
        at = stem.cut(prompt.encode())
        assert at
        place = len(prompt.encode()[:at].decode())
        before = split.ends(program, prompt[:place])
        for tail in tails(number):
            ends = split.ends(program, prompt + tail)
            assert [end for end in ends if end <= place] == before, (prompt, tail)
            assert [end - place for end in ends if end > place] == split.ends(program, prompt[place:] + tail)


@pytest.mark.parametrize("rules", stem.SPANNING)
def test_splitters_that_reach_over_blanks_are_not_cut(rules):
    split = Pieces()
    program = split.library.address(f"split_{rules}")
    assert any(stem.cut(p.encode()) not in split.ends(program, p) for p in (f"{w} hello world hello" for w in WORDS))


def same(t, seed, count=40):
    cut = 0
    for number, prompt in enumerate(prompts(seed, count)):
        data = prompt.encode()
        made = t.stem(data, t.encode)
        cut += made is not None
        for tail in tails(number) if made else ():
            assert made.encode(tail.encode()) == t.encode(data + tail.encode()), (prompt, tail)
    return cut


@pytest.mark.parametrize("pre", ["gpt-2", "llama3", "qwen2", "default", "deepseek-v3", "gpt-4o", "tekken", "falcon", "superbpe"])
def test_byte_level_texts_have_the_tokens_of_the_whole(load, pre):
    t = load(bpe_keys(pre, [*MERGES, "l o", "o \u0120", "h i"]))
    cut = same(t, pre)
    assert cut == (0 if pretypes.rows()[pre].rules in stem.SPANNING else 40)


def test_unigram_texts_have_the_tokens_of_the_whole(load):
    assert same(load(spm_keys()), "plain") == 40


def test_unigram_tokens_that_reach_over_the_cut_are_found(load):
    """`o▁w` is a token and `▁w` a worse one: hello world has no border at the blank, whatever the words."""
    joined = [*PIECES, *((text, score, 1) for text, score in (("o", -2.0), ("w", -2.0), ("\u2581w", -3.0), ("o\u2581w", -1.5)))]
    t = load(spm_keys(joined))
    text = b"hello hello world hello world"
    assert stem.cut(b"hello" + text[5:]) and b"o w" in b"".join(map(t.piece, t.encode(text)))
    same(t, "joined")
    assert stem.of(t, b"hello world hello world", t.encode) is None, "the only cut goes through a token"


def test_the_pair_at_the_cut_is_asked_for_each_first_token(load):
    """`▁hell` + `o` after the cut is fine; a tail that makes `▁he` of it meets a token that ends the head."""
    t = load(spm_keys([*PIECES, ("o", -2.0, 1), ("r", -2.0, 1), ("or", -2.1, 1)]))
    made = t.stem(b"or hello hello hell", t.encode)
    assert made.encode(b"o") == t.encode(b"or hello hello hello")
    made._good = dict.fromkeys(range(t.size), False)
    assert made.encode(b"o") == t.encode(b"or hello hello hello"), "where the pair does not fit, the whole text is tokenized"


def test_vocabularies_with_words_in_a_special_token_are_not_cut(load):
    prompt = b"hello hello world hello world"
    for extra, cut in (([], True), ([("of the", USER)], False), ([("  ", USER), ("- x", USER)], True)):
        t = load(bpe_keys(specials=[*SPECIALS, *extra]))
        assert (t.stem(prompt, t.encode) is not None) == cut


@pytest.mark.parametrize(
    ("prompt", "head"),
    [
        (b"the quick brown fox", b"the"),
        (b"it is the quick brown fox jumps", b"it is the quick"),
        (b"a the quick brown", b"a"),
        (b"the quick brown fo x", b"the"),
        (b"the quick brown fox.", b""),
        (b"one the quick brown fox. Next", b"one"),
        (b"The Quick Brown Fox", b""),
        (b"x1 the quick brown", b""),
        (b"don't the quick brown", b""),
        (b"the  quick brown fox", b""),
        (b"the quick brown", b""),
        (b" the quick brown", b""),
        (b"", b""),
        ("é the quick brown".encode(), b""),
        (b"the " + b"x" * 16 + b" quick brown", b""),
        (b"the quick brown fox" + b" A" * 2000, b""),
    ],
)
def test_where_a_prompt_is_cut(prompt, head):
    assert prompt[: stem.cut(prompt)] == head
