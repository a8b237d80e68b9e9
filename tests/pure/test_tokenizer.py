"""The tokenizer on vocabularies made here, small enough to know the right ids by hand."""

import random
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from vocabularies import BYTE, CONTROL, IDS, MERGES, NORMAL, PIECES, SPECIALS, USER, K, bpe_keys, letters, spm_keys

from reflex.errors import InvalidInputError

# ---- byte-level merges -----------------------------------------------------------------------------------


def names(t, ids):
    return [t.token_bytes(i).decode() for i in ids]


def test_merges_apply_by_rank_inside_words(load):
    t = load(bpe_keys())
    assert names(t, t.encode("hello world")) == ["hello", "\u0120world"]
    assert names(t, t.encode("hell yes")) == ["hell", "\u0120", "y", "e", "s"]
    assert names(t, t.encode("  hello")) == ["\u0120", "\u0120", "hello"]


def merged(word, ranks):
    """Byte-pair merging by its definition: the best rank anywhere, leftmost first, until none applies."""
    parts = list(word)
    while True:
        ranked = [(ranks[(a, b)], i) for i, (a, b) in enumerate(pairwise(parts)) if (a, b) in ranks]
        if not ranked:
            return parts
        _, i = min(ranked)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


@pytest.mark.parametrize("length", [1, 2, 7, 39, 40, 41, 42, 200])
def test_merging_equals_its_definition_at_every_length(load, length):
    source = random.Random(length)
    merges = ["a b", "b a", "ab a", "a a", "aa b", "ab ab", "aba ba", "b b", "bb a", "aab b"]
    t = load(bpe_keys(joins=merges))
    ranks = {tuple(m.split(" ")): i for i, m in enumerate(merges)}
    for _ in range(40):
        word = "".join(source.choice("aab") for _ in range(length))
        assert names(t, t.encode(word)) == merged(word, ranks)


def test_tokens_in_another_order_than_the_merges(load):
    """Where the tokens do not repeat the merges one by one, the merges have a table of their own."""
    merges = ["a b", "b a", "ab a", "a a", "aa b", "ab ab", "aba ba", "b b", "bb a", "aab b"]
    tokens = letters() + [m.replace(" ", "") for m in reversed(merges)] + [name for name, _ in SPECIALS]
    t = load(bpe_keys(joins=merges, tokens=("array", ("string", tokens))))
    ranks = {tuple(m.split(" ")): i for i, m in enumerate(merges)}
    source = random.Random(1)
    for length in range(1, 60):
        word = "".join(source.choice("aab") for _ in range(length))
        assert names(t, t.encode(word)) == merged(word, ranks)


def test_first_of_equal_merges_and_last_of_equal_tokens_count(load):
    merges = ["a b", "b c", "a b"]
    t = load(bpe_keys(joins=merges))
    assert names(t, t.encode("abc")) == ["ab", "c"]
    assert t.encode("ab") == [258]  # "ab" is token 256 and token 258


def test_long_word_is_exact_and_fast(load):
    t = load(bpe_keys())
    assert len(t.encode("hello" * 40_000)) == 40_000
    assert t.decode(t.encode(" " * 100_001)) == b" " * 100_001


def test_ignore_merges_takes_the_whole_word(load):
    specials = [*SPECIALS, ("xyz", NORMAL)]
    plain, whole = load(bpe_keys("gpt-2", specials=specials)), load(bpe_keys("llama-bpe", specials=specials))
    assert names(plain, plain.encode("xyz")) == ["x", "y", "z"]
    assert names(whole, whole.encode("xyz", add_special=False)) == ["xyz"]


def test_any_bytes_encode_and_valid_text_comes_back(load):
    t = load(bpe_keys())
    source = random.Random(1)
    for _ in range(300):
        data = bytes(source.randrange(256) for _ in range(source.randrange(40)))
        ids = t.encode(data, parse_special=False)
        assert t.decode(ids) == data.decode("utf-8", "surrogatepass").encode("utf-8", "surrogatepass") if valid(data) else True
        assert all(0 <= i < t.size for i in ids)
    for text in ("", "\x00\x00a\x00", "\U0010ffff\ufffe", "e\u0301 \u4e2d", "hello\r\n\r\n  world\t"):
        assert t.decode(t.encode(text)) == text.encode()
    assert t.encode("\ud800") == t.encode(b"\xed\xa0\x80")


def valid(data):
    try:
        return bool(data.decode() or True)
    except UnicodeDecodeError:
        return False


def test_invalid_bytes_become_replacement_characters(load):
    t = load(bpe_keys())
    assert t.decode(t.encode(b"a\xffb\xc3")) == "a\ufffdb\ufffd".encode()


def test_empty_text(load):
    t = load(bpe_keys())
    assert t.encode("") == [] and t.encode("", add_special=False) == [] and t.decode([]) == b""


# ---- special tokens --------------------------------------------------------------------------------------


def test_control_tokens_only_when_parsed_and_user_tokens_always(load):
    t = load(bpe_keys())
    end, tag = t.size - len(SPECIALS) + 1, t.size - len(SPECIALS) + 2
    assert t.encode("a<|im_end|>b") == [ord("a"), end, ord("b")]
    assert end not in t.encode("a<|im_end|>b", parse_special=False)
    assert t.encode("<tag>", parse_special=False) == [tag]
    assert t.decode(t.encode("a<|im_end|>b", parse_special=False)) == b"a<|im_end|>b"


def test_longest_special_token_wins_and_unused_is_text(load):
    t = load(bpe_keys())
    tag = t.size - len(SPECIALS) + 2
    assert t.encode("<tag>><tag>") == [tag + 1, tag]
    assert t.size - 2 not in t.encode("<unused>")
    assert t.encode("\u00e9\u00e9!\u00e9\u00e9!") == [t.size - 1] * 2


def test_special_tokens_equal_their_definition(load):
    specials = [("ab", USER), ("abc", CONTROL), ("c", USER), ("bcd", USER), ("dddd", USER), ("a", CONTROL)]
    t = load(bpe_keys(joins=[], specials=specials))
    order = sorted(range(len(specials)), key=lambda i: -len(specials[i][0]))

    def cut(text):
        parts = [text]
        for i in order:
            name, finer = specials[i][0], []
            for part in parts:
                if isinstance(part, int):
                    finer.append(part)
                    continue
                pieces = part.split(name)
                for k, piece in enumerate(pieces):
                    finer += ([256 + i] if k else []) + ([piece] if piece else [])
            parts = finer
        return [x for p in parts for x in ([p] if isinstance(p, int) else [ord(c) for c in p])]

    source = random.Random(2)
    for _ in range(400):
        text = "".join(source.choice("abcdx") for _ in range(source.randrange(1, 25)))
        assert t.encode(text) == cut(text), text


def test_piece_and_kinds(load):
    t = load(bpe_keys())
    end, tag, unused = t.size - 5, t.size - 4, t.size - 2
    assert t.piece(end) == b"<|im_end|>" and t.piece(end, special=False) == b""
    assert t.piece(tag, special=False) == b"<tag>" and t.piece(unused) == b""
    assert t.is_control(end) and not t.is_control(tag) and t.is_special(tag) and not t.is_special(5)
    assert t.token_bytes(256) == b"he" and t.piece(260) == b" w"
    for wrong in (-1, t.size):
        with pytest.raises(InvalidInputError, match="out of range"):
            t.piece(wrong)


def test_decoding_needs_no_look_up_table(load, monkeypatch):
    t = load(bpe_keys())
    monkeypatch.setattr(type(t._words), "_table", lambda self: pytest.fail("a look-up table was built"))
    assert t.decode([259, 264]) == b"hello world"
    assert t.piece(t.size - 5, special=False) == b""


def test_forced_types_are_the_same_before_and_after_the_table(load):
    specials = [
        ("<|im_end|>", NORMAL),
        ("<|end|>", NORMAL),
        ("<|call|>", NORMAL),
        ("<|return|>", NORMAL),
        ("<|channel|>", CONTROL),
        ("</s>", NORMAL),
    ]
    specials += [("<fim_prefix>", NORMAL), ("<|file_sep|>", NORMAL)]
    before, after = load(bpe_keys(specials=specials)), load(bpe_keys(specials=specials))
    after.encode("x")
    for token in range(before.size):
        assert before._words.type(token) == after._words.type(token), before.token_bytes(token)
    first = before.size - len(specials)
    assert before.is_control(first) and not before.is_control(first + 1) and not before.is_control(first + 4)
    assert before.is_control(first + 6)
    assert after.eog == {first, first + 2, first + 3, first + 5, first + 7}


def test_end_of_generation_from_keys_and_texts(load):
    t = load(bpe_keys())
    first = t.size - len(SPECIALS)
    assert t.eog == {first, first + 1} and t.eos == first and t.eot == first + 1
    keyed = load(
        bpe_keys(extra=[(K + "eot_token_id", "u32", 7), (K + "eom_token_id", "u32", 8), (K + "prefix_token_id", "u32", 9)])
    )
    assert keyed.eot == 7 and keyed.eog == {first, first + 1, 7, 8}


def test_padding_ends_where_the_name_says_so(load):
    ends = {pre: load(bpe_keys(pre, padding_token_id=("u32", 7))).eog for pre in ("qwen2", "kolibri1")}
    assert ends["kolibri1"] == ends["qwen2"] | {7} != ends["qwen2"]
    assert load(bpe_keys("kolibri1")).eog == ends["qwen2"]


@pytest.mark.parametrize(
    ("pre", "keys", "bos", "eos"),
    [
        ("llama-bpe", {}, True, False),
        ("llama-bpe", {"add_bos_token": ("bool", False)}, False, False),
        ("gpt-2", {}, False, False),
        ("gpt-2", {"add_bos_token": ("bool", True), "add_eos_token": ("bool", True)}, True, True),
        ("tekken", {}, True, False),
    ],
)
def test_begin_and_end_tokens(load, pre, keys, bos, eos):
    t = load(bpe_keys(pre, **keys))
    assert (t.add_bos, t.add_eos) == (bos, eos)
    inner = t.encode("hello", add_special=False)
    assert t.encode("hello") == [t.bos] * bos + inner + [t.eos] * eos


def test_default_bos_of_the_name(load):
    assert load(bpe_keys("gpt-2", bos_token_id=None)).bos == 11
    assert load(bpe_keys("glm4", bos_token_id=None)).bos is None


def test_plain_utf8_merges_with_escaped_spaces_and_whole_lines(load):
    tokens = [*(f"<0x{b:02X}>" for b in range(256)), "\u2581", "a", "b", "\u2581a", "\n", "\n\n", "\n\n\n"]
    keys = bpe_keys(
        "gemma4",
        model=("string", "gemma4"),
        tokens=("array", ("string", tokens)),
        token_type=("array", ("i32", [BYTE] * 256 + [NORMAL] * 7)),
        merges=("array", ("string", ["\u2581 a", "\n \n"])),
        bos_token_id=("u32", 1),
        eos_token_id=("u32", 2),
    )
    t = load(keys)
    assert t.encode(" a b\n\n\na\u00e9", add_special=False) == [259, 256, 258, 262, 257, 0xC3, 0xA9]
    assert t.add_bos and t.decode([259, 256, 258, 0xC3, 0xA9]) == " a b\u00e9".encode()


def test_every_line_may_start_with_a_space_and_masks_swallow_it(load):
    tokens = [*(f"<0x{b:02X}>" for b in range(256)), "\u2581", "a", "\u2581a", "\n\n", "<mask>"]
    keys = bpe_keys(
        "mmbert",
        tokens=("array", ("string", tokens)),
        token_type=("array", ("i32", [BYTE] * 256 + [NORMAL] * 4 + [CONTROL])),
        merges=("array", ("string", ["\u2581 a", "\n \n"])),
        bos_token_id=("u32", 1),
        eos_token_id=("u32", 2),
    )
    t = load(keys)
    assert t.encode("a a  a\n\na", add_special=False) == [258, 258, 256, 258, 259, 258]
    assert t.encode("a \t <mask> a", add_special=False) == [258, 260, 258]
    assert t.encode(" <mask>", add_special=False) == [260]


# ---- unigrams --------------------------------------------------------------------------------------------


def test_unigrams_merge_by_score_with_space_prefix(load):
    t = load(spm_keys())
    assert (t.bos, t.eos, t.add_bos, t.add_eos) == (1, 2, True, False)
    assert t.encode("he") == [1, IDS["\u2581he"]]
    assert t.encode("hell", add_special=False) == [IDS["\u2581"], IDS["hell"]]  # "hell" scores above "_he"


def test_unigram_byte_fallback_and_unknown(load):
    t = load(spm_keys())
    assert t.encode("\u00e9\x00", add_special=False) == [IDS["\u2581"], 3 + 0xC3, 3 + 0xA9, 3]
    assert t.encode(b"\xff", add_special=False) == [IDS["\u2581"], 3 + 0xFF]
    bare = [p for p in PIECES if p[2] != BYTE]
    assert load(spm_keys(bare)).encode("z", add_special=False) == [3, 0]


def test_unigram_space_prefix_after_special_tokens(load):
    t = load(spm_keys())
    he, tag = IDS["\u2581he"], IDS["<tag>"]
    assert t.encode("he<tag>he", add_special=False) == [he, tag, he]
    plain = load(spm_keys(add_space_prefix=("bool", False)))
    assert plain.encode("he", add_special=False) == [IDS["he"]]


def test_text_behind_other_text_gets_no_space_in_front(load):
    t = load(spm_keys())
    he, tag = IDS["\u2581he"], IDS["<tag>"]
    assert t.encode("he", add_special=False, starts=False) == [IDS["he"]]
    assert t.encode(" he", add_special=False, starts=False) == [he]
    assert t.encode("he<tag>he", add_special=False, starts=False) == [IDS["he"], tag, he], "only where the text begins"
    assert t.encode("<tag>he", add_special=False, starts=False) == [tag, he]
    assert t.decode([he, *t.encode(" he", add_special=False, starts=False)]) == b"he he"
    assert t.encode("</s>", add_special=False, parse_special=False, starts=False) != [t.eos]
    assert t.encode("</s>", add_special=False, starts=False) == [t.eos]


def test_unigram_decoding_gives_the_first_space_up(load):
    t = load(spm_keys())
    he = IDS["\u2581he"]
    assert t.decode([he, he]) == b"he he"
    assert t.decode([1, he]) == b"<s> he" and t.decode([1, he], special=False) == b" he"
    assert t.decode([3 + 0xC3, 3 + 0xA9]) == "\u00e9".encode()
    for text in ("he he", "  hell", "x\u00e9 y", "h<tag>e"):
        assert t.decode(t.encode(text, add_special=False)) == text.encode().replace(b"<tag>e", b"<tag> e")


def test_white_space_after_special_tokens_where_the_model_swallows_it(load):
    keys = spm_keys()
    t = load([*keys, ("general.name", "string", "Phi-3 mini")])
    assert t.encode("<tag> \n he", add_special=False) == [IDS["<tag>"], IDS["\u2581he"]]
    assert len(load(keys).encode("<tag> \n he", add_special=False)) == 4


def test_scores_may_be_integers_or_missing(load):
    whole = load(spm_keys(scores=("array", ("i32", [int(4 * p[1]) for p in PIECES]))))
    assert whole.encode("hell") == load(spm_keys()).encode("hell")
    assert load(spm_keys(scores=None)).encode("hell", add_special=False)


# ---- streams ---------------------------------------------------------------------------------------------


def test_stream_holds_partial_characters_back(load):
    t = load(bpe_keys())
    text = "a\u00e9\U0001f642b"
    stream = t.stream()
    out = [stream.feed(i) for i in t.encode(text)]
    assert "".join(out) == text and out[1] == "" and stream.finish() == ""
    for cut in range(1, len(text.encode())):
        stream = t.stream()
        shown = "".join(stream.feed(i) for i in t.encode(text)[:cut]) + stream.finish()
        assert shown == text.encode()[:cut].decode("utf-8", "replace")


def test_a_file_that_may_come_without_merges_merges_nothing(load):
    with_none, without = load(bpe_keys("kimi-k2", joins=())), load(bpe_keys("kimi-k2", joins=(), merges=None))
    for text in (b" world", b"a", b"hello hello", b"\0\x80\xf0\x9f\xc3 world\xe2\x96\x81"):
        assert without.encode(text) == with_none.encode(text)


def test_a_token_that_spells_the_replacement_character_stays_itself(load):
    """U+FFFD is a character like any other where a vocabulary has it; only bytes that are no text become it."""
    mark = "\ufffd"
    one, two, three = (letters()[b] for b in mark.encode())
    pair, triple = f"{one} {two}", f"{one}{two} {three}"
    for keys in (
        bpe_keys(joins=[*MERGES, pair, triple]),
        bpe_keys(specials=[*SPECIALS, (mark, USER)]),
        spm_keys(pieces=[*PIECES, (mark, -1.0, NORMAL)]),
    ):
        t = load(keys)
        ids = [i for i in range(t.size) if t.decode([i]) == mark.encode()]
        assert len(ids) == 1 and ids[0] in t.encode(f"he{mark}he")
        text = f"he{mark}{mark}he"
        found = t.encode(text, add_special=False)
        assert t.decode(found).decode().lstrip() == text and found.count(ids[0]) == 2
        stream = t.stream()
        assert ("".join([stream.feed(i) for i in found]) + stream.finish()).lstrip() == text
        stream = t.stream()
        assert stream.feed(ids[0]) == mark and stream.finish() == ""


def test_stream_hides_control_tokens_and_repairs_bad_bytes(load):
    t = load(bpe_keys())
    stream = t.stream()
    assert stream.feed(t.size - 5) == "" and stream.feed(0xFF) == "\ufffd"
    assert t.stream().finish() == ""


def test_threads_share_a_tokenizer(load):
    t = load(bpe_keys())
    texts = ["hello world " * n for n in range(1, 60)]
    expected = [load(bpe_keys()).encode(text) for text in texts]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            assert list(pool.map(t.encode, texts)) == expected
