"""tests/pretypes.json: what llama.cpp and HF `tokenizers` make of tricky texts, for every pre-tokenizer.

`texts` says what each text is for. Per vocabulary of every_split.py, `ids` has the different answers to each text and `shown` the
different texts that come back from them. `rows` has one letter per text for pre-tokenizers that do the same: a is the first answer,
b the second; SAME: the text itself; ABORTS: llama.cpp ends the process.

    llama.cpp, shown    that program's ids, with control tokens parsed and none added, and the text it makes of them
    own rules           ids by `tokenizers` with the expressions of the model's own tokenizer.json, where llama.cpp approximates
                        them or does not know the name; this is then what we hold to

record_words.py makes the ids, from the texts in the file.
"""

import json
import string
from functools import cache
from pathlib import Path

FILE = Path(__file__).parent / "pretypes.json"
SAME, ABORTS = ".", "-"
LETTERS = string.ascii_letters


@cache
def record():
    return json.loads(FILE.read_text())


def texts():
    """{what a text is for: the text}"""
    return record()["texts"]


def row(name):
    """{engine: an answer per text, None where it aborts} of a pre-tokenizer."""
    for part in (part for key, part in record().items() if key != "texts"):
        for group, words in part["rows"].items():
            if name in group.split():
                return {key: decoded(word, part["shown" if key == "shown" else "ids"]) for key, word in words.items()}
    raise KeyError(f"{name} is not in {FILE.name}; run record_words.py")


def coded(answers, shelf):
    """One letter per answer; new answers are appended to their text's list on `shelf`."""
    letters = ""
    for (subject, text), answer in zip(texts().items(), answers, strict=True):
        if answer is None or answer == text:
            letters += ABORTS if answer is None else SAME
            continue
        known = shelf.setdefault(subject, [])
        if answer not in known:
            known.append(answer)
        letters += LETTERS[known.index(answer)]
    return letters


def decoded(letters, shelf):
    """The answers that `coded` made letters of."""
    pairs = zip(texts().items(), letters, strict=True)
    return [None if c == ABORTS else text if c == SAME else shelf[subject][LETTERS.index(c)] for (subject, text), c in pairs]
