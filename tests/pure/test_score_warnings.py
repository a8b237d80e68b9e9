"""What may surprise in a scored decision is said, in few short lines; what is hostile neither crashes nor is guessed."""

import math
from random import Random

import pytest
from fakes import FakePlan, FakeTokenizer, session

from reflex.errors import InvalidInputError
from reflex.rules import RULES
from reflex.score import score
from reflex.session import Session

PROMPT = "The capital of France is"


def warnings(candidates, prompt=PROMPT, **options):
    return score(session(context=4000), prompt, candidates, **options).warnings


def test_nothing_is_said_where_nothing_surprises():
    assert warnings([" Paris", " is"]) == ()
    assert warnings([" Paris", "!?"], rule="mean") == ()
    assert warnings([" Paris"]) == ()
    assert warnings([" Paris", " the"], rule="pmi") == ()
    assert warnings([" Paris", " the"], terminator="</s>") == (), "the terminator's own token is no surprise"


def test_duplicates():
    assert warnings([" Paris", " is", " Paris"]) == (
        "candidates 0 and 2 are the same tokens: each takes its share of the probability",
    )


def test_a_strict_prefix_as_tokens():
    notes = warnings([" Paris", " Paris, France", " Lon"], rule="mean")
    assert notes == (
        "candidate 0 is a prefix of candidate 1: its score includes every continuation, a terminator would exclude them",
    )
    assert warnings([" Paris", " Paris, France"], rule="mean", terminator="\n") == (
        "candidate 0 is a prefix of candidate 1 as text but not as tokens: their scores do not overlap",
    )


def test_every_candidate_that_starts_with_another_is_named():
    (note,) = warnings(["x", "xa", "xc", "xcc"], rule="mean")
    assert note.startswith("candidate 0 is a prefix of candidate 1, 0 is a prefix of candidate 2, 2 is a prefix of candidate 3:")


def test_a_prefix_that_is_one_only_as_text():
    assert warnings(["a", "ab", "is"], rule="mean") == (
        "candidate 0 is a prefix of candidate 1 as text but not as tokens: their scores do not overlap",
    )


def test_the_same_first_token_is_no_concern():
    """All tokens are scored, so candidates may begin alike."""
    assert warnings([" the Paris", " the Lon"], rule="mean") == ()


def test_a_special_token_in_a_candidate():
    assert warnings(["</s>", "x"]) == ("candidate 0 holds special tokens: '</s>'",)
    assert warnings(["x<s>", "y</s>", "z"], rule="mean") == ("candidates 0, 1 hold special tokens: '<s>', '</s>'",)
    assert warnings(["x<s>", "y"], rule="mean", terminator="</s>") == ("candidate 0 holds special tokens: '<s>'",)


@pytest.mark.parametrize("rule", RULES)
def test_different_token_counts_are_said_where_they_decide(rule):
    said = [note for note in warnings([" Paris", " London"], rule=rule) if "tokens" in note]
    want = ["candidates have 1 to 2 tokens: rule sum favours fewer, mean and byte do not"]
    assert said == (want if rule == "sum" else [])


def test_an_empty_candidate_cannot_win_and_fails_nothing():
    for rule in RULES:
        found = score(session(), PROMPT, ["", " Paris", ""], rule=rule)
        empty = found.candidates[0]
        assert (empty.token_ids, empty.logprobs, empty.probability) == ((), (), 0.0)
        assert (empty.sum, empty.mean, empty.per_byte, empty.pmi) == (None,) * 4
        assert (found.best_index, found.candidates[1].probability, found.margin) == (1, 1.0, 1.0)
        assert found.warnings[0] == "candidates 0, 2 are empty: no score without a terminator, never the best"
        assert found.candidates[1].sum == score(session(), PROMPT, [" Paris"]).candidates[0].sum


def test_an_empty_candidate_with_a_terminator_is_the_end_alone():
    found = score(session(), PROMPT, ["", " Paris"], terminator="</s>")
    assert found.candidates[0].token_ids == (1,) and found.candidates[0].sum < 0
    assert found.candidates[0].per_byte == found.candidates[0].sum / 4
    assert "candidate 0 is empty: only the terminator is scored" in found.warnings


def test_only_empty_candidates_are_refused():
    s = session()
    with pytest.raises(InvalidInputError, match="every candidate is empty"):
        score(s, PROMPT, ["", ""])
    assert s.plan.calls == []


def test_a_merged_seam():
    assert warnings(["bad", "x"], "It is a ", rule="mean") == (
        "candidate 0 merges with the end of the prompt: all candidates are scored from prompt token 5 on (1 before the end)",
    )


@pytest.mark.parametrize(
    "candidates",
    [
        [" Paris"] * 1000,
        [""] * 999 + ["x"],
        ["x" * n for n in range(1, 1001)],
        [f"{n}</s>" for n in range(1000)],
        ["b"] * 500 + ["bx"] * 500,
        [f"aa{'a' * n}" for n in range(1000)],
    ],
    ids=["duplicates", "empty", "prefixes", "special", "merging", "prefixes as text"],
)
@pytest.mark.parametrize("prompt", [PROMPT, "a", "It is a "])
def test_a_thousand_candidates_give_few_short_warnings(candidates, prompt):
    plan = Counting(context=4000)
    found = score(Session(plan, FakeTokenizer(), "fake", "fake"), prompt, candidates, rule="pmi", prior="o")
    assert len(found.warnings) <= 7 and max(map(len, found.warnings)) < 600, found.warnings
    assert math.fsum(c.probability for c in found.candidates) == pytest.approx(1)


# ---- the seam under hostile texts ------------------------------------------------------------------------------

HOSTILE = {
    "a combining mark alone": ("Cafe", ["\u0301", "s", " noir"]),
    "the rest of a character": (b"Caf\xc3", [b"\xa9", b"\xa8", b"x"]),
    "part of a character": ("Caf", [b"\xc3", b"\xe2\x80", "é"]),
    "bytes that are no text": ("x", [b"\xff\xfe", b"\x80", "y"]),
    "an argument that is no text": ("x\udcff", ["\udc80", "a\udcfe"]),
    "blanks on both sides": ("It is ", [" the", "  the", "the", " "]),
    "a prompt of one token": ("a", ["b", "x", "a", " b"]),
    "a prompt that is only a blank": (" ", ["is", " is", "b"]),
    "NUL characters": ("a\0b", ["\0", "\0\0c", "c"]),
    "line ends": ("a\n", ["\n", "\nb", "\r\n", "b"]),
    "long runs": ("a" * 30, ["a", "aa", "a" * 31]),
    "a mark cut in two": ("a<", ["s>", "/s>", "x"]),
    "a prompt that ends in a mark": ("a<s>", ["b", "</s>", " "]),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("add_bos", [False, True])
@pytest.mark.parametrize("rule", ["sum", "pmi"])
def test_hostile_seams_score_the_text_that_was_given(name, add_bos, rule):
    prompt, candidates = HOSTILE[name]
    found = score(session(context=200, add_bos=add_bos), prompt, candidates, rule=rule)
    check_definition(found, prompt, candidates, add_bos)


def check_definition(found, prompt, candidates, add_bos=False):
    """Every candidate's tokens are those of prompt + candidate as one text behind the common tokens, or it is said."""
    plain = session(context=200, add_bos=add_bos)
    ids = plain.encode(prompt)
    apart = [note for note in found.warnings if "tokenized apart" in note]
    for candidate, text in zip(found.candidates, candidates, strict=True):
        whole = plain.encode(raw(prompt) + raw(text))
        start = len(whole) - len(candidate.token_ids)
        if tuple(whole[start:]) != candidate.token_ids or whole[:start] != ids[:start] or not start:
            assert apart and str(candidate.index) in apart[0]
            whole = ids + plain.tokenizer.encode(raw(text))
            start = len(whole) - len(candidate.token_ids)
        assert tuple(whole[start:]) == candidate.token_ids
        assert start == len(ids) or any("with the end of the prompt" in note for note in found.warnings)
        values = []
        for count in range(start, len(whole)):
            plain.sync(whole[:count])
            values += plain.plan.logprobs(0, [whole[count]])
        assert candidate.logprobs == tuple(values)


def raw(text):
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")


class MergingTokenizer(FakeTokenizer):
    """The last piece swallows up to five characters before it: `abcde` + `f` is one token."""

    def __init__(self, **options):
        super().__init__(**options)
        for text in (b"abcdef", b"ab", b"de"):
            self._known[text] = len(self.pieces)
            self.pieces.append(text)
        self._longest = max(map(len, self.pieces))
        self.size = len(self.pieces)


def test_a_merge_that_reaches_back_several_tokens():
    tokenizer = MergingTokenizer()
    s = Session(FakePlan(tokenizer.size, 64), tokenizer, "fake", "fake")
    found = score(s, "so abcde", ["f", "x"])
    back = len(s.encode("abcde"))
    assert back == 3 and s.encode("abcdef") == list(found.candidates[0].token_ids)
    assert found.candidates[1].token_ids == (*s.encode("abcde"), *s.encode("x")), "scored over the same text"
    assert [c.per_byte for c in found.candidates] == [c.sum / 6 for c in found.candidates]
    assert "(3 before the end)" in found.warnings[0]


def test_a_candidate_that_the_tokenizer_drops_fails_nothing():
    class Dropping(FakeTokenizer):
        def encode(self, text, add_special=True, parse_special=True):
            data = text.encode() if isinstance(text, str) else bytes(text)
            return super().encode(data.replace(b"\0", b""), add_special, parse_special)

    tokenizer = Dropping()
    found = score(Session(FakePlan(tokenizer.size, 64), tokenizer, "fake", "fake"), "so", ["\0", "x"])
    assert [c.token_ids for c in found.candidates] == [tuple(tokenizer.encode("o")), tuple(tokenizer.encode("ox"))]
    assert "candidate 0 merges with the end of the prompt" in found.warnings[0]


def test_bytes_that_no_token_spells_are_said():
    class Replacing(FakeTokenizer):
        def encode(self, text, add_special=True, parse_special=True):
            data = text.encode() if isinstance(text, str) else bytes(text)
            return super().encode(data.decode("utf-8", "replace"), add_special, parse_special)

    tokenizer = Replacing()
    s = Session(FakePlan(tokenizer.size, 64), tokenizer, "fake", "fake")
    notes = score(s, "so", [b"\xff", "\ufffd", "x", b"\xe2\x80"], rule="mean").warnings
    said = [note for note in notes if "UTF-8" in note]
    assert said == ["candidates 0, 3 hold bytes that are no UTF-8: scored as U+FFFD, as this vocabulary has them"]
    assert not any("UTF-8" in note for note in warnings([b"\xff", "x"]))


@pytest.mark.parametrize("seed", range(30))
def test_random_bytes_equal_the_definition(seed):
    rng = Random(seed)
    alphabet = [b" ", b"is", b"\xc3", b"\xa9", b"\0", b"<s>", b"</", b"s>", b"a", b"b", b"\n", b"\xff", b" Pari", b"s"]
    prompt = b"".join(rng.choices(alphabet, k=rng.randint(1, 4)))
    candidates = [b"".join(rng.choices(alphabet, k=rng.randint(1, 4))) for _ in range(rng.randint(1, 6))]
    found = score(session(context=200), prompt, candidates)
    check_definition(found, prompt, candidates)


# ---- what is computed, and how much ------------------------------------------------------------------------------


class Counting:
    """A plan that computes nothing: every token is as likely as any other. Remembers the most rows and logits of a pass."""

    batch = 512
    steady = True
    most_outputs = 55  # 32 MB of logits over 150,000 tokens

    def __init__(self, context, vocabulary=272):
        self.context, self.vocabulary = context, vocabulary
        self.rows, self.outputs = [], []

    def evaluate(self, ids, first_slot, positions, shared, branch, outputs, *rest):
        self.rows.append(len(ids))
        self.outputs.append(len(outputs))

    def logprobs(self, row, ids):
        return [-math.log(self.vocabulary)] * len(ids)

    def logprobs_of_rows(self, rows, ids):
        return list(map(self.logprobs, rows, ids))


def test_a_long_prompt_has_no_logits():
    """30,000 prompt tokens over a vocabulary of 150,000 with 64 candidates: never prompt times vocabulary."""
    plan = Counting(context=32768, vocabulary=150_000)
    found = score(Session(plan, FakeTokenizer(), "fake", "fake"), "x" * 30_000, [f"{n:03d}" for n in range(64)])
    assert found.prompt_tokens == 30_000
    assert sum(plan.outputs) <= 64 * 2 + 1, "one row after the prompt, and each candidate's tokens but the last"
    assert max(plan.outputs) <= plan.most_outputs


def test_every_entry_is_taken_before_its_token_is_seen():
    """Hand-made logits: after n tokens, token n + 10 has probability 1 - 9e-5; entry i must come from the row before it."""
    vocabulary = 40

    class Steps(Counting):
        def evaluate(self, ids, first_slot, positions, shared, branch, outputs, *rest):
            self.seen = [positions[row] + 1 for row in outputs]

        def logprobs(self, row, ids):
            logits = [10.0 if token == self.seen[row] + 10 else 0.0 for token in range(vocabulary)]
            total = math.log(math.fsum(map(math.exp, logits)))
            return [logits[token] - total for token in ids]

    class Letters(FakeTokenizer):
        def encode(self, text, add_special=True, parse_special=True):
            return [byte - 97 for byte in (text.encode() if isinstance(text, str) else text)]

    s = Session(Steps(64, vocabulary), Letters(), "fake", "fake")
    right = "".join(chr(97 + token) for token in (15, 16, 17))  # after five prompt tokens: 5 + 10, 6 + 10, 7 + 10
    late = "".join(chr(97 + token) for token in (16, 17, 18))
    found = score(s, "abcde", [right, late])
    assert len(found.candidates[0].logprobs) == 3, "the prompt's own tokens have no entry"
    assert all(value == pytest.approx(-math.log(1 + 39 * math.exp(-10))) for value in found.candidates[0].logprobs)
    assert all(value < -9.9 for value in found.candidates[1].logprobs)


def test_extreme_logits_over_a_huge_vocabulary():
    """[1000, 999, -1000] and 150,000 others: no overflow, no positive value, a distribution."""
    tokenizer = FakeTokenizer()

    class Extreme(FakePlan):
        def _see(self, *path):
            return [1000.0, 999.0, -1000.0] + [-1000.0] * 149_997

    s = Session(Extreme(150_000, 64), tokenizer, "fake", "fake")
    found = score(s, "x", ["<s>", "</s>", "<end>"])
    sums = [c.sum for c in found.candidates]
    assert sums == pytest.approx([-math.log1p(math.exp(-1)), -1 - math.log1p(math.exp(-1)), -2000 - math.log1p(math.exp(-1))])
    assert all(value <= 0 for value in sums)
    assert [c.probability for c in found.candidates] == pytest.approx([1 / (1 + math.exp(-1)), 1 / (1 + math.e), 0.0])
    assert found.candidates[2].probability == 0.0 and found.entropy_bits > 0
