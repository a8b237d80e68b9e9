"""Which token comes next: the sampling settings, the random numbers, and the definition that every backend's `sample` follows.

Order, as in llama.cpp's default chain: repeat penalty (here, on the logits), top-k, top-p, min-p, and the temperature last.
Temperature 0 takes the largest logit, the lowest id among equals; the repeat penalty acts there too, the filters change nothing.
Log-probabilities that are reported are the model's own, before all of this. Called by generate; `system1` uses nothing of it.
Refuses settings that have no meaning (negative temperature, top-p of 0, ...).
"""

from math import exp, fsum, isfinite

from .errors import InvalidInputError

MASK = (1 << 64) - 1
COLDEST = 1e-30  # a smaller temperature draws no differently: of unequal logits only the largest is left
LARGEST = (1 << 31) - 1  # no vocabulary and no context is larger
STRONGEST = 1000.0  # repeat penalty; far larger ones leave the range of float32


class Sampling:
    """Settings of one generation. `top_k` 0, `top_p` 1, `min_p` 0 and `repeat_penalty` 1 switch a filter off."""

    __slots__ = ("min_p", "repeat_last", "repeat_penalty", "seed", "temperature", "top_k", "top_p")

    def __init__(self, temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, repeat_penalty=1.0, repeat_last=64, seed=None):
        warmth = _number("temperature", temperature, lambda t: isfinite(t) and t >= 0, "0 or more")
        self.temperature = max(warmth, COLDEST) if warmth else 0.0
        self.top_k = min(whole("top_k", top_k, "a whole number, 0 (off) or more"), LARGEST)
        self.top_p = _number("top_p", top_p, lambda p: 0 < p <= 1, "more than 0, at most 1 (off)")
        self.min_p = _number("min_p", min_p, lambda p: 0 <= p < 1, "0 (off) or more, less than 1")
        bounds = f"{1 / STRONGEST:g} to {STRONGEST:g}; 1 is off"
        self.repeat_penalty = _number("repeat_penalty", repeat_penalty, lambda r: 1 / STRONGEST <= r <= STRONGEST, bounds)
        # how many of the last tokens the penalty looks at
        self.repeat_last = min(whole("repeat_last", repeat_last, "a whole number, 0 or more"), LARGEST)
        self.seed = fresh_seed() if seed is None else whole("seed", seed, "a whole number", least=None) & MASK


def _number(name, value, holds, expected):
    """`value` as a float, refused where it is no number or has no meaning here."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or isinstance(value, str) or not holds(number):
        raise InvalidInputError(f"{name} has no meaning", expected, repr(value))
    return number


def whole(name, value, expected, least=0):
    """`value` as an int, refused where it is no whole number or below `least`."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or number != value or (least is not None and number < least):
        raise InvalidInputError(f"{name} has no meaning", expected, repr(value))
    return number


def fresh_seed():
    """64 random bits from the operating system."""
    from posix import urandom

    return int.from_bytes(urandom(8), "little")


def uniform(seed, count):
    """Number `count` (0, 1, ...) of the stream `seed`: a multiple of 2^-53 in [0, 1).

    The splitmix64 generator: the counter times the golden ratio, plus the seed, through its 64-bit mixing function."""
    z = (seed + (count + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return ((z ^ (z >> 31)) >> 11) * 2.0**-53


def penalize(logits, recent, penalty):
    """Weaken the tokens of `recent` in place: positive logits are divided by `penalty`, others multiplied (CTRL, 2019).

    Returns the old values as {id: logit}, for `restore`."""
    old = {token: logits[token] for token in recent}
    for token, value in old.items():
        logits[token] = value / penalty if value > 0 else value * penalty
    return old


def restore(logits, old):
    """Undo `penalize`."""
    for token, value in old.items():
        logits[token] = value


def choose(logits, temperature, top_k, top_p, min_p, random):
    """The definition of `Plan.sample` over any sequence of floats (finite or -inf, one at least finite): the id that `random` in
    [0, 1) draws.

    Candidates are ordered by falling logit, equal ones by rising id. top-k keeps the first k; top-p the shortest prefix whose
    probability among those, at temperature 1, reaches top_p; min-p those at least min_p times as likely as the first. The draw
    takes the first candidate at which the running sum of exp(logit / temperature) exceeds random times the whole sum; where
    rounding lets none, the last one that adds to the sum."""
    if temperature == 0:
        return max(range(len(logits)), key=lambda token: (logits[token], -token))
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    if top_k:
        order = order[:top_k]
    below = [logits[token] - logits[order[0]] for token in order]  # at most 0
    if top_p < 1:
        mass, goal, count = 0.0, top_p * fsum(map(exp, below)), 0
        while count < len(below) and (count == 0 or mass < goal):
            mass += exp(below[count])
            count += 1
        del below[count:]
    if min_p > 0:
        below = [value for value in below if exp(value) >= min_p]
    weights = [exp(value / temperature) for value in below]
    mass, goal, chosen = 0.0, random * fsum(weights), order[0]
    for token, weight in zip(order, weights, strict=False):
        if mass + weight == mass or mass > goal:
            break
        chosen = token
        mass += weight
    return chosen
