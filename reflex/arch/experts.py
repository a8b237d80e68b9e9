"""Mixtures of experts: which layers have them, how a router chooses among them, and the stacks of their matrices.

What a file does not say is in the family record: fields `experts` to `split_width` of arch/spec.py. Refuses numbers that
contradict each other (ModelFileError) and keys that ask for another routing than the record describes (UnsupportedError).
Called by arch/sizes.py and arch/tensors.py, for families with experts only.
"""

from ..errors import ModelFileError, UnsupportedError
from . import names
from .sizes import read_limits
from .spec import Matrix

MOST_EXPERTS, MOST_WIDTH = 1 << 16, 1 << 24
GATINGS = {1: "softmax", 2: "sigmoid", 3: "softmax of chosen"}  # values of expert_gating_func
OWN_GATINGS = {5: "sigmoid of chosen"}  # of a family alone, which has no other
SHARED_WIDTHS = {  # width of the shared expert, from its own key, feed_forward_length, the routed experts' width and the count
    None: lambda own, dense, routed, count: 0,
    "key": lambda own, dense, routed, count: own,
    "key or dense": lambda own, dense, routed, count: own or dense,
    "key or routed": lambda own, dense, routed, count: own or routed,
    "routed": lambda own, dense, routed, count: routed,
    "count": lambda own, dense, routed, count: routed * count,
    "count of key": lambda own, dense, routed, count: (own or routed) * count,
}


class Experts:
    """The experts of one layer. Matrices of routed experts are stacks, ne = (in, out, count). `inner`: numbers that routed experts
    see of a row, by the matrix `shrink` before and `unshrink` behind them; 0: the row itself. `limit`: of the activation, 0: none.
    `down_scale`: a factor for each expert. `beside`: the norms of a mixture with a dense feed-forward beside it, None elsewhere."""

    __slots__ = ("beside", "choice_bias", "count", "down", "down_scale", "gate", "gating", "groups", "groups_used", "inner")
    __slots__ += ("limit", "renormalize", "router", "scale", "shared", "shrink", "unshrink", "up", "used", "width")


class Beside:
    """Norms of a mixture with a dense feed-forward beside it: behind the dense part, before and behind the experts, and the weights
    of the one before the router."""

    __slots__ = ("before", "behind", "dense_norm", "router_scale")


class Shared:
    """The expert that every row goes to. `row_gate`: a vector whose product with the input, through a sigmoid, weights it."""

    __slots__ = ("act_parameters", "down", "feed_forward", "gate", "limit", "row_gate", "sparsity", "up")

    def __init__(self, feed_forward, limit):
        self.act_parameters = ()
        self.feed_forward = feed_forward
        self.limit, self.sparsity = limit, 0.0


def read_experts(file, key, family, spec):
    """Fills `experts` of every layer whose feed-forward is a mixture, without tensors."""
    count = file.u(key + "expert_count", 0)
    if family.experts == "never" and count:
        raise UnsupportedError("the family record has no experts", expected=0, found=count, where=key + "expert_count")
    if family.experts != "always" and not count:
        return
    check(key + "expert_count", 1, count, MOST_EXPERTS)
    facts = {"gating": read_gating(file, key, family), "renormalize": read_renormalize(file, key, family)}
    inner = file.u(key + "moe_latent_size", 0) if "moe_latent_size" in family.keys else 0
    facts |= {"inner": check(key + "moe_latent_size", 0, inner, MOST_WIDTH)}
    facts |= {"count": count, "scale": file.f(key + "expert_weights_scale", 0.0) or 1.0}  # a stated 0 means "not set"
    layers = len(spec.layers)
    used = file.per_layer(key + "expert_used_count", layers)
    routed = file.per_layer(key + "expert_feed_forward_length", layers, 0)
    own = file.u(key + "expert_shared_feed_forward_length", 0)
    shared_count = 0
    if family.shared in ("count", "count of key"):
        shared_count = check(key + "expert_shared_count", 1, file.u(key + "expert_shared_count"), MOST_EXPERTS)
    limits = read_limits(file, key, "swiglu_clamp_exp", layers) if "swiglu_clamp_exp" in family.keys else {}
    for layer in spec.layers:
        i = layer.index
        if not mixed(file, key, i) or (family.one_part and not layer.feed_forward):
            continue
        e = layer.experts = Experts()
        for name, value in facts.items():
            setattr(e, name, value)
        e.used = check(key + "expert_used_count", 1, used[i], count)
        e.width = routed[i] or layer.feed_forward // (e.used if family.split_width else 1)
        check(key + "expert_feed_forward_length", 1, e.width, MOST_WIDTH)
        e.groups, e.groups_used = read_groups(file, key, e)
        e.limit = limits.get(i, 0.0)
        width = SHARED_WIDTHS[family.shared](own, layer.feed_forward, e.width, shared_count)
        e.shared = None
        if width:
            e.shared = Shared(check(key + "expert_shared_feed_forward_length", 1, width, MOST_WIDTH), layer.limit)


def check(name, least, value, most):
    """The value, if it is a whole number within bounds."""
    if type(value) is not int or not least <= value <= most:
        raise ModelFileError("a size of the experts is out of range", expected=f"{least} to {most}", found=value, where=name)
    return value


def mixed(file, key, index):
    """Whether a layer has experts: behind the leading dense ones, every one, or every n-th counted from the first layer."""
    step = check(key + "interleave_moe_layer_step", 1, file.u(key + "interleave_moe_layer_step", 1), 1 << 16)
    return index >= file.u(key + "leading_dense_block_count", 0) and (index + 1) % step == 0


def read_gating(file, key, family):
    """What becomes of the router's logits. Without the key the record says; where that is None the key must be there."""
    name = key + "expert_gating_func"
    if family.gating and not file.has(name):
        return family.gating
    number = file.u(name)
    honoured = "expert_gating_func" in family.keys
    known = {number: gating for number, gating in GATINGS.items() if honoured or gating == family.gating}
    known |= {number: gating for number, gating in OWN_GATINGS.items() if gating == family.gating}
    if number not in known:
        expected = " or ".join(f"{number} ({gating})" for number, gating in known.items())
        raise UnsupportedError("the family record knows no such gating function", expected=expected, found=number, where=name)
    return known[number]


def read_renormalize(file, key, family):
    """Whether weights are divided by their sum."""
    name = "expert_weights_norm"
    found = file.b(key + name, family.renormalize)
    if found != family.renormalize and name not in family.keys:
        raise UnsupportedError(
            "the family weights its experts otherwise", expected=family.renormalize, found=found, where=key + name
        )
    return found


def read_groups(file, key, e):
    """(groups, groups used), (0, 0) without groups."""
    groups = file.u(key + "expert_group_count", 0)
    if 0 <= groups <= 1:
        return 0, 0
    used = file.u(key + "expert_group_used_count")
    if not 0 < used <= groups or e.count % groups or e.count < 2 * groups or e.used > used * (e.count // groups):
        raise ModelFileError(
            "the experts do not divide into these groups",
            expected=f"equal groups of two or more of the {e.count} experts, as many used as hold {e.used}",
            found=f"{groups} groups, {used} used",
            where=f"{key}expert_group_count and {key}expert_group_used_count",
        )
    return groups, used


# ---- tensors -----------------------------------------------------------------------------------------------


def read_expert_tensors(taken, family, layer, width):
    """Names the router, the stacks and the shared expert of a layer with experts."""
    e, start, biased = layer.experts, names.prefix(layer.index), "experts" in family.biases
    layer.gate = layer.up = layer.down = None
    e.router = taken.matrix(start + names.ROUTER, width, e.count, biased)
    e.choice_bias = None
    if family.choice_bias:
        bare = start + names.CHOICE_BIAS  # as some writers name it
        bias = bare if bare in taken.tensors else bare + ".bias"
        e.choice_bias = (taken.need if family.choice_bias == "required" else taken.optional)(bias, (e.count,))
    inner = e.inner or width
    e.shrink = e.unshrink = None
    if e.inner:
        e.shrink = taken.matrix(start + names.SHRINK, width, inner, False)
        e.unshrink = taken.matrix(start + names.UNSHRINK, inner, width, False)
    if f"{start}{names.EXPERT_GATE_UP}.weight" in taken.tensors:
        both = stack(taken, start + names.EXPERT_GATE_UP, inner, 2 * e.width, e.count, biased)
        e.gate = Matrix(both.weight, both.bias, (0, e.width))
        e.up = Matrix(both.weight, both.bias, (e.width, e.width), e.width)
    else:
        e.gate = stack(taken, start + names.EXPERT_GATE, inner, e.width, e.count, biased) if family.gate else None
        e.up = stack(taken, start + names.EXPERT_UP, inner, e.width, e.count, biased)
    e.down = stack(taken, start + names.EXPERT_DOWN, e.width, inner, e.count, biased)
    e.beside = e.down_scale = None
    if family.beside:
        read_beside(taken, start, e, width)
    if e.shared:
        shared = e.shared
        shared.gate = taken.matrix(start + names.SHARED_GATE, width, shared.feed_forward, biased) if family.gate else None
        shared.up = taken.matrix(start + names.SHARED_UP, width, shared.feed_forward, biased)
        shared.down = taken.matrix(start + names.SHARED_DOWN, shared.feed_forward, width, biased)
        shared.row_gate = taken.need(f"{start}{names.SHARED_ROUTER}.weight", (width,)) if family.shared_gate else None


def read_beside(taken, start, e, width):
    """Names what a mixture has that runs beside a dense feed-forward."""
    e.down_scale = taken.optional(f"{start}{names.EXPERT_DOWN}.scale", (e.count,))
    e.beside = Beside()
    e.beside.router_scale = taken.need(f"{start}{names.ROUTER}.scale", (width,))
    e.beside.dense_norm = taken.norm(start + names.DENSE_NORM, width)
    e.beside.before = taken.norm(start + names.EXPERTS_BEFORE, width)
    e.beside.behind = taken.norm(start + names.EXPERTS_BEHIND, width)


def stack(taken, role, inputs, outputs, count, biased):
    """One matrix per expert, and their optional biases."""
    bias = taken.optional(role + ".bias", (outputs, count)) if biased else None
    return Matrix(taken.need(role + ".weight", (inputs, outputs, count)), bias)
