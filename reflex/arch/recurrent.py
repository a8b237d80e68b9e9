"""Mixers that carry a state from token to token: which layers have one instead of attention or beside it, their sizes and tensors.

What a file does not say is in the family record: the fields `mixer` to `key_order` of arch/spec.py. Refuses sizes that contradict
each other (ModelFileError). Called by arch/sizes.py and arch/tensors.py, for families with such layers only.
"""

from ..errors import ModelFileError
from . import names
from .sizes import read_flags
from .spec import Matrix

MOST, MOST_TAPS, MOST_STATE = 1 << 24, 64, 1 << 28  # sizes, taps of a filter, float32 of one state


class Mixer:
    """A recurrent mixer of one layer. `inputs`: what it reads of the normed stream, {word: Part}; the rest are tensor names."""

    __slots__ = ("a", "convs", "d", "dt_bias", "heads", "inner", "inputs", "key_dim", "key_heads", "key_order", "kind", "norm")
    __slots__ += ("norm_if", "out", "taps", "value_dim")

    def __init__(self, kind):
        self.kind = kind
        self.inputs, self.convs = {}, {}  # convs: {word: (filters, bias or None, first channel)}
        self.a = self.d = self.dt_bias = self.norm = self.out = None


class Part:
    """Columns that a mixer reads: the product of a matrix, of the product of `first` and then a matrix where that is not None, or,
    where `heads` is not 0, `size` columns from `start` on of each of `heads` equal parts of the product."""

    __slots__ = ("first", "heads", "matrix", "size", "start", "stride", "width")

    def __init__(self, matrix, width, first=None, heads=0, stride=0, start=0):
        self.matrix = matrix
        self.width = width
        self.first = first  # (matrix, its width) before it
        self.heads, self.stride, self.start = heads, stride, start
        self.size = width // heads if heads else 0


def read_mixers(file, key, family, spec):
    """Fills `mixer` of every layer; one that has it instead of attention has no heads, and of a family whose layers are one part
    each all but that part is taken away."""
    layers = spec.layers
    chosen = MIXED_LAYERS[family.mixer_in](file, key, family, layers)
    sizes = SIZES[family.mixer](file, key, spec) if any(chosen) else None
    for layer, mixes in zip(layers, chosen, strict=True):
        if family.one_part and (mixes or layer.feed_forward):
            layer.heads = layer.kv_heads = 0
        if not mixes:
            continue
        layer.mixer = mixer = Mixer(family.mixer)
        mixer.key_order, mixer.norm_if = family.key_order, family.scan_norm
        for word, value in sizes.items():
            setattr(mixer, word, value)
        if family.mixer_in != "beside":
            layer.heads = layer.kv_heads = 0
        if family.mixer_in == "all":
            layer.feed_forward = 0


# ---- which layers -------------------------------------------------------------------------------------------


def by_interval(file, key, family, layers):
    """All but every n-th, full_attention_interval; the array recurrent_layers says otherwise."""
    name = key + "attention.recurrent_layers"
    if file.has(name):
        blocks = file.u(key + "block_count")
        flags = read_flags(file, name, blocks)
        return [flags[layer.index] for layer in layers]
    every = file.u(key + "full_attention_interval", 4)
    if every < 1:
        raise ModelFileError("the interval of attention layers is 0", "1 or more", every, key + "full_attention_interval")
    return [(layer.index + 1) % every != 0 for layer in layers]


MIXED_LAYERS = {
    "interval": by_interval,
    "no keys": lambda file, key, family, layers: [
        not layer.kv_heads and not (family.one_part and layer.feed_forward) for layer in layers
    ],
    "all": lambda file, key, family, layers: [True] * len(layers),
    "beside": lambda file, key, family, layers: [True] * len(layers),
}


# ---- sizes --------------------------------------------------------------------------------------------------


def sized(file, name, least=1, most=MOST):
    value = file.u(name)
    if not least <= value <= most:
        raise ModelFileError("a size in the metadata is out of range", f"{least} to {most}", value, name)
    return value


def divides(whole, part, where):
    """whole / part, refused where that is no whole number."""
    if whole % part:
        raise ModelFileError("sizes of a recurrent layer contradict each other", f"a multiple of {part}", whole, where)
    return whole // part


def checked(sizes, where):
    """Sizes whose state is of a size that some memory holds."""
    state = sizes["heads"] * sizes["key_dim"] * sizes["value_dim"]
    if state > MOST_STATE:
        raise ModelFileError("the state of a recurrent layer is out of range", f"at most {MOST_STATE} numbers", state, where)
    return sizes


def delta_sizes(file, key, spec):
    taps = sized(file, key + "ssm.conv_kernel", 2, MOST_TAPS)
    key_dim, key_heads = sized(file, key + "ssm.state_size"), sized(file, key + "ssm.group_count")
    heads, inner = sized(file, key + "ssm.time_step_rank"), sized(file, key + "ssm.inner_size")
    divides(heads, key_heads, key + "ssm.time_step_rank")
    value_dim = divides(inner, heads, key + "ssm.inner_size")
    sizes = {"taps": taps, "heads": heads, "key_heads": key_heads, "key_dim": key_dim, "value_dim": value_dim, "inner": inner}
    return checked(sizes, key + "ssm.state_size")


def channel_sizes(file, key, spec):
    taps, dim = sized(file, key + "ssm.conv_kernel", 2, MOST_TAPS), sized(file, key + "kda.head_dim")
    heads = spec.layers[0].heads
    sizes = {"taps": taps, "heads": heads, "key_heads": heads, "key_dim": dim, "value_dim": dim, "inner": heads * dim}
    return checked(sizes, key + "kda.head_dim")


def scan_sizes(file, key, spec):
    """A group of keys serves several heads, as in attention; a state has a row for each of its numbers."""
    sizes = delta_sizes(file, key, spec)
    divides(sizes["inner"], sizes["key_heads"], key + "ssm.inner_size")
    return sizes


def conv_sizes(file, key, spec):
    return {"taps": sized(file, key + "shortconv.l_cache", 2, MOST_TAPS), "inner": spec.width}


SIZES = {"delta": delta_sizes, "delta of channels": channel_sizes, "scan": scan_sizes, "conv": conv_sizes}


# ---- tensors ------------------------------------------------------------------------------------------------


def read_mixer_tensors(taken, layer, width):
    """Names the tensors of a layer's mixer."""
    mixer, start = layer.mixer, names.prefix(layer.index)
    TENSORS[mixer.kind](taken, mixer, start, width)


def filters(taken, mixer, role, channels, *parts, biased=False):
    """The filters of a convolution over `channels`, shared out among the words of `parts` (word, count) in that order."""
    name = taken.need(role + ".weight", (mixer.taps, channels))
    bias = taken.need(role + ".bias", (channels,)) if biased else None
    first = 0
    for word, count in parts:
        mixer.convs[word] = name, bias, first
        first += count


def rows_of(matrix, *parts):
    """{word: Part} of consecutive rows of a matrix."""
    found, first = {}, 0
    for word, count in parts:
        found[word] = Part(Matrix(matrix, None, (first, count)), count)
        first += count
    return found


def delta_tensors(taken, mixer, start, width):
    keys, values, heads, groups = mixer.key_heads * mixer.key_dim, mixer.inner, mixer.heads, mixer.key_heads
    own, channels = values // groups, 2 * keys + values  # values of one key head
    if f"{start}{names.SSM_IN}.weight" in taken.tensors:  # all of one key head together
        joint = taken.matrix(start + names.SSM_IN, width, channels + values, False)
        stride = 2 * mixer.key_dim + 2 * own
        places = {"q": (keys, 0), "k": (keys, mixer.key_dim), "v": (values, 2 * mixer.key_dim), "z": (values, stride - own)}
        for word, (count, first) in places.items():
            mixer.inputs[word] = Part(joint, count, None, groups, stride, first)
    else:
        fused = taken.need(f"{start}{names.ATTN_QKV}.weight", (width, channels))
        mixer.inputs |= rows_of(fused, ("q", keys), ("k", keys), ("v", values))
        mixer.inputs["z"] = Part(taken.matrix(start + names.ATTN_GATE, width, values, False), values)
    if f"{start}{names.SSM_BA}.weight" in taken.tensors:
        joint, each = taken.matrix(start + names.SSM_BA, width, 2 * heads, False), heads // groups
        for word, first in (("beta", 0), ("dt", each)):
            mixer.inputs[word] = Part(joint, heads, None, groups, 2 * each, first)
    else:
        mixer.inputs["beta"] = Part(taken.matrix(start + names.SSM_BETA, width, heads, False), heads)
        mixer.inputs["dt"] = Part(taken.matrix(start + names.SSM_ALPHA, width, heads, False), heads)
    filters(taken, mixer, start + names.SSM_CONV, channels, ("q", keys), ("k", keys), ("v", values))
    read_decay(taken, mixer, start, (heads,), heads)
    mixer.norm = taken.need(f"{start}{names.SSM_NORM}.weight", (mixer.value_dim,))
    mixer.out = taken.matrix(start + names.SSM_OUT, values, width, False)


def read_decay(taken, mixer, start, shape, steps):
    mixer.a = taken.need(start + names.SSM_A, shape)
    mixer.dt_bias = taken.need(f"{start}{names.SSM_DT}.bias", (steps,))


def channel_tensors(taken, mixer, start, width):
    wide, dim = mixer.inner, mixer.key_dim
    for word, role in (("q", names.ATTN_Q), ("k", names.ATTN_K), ("v", names.ATTN_V)):
        mixer.inputs[word] = Part(taken.matrix(start + role, width, wide, False), wide)
        name = taken.need(f"{start}{names.SSM_CONV}_{word}.weight", (mixer.taps, 1, wide))
        mixer.convs[word] = name, None, 0
    for word, role in (("dt", names.SSM_F), ("z", names.SSM_G)):
        first = taken.matrix(f"{start}{role}_a", width, dim, False)
        mixer.inputs[word] = Part(taken.matrix(f"{start}{role}_b", dim, wide, False), wide, (first, dim))
    mixer.inputs["beta"] = Part(taken.matrix(start + names.SSM_BETA, width, mixer.heads, False), mixer.heads)
    read_decay(taken, mixer, start, (1, mixer.heads), wide)
    mixer.norm = taken.need(f"{start}{names.SSM_NORM}.weight", (dim,))
    mixer.out = taken.matrix(start + names.ATTN_OUTPUT, wide, width, False)


def scan_tensors(taken, mixer, start, width):
    inner, heads, keys = mixer.inner, mixer.heads, mixer.key_heads * mixer.key_dim
    joint = taken.need(f"{start}{names.SSM_IN}.weight", (width, 2 * inner + 2 * keys + heads))
    mixer.inputs |= rows_of(joint, ("z", inner), ("v", inner), ("k", keys), ("q", keys), ("dt", heads))
    filters(taken, mixer, start + names.SSM_CONV, inner + 2 * keys, ("v", inner), ("k", keys), ("q", keys), biased=True)
    read_decay(taken, mixer, start, (1, heads), heads)
    mixer.d = taken.need(start + names.SSM_D, (1, heads))
    norm = taken.optional if mixer.norm_if == "optional" else taken.need
    mixer.norm = norm(f"{start}{names.SSM_NORM}.weight", (inner // mixer.key_heads, mixer.key_heads))
    mixer.out = taken.matrix(start + names.SSM_OUT, inner, width, False)


def conv_tensors(taken, mixer, start, width):
    joint = taken.need(f"{start}{names.SHORTCONV_IN}.weight", (width, 3 * width))
    mixer.inputs = rows_of(joint, ("k", width), ("z", width), ("v", width))
    filters(taken, mixer, start + names.SHORTCONV, width, ("k", width))
    mixer.out = taken.matrix(start + names.SHORTCONV_OUT, width, width, False)


TENSORS = {"delta": delta_tensors, "delta of channels": channel_tensors, "scan": scan_tensors, "conv": conv_tensors}
