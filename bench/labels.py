"""Labelled questions: files of JSON lines, each a prompt, its candidate answers and the right one.

    {"task": "capital", "prompt": "The capital of France is", "candidates": [" Nice", " Paris"], "answer": 1}
    {"task": "quiz", "prompt": "Which barks?\\n{options}\\nAnswer:", "options": ["a dog", "a cat"], "answer": 0}

`prompt` and `answer` (a number from 0, or the text itself) are always there; `task` groups lines, by default under the file's
name; `prior` is the prior text of this line. Either `candidates` are scored as they are, each a continuation that usually
begins with a blank; or `options` are listed where the prompt says {options}, one line each ("A. a dog"), so that their order
can be changed. Of options the letter is scored (" A"), or with `"scored": "text"` the option itself (" a dog").
Blank lines are skipped. Anything else is one error line that names file and line. Called by bench/decisions.py.
"""

import hashlib
import json
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

from reflex.errors import InputOutputError, InvalidInputError, closest

PLACE = "{options}"
KEYS = {"task": str, "prompt": str, "candidates": list, "options": list, "scored": str, "answer": (int, str), "prior": str}
SCORED = ("letter", "text")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
MOST_ORDERS = 24  # orders of one question


@dataclass(frozen=True)
class Item:
    """One labelled question."""

    task: str
    prompt: str
    texts: tuple[str, ...]  # candidates, or options
    answer: int  # index into texts
    listed: bool  # the texts are options that the prompt lists
    scored: str  # letter or text, where listed
    prior: str | None
    where: str  # file and line

    def orders(self, which):
        """Orders of the texts: `given` alone, `rotations` (each text once in each place) or `all`. Only a list has several."""
        places = range(len(self.texts))
        if not self.listed or which == "given":
            return [tuple(places)]
        if which == "rotations":
            return [tuple((place + turn) % len(places) for place in places) for turn in places]
        found = list(permutations(places))
        if len(found) > MOST_ORDERS:
            remedy = "use --orders rotations"
            raise InvalidInputError("too many orders of a question", f"at most {MOST_ORDERS}", len(found), self.where, remedy)
        return found

    def asked(self, order):
        """(prompt, candidates) with the texts in this order; place j holds text order[j]."""
        texts = [self.texts[index] for index in order]
        if not self.listed:
            return self.prompt, texts
        lines = "\n".join(f"{letter}. {text}" for letter, text in zip(LETTERS, texts, strict=False))
        candidates = [f" {letter}" for letter, _ in zip(LETTERS, texts, strict=False)] if self.scored == "letter" else None
        return self.prompt.replace(PLACE, lines), candidates or [f" {text}" for text in texts]


def read(path):
    """The Items of one file; InvalidInputError names the line that has no meaning."""
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise InputOutputError("cannot read the labelled file", found=error.strerror, where=str(path)) from None
    items = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            items.append(_item(line, f"{path} line {number}", Path(path).stem))
    if not items:
        raise InvalidInputError("the labelled file holds no questions", "one JSON object per line", where=str(path))
    return items


def identity(path, items):
    """What a results file says about a labelled file."""
    return {"file": Path(path).name, "n": len(items), "sha256": hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]}


def _item(line, where, stem):
    def refuse(message, expected, found, remedy=None):
        raise InvalidInputError(message, expected, found, where, remedy)

    try:
        row = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        refuse("the line is not UTF-8", "JSON text", repr(line[:20]))
    except (json.JSONDecodeError, RecursionError) as error:
        refuse("the line is not JSON", "one object", getattr(error, "msg", "too deep"))
    if not isinstance(row, dict):
        refuse("the line is not a JSON object", "{...}", type(row).__name__)
    for key, value in row.items():
        if key not in KEYS:
            refuse("unknown key", ", ".join(KEYS), repr(key), f"did you mean {closest(key, KEYS, 1)}?")
        if not isinstance(value, KEYS[key]) or isinstance(value, bool):
            refuse(f"{key} has the wrong type", _kind(KEYS[key]), type(value).__name__)
    for key in ("prompt", "answer"):
        if key not in row:
            refuse(f"{key} is missing", "a value", "none")
    if ("candidates" in row) == ("options" in row):
        refuse("which texts are scored is not clear", "either candidates or options", "both" if "options" in row else "neither")
    listed = "options" in row
    if listed != (PLACE in row["prompt"]):
        refuse("options and the prompt do not fit", f"options, and {PLACE} in the prompt", "only one of them")
    texts = row["options"] if listed else row["candidates"]
    if not all(isinstance(text, str) and text for text in texts):
        refuse("a candidate is no text", "texts of at least one character", json.dumps(texts)[:60])
    if not 2 <= len(texts) <= (len(LETTERS) if listed else 1000):
        refuse("a question needs a choice", "2 to 26 options or 1000 candidates", len(texts))
    if len(set(texts)) < len(texts):
        refuse("two candidates are the same", "different texts", json.dumps(texts)[:60])
    scored = row.get("scored", SCORED[0])
    if scored not in SCORED or ("scored" in row and not listed):
        refuse("scored has no meaning here", "letter or text, with options", repr(scored))
    answer = row["answer"]
    if isinstance(answer, str):
        answer = texts.index(answer) if answer in texts else -1
    if not 0 <= answer < len(texts):
        refuse("the answer is none of the texts", f"0 to {len(texts) - 1}, or one of them", repr(row["answer"]))
    return Item(row.get("task", stem), row["prompt"], tuple(texts), answer, listed, scored, row.get("prior"), where)


def _kind(types):
    return " or ".join(kind.__name__ for kind in (types if isinstance(types, tuple) else (types,)))
