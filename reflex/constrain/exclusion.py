"""Whether a value satisfies the facts of a schema, and whether two schemas can be told apart. Called by schema.

`apart` answers yes only where it is proven: a wrong yes would let a text through that satisfies both alternatives of a oneOf.
"""

from .facts import TYPES, Facts, key, less, type_of
from .jsontext import exact


def accepts(facts, value):
    """Whether a value satisfies facts."""
    if facts.never or (facts.values is not None and key(value) not in {key(item) for item in facts.values}):
        return False
    kind = type_of(value)
    if facts.types is not None and kind not in facts.types:
        return False
    check = {"integer": _number, "number": _number, "string": _string, "array": _array, "object": _object}.get(kind)
    if check and not check(facts, value):
        return False
    for name, schemas in facts.groups:
        count = sum(_satisfies(facts, schema, value) for schema in schemas)
        if not count or (name == "oneOf" and count > 1):
            return False
    return True


def _satisfies(facts, schema, value):
    return accepts(Facts(facts.schemas).absorb(schema), value)


def _number(facts, value):
    held, number = facts.keywords, exact(value)
    for side in ("low", "high"):
        bound = held.get(side)
        if bound is not None:
            outside = less(number, bound) if side == "low" else less(bound, number)
            if outside or (bound[2] and not less(number, bound) and not less(bound, number)):
                return False
    return "multiple" not in held or number[0] % (held["multiple"] * 10 ** number[1]) == 0


def _within(facts, size, least, most):
    held = facts.keywords
    return held.get(least, 0) <= size <= held.get(most, size)


def _string(facts, value):
    if facts.patterns or facts.formats:
        from .regex import searching, tree_of
        from .strings import EVERY, FORMATS

        trees = [searching(pattern, ("set", EVERY)) for pattern in facts.patterns]
        trees += [tree_of(FORMATS[word]) if word in FORMATS else ("alt", []) for word in facts.formats]
        if not all(_matches(tree, value) for tree in trees):
            return False
    return _within(facts, len(value), "minLength", "maxLength")


def _matches(tree, text):
    """Whether a text is one of a tree's."""
    from .grammar import Grammar
    from .states import DEAD, States

    grammar = Grammar()
    grammar.start = grammar.build(tree, grammar.end)
    grammar.settle([True] * 256, [True] * 256)
    states = States(grammar)
    state = states.start
    for byte in text.encode("utf-8", "surrogatepass"):
        state = states.step(state, byte) if state != DEAD else DEAD
    found = state != DEAD and states.ends[state]
    states.close()
    return found


def _array(facts, value):
    for number, item in enumerate(value):
        schema = facts.leading[number] if number < len(facts.leading) else facts.items
        if schema is not None and not _satisfies(facts, schema, item):
            return False
    if facts.keywords.get("unique") and len({key(item) for item in value}) < len(value):
        return False
    return _within(facts, len(value), "minItems", "maxItems")


def _object(facts, value):
    for name, item in value.items():
        schema = facts.members.get(name, facts.extra)
        if schema is not None and not _satisfies(facts, schema, item):
            return False
    return all(name in value for name in facts.required) and _within(facts, len(value), "minProperties", "maxProperties")


def apart(one, other, depth=0):
    """Whether no value that is written for `one` satisfies `other`."""
    if one.never or other.never:
        return True
    if one.values is not None:
        return not any(accepts(one, value) and accepts(other, value) for value in one.values)
    kinds = one.generated() if not one.groups else one.types or set(TYPES)  # an alternative may name its types itself
    common = kinds if other.types is None else kinds & other.types
    common = common - {"integer"} if "number" in common else common
    if other.values is not None:
        common = {kind for kind in common if any(_same(kind, type_of(value)) and accepts(one, value) for value in other.values)}
    return all(_apart(kind, one, other, depth) for kind in common)


def _same(kind, found):
    return kind == found or (kind == "number" and found == "integer")


def _apart(kind, one, other, depth):
    """The same for values of one type that both allow."""
    a, b = one.keywords, other.keywords
    if kind in ("number", "integer"):
        return _below(a.get("high"), b.get("low")) or _below(b.get("high"), a.get("low"))
    if kind == "object":
        return depth < 4 and _different_members(one, other, depth)
    least, most = {"string": ("minLength", "maxLength"), "array": ("minItems", "maxItems")}.get(kind, (None, None))
    return least is not None and (a.get(most, 1e18) < b.get(least, 0) or b.get(most, 1e18) < a.get(least, 0))


def _below(high, low):
    return high is not None and low is not None and (less(high, low) or (not less(low, high) and (high[2] or low[2])))


def _different_members(one, other, depth):
    mine = one.all_members()
    closed = one.extra is False or (one.extra is None and bool(mine))  # what is written has no other members
    if closed and not one.groups and any(name not in mine for name in other.required):
        return True
    for name in one.required:
        if name not in other.members and other.extra is None:
            continue
        theirs = other.members.get(name, other.extra)
        if apart(Facts(one.schemas).absorb(mine[name]), Facts(one.schemas).absorb(theirs), depth + 1):
            return True
    return False
