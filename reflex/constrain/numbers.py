"""Numbers within bounds, digit by digit, as nodes of a grammar.

A bounded number is an integer n with low <= n <= high, written with its last `places` digits behind a point, of which those at the
end may be left out. Bounds are rounded inward to that many places. At most 15 digits where there is a point: so many survive a
reader's binary floating point, exclusive bounds too. Called by schema.
"""

from ..errors import InvalidInputError
from .grammar import BYTES, SPLIT

WHOLE_DIGITS = 18  # of an integer without a bound: fits 64 bits
DIGITS = 15  # of a number with a point
PLACES = 10  # behind the point at most
MOST_REMAINDERS = 1000
UNBOUNDED = r"-?(0|[1-9]\d{0,14})(\.\d{1,15})?([eE][-+]?\d{1,2})?"


def integers(low, high, multiple):
    """Tree of the integers from `low` to `high`: (n, k, exclusive) or None; `multiple` of a whole number."""
    least, most = _rounded(low, 0, True), _rounded(high, 0, False)
    widest = 10**WHOLE_DIGITS - 1
    if least is None:
        least = min(-widest, 10 * (most or 0))
    if most is None:
        most = max(widest, 10 * least)
    if multiple > MOST_REMAINDERS:
        first, last = -(-least // multiple), most // multiple
        if last - first > 10_000:
            remedy = f"a divisor up to {MOST_REMAINDERS}, or bounds that are closer"
            raise InvalidInputError("JSON schema: multipleOf cannot be enforced", remedy, multiple)
        return ("texts", tuple(b"%d" % (multiple * n) for n in range(first, last + 1))) if last >= first else ("alt", [])
    return _signed(least, most, 0, multiple)


def decimals(low, high):
    """Tree of the numbers between two bounds, at least one of which is given."""
    sizes = [len(str(abs(bound[0]) // 10 ** bound[1])) for bound in (low, high) if bound is not None]
    sizes = [size for size in sizes if size <= DIGITS]
    whole = max(sizes, default=DIGITS)
    if len(sizes) == 1:
        whole = min(DIGITS, max(whole + 1, DIGITS - PLACES + 4))
    places = max(0, min(PLACES, DIGITS - whole))
    least, most = _rounded(low, places, True), _rounded(high, places, False)
    edge = (10**whole - 1) * 10**places
    if (least is not None and least > edge) or (most is not None and most < -edge):
        raise InvalidInputError("JSON schema: a bound of numbers is too large", f"{DIGITS} digits at most")
    least = -edge if least is None else max(least, -edge)
    most = edge if most is None else min(most, edge)
    return _signed(least, most, places, 1)


def _rounded(bound, places, upward):
    """A bound as an integer of so many decimal places, itself included; None for no bound."""
    if bound is None:
        return None
    n, k, exclusive = bound
    value, rest = divmod(n * 10**places, 10**k)
    if rest:
        value += upward
        exclusive = exclusive and places > 0
    return value + (1 if upward else -1) * exclusive


def _signed(low, high, places, multiple):
    def made(grammar, target):
        parts = []
        if high >= max(low, 0):
            parts += Magnitudes(grammar, target, places, multiple).between(max(low, 0), high)
        if low < 0 and max(1, -high) <= -low:
            negative = Magnitudes(grammar, target, places, multiple).between(max(1, -high), -low)
            if negative:
                parts.append(grammar.add(BYTES, ((45, 45, grammar.add(SPLIT, tuple(negative))),)))
        return grammar.add(SPLIT, tuple(parts))

    return ("made", made)


class Magnitudes:
    """Digits of numbers that are not negative, most significant first. A place is the number of digits left (those behind the
    point included), whether the digits so far are those of the lower and of the upper bound, and the remainder."""

    def __init__(self, grammar, target, places, multiple):
        self.grammar = grammar
        self.target = target
        self.places = places
        self.multiple = multiple
        self.known = {}
        self.low = self.high = ""

    def between(self, low, high):
        """First nodes, one for each number of digits."""
        shortest = self.places + 1
        found = []
        for size in range(max(shortest, len(str(low))), max(shortest, len(str(high))) + 1):
            first = 0 if size == shortest else 10 ** (size - 1)
            self.low, self.high = (str(n).zfill(size) for n in (max(low, first), min(high, 10**size - 1)))
            self.known = {key: node for key, node in self.known.items() if not (key[1] or key[2])}
            node = self._digit(size, True, True, 0)
            found += [] if node is None else [node]
        return found

    def _digit(self, left, low, high, rest):
        """The node that reads one more digit; None where none can follow."""
        key = left, low, high, rest, "digit"
        if key not in self.known:
            at = len(self.low) - left
            a, z = int(self.low[at]) if low else 0, int(self.high[at]) if high else 9
            edges = []
            for digit in range(a, z + 1):
                remainder = (10 * rest + digit) % self.multiple
                node = self._after(left - 1, low and digit == a, high and digit == z, remainder)
                if node is None:
                    continue
                if edges and edges[-1][1] == 47 + digit and edges[-1][2] == node:
                    edges[-1] = edges[-1][0], 48 + digit, node
                else:
                    edges.append((48 + digit, 48 + digit, node))
            self.known[key] = self.grammar.add(BYTES, tuple(edges)) if edges else None
        return self.known[key]

    def _after(self, left, low, high, rest):
        """The node behind a digit: more digits, the point, the end, or a choice of them."""
        if left > self.places:
            return self._digit(left, low, high, rest)
        key = left, low, high, rest, "after"
        if key not in self.known:
            ways = []
            if rest == 0 and not (low and self.low[len(self.low) - left :].strip("0")):
                ways.append(self.target)
            more = self._digit(left, low, high, rest) if left else None
            if more is not None:
                ways.append(self.grammar.add(BYTES, ((46, 46, more),)) if left == self.places else more)
            self.known[key] = None if not ways else ways[0] if len(ways) == 1 else self.grammar.add(SPLIT, tuple(ways))
        return self.known[key]


def unbounded():
    """Tree of any number."""
    from .regex import tree_of

    return tree_of(UNBOUNDED)
