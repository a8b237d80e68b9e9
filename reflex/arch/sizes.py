"""Sizes and scales: the metadata keys of a file, read with types, defaults and bounds into a Spec without tensors.

Refuses values outside any sane model (ModelFileError) and keys that ask for computation the family record does not
know (UnsupportedError naming the key). Called by arch.load_spec.
"""

from ..errors import ModelFileError, UnsupportedError
from .rotation import read_rotations, stated
from .spec import NORMS, Layer, Spec

MAX_LAYERS = 4096
MAX_CONTEXT = 1 << 31  # positions and windows are 32-bit numbers on devices
MAX_SIZE = 1 << 24  # no width, head count or vocabulary comes near; keeps products inside 64 bits

# Key (after the architecture) -> values that change nothing. Others are refused unless the family's record names the key.
NEUTRAL = {
    "expert_weights_scale": (1.0, 0.0),
    "embedding_scale": (1.0, 0.0),
    "residual_scale": (1.0, 0.0),
    "logit_scale": (1.0, 0.0),
    "attention.scale": (0.0,),
    "attention.clamp_kqv": (0.0,),
    "attention.max_alibi_bias": (0.0,),
    "attention.temperature_scale": (0.0,),
    "attention.value_scale": (1.0,),
    "attention.shared_kv_layers": (0,),
    "attention.causal": (True,),
}
LARGEST_LIMIT, MOST_DEVIATIONS = 1e30, 10
READS = {bool: lambda file, name: file.b(name), int: lambda file, name: file.u(name), float: lambda file, name: file.f(name)}
ACT_KEYS = {"xielu": ("xielu.alpha_p", "xielu.alpha_n", "xielu.beta", "xielu.eps")}  # without the architecture before them


def read_sizes(file, architecture, family):
    """A Spec with every number filled in; names of tensors come later (arch/tensors.py)."""
    key = architecture + "."
    refuse_variants(file, key, family)
    spec = Spec()
    spec.architecture = architecture
    spec.family = family
    spec.width = positive(file, key + "embedding_length")
    spec.context_length = positive(file, key + "context_length", limit=MAX_CONTEXT)
    spec.norm, epsilon, _, _ = NORMS[family.norm]
    if "attention.layer_norm_epsilon" in family.keys and not file.has(key + epsilon):
        epsilon = "attention.layer_norm_epsilon"
    epsilon = key + epsilon
    spec.eps = file.f(epsilon)
    if not 0 < spec.eps < 1:
        raise ModelFileError(
            "the norm epsilon is not a small positive number", expected="0 < epsilon < 1", found=spec.eps, where=epsilon
        )
    spec.layers = read_layers(file, key, family, spec)
    if family.mixer:
        from .recurrent import read_mixers

        read_mixers(file, key, family, spec)
    if family.experts != "never" or file.has(key + "expert_count"):
        from .experts import read_experts  # an import that most files need not wait for

        read_experts(file, key, family, spec)
    read_rotations(file, key, family, spec)
    read_scales(file, key, family, spec)
    if "attention.shared_kv_layers" in family.keys:
        read_owners(file, key, spec)
    spec.inputs = spec.streams = None
    if family.inputs:
        from .layer_inputs import read_inputs

        read_inputs(file, key, spec)
    if family.streams:
        from .streams import read_streams

        read_streams(file, key, spec)
    if family.latent:
        from .latent import read_latent  # an import that most files need not wait for

        read_latent(file, key, family, spec)
    return spec


def positive(file, name, default=None, limit=MAX_SIZE):
    value = file.u(name) if default is None else file.u(name, default)
    if not 0 < value <= limit:
        raise ModelFileError("a size in the metadata is out of range", expected=f"1 to {limit}", found=value, where=name)
    return value


def refuse_variants(file, key, family):
    kind = file.s("general.type", "model")
    if kind != "model":
        raise UnsupportedError("this file is not a language model", expected="general.type model", found=kind)
    for name, accepted in NEUTRAL.items():
        if file.has(key + name) and name not in family.keys and not (name == "logit_scale" and family.logit_scale):
            value = READS[type(accepted[0])](file, key + name)
            if value not in accepted:
                raise UnsupportedError(
                    "the file asks for an unimplemented variant", expected=accepted[0], found=value, where=key + name
                )


def read_layers(file, key, family, spec):
    """One Layer per block that runs: trailing draft layers, nextn_predict_layers, do not, nor do those without feed-forward."""
    blocks, drafts = positive(file, key + "block_count", limit=MAX_LAYERS), file.u(key + "nextn_predict_layers", 0)
    count = blocks - drafts
    if not 0 < count <= blocks:
        raise ModelFileError(
            "no sensible number of layers is left to run",
            expected=f"nextn_predict_layers from 0 to {blocks - 1}",
            found=drafts,
            where=key + "nextn_predict_layers",
        )
    if family.only_layers not in (0, count):
        raise UnsupportedError(
            f"models of architecture {key[:-1]} with another number of layers compute something else",
            expected=f"{family.only_layers} layers",
            found=count,
            where=key + "block_count",
        )
    heads, kv_heads, feed_forward = read_counts(file, key, family, count)
    windows = read_windows(file, key, family, count)
    dims = read_dims(file, key, family, spec, heads[0], any(windows))
    limits = {} if "swiglu_clamp_shexp" not in family.keys else read_limits(file, key, "swiglu_clamp_shexp", count)
    sparsity = read_sparsity(file, key + "activation_sparsity_scale", count) if family.sparse else [0.0] * count
    act_parameters = list(zip(*(file.per_layer(name, count) for name in ACT_KEYS.get(family.act, ())), strict=True)) or [()] * count
    parallel = family.parallel == "always" or (family.parallel == "key" and file.b(key + "use_parallel_residual"))
    by_width = family.scale_by_width == count
    stated_scale = stated(file, key, family, "attention.scale", 0.0)
    layers = []
    for i in range(count):
        if family.missing_parts and not feed_forward[i]:
            continue
        layer = Layer()
        layer.index, layer.heads, layer.kv_heads = i, heads[i], kv_heads[i]
        layer.key_dim, layer.value_dim = dims[bool(windows[i])]
        layer.feed_forward = feed_forward[i]
        layer.limit, layer.sparsity = limits.get(i, 0.0), sparsity[i]
        layer.query_gate = family.query_gate
        layer.act_parameters = act_parameters[i]
        layer.parallel = parallel
        layer.chunk = family.chunk if windows[i] else 0
        layer.window = 0 if family.chunk else windows[i]
        divisor = spec.width // (heads[i] or 1) if by_width else layer.key_dim
        layer.scale = family.attn_scale or stated_scale or (divisor or 1) ** -0.5
        layers.append(layer)
    if not layers:
        raise ModelFileError(
            "no layer is left to run", expected="a feed_forward_length", found=0, where=key + "feed_forward_length"
        )
    return layers


def read_dims(file, key, family, spec, heads, windows):
    """Numbers of a key and of a value of one head, [without a window, with one]; 0 where no layer has attention."""
    if family.mixer_in == "all":
        return [(0, 0)] * 2
    default = spec.width // heads if heads else 0
    full = tuple([positive(file, f"{key}attention.{word}_length", default) for word in ("key", "value")])
    if not windows:
        return [full] * 2
    both = zip(("key", "value"), full, strict=True)
    return [full, tuple([positive(file, f"{key}attention.{word}_length_swa", size) for word, size in both])]


def read_limits(file, key, name, count):
    """{layer: limit} of the layers that have one."""
    limits = file.per_layer(key + name, count, 0.0)
    if not all(0 <= limit < LARGEST_LIMIT for limit in limits):
        raise ModelFileError("a limit is out of range", expected="0 (none) or a positive number", found=limits, where=key + name)
    return {i: float(limit) for i, limit in enumerate(limits) if limit}


def read_sparsity(file, name, count):
    """Standard deviations above the mean of every layer's gate; 0: none. A layer that keeps all of its gate has the share 0, whose
    deviations converters write as they are: minus infinity."""
    deviations, most = [0.0 if value == float("-inf") else float(value) for value in file.per_layer(name, count)], MOST_DEVIATIONS
    for value in deviations:
        if not -most <= value <= most:
            expected = f"{-most} to {most} deviations, or minus infinity"
            raise ModelFileError("a size in the metadata is out of range", expected, value, name)
    return deviations


def read_owners(file, key, spec):
    """The last attention.shared_kv_layers layers read keys and values of the last layer before them with as large a view."""
    name = key + "attention.shared_kv_layers"
    shared = file.u(name, 0)
    if not 0 <= shared < len(spec.layers):
        raise ModelFileError("a size in the metadata is out of range", f"0 to {len(spec.layers) - 1}", shared, name)
    first = len(spec.layers) - shared
    for layer in spec.layers[first:]:
        alike = [other.index for other in spec.layers[:first] if bool(other.window) == bool(layer.window)]
        owner = spec.layers[alike[-1]] if alike else None
        if owner is None or (owner.kv_heads, owner.key_dim, owner.value_dim) != (layer.kv_heads, layer.key_dim, layer.value_dim):
            raise ModelFileError(
                "a layer has no other whose keys and values it could share",
                expected="a layer of the same kind and sizes before the last shared_kv_layers",
                found=f"layer {layer.index}, {first} layers of their own",
                where=name,
            )
        layer.owner = owner.index


def read_counts(file, key, family, count):
    """Heads, key/value heads and feed-forward width of every layer."""
    lacks = family.missing_parts, family.missing_parts or family.experts == "always"
    if family.mixer:
        lacks = family.mixer_in in ("no keys", "all"), lacks[1] or family.one_part or family.mixer_in == "all"
    heads = file.per_layer(key + "attention.head_count", count, *((0,) if family.mixer_in == "all" else ()))
    kv_heads = file.per_layer(key + "attention.head_count_kv", count) if file.has(key + "attention.head_count_kv") else heads
    default = (0,) if lacks[1] and not family.missing_parts else ()  # only dense layers need it, and their tensors tell
    feed_forward = file.per_layer(key + "feed_forward_length", count, *default)
    checked = set()
    for i, sizes in enumerate(zip(heads, kv_heads, feed_forward, strict=True)):
        if sizes not in checked:
            check_heads(key, i, *sizes, *lacks)
            checked.add(sizes)
    return heads, kv_heads, feed_forward


def check_heads(key, index, heads, kv_heads, feed_forward, may_lack_heads, may_lack_feed_forward):
    """`may_lack_heads`: a layer may be without heads or key/value heads."""
    if not type(heads) is type(kv_heads) is type(feed_forward) is int:
        raise ModelFileError(
            "sizes of layers are not whole numbers",
            expected="integers",
            found=f"head_count {heads}, head_count_kv {kv_heads}, feed_forward_length {feed_forward}",
            where=f"{key}attention.head_count or {key}feed_forward_length, layer {index}",
        )
    fits = 0 < heads <= MAX_SIZE and 0 < kv_heads <= heads and heads % kv_heads == 0
    if not fits and not (may_lack_heads and 0 <= heads <= MAX_SIZE and kv_heads == 0):
        raise ModelFileError(
            "the number of heads is no multiple of the number of key/value heads",
            expected="head_count = n * head_count_kv, both positive",
            found=f"{heads} and {kv_heads}",
            where=f"{key}attention.head_count_kv, layer {index}",
        )
    if not 0 < feed_forward <= MAX_SIZE and not (may_lack_feed_forward and feed_forward == 0):
        raise ModelFileError(
            "a size in the metadata is out of range",
            expected=f"1 to {MAX_SIZE}",
            found=feed_forward,
            where=f"{key}feed_forward_length, layer {index}",
        )


def read_flags(file, name, count):
    """One bool per layer."""
    flags = file.per_layer(name, count)
    if not all(type(flag) in (bool, int) and flag in (0, 1) for flag in flags):
        found = next(flag for flag in flags if type(flag) not in (bool, int) or flag not in (0, 1))
        raise ModelFileError("a flag of a layer is neither true nor false", "bools, or 0 and 1", found, name)
    return [bool(flag) for flag in flags]


def read_windows(file, key, family, count):
    """Window of each layer in tokens, the current one included; 0: the layer sees everything."""
    name = key + "attention.sliding_window"
    without = family.window_if == "never" or family.window_layers not in (0, count)
    if without:
        return [0] * count
    size = file.u(name, family.window) if family.window_if == "key" else positive(file, name, family.window or None)
    if size <= 0:
        return [0] * count
    if size > MAX_CONTEXT:
        raise ModelFileError("a size in the metadata is out of range", expected=f"at most {MAX_CONTEXT}", found=size, where=name)
    pattern = family.window_every
    if pattern is None:
        return [size if flag else 0 for flag in read_flags(file, name + "_pattern", count)]
    if file.has(name + "_pattern"):
        try:
            pattern = file.u(name + "_pattern")
        except ModelFileError:  # not a number: one boolean per layer
            return [size if flag else 0 for flag in read_flags(file, name + "_pattern", count)]
        if pattern < 0:
            raise ModelFileError("the window pattern is negative", expected="0 or more", found=pattern, where=name + "_pattern")
    return [size if pattern == 0 or i % pattern < pattern - 1 else 0 for i in range(count)]


def read_scales(file, key, family, spec):
    """Factors of embedding, branches, queries and logits, and limits. A stated 0 means 1, as writers use it for "not set"."""
    by_width = spec.width**0.5 if family.embed_scale == "sqrt width" else 1.0
    spec.embed_scale = stated(file, key, family, "embedding_scale", 0.0) or by_width
    spec.residual_scale = stated(file, key, family, "residual_scale", 0.0) or 1.0
    spec.clamp = max(0.0, stated(file, key, family, "attention.clamp_kqv", 0.0))
    spec.temper = (*family.temper, 1) if family.temper else None
    temper = stated(file, key, family, "attention.temperature_scale", 0.0)
    if temper:
        spec.temper = temper, positive(file, key + "rope.scaling.original_context_length", spec.context_length), 0
    spec.value_scale = stated(file, key, family, "attention.value_scale", 1.0)
    spec.unit_norm = family.unit_norm
    if family.unit_norm == "q and k" and any(layer.experts and layer.experts.count == 128 for layer in spec.layers):
        spec.unit_norm = None
    spec.logit_factor = 1.0
    if family.logit_scale:
        factor = file.f(key + "logit_scale") or 1.0
        spec.logit_factor = 1 / factor if family.logit_scale == "divide" else factor
    spec.attn_softcap = file.f(key + "attn_logit_softcapping", family.attn_softcap) if family.attn_softcap else 0.0
    cap = family.final_softcap
    spec.final_softcap = 0.0 if cap is None else file.f(key + "final_logit_softcapping", cap)
