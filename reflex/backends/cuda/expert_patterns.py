"""The steps of a mixture of experts gathered into one record: router, route, gate and up with their activation, down, the
weighted sum.

What does not follow this pattern runs step by step (fusion.py, which imports this for programs with experts).
"""

from .fusion import Experts

ORDER = "linear", "route", "expert_linear", "expert_linear", "gated", "expert_linear", "expert_sum"


def experts(steps, at, taken, readers):
    """The Experts whose norm or router is step `at`, or None. readers(steps, i, buffer): who reads a buffer after i, as indices."""
    norm = steps[at] if steps[at].op == "rmsnorm" else None
    first = at + (norm is not None)
    found = _chain(steps, first, readers)
    if found is None:
        return None
    last = first + len(ORDER) - 1
    if norm is not None:
        own = [first, first + 2, first + 3]  # router, gate, up
        if norm.out == norm.ins[0] or norm.out != found.source or readers(steps, at, norm.out) != own:
            return None
        found.norm, found.source = norm, norm.ins[0]
    i = last + 1
    if i < len(steps):
        add, y = steps[i], found.sum.out
        if add.op == "add" and add.ins == (add.out, y) and add.out != y and not readers(steps, i, y):
            found.mode, found.out, found.scale = "add", add.out, add.args.get("scale", 1.0)
            last = i
    taken.update(range(first, last + 1))
    return found


def _chain(steps, first, readers):
    if tuple(step.op for step in steps[first : first + len(ORDER)]) != ORDER:
        return None
    router, route, gate, up, act, down, last = steps[first : first + len(ORDER)]
    h, routes = router.ins[0], route.out
    fits = (
        route.ins == (router.out,) and gate.ins == up.ins == (h, routes) and act.ins == (gate.out, up.out)
        and act.out == gate.out and down.ins == (gate.out, routes) and last.ins == (down.out, routes)
    )  # fmt: skip
    inner = {h, router.out, routes, gate.out, up.out, down.out}
    if not fits or len(inner) < 6 or readers(steps, first + 1, routes) != [first + 2, first + 3, first + 5, first + 6]:
        return None
    ends = (router.out, first + 1), (gate.out, first + 5), (up.out, first + 4), (down.out, first + 6)
    if any(readers(steps, after, buffer) for buffer, after in ends):
        return None
    return Experts(router, route, gate, up, act, down, last)
