"""Program steps gathered into what one launch can do: a norm with the products that read it, a feed-forward's gate and
up with its activation, a product with the residual it is added to, and all that happens to q, k and v before attention.

`fuse` walks the steps once and looks ahead; whatever fits no pattern stays a Plain step, so every program has a form.
Nothing here knows sizes, types or addresses. Called by lowering.py and its tests.
"""

from ...program.records import Step


class Plain:
    """A step that runs as its own kernel."""

    __slots__ = ("step",)

    def __init__(self, step):
        self.step = step


class Linear:
    """Up to three products of one input. mode: store | add (out += scale * product) | gated (out = act(first) * second)."""

    __slots__ = ("act", "mode", "norm", "out", "scale", "source", "steps")

    def __init__(self, source, steps, norm=None):
        self.source = source
        self.steps = steps  # the linear steps, in order
        self.norm = norm  # the rmsnorm step applied to `source` on the way, or None
        self.mode = "store"
        self.out = None  # buffer of the result where it is not each step's own
        self.act = None
        self.scale = 1.0


class Attention:
    """Head norms, rotation, append to the cache and attention of one layer."""

    __slots__ = ("k_norm", "norm_first", "q_norm", "step", "table")

    def __init__(self, step):
        self.step = step
        self.q_norm = None  # head_rmsnorm steps of q and k, or None
        self.k_norm = None
        self.norm_first = True  # head norm before the rotation
        self.table = None  # index of the rotary table, None: not rotated


class NormAdd:
    """x += scale * rmsnorm(y): the norm behind a half block, with its residual."""

    __slots__ = ("add", "norm")

    def __init__(self, norm, add):
        self.norm = norm
        self.add = add


class Experts:
    """One row's way through its experts. mode: store | add (out += scale * sum)."""

    __slots__ = ("act", "down", "gate", "limit", "mode", "norm", "out", "route", "router", "scale", "source", "sum", "up")

    def __init__(self, router, route, gate, up, act, down, sum):
        self.source = router.ins[0]
        self.norm = None  # the rmsnorm step applied to `source` on the way, or None
        self.router, self.route = router, route
        self.gate, self.up, self.down = gate, up, down
        self.act, *self.limit = unit_of(act)
        self.sum = sum
        self.mode, self.out, self.scale = "store", sum.out, 1.0

    def inner(self):
        """Buffers between the source and the result, but for that of `up`, which is not always needed."""
        return [step.out for step in (self.router, self.route, self.gate, self.down)]


MOST_SEGMENTS = 3
MOST_NORMED = 2 * MOST_SEGMENTS  # products that apply a norm themselves
ATTENTIONS = ("attention", "latent_attention")  # operations that know one set of rows only
ACTIVATIONS = {"silu": 0, "gelu": 1}  # of units that products of a gate and an up do, and their numbers in kernels


def unit_of(step):
    """[unit, its parameters] of a `gated` step: what follows gated_ in the name of its kernel, and what its count."""
    limit = step.args.get("limit")
    return ["limited", float(limit)] if limit else [step.args["act"]]


def fuse(steps, selecting):
    """The list of fused records of `steps`. `selecting`: some rows are not wanted, so that `select` has work to do."""
    return [record for _, record in fused(arranged(steps, selecting), set())]


def arranged(steps, selecting):
    """The steps in the order in which `fused` looks at them."""
    steps = _select_after_attention(steps) if selecting else [step for step in steps if step.op != "select"]
    return _temper_before_rope(steps)


def fused(steps, taken):
    """Yields (number of its first step, record). `taken` gets the numbers of the steps that records do besides."""
    experts, mixers, normed = _experts(steps), _mixers(steps), {}
    for at, step in enumerate(steps):
        joins = step.op in ("head_rmsnorm", "rope") and _joins_attention(steps, at)
        if at in taken or joins or (mixers and at in mixers.joined):
            continue
        found = mixers.record(at, taken) if mixers else None
        if step.op == "rmsnorm":
            found = _normed_products(steps, at, taken, normed) or _norm_add(steps, at, taken) or experts(steps, at, taken, _readers)
        elif at in normed:
            found = _normed_group(steps, normed[at], taken)
        elif step.op == "linear":
            found = experts(steps, at, taken, _readers) or _products(steps, at, taken)
        elif step.op == "attention":
            found = _attention(steps, at)
        yield at, found or Plain(step)


def _experts(steps):
    """The pattern of a mixture of experts; its file is imported for steps that have one."""
    if not any(step.op == "route" for step in steps):
        return lambda steps, at, taken, readers: None
    from .expert_patterns import experts

    return experts


def _mixers(steps):
    """The patterns of layers with a state, of steps that have one."""
    if not any(step.op == "conv" for step in steps):
        return None
    from .recurrent_patterns import Patterns

    return Patterns(steps, _readers)


def _select_after_attention(steps):
    """Selection moved behind the attention step that follows it, if there is one. Queries of unwanted rows cost less here than
    kernels that must know two sets of rows, and q, k and v stay one product."""
    out, selected, made = [], [], []
    last = max((at for at, step in enumerate(steps) if step.op in ATTENTIONS), default=-1)
    for at, step in enumerate(steps):
        if step.op == "select" and at < last:
            selected.append(step.out)
            continue
        out.append(step)
        if selected:
            made.append(step.out)  # of all rows
        if step.op in ATTENTIONS and selected:
            for buffer in dict.fromkeys((step.out, *selected, *made)):
                if _readers(steps, at, buffer):
                    out.append(Step("select", buffer, (buffer,)))
            selected, made = [], []
    return out


def _temper_before_rope(steps):
    """A factor of every value of a row may be applied before the rotation, which attention then does."""
    out = list(steps)
    for at in range(1, len(out)):
        if out[at].op == "temper" and out[at - 1].op == "rope" and out[at - 1].out == out[at].out:
            out[at - 1 : at + 1] = out[at], out[at - 1]
    return out


def _uses(step, buffer):
    return buffer in step.ins or step.out == buffer


def _readers(steps, at, buffer):
    """Indices of the steps after `at` that read `buffer` before it is written again."""
    found = []
    for i in range(at + 1, len(steps)):
        if buffer in steps[i].ins:
            found.append(i)
        if steps[i].out == buffer:
            break
    return found


def _normed_products(steps, at, taken, normed):
    """rmsnorm into a buffer that only products read: they apply it themselves. `normed` gets {first step: (norm, readers)} of those
    that are too many for one record, for when their turn comes."""
    norm = steps[at]
    if norm.out == norm.ins[0]:
        return None
    readers = _readers(steps, at, norm.out)
    if not readers or len(readers) > MOST_NORMED or any(steps[i].op != "linear" or i in taken for i in readers):
        return None
    groups = [readers[i : i + MOST_SEGMENTS] for i in range(0, len(readers), MOST_SEGMENTS)]
    if any(steps[i].out == norm.ins[0] for i in range(at + 1, readers[-1])) or not all(_can_move(steps, some) for some in groups):
        return None
    normed.update((some[0], (norm, some)) for some in groups[1:])
    return _normed_group(steps, (norm, groups[0]), taken)


def _normed_group(steps, group, taken):
    norm, readers = group
    taken.update(readers)
    group = Linear(norm.ins[0], [steps[i] for i in readers], norm)
    return _gated(steps, readers, taken, group) or group


def _can_move(steps, readers):
    """Whether the products at `readers` can all run where the first one stands."""
    first = readers[0]
    return not any(_uses(steps[j], steps[i].out) for i in readers[1:] for j in range(first, i))


def _products(steps, at, taken):
    """Products of one plain input that follow each other, or one product with its residual."""
    source = steps[at].ins[0]
    readers = [at]
    while len(readers) < MOST_SEGMENTS:
        i = readers[-1] + 1
        if i == len(steps) or steps[i].op != "linear" or steps[i].ins[0] != source or steps[readers[-1]].out == source:
            break
        readers.append(i)
    taken.update(readers)
    group = Linear(source, [steps[i] for i in readers])
    if len(readers) == 1:
        return _residual(steps, at, taken, group) or group
    return _gated(steps, readers, taken, group) or group


def _gated(steps, readers, taken, group):
    """gate and up whose products only `gated` reads."""
    i = readers[-1] + 1
    if len(readers) != 2 or i == len(steps):
        return None
    gate, up, act = steps[readers[0]], steps[readers[1]], steps[i]
    if act.op != "gated" or act.ins != (gate.out, up.out) or _readers(steps, i, up.out):
        return None
    if unit_of(act)[0] not in ACTIVATIONS:
        return None
    taken.add(i)
    group.mode, group.out, group.act = "gated", act.out, act.args["act"]
    return group


def _residual(steps, at, taken, group):
    """y = W h; x = x + scale y, where nothing else reads y."""
    y, i = steps[at].out, at + 1
    if i == len(steps) or steps[i].op != "add" or steps[i].ins != (steps[i].out, y) or _readers(steps, i, y):
        return None
    taken.add(i)
    group.mode, group.out, group.scale = "add", steps[i].out, steps[i].args.get("scale", 1.0)
    return group


def _norm_add(steps, at, taken):
    """y = rmsnorm(y); x = x + scale y, where nothing else reads y."""
    norm, i = steps[at], at + 1
    if norm.out != norm.ins[0] or i == len(steps):
        return None
    add = steps[i]
    if add.op != "add" or add.ins != (add.out, norm.out) or _readers(steps, i, norm.out):
        return None
    taken.add(i)
    return NormAdd(norm, add)


def _joins_attention(steps, at):
    """Whether the head norm or rotation at `at` is done by the attention step that reads its buffer."""
    reader = next((i for i in range(at + 1, len(steps)) if steps[i].op == "attention"), None)
    if reader is None or steps[at].out not in steps[reader].ins[:2]:
        return False
    buffer = steps[at].out
    between = [steps[i] for i in range(at + 1, reader) if _uses(steps[i], buffer)]
    return all(map(_joins, (steps[at], *between))) and _pattern(steps, reader) is not None


def _joins(step):
    """Whether attention can do a step of q or k itself."""
    return step.op == "rope" or (step.op == "head_rmsnorm" and step.weights[0] is not None)


def _history(steps, at, buffer):
    """The head norms and rotations of `buffer` since its product, in order."""
    found = []
    for i in range(at - 1, -1, -1):
        if steps[i].out == buffer:
            if not _joins(steps[i]):
                break
            found.append(steps[i])
    return found[::-1]


def _pattern(steps, at):
    """An Attention if q and k are prepared alike, each normed and rotated at most once; None: run the steps one by one."""
    sides = [_history(steps, at, buffer) for buffer in steps[at].ins[:2]]  # without k where the cache is another layer's
    orders = [[step.op for step in side] for side in sides]
    tables = {tuple(step.args["table"] for step in side if step.op == "rope") for side in sides}
    if len(tables) != 1 or any(len(set(order)) != len(order) for order in orders):
        return None
    both = [order for order in orders if len(order) == 2]
    if len({tuple(order) for order in both}) > 1:
        return None
    found = Attention(steps[at])
    found.table = next(iter(tables.pop()), None)
    found.q_norm, found.k_norm = (next((s for s in side if s.op == "head_rmsnorm"), None) for side in (*sides, [])[:2])
    found.norm_first = not both or both[0][0] == "head_rmsnorm"
    return found


def _attention(steps, at):
    return _pattern(steps, at) or Attention(steps[at])
