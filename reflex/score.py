"""Scores fixed candidate answers: the log-probability of every candidate token after the prompt, and the decision among them.

Owns the token ids of candidates, the packing of prompt and candidates into one forward pass, and the arithmetic of the rules.
Refuses empty candidates, unknown rules and what the context cannot hold, before any work. Called by the API and the command line.

A candidate's log-probabilities do not depend on the order of candidates or on what was cached: the prompt is always computed
as plain text and a candidate always as a branch behind it, whatever shares the pass.
"""

from itertools import pairwise
from math import exp, fsum, isfinite, log2

from .errors import InternalError, InvalidInputError, closest
from .records import Record, table
from .session import BATCH, Batch, raw

RULES = ("sum", "mean", "byte")
LOGITS_BYTES = 32 << 20  # bound on the logits of one pass, whatever the number of candidates


class Candidate(Record):
    """One scored answer."""

    index: int  # place in the list of candidates
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]  # natural logarithms, one per token
    sum: float  # of logprobs
    mean: float  # sum per token
    per_byte: float  # sum per byte of the scored text
    probability: float  # among the candidates
    __slots__ = (*__annotations__,)


class Decision(Record):
    """What `system1` found."""

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

    def _repr_html_(self):
        titles = ("candidate", "probability", "sum", "mean", "per byte", "tokens")
        rows = [
            (c.text, f"{c.probability:.4f}", f"{c.sum:.4f}", f"{c.mean:.4f}", f"{c.per_byte:.4f}", len(c.token_ids))
            for c in self.candidates
        ]
        notes = table(("warnings",), [(text,) for text in self.warnings]) if self.warnings else ""
        return table(titles, rows, strong=self.best_index) + notes


def score(session, prompt, candidates, rule="sum", temperature=1.0, terminator=""):
    """Score `candidates` (texts) as continuations of `prompt`; returns a Decision.

    `rule`: `sum` of the log-probabilities, `mean` per token, or per `byte` of the text. Probabilities are the softmax of the
    scores divided by `temperature`. `terminator` is a text appended to every candidate, so that one that others start with
    does not collect their probability too."""
    check_settings(rule, temperature)
    texts = [raw(text) for text in listed(candidates)]
    seam = Seam(session, raw(prompt), texts, raw(terminator))
    session.reserve(seam.start, max(len(ids) for ids in seam.tails))
    logprobs = evaluate(session, seam.prefix, seam.tails)
    return decide(session, seam, texts, logprobs, rule, temperature)


def check_settings(rule, temperature):
    """Refuse a rule or a temperature without meaning."""
    if rule not in RULES:
        remedy = f"did you mean {closest(str(rule), RULES, 1)}?"
        raise InvalidInputError("no such scoring rule", ", ".join(RULES), repr(rule), remedy=remedy)
    if not (isfinite(temperature) and temperature > 0):
        raise InvalidInputError("the candidate temperature has no meaning", "more than 0", repr(temperature))


def listed(candidates):
    """The candidates as a list, refused where there is none or one is empty."""
    if isinstance(candidates, (str, bytes)):
        raise InvalidInputError("candidates must be a list of texts", "a list", f"one {type(candidates).__name__}")
    texts = list(candidates)
    if not texts:
        raise InvalidInputError("no candidates to score", "at least 1", "0", remedy="add --candidate TEXT")
    for index, text in enumerate(texts):
        if not text:
            raise InvalidInputError("a candidate is empty", "at least one character", "''", f"candidate {index}", "leave it out")
    return texts


class Seam:
    """Token ids of prompt and candidates, and where they part.

    Tokenizing prompt + candidate as one text may merge across the seam. All candidates are then scored from the last token
    that every one of them shares with the prompt, so that their scores speak of the same event."""

    __slots__ = ("prefix", "prompt_ids", "start", "tail_bytes", "tails", "warnings")

    def __init__(self, session, prompt, texts, terminator):
        self.prompt_ids = ids = session.encode(prompt)
        self.warnings = []
        whole = [session.encode(prompt + text + terminator) for text in texts]
        shared = [min(common(ids, other), len(other) - 1) for other in whole]
        for index, count in enumerate(shared):
            if count == 0:  # nothing precedes the merged token, so nothing could predict it
                own = session.tokenizer.encode(texts[index] + terminator, add_special=False)
                whole[index] = ids + own
                shared[index] = len(ids)
                note = "merges with the whole prompt, which nothing precedes; it was tokenized on its own"
                self.warnings.append(f"candidate {index} {note}")
        self.start = min(shared)
        self.prefix = ids[: self.start]
        self.tails = [other[self.start :] for other in whole]
        back = ids[self.start :]
        self.tail_bytes = sum(len(session.tokenizer.piece(token)) for token in back)  # prompt bytes that are scored too
        if back:
            merged = [index for index, count in enumerate(shared) if count < len(ids)]
            self.warnings.append(
                f"{names(merged)} with the end of the prompt: "
                f"all candidates are scored from prompt token {self.start} on ({len(back)} before the end)"
            )


def names(merged, most=8):
    """Subject and verb of the seam warning."""
    if len(merged) == 1:
        return f"candidate {merged[0]} merges"
    listed = ", ".join(str(index) for index in merged[:most])
    return f"candidates {listed}{' and others' if len(merged) > most else ''} merge"


def common(first, second):
    """Length of the longest common prefix of two lists."""
    most = min(len(first), len(second))
    for index in range(most):
        if first[index] != second[index]:
            return index
    return most


# ---- the forward pass -----------------------------------------------------------------------------------


def evaluate(session, prefix, tails):
    """Log-probabilities of every token of every tail after `prefix`: list of lists of floats.

    One pass where all fits in BATCH rows and LOGITS_BYTES; the same numbers from several passes otherwise."""
    results = [[0.0] * len(tail) for tail in tails]
    most = max(1, LOGITS_BYTES // (4 * session.plan.vocabulary))
    for batch, reads in passes(session, prefix, tails, most):
        session.evaluate(batch)
        for (_, wanted), values in zip(reads, read(session.plan, reads, tails), strict=True):
            for (index, at), value in zip(wanted, values, strict=True):
                if not isfinite(value):
                    where = f"candidate {index}, token {at}"
                    raise InternalError("a log-probability is not finite", "a number at most 0", repr(value), where, "reflex check")
                results[index][at] = value
    session.ids = list(prefix)
    return results


def read(plan, reads, tails):
    """Log-probabilities of the tokens of each of `reads`, in one round trip where the backend has one."""
    rows = [output for output, _ in reads]
    ids = [[tails[index][at] for index, at in wanted] for _, wanted in reads]
    together = getattr(plan, "logprobs_of_rows", None)
    return together(rows, ids) if together else map(plan.logprobs, rows, ids)


def passes(session, prefix, tails, most):
    """Yield (batch, reads): `reads` pairs an output of the batch with the (candidate, token) entries it predicts.

    Rows: the prefix tokens that the cache lacks and always its last, then each tail but its last token. A branch lies behind
    the prefix in slots of its own; the slots are taken again from the start when the context is used up."""
    length = len(prefix)
    start = min(session.held(prefix), length - 1)
    while start + BATCH < length:
        batch = Batch(start)
        batch.add_plain(prefix[start : start + BATCH])
        start += BATCH
        yield batch, []
    batch = Batch(start)
    batch.add_plain(prefix[start:])
    reads = [(batch.want(len(batch.ids) - 1), [(index, 0) for index in range(len(tails))])]
    slot = length  # of the next row
    for index, tail in enumerate(tails):
        rows = len(tail) - 1
        if slot + rows > session.context:
            if batch.ids:
                yield batch, reads
            batch, reads, slot = Batch(length), [], length
        branch = slot
        for at in range(rows):
            if len(batch.ids) == BATCH or len(batch.outputs) == most:
                yield batch, reads
                batch, reads = Batch(slot), []
            row = batch.add(tail[at], length + at, length, branch)
            reads.append((batch.want(row), [(index, at + 1)]))
            slot += 1
    if batch.ids:
        yield batch, reads


# ---- the decision ---------------------------------------------------------------------------------------


def decide(session, seam, texts, logprobs, rule, temperature):
    """Turn log-probabilities into a Decision."""
    sums = [fsum(values) for values in logprobs]  # correctly rounded, so the same on every Python version
    means = [total / len(values) for total, values in zip(sums, logprobs, strict=True)]
    sizes = [seam.tail_bytes + len(text) for text in texts]
    per_byte = [total / size for total, size in zip(sums, sizes, strict=True)]
    scores = {"sum": sums, "mean": means, "byte": per_byte}[rule]
    shares = softmax(scores, temperature)
    best = scores.index(max(scores))  # the first wins ties
    others = [share for index, share in enumerate(shares) if index != best]
    shown = [text.decode("utf-8", "replace") for text in texts]
    columns = zip(shown, map(tuple, seam.tails), map(tuple, logprobs), sums, means, per_byte, shares, strict=True)
    found = tuple(Candidate(index, *fields) for index, fields in enumerate(columns))
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
        found,
        tuple(seam.warnings + concerns(session.tokenizer, seam.tails, rule)),
    )


def softmax(scores, temperature):
    """Probabilities of `scores` divided by `temperature`; the sum is correctly rounded, so the order does not matter."""
    top = max(scores)
    weights = [exp((value - top) / temperature) for value in scores]
    total = fsum(weights)
    return [weight / total for weight in weights]


def entropy_bits(shares):
    """Shannon entropy of a distribution, in bits."""
    return fsum(-share * log2(share) for share in shares if share > 0) + 0.0


def concerns(tokenizer, tails, rule):
    """Warnings about candidates whose comparison may surprise."""
    notes = []
    first = {}  # token ids -> the candidate that had them first
    for index, tail in enumerate(map(tuple, tails)):
        if tail in first:
            notes.append(f"candidates {first[tail]} and {index} are the same tokens")
        first.setdefault(tail, index)
        special = [token for token in tail if tokenizer.is_special(token)]
        if special:
            piece = tokenizer.piece(special[0]).decode("utf-8", "replace")
            notes.append(f"candidate {index} holds the special token {piece!r}")
    ordered = sorted(first)  # what starts with a tuple follows it directly
    for short, long in pairwise(ordered):
        if long[: len(short)] == short:
            notes.append(
                f"candidate {first[short]} is a prefix of candidate {first[long]}: "
                "its score includes every continuation, a terminator would exclude them"
            )
    counts = {len(tail) for tail in tails}
    if rule == "sum" and len(counts) > 1:
        notes.append(f"candidates have {min(counts)} to {max(counts)} tokens: rule sum favours fewer, mean and byte do not")
    return notes
