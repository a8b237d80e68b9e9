"""Our tokenizer against tests/pretypes.json, where other engines' answers to tricky texts lie for every pre-tokenizer.

tests/model/test_pretypes_llama.py asks those engines again.
"""

import every_split
import pytest
from recorded_words import record, row, texts

from reflex import tokenizer
from reflex.gguf import reader
from reflex.tokenizer import pretypes

NAMES = [*pretypes.rows(), *every_split.UNIGRAM]
# Where llama.cpp approximates the expressions of a model's own tokenizer.json, and the texts in which that shows.
TABLES = {"letters of Unicode 15 and 16"}  # its tables of letters are older
FOLDING = {"contractions by case folding"}  # a long s is no s
MARKS = {"Latin with combining marks", "marks in a heap", "Hebrew with points", "Arabic with marks", "Devanagari and Tamil"}
MARKS |= {"Thai", "Lao, Khmer, Burmese"}  # marks belong to no word
CASES = {"Latin with accents", "title case letters", "scripts without spaces between"}  # beyond ASCII a letter is of either case
NO_CASES = {"capitals inside words", "letters that modify", "scripts without spaces between", "a long word of capitals"}  # any is
NO_CASES |= {"Latin with combining marks"}
SPACES = {"spaces of Unicode", "lines of Unicode"}  # they are in no range of characters
HAN = {"numbers that are no digits", "rare Chinese", "Japanese with Latin and digits"}  # ideographs of the common blocks only
GROUPS = {"digits glued to letters", "digits after spaces", "digits of two scripts in a run", "Japanese with Latin and digits"}
ASCII_DIGITS = {"digits of other scripts", "digits of two scripts in a run", "numbers that are no digits"}
WORDS_APART = {"digits after spaces", "Bopomofo and Yi", "private and unassigned"}  # what stands before a run of digits is cut up
APPROXIMATED = {  # by key of rules.RULES; the others: TABLES
    "cased_latin": SPACES,
    "letters_marks": SPACES,
    "scripts_cased": TABLES | FOLDING | NO_CASES,
    "cased": TABLES | MARKS | CASES,
    "cased_triples": TABLES | FOLDING | MARKS | CASES,
    "groups_cased_triples": TABLES | FOLDING | NO_CASES | GROUPS,
    "han_cased_triples": TABLES | FOLDING | NO_CASES | MARKS | HAN,
    "groups": ASCII_DIGITS,
    "marked_groups": TABLES | WORDS_APART,
    "spaced_letters": TABLES | FOLDING,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("words")


@pytest.mark.parametrize("name", NAMES)
def test_ids_and_texts_are_those_of_the_record(name, folder):
    answers = row(name)
    ids = answers.get("own rules") or answers["llama.cpp"]
    file = reader.open_model(str(every_split.write(folder / "words.gguf", name)))
    ours = tokenizer.load(file)
    for (subject, text), wanted in zip(texts().items(), ids, strict=True):
        found = ours.encode(text, False)
        assert found == wanted, subject
        if ours.algorithm == "bpe" and not ours._row.space_words:
            back = text.replace(every_split.SPACE, " ") if ours._row.escape_spaces else text
            assert ours.decode(found) == back.encode(), subject
    for (subject, _), seen, shown in zip(texts().items(), answers.get("llama.cpp", ()), answers.get("shown", ()), strict=False):
        assert ours.decode(seen, clean=True) == shown.encode(), subject
    ours.close()
    file.close()


def test_the_record_is_what_it_should_be():
    assert len(texts()) > 80 and len(set(texts().values())) == len(texts())
    rows = [name for part in record().values() for group in part.get("rows", ()) for name in group.split()]
    assert sorted(rows) == sorted(NAMES)
    assert all("own rules" in row(name) or "llama.cpp" in row(name) for name in NAMES)


def test_every_split_shows():
    """Where the expressions of two names differ, so do the ids of some text."""
    found = {}
    for name, facts in pretypes.rows().items():
        answers = row(name)
        found.setdefault(str(answers.get("own rules") or answers["llama.cpp"]), set()).add((facts.rules, facts.byte_letters))
    alike = [sorted(rules for rules, _ in group) for group in found.values() if len(group) > 1]
    assert alike == [["single_break", "singles"]]  # white space before a line break takes the breaks before the last one too


def test_llama_cpp_differs_from_the_rules_where_we_say():
    found = {}
    for name, facts in pretypes.rows().items():
        answers = row(name)
        if len(answers) == 3:
            pairs = zip(texts(), answers["llama.cpp"], answers["own rules"], strict=True)
            found.setdefault(facts.rules, set()).update(subject for subject, a, b in pairs if a != b and a is not None)
    found = {rules: differing for rules, differing in found.items() if differing}
    assert found == {rules: APPROXIMATED.get(rules, TABLES) for rules in found}
    assert set(APPROXIMATED) <= set(found)
