"""Makes the ids of tests/pretypes.json again, from the texts in it: `python tests/record_words.py`. See recorded_words.py."""

import json
import re
import sys
import tempfile
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import every_split
import tokenizers
from every_split import CONTROL, SPECIALS, UNIGRAM, kind_of, vocabulary
from llama_words import Words
from recorded_words import FILE, coded, texts

from reflex.tokenizer import pretypes
from reflex.tokenizer.rules import RULES

NEVER_IN_LLAMA = ("kolibri1",)
NEVER_SHOWN = ("whitespace",)  # llama.cpp shows these tokens as if their letters spelled bytes
WRITTEN_OUT = {  # published expressions of names that no other engine checks ours of
    "kolibri1": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
}


def names():
    """Every row of the record."""
    return [*pretypes.rows(), *UNIGRAM]


def aborts(name, text):
    """Where llama.cpp ends the process: it looks for a merge of a space and its neighbour, and none can hold a space."""
    return name == "whitespace" and re.search(r" \s|\s ", text) is not None


def by_llama(name, path):
    """{"llama.cpp": ids per text, "shown": what they give back}, by a file that every_split wrote."""
    words = Words(path)
    try:
        ids = [None if aborts(name, text) else words.encode(text, False) for text in texts().values()]
        if name in NEVER_SHOWN:
            return {"llama.cpp": ids}
        return {"llama.cpp": ids, "shown": [words.decode(answer).decode() for answer in ids]}
    finally:
        words.close()


def by_own_rules(name):
    """Ids per text by the rules of the model's own tokenizer.json; None for rows whose rules are more than expressions."""
    row = pretypes.rows().get(name)
    if row is None or row.escape_spaces:
        return None
    return by_expressions(WRITTEN_OUT.get(name, RULES[row.rules]), row.ignore_merges, row.byte_letters)


@cache
def by_expressions(expressions, ignore_merges, byte_letters):
    """Ids per text by `tokenizers`, splitting by expressions one after the other."""
    tokens, _, merges = vocabulary("letters" if byte_letters else "plain")
    ids = {token: i for i, token in enumerate(tokens)}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(ids, merges, ignore_merges=ignore_merges, byte_fallback=not byte_letters))
    levels = [tokenizers.pre_tokenizers.Split(tokenizers.Regex(expression), "isolated") for expression in expressions]
    if byte_letters:
        levels.append(tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(levels)
    for token, kind in SPECIALS.items():
        added = tokenizers.AddedToken(token, special=kind == CONTROL, normalized=False)
        (made.add_special_tokens if kind == CONTROL else made.add_tokens)([added])
    return [made.encode(text, add_special_tokens=False).ids for text in texts().values()]


def made(folder):
    """The whole record but its texts; `folder` is for files."""
    parts = {}
    for name in names():
        part = parts.setdefault(kind_of(name), {"ids": {}, "shown": {}, "rows": {}})
        answers = {} if name in NEVER_IN_LLAMA else by_llama(name, every_split.write(Path(folder) / "words.gguf", name))
        own = by_own_rules(name)
        if own and own != answers.get("llama.cpp"):
            answers["own rules"] = own
        words = {key: coded(found, part["shown" if key == "shown" else "ids"]) for key, found in answers.items()}
        part["rows"].setdefault(json.dumps(words), []).append(name)
    for part in parts.values():
        part["rows"] = {" ".join(alike): json.loads(words) for words, alike in part["rows"].items()}
    return parts


def main():
    with tempfile.TemporaryDirectory() as folder:
        record = {"texts": texts(), **made(folder)}
    text = json.dumps(record, indent=0)
    FILE.write_text(re.sub(r"\[[-\d,\s]*\]", lambda found: re.sub(r"\s+", "", found[0]), text) + "\n")


if __name__ == "__main__":
    main()
