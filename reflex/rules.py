"""The scoring rules: from the log-probabilities of a candidate's tokens to its score, from scores to probabilities.

The one place that names the rules; command line, help page, Python interface and benchmarks enumerate RULES. A further rule
is a row here and a field of Candidate. Every sum is correctly rounded, so that no order of candidates or tokens shows in a
result. Refuses a rule or a temperature without meaning.
"""

from math import exp, fsum, inf, log2

from .errors import InvalidInputError, closest
from .records import Record


class Rule(Record):
    """What a rule compares."""

    field: str  # of Candidate: the score
    prior: bool  # needs the candidates scored after a prior text too
    short: bool  # fewer tokens alone make a better score
    says: str  # in half a sentence
    __slots__ = (*__annotations__,)


RULES = {
    "sum": Rule("sum", False, True, "log-probability of all its tokens"),
    "mean": Rule("mean", False, False, "per token"),
    "byte": Rule("per_byte", False, False, "per byte of text"),
    "pmi": Rule("pmi", True, False, "sum less that after the prior"),
}
DEFAULT = "sum"
EXPLAINED = ", ".join([f"{name} ({row.says})" for name, row in RULES.items()])


def checked(rule, temperature):
    """`temperature` as a float; refuses a rule or a temperature without meaning."""
    if rule not in RULES:
        remedy = f"did you mean {closest(str(rule), RULES, 1)}?"
        raise InvalidInputError("no such scoring rule", ", ".join(RULES), repr(rule), remedy=remedy)
    try:
        value = float(temperature)
    except (TypeError, ValueError, OverflowError):
        value = 0.0
    if not 0 < value < inf:
        raise InvalidInputError("the candidate temperature has no meaning", "a number more than 0", repr(temperature))
    return value


def score_of(candidate, rule):
    """The number by which `rule` compares a Candidate; None where it has none."""
    return getattr(candidate, RULES[rule].field)


def softmax(scores, temperature):
    """Probabilities of `scores` divided by `temperature`; a score of None has probability 0."""
    top = max(value for value in scores if value is not None)
    weights = [0.0 if value is None else exp((value - top) / temperature) for value in scores]
    total = fsum(weights)
    return [weight / total for weight in weights]


def best_of(scores):
    """Index of the highest score; the first wins ties."""
    return scores.index(max(value for value in scores if value is not None))


def entropy_bits(shares):
    """Shannon entropy of a distribution, in bits."""
    return fsum(-share * log2(share) for share in shares if share > 0) + 0.0
