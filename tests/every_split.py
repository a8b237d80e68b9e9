"""Vocabularies that show every split of the texts in pretypes.json, as files for any row of pretypes and for unigrams.

Every run of up to LONGEST characters of a text is a token, and every way to cut it in two is a merge: merging then never stops
inside a word, so a word becomes one token, and a boundary that two engines put at different places gives different ids.

    letters    bytes spelled as letters, as byte-level vocabularies have it
    plain      UTF-8 with U+2581 for a space, and a token for each byte
    unigram    the same with pseudo-random scores, for tokenizer model "llama"
"""

import tempfile
import zlib
from functools import cache
from pathlib import Path

from gguf import GGUFWriter
from recorded_words import texts
from tiny import add_key, byte_letters

from reflex.tokenizer import pretypes

LONGEST = 12  # characters of a run that is a token
NORMAL, UNKNOWN, CONTROL, USER, BYTE = 1, 2, 3, 4, 6
SPECIALS = {"<|im_start|>": CONTROL, "<|im_end|>": CONTROL, "<|endoftext|>": CONTROL, "<tag>": USER, "<tag>>": USER}
WHOLE = "zyxwv"  # a token that no merges make
SPACE = "\u2581"
PRE = "tokenizer.ggml.pre"
UNIGRAM = {  # name of a row -> keys of its file
    "llama": {},
    "llama-without-space": {"tokenizer.ggml.add_space_prefix": False},
    "llama-of-phi-3": {"general.name": "Phi-3 mini"},
}


def kind_of(name):
    """The vocabulary of a row of pretypes.json."""
    if name in UNIGRAM:
        return "unigram"
    return "letters" if pretypes.rows()[name].byte_letters else "plain"


@cache
def runs():
    """Every run of 2 to LONGEST characters of a text, in an order that has nothing to do with the texts."""
    found = set()
    for text in texts().values():
        for first in range(len(text)):
            found |= {text[first:last] for last in range(first + 2, min(first + LONGEST, len(text)) + 1)}
    left_out = [WHOLE[:-1], *SPECIALS, "\0"]  # llama.cpp reads the strings of a file up to a zero
    kept = [run for run in found if not any(word in run for word in left_out)]
    return sorted(kept, key=lambda run: (zlib.crc32(run.encode()), run))


def merged(spell):
    """(tokens, merges) of all runs; `spell` turns a text into letters of the vocabulary. The bytes of a character come first."""
    tokens, merges = {}, {}
    for character in sorted({c for text in texts().values() for c in text}):
        word = spell(character)
        merges |= {(word[: n - 1], word[n - 1]): None for n in range(2, len(word) + 1)}
    for run in runs():
        merges |= {(spell(run[:n]), spell(run[n:])): None for n in range(1, len(run))}
    tokens = dict.fromkeys([left + right for left, right in merges] + [spell(WHOLE), spell(" " + WHOLE)])
    return list(tokens), list(merges)


@cache
def vocabulary(kind):
    """(tokens, their types, merges or scores)"""
    if kind == "letters":
        table = byte_letters()
        tokens, merges = merged(lambda text: "".join(map(table.__getitem__, text.encode())))
        tokens = table + tokens
        return [*tokens, *SPECIALS], [NORMAL] * len(tokens) + [*SPECIALS.values()], merges
    single = sorted({c for text in texts().values() for c in text} - {"\0"} | {SPACE})
    first = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    if kind == "plain":
        tokens, merges = merged(lambda text: text.replace(" ", SPACE))
        tokens = dict.fromkeys(single + tokens)
    else:
        short = [run.replace(" ", SPACE) for run in runs() if len(run) <= 4]
        tokens = dict.fromkeys([c for c in single if ord(c) < 0x3000] + short)
        merges = [0.0] * len(first) + [-float(zlib.crc32(token.encode()) % 1000) for token in tokens] + [0.0] * len(SPECIALS)
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * len(tokens) + [*SPECIALS.values()]
    return [*first, *tokens, *SPECIALS], types, merges


def write(path, name):
    """Writes the vocabulary of a row as a GGUF file; returns the path."""
    kind = kind_of(name)
    if kind == "unigram":
        return written(path, kind, UNIGRAM[name])
    path.write_bytes(template(kind) + len(name).to_bytes(8, "little") + name.encode() + bytes(64))
    return path


@cache
def template(kind):
    """A file's bytes up to the name of its pre-tokenizer, which is its last key."""
    with tempfile.TemporaryDirectory() as folder:
        data = written(Path(folder) / "words.gguf", kind, {PRE: "?"}).read_bytes()
    return data[: data.rindex(PRE.encode()) + len(PRE) + 4]  # behind the key and its type


def written(path, kind, more):
    """Writes a vocabulary and more keys behind it with the `gguf` package."""
    tokens, types, merges = vocabulary(kind)
    writer = GGUFWriter(str(path), "llama")
    writer.add_string("tokenizer.ggml.model", "llama" if kind == "unigram" else "gpt2")
    writer.add_array("tokenizer.ggml.tokens", tokens)
    writer.add_array("tokenizer.ggml.token_type", types)
    if kind == "unigram":
        writer.add_array("tokenizer.ggml.scores", merges)
    else:
        writer.add_array("tokenizer.ggml.merges", [f"{left} {right}" for left, right in merges])
    for key, value in more.items():
        add_key(writer, key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
