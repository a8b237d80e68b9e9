"""Every pre-tokenizer against llama.cpp itself, through a vocabulary whose merges join any two ASCII characters of a word.

With such merges two different splittings give different tokens. The rows where llama.cpp approximates the model's own
expression are compared only on texts where the approximation holds, and are named here. The record of tricky texts, which
tests/pure/test_recorded_words.py reads, is made anew and compared here too.
"""

import random

import every_split
import pytest
from gguf import GGUFWriter
from recorded_words import row, texts

from reflex import tokenizer
from reflex.gguf import reader
from reflex.tokenizer import pretypes

llama_words = pytest.importorskip("llama_words", reason="xllamacpp is not installed")
record_words = pytest.importorskip("record_words", reason="tokenizers is not installed")

LETTERS = [*map(chr, range(33, 127)), "\u0120", "\u010a", "\u0109", "\u010d"]
# Digits grouped from the right: llama.cpp glues what precedes a run of digits to its first group.
GROUPED = {"groups_cased_triples", "marked_groups"}
# Capital letters: llama.cpp takes every letter for either case, in these rules beyond ASCII, in those everywhere.
ASCII_CASES = {"cased", "cased_triples"}
NO_CASES = {"groups_cased_triples", "han_cased_triples", "scripts_cased"}
PLAIN = [subject for subject in texts() if "special tokens" in subject or "of the user" in subject]  # when nothing is parsed
BYTES = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]


def spelled():
    others = iter(range(256, 512))
    return [chr(b) if b in BYTES else chr(next(others)) for b in range(256)]


def write(path, name):
    merges = [f"{a} {b}" for a in LETTERS for b in LETTERS]
    tokens = spelled() + [m.replace(" ", "") for m in merges]
    writer = GGUFWriter(str(path), "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(name)
    writer.add_token_list([t.encode() for t in tokens])
    writer.add_token_types([1] * len(tokens))
    writer.add_token_merges(merges)
    writer.add_add_bos_token(False)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def random_texts(rules):
    source = random.Random(rules)
    snippets = [
        "'s",
        "'LL",
        "'re",
        "can't",
        " the",
        "  ",
        "\r\n",
        "\n\n",
        " \n",
        "1234567",
        " 12",
        "(x)",
        "++",
        "a_b",
        "FooBar",
        "/",
        "\t",
        "   ",
    ]
    wide = ["\u4e2d\u6587", "\u3042", "\ud55c", "\u2026", "\uff0c", "\U0001f642"]
    wide += [] if rules in ASCII_CASES | NO_CASES else ["\u00e9"]
    wide += [] if rules == "groups" else ["\u0663"]  # there llama.cpp counts ASCII digits only
    for _ in range(150):
        text = "".join(
            source.choice([chr(source.randrange(32, 127)), source.choice(snippets), source.choice(wide)])
            for _ in range(source.randint(1, 25))
        )
        text = text.lower() if rules in NO_CASES else text
        yield "".join(c for c in text if not c.isdigit()) if rules in GROUPED else text


ONE_NAME_EACH = {row.rules: name for name, row in reversed(pretypes.rows().items()) if row.byte_letters}


@pytest.mark.parametrize("rules", sorted(ONE_NAME_EACH))
def test_splits_like_llama(rules, tmp_path):
    path = tmp_path / "words.gguf"
    write(path, ONE_NAME_EACH[rules])
    file = reader.open_model(str(path))
    ours, theirs = tokenizer.load(file), llama_words.Words(path)
    for text in random_texts(rules):
        assert ours.encode(text, False) == theirs.encode(text, False), repr(text)
    theirs.close()
    ours.close()
    file.close()


@pytest.mark.parametrize("name", record_words.names())
def test_recorded_answers_are_those_of_the_engines(name, tmp_path):
    answers, path = row(name), every_split.write(tmp_path / "words.gguf", name)
    own = record_words.by_own_rules(name)
    assert own == (answers.get("own rules") or answers["llama.cpp"] if own else None)
    if name in record_words.NEVER_IN_LLAMA:
        with pytest.raises(RuntimeError, match="refuses"):
            llama_words.Words(path)
        return
    assert record_words.by_llama(name, path) == {key: answers[key] for key in answers if key != "own rules"}
    file = reader.open_model(str(path))
    ours, theirs = tokenizer.load(file), llama_words.Words(path)
    for text in (texts()[subject] for subject in PLAIN if not record_words.aborts(name, texts()[subject])):
        assert ours.encode(text, False, False) == theirs.encode(text, False, False), text
    theirs.close()
    ours.close()
    file.close()


@pytest.mark.parametrize("name", sorted(set(pretypes.rows()) - set(record_words.NEVER_IN_LLAMA)))
def test_facts_of_a_name_like_llama(name, tmp_path):
    path = tmp_path / "words.gguf"
    writer = GGUFWriter(str(path), "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(name)
    tokens = [*spelled(), "abc", "ab", "b c", "\n\n\n", *(f"<0x{b:02X}>" for b in range(256)), "\u2581", "a ."]
    writer.add_token_list([t.encode() for t in tokens])
    writer.add_token_types([1] * len(tokens))
    writer.add_token_merges(["a b", "c d"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = reader.open_model(str(path))
    ours, theirs = tokenizer.load(file), llama_words.Words(path)
    assert (ours.add_bos, ours.add_eos) == (theirs.ask("get_add_bos"), theirs.ask("get_add_eos"))
    assert [ours.bos, ours.eos] == [None if i < 0 else i for i in (theirs.ask("bos"), theirs.ask("eos"))]
    for text in ("abc", "ab", " abc\n\n\nabc", "\u00e9 x"):
        ids = ours.encode(text)
        assert ids == theirs.encode(text), text
        if name != "whitespace":  # llama.cpp reads plain UTF-8 as letters that spell bytes when it shows such a token
            assert ours.decode(ids, clean=True) == theirs.decode(ids)
    theirs.close()
    ours.close()
    file.close()
