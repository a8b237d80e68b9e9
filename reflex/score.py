"""Scores fixed candidate answers: the log-probability of every candidate token after the prompt, and the decision among them.

Owns the token ids of candidates, where they part from the prompt's, and the decision with its warnings; the rules' arithmetic is
in `rules`, the forward pass in `tree`. Refuses unknown rules and what the context cannot hold, before any work. Called by the API
and the command line.

A candidate's log-probabilities do not depend on the order of candidates or on what was cached: the prompt is always computed
as plain text and a candidate always as a branch behind it, whatever shares the pass.
"""

from math import fsum

from .errors import InvalidInputError
from .records import Markup, Record, bar, table
from .rules import DEFAULT, RULES, best_of, checked, entropy_bits, score_of, softmax
from .session import raw
from .tree import evaluate

NAMED = 8  # most candidates or pairs that one warning names
SHOWN = 40  # most rows of a decision in a notebook
MANY, LONG = 8, 200  # candidates, and bytes of prompt, from which on cutting the prompt pays
NO_BEGIN = "\n"  # the prior text of models whose timelines start with no token of their own


class Candidate(Record):
    """One scored answer. Scores are natural logarithms; None where the candidate has none: it is empty, or no prior was scored."""

    index: int  # place in the list of candidates
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]  # one per token, log-softmax over the whole vocabulary
    sum: float | None  # of logprobs
    mean: float | None  # sum per token
    per_byte: float | None  # sum per byte of the scored text: the candidate, the terminator, what a seam took of the prompt
    probability: float  # among the candidates, under the rule and the temperature
    pmi: float | None  # sum less that of the same tokens after the prior
    __slots__ = (*__annotations__,)


class Decision(Record):
    """What `system1` found; `to_pandas()` is a frame with a row per candidate."""

    command: str
    model: str  # path of the file
    backend: str
    rule: str
    best_index: int
    best_text: str
    entropy_bits: float  # of the candidates' probabilities
    margin: float  # probability of the best less that of the runner-up
    prompt_tokens: int
    candidates: tuple[Candidate, ...]
    warnings: tuple[str, ...]
    __slots__ = (*__annotations__,)

    @property
    def best(self):
        """The winning Candidate."""
        return self.candidates[self.best_index]

    def table(self):
        """One dictionary per candidate."""
        return [candidate.to_dict() for candidate in self.candidates]

    def _repr_html_(self):
        """A table of the candidates with a bar for each probability; of many, the most probable."""
        by_share = sorted(self.candidates, key=lambda c: (c.index != self.best_index, -c.probability))
        kept = sorted(by_share[:SHOWN], key=lambda c: c.index)
        values = {rule: row.field for rule, row in RULES.items() if any(score_of(c, rule) is not None for c in kept)}
        titles = ("candidate", "", "probability", *values, "tokens")
        rows = []
        for c in kept:
            numbers = ["" if (value := getattr(c, field)) is None else f"{value:.4f}" for field in values.values()]
            rows.append((c.text, Markup(bar(c.probability)), f"{c.probability:.4f}", *numbers, len(c.token_ids)))
        page = table(titles, rows, strong=[c.index for c in kept].index(self.best_index))
        left = len(self.candidates) - len(kept)
        notes = [f"rule {self.rule}, margin {self.margin:.4f}, entropy {self.entropy_bits:.4f} bits"]
        notes += [f"{left} less probable candidates are not shown"] if left else []
        return page + table(("notes",), [(text,) for text in (*notes, *self.warnings)])


def score(session, prompt, candidates, rule=DEFAULT, temperature=1.0, terminator="", prior=""):
    """Score `candidates` (texts) as continuations of `prompt`, a text or token ids; returns a Decision.

    `rule`: one of rules.RULES. Probabilities are the softmax of the scores divided by `temperature`. `terminator`: a text
    appended to every candidate, so that one that others start with does not collect their probability too. `prior`: the text
    that stands for no prompt; pmi takes off the log-probability of the same tokens after it. An empty one means the begin
    token alone where the model's texts start with it, else a line break. A prior is scored in a pass of its own, for the
    rules that need it, and for every rule where one is given: before the other, unless the cache holds the prompt.

    Raises InvalidInputError (no candidates, no such rule) and ContextOverflowError, both before any work."""
    temperature = checked(rule, temperature)
    texts = [raw(text) for text in listed(candidates)]
    seam = Seam(session, prompt if isinstance(prompt, (list, tuple)) else raw(prompt), texts, raw(terminator))
    before, prior = None, raw(prior)
    longest = max(map(len, seam.tails))
    if RULES[rule].prior or prior:
        before = Prior(session, prior, seam)
        session.reserve(len(before.ids), longest)
    session.reserve(seam.start, longest)
    logprobs = None
    if before and session.held(seam.prefix, steady=True) > session.held(before.ids, steady=True):  # what the prior would overwrite
        logprobs = evaluate(session, seam.prefix, seam.scored())
    unconditional = before and evaluate(session, before.ids, seam.scored())
    logprobs = logprobs or evaluate(session, seam.prefix, seam.scored())
    return decide(session, seam, before, (logprobs, unconditional), rule, temperature)


def listed(candidates):
    """The candidates as a list, refused where there is none."""
    if isinstance(candidates, (str, bytes, bytearray)) or not hasattr(candidates, "__iter__"):
        raise InvalidInputError("candidates must be a list of texts", "a list", f"one {type(candidates).__name__}")
    texts = list(candidates)
    if not texts:
        raise InvalidInputError("no candidates to score", "at least 1", "0", remedy="add --candidate TEXT")
    return texts


class Seam:
    """Token ids of prompt and candidates, and where they part.

    Tokenizing prompt + candidate as one text may merge across the seam. All candidates are then scored from the last token
    that every one of them shares with the prompt, so that their scores speak of the same event."""

    __slots__ = ("back", "notes", "prefix", "prompt_ids", "start", "tails", "terminator", "texts")

    def __init__(self, session, prompt, texts, terminator):
        self.prompt_ids = ids = session.encode(prompt)
        self.texts, self.terminator = texts, terminator
        extended = self.extending(session, prompt)
        whole = [extended(text + terminator) if text or terminator else ids for text in texts]
        shared = [common(ids, other) if other is ids else min(common(ids, other), len(other) - 1) for other in whole]
        alone = [index for index, count in enumerate(shared) if count == 0]
        for index in alone:  # nothing precedes the merged token, so nothing could predict it
            whole[index] = ids + session.continued(texts[index] + terminator)
            shared[index] = len(ids)
        self.start = min(shared)
        self.prefix = ids[: self.start]
        self.tails = [tuple(other[self.start :]) if other is not ids else () for other in whole]
        if not any(self.tails):
            raise InvalidInputError("every candidate is empty", "at least one character", remedy="give candidates with text")
        self.back = b"".join([session.tokenizer.piece(token) for token in ids[self.start :]])  # prompt text that is scored too
        self.notes = []
        if alone:
            note = f"{subject(alone, 'merges', 'merge')} with the whole prompt, which nothing precedes"
            self.notes.append(f"{note}: tokenized apart from it")
        if self.start < len(ids):
            merged = [index for index, count in enumerate(shared) if count < len(ids)]
            self.notes.append(
                f"{subject(merged, 'merges', 'merge')} with the end of the prompt: all candidates are scored "
                f"from prompt token {self.start} on ({len(ids) - self.start} before the end)"
            )

    def extending(self, session, prompt):
        """A function from a text to the ids of prompt + text; of many texts, one that tokenizes only the end of the prompt."""
        if len(self.texts) >= MANY and not isinstance(prompt, (list, tuple)) and len(prompt) >= LONG:
            stem = session.tokenizer.stem(prompt, session.encode)
            if stem:
                return stem.encode
        return lambda text: session.extended(prompt, text)

    def scored(self):
        """The tails that have tokens."""
        return [tail for tail in self.tails if tail]

    def size(self, index):
        """Bytes of the text that a candidate's score speaks of."""
        return len(self.back) + len(self.texts[index]) + len(self.terminator)


class Prior:
    """The tokens that stand for no prompt at all; the candidates' tokens follow them as they follow the prompt's.

    Where a seam made the end of the prompt part of every candidate, a prior with the same end gives that end up."""

    __slots__ = ("ids", "notes")

    def __init__(self, session, text, seam):
        self.notes = []
        if text and seam.back:
            if text.endswith(seam.back):
                text = text[: -len(seam.back)]
            else:
                end = seam.back.decode("utf-8", "replace")
                self.notes.append(f"the prior does not end in {end!r}, which is scored with every candidate")
        if not text:
            self.ids = default_prior(session)
            return
        self.ids = session.encode(text)
        ends = [seam.back + candidate + seam.terminator for candidate in seam.texts]
        pairs = enumerate(zip(seam.tails, ends, strict=True))
        other = [index for index, (tail, end) in pairs if tail and session.encode(text + end) != [*self.ids, *tail]]
        if other:
            self.notes.append(f"{subject(other, 'is', 'are')} other tokens after the prior: those after the prompt are scored")


def default_prior(session):
    """The begin token where the model's texts start with it, else a line break."""
    tokenizer = session.tokenizer
    return [tokenizer.bos] if tokenizer.add_bos else session.encode(NO_BEGIN)


def common(first, second):
    """Length of the longest common prefix of two lists."""
    most = min(len(first), len(second))
    if first[:most] == second[:most]:
        return most
    for index in range(most):
        if first[index] != second[index]:
            return index
    return most


# ---- the decision ---------------------------------------------------------------------------------------


def decide(session, seam, before, results, rule, temperature):
    """Turn log-probabilities into a Decision. `results`: those after the prompt and, or None, those after the Prior `before`."""
    after = iter(results[0])
    priors = iter(results[1] or ())
    shown = [text.decode("utf-8", "replace") for text in seam.texts]
    found = []
    for index, tail in enumerate(seam.tails):
        values = next(after) if tail else []
        total = fsum(values) if tail else None  # correctly rounded, so the same on every Python version
        mean, per_byte = (total / len(tail), total / seam.size(index)) if tail else (None, None)
        pmi = total - fsum(next(priors)) if tail and before else None
        found.append(Candidate(index, shown[index], tail, tuple(values), total, mean, per_byte, 0.0, pmi))
    scores = [score_of(candidate, rule) for candidate in found]
    shares = softmax(scores, temperature)
    best = best_of(scores)
    others = [share for index, share in enumerate(shares) if index != best]
    return Decision(
        "system1",
        session.model,
        session.backend,
        rule,
        best,
        shown[best],
        entropy_bits(shares),
        shares[best] - max(others, default=0.0),
        len(seam.prompt_ids),
        tuple([candidate.replace(probability=share) for candidate, share in zip(found, shares, strict=True)]),
        (*seam.notes, *(before.notes if before else ()), *concerns(session.tokenizer, seam, rule)),
    )


# ---- warnings: one line for each concern, whatever the number of candidates -------------------------------


def concerns(tokenizer, seam, rule):
    """Warnings about candidates whose comparison may surprise."""
    notes = []
    empty = [index for index, text in enumerate(seam.texts) if not text]
    if empty:
        what = "only the terminator is scored" if seam.terminator else "no score without a terminator, never the best"
        notes.append(f"{subject(empty, 'is', 'are')} empty: {what}")
    first, repeats = {}, []  # token ids -> the candidate that had them first
    for index, tail in enumerate(seam.tails):
        if tail and first.setdefault(tail, index) != index:
            repeats.append(f"{first[tail]} and {index}")
    if repeats:
        notes.append(f"candidates {several(repeats)} are the same tokens: each takes its share of the probability")
    garbled = [index for index, tail in enumerate(seam.tails) if tail and lossy(tokenizer, seam.texts[index], tail)]
    if garbled:
        notes.append(f"{subject(garbled, 'holds', 'hold')} bytes that are no UTF-8: scored as U+FFFD, as this vocabulary has them")
    notes += special(tokenizer, seam)
    notes += beginnings(seam, first)
    counts = {len(tail) for tail in first}
    if RULES[rule].short and len(counts) > 1:
        fair = " and ".join([name for name, row in RULES.items() if not row.short and not row.prior])
        notes.append(f"candidates have {min(counts)} to {max(counts)} tokens: rule {rule} favours fewer, {fair} do not")
    return notes


def lossy(tokenizer, text, tail):
    """Whether bytes of `text` that are no UTF-8 became the replacement character in its tokens."""
    mark = "\ufffd".encode()
    if mark in text or mark not in text.decode("utf-8", "replace").encode():
        return False
    return mark in b"".join([tokenizer.piece(token) for token in tail])


def special(tokenizer, seam):
    """The warning about candidates that spell a control token."""
    ends = len([True for token in tokenizer.encode(seam.terminator, add_special=False) if tokenizer.is_control(token)])
    holders, pieces = [], []
    for index, tail in enumerate(seam.tails):
        marks = [token for token in tail if tokenizer.is_control(token)]
        if len(marks) > ends:
            holders.append(index)
            pieces.append(repr(tokenizer.piece(marks[0]).decode("utf-8", "replace")))
    if not holders:
        return []
    return [f"{subject(holders, 'holds', 'hold')} special tokens: {several([*dict.fromkeys(pieces)])}"]


def beginnings(seam, first):
    """Warnings about candidates that begin others: as tokens, where they take the others' probability, or only as text."""
    tokens = prefixes(first)
    texts = {}
    for index, tail in enumerate(seam.tails):
        if tail and first[tail] == index:
            texts.setdefault(seam.texts[index], index)
    texts.pop(b"", None)
    letters = [pair for pair in prefixes(texts) if pair not in tokens]
    notes = []
    if tokens:
        pairs = several([f"{short} is a prefix of candidate {long}" for short, long in tokens])
        notes.append(f"candidate {pairs}: its score includes every continuation, a terminator would exclude them")
    if letters:
        pairs = several([f"{short} is a prefix of candidate {long}" for short, long in letters])
        notes.append(f"candidate {pairs} as text but not as tokens: their scores do not overlap")
    return notes


def prefixes(first):
    """(short, long) candidates of a {sequence: candidate}: each sequence with the longest other one that it starts with."""
    pairs, open_ones = [], []  # open_ones: what starts with a sequence follows it directly in sorted order
    for sequence in sorted(first):
        while open_ones and sequence[: len(open_ones[-1])] != open_ones[-1]:
            open_ones.pop()
        if open_ones:
            pairs.append((first[open_ones[-1]], first[sequence]))
        open_ones.append(sequence)
    return sorted(pairs)


def subject(indices, one, many):
    """`candidate 3 merges`, `candidates 3, 4 merge`."""
    if len(indices) == 1:
        return f"candidate {indices[0]} {one}"
    return f"candidates {several(list(map(str, indices)))} {many}"


def several(words):
    """The first of `words`, and how many more there are."""
    left = len(words) - NAMED
    return ", ".join(words[:NAMED]) + (f" and {left} more" if left > 0 else "")
