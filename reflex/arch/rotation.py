"""Rotary parameters of a file: which layers rotate, by which base, with which scaling and factor tensors.

Two tables at most: one for full and one for windowed layers. Refuses unknown scaling types (UnsupportedError) and
dimensions that do not fit a head (ModelFileError). Called by arch/sizes.py; factors are attached by arch/tensors.py.
"""

from ..errors import ModelFileError, UnsupportedError
from .spec import Rotation

SCALING_TYPES = ("none", "linear", "yarn", "longrope")
LARGEST_BASE = 1e30


def read_rotations(file, key, family, spec):
    """Fills spec.rotations and the `rope` index of every layer (None: no rotation)."""
    spec.rotations = []
    full = read_full(file, key, family, spec) if family.rope else None
    if full is None or ("rope.scaling.finetuned" in family.keys and not file.b(key + "rope.scaling.finetuned", True)):
        for layer in spec.layers:
            layer.rope = None
        return
    own = windowed_differs(file, key, family)
    index = {}
    any_window = any(layer.window or layer.chunk for layer in spec.layers)
    for layer in spec.layers:
        if not rotates(family.rope_on, layer, any_window):
            layer.rope = None
            continue
        kind = "windowed" if own and layer.window else "full"
        if kind not in index:
            index[kind] = len(spec.rotations)
            spec.rotations.append(full if kind == "full" else read_windowed(file, key, family, full, layer.key_dim))
        layer.rope = index[kind]


def stated(file, key, family, name, default):
    """The number under a key that only some families honour; elsewhere the default."""
    return file.f(key + name, default) if name in family.keys else default


def windowed_differs(file, key, family):
    if family.window_base is not None or not family.window_scaled or "full freqs" in family.rope_factors:
        return True
    return family.rope_share != 1.0 or file.has(key + "rope.dimension_count_swa")


def rotates(rule, layer, any_window):
    if rule == "not every 4th":
        return (layer.index + 1) % 4 != 0
    return rule == "all" or bool(layer.window or layer.chunk) or (rule == "windowed if any" and not any_window)


def read_dims(file, name, default, key_dim, share=1.0):
    """Rotated dimensions of heads of `key_dim`."""
    dims = int(share * file.u(name, default))
    if not 0 < dims <= key_dim or dims % 2:
        raise ModelFileError(
            "the rotated dimensions do not fit a head",
            expected=f"an even number up to key_length {key_dim}",
            found=dims,
            where=name,
        )
    return dims


def read_full(file, key, family, spec):
    key_dim = next((layer.key_dim for layer in spec.layers if not layer.window), spec.layers[0].key_dim)
    dims = read_dims(file, key + "rope.dimension_count", key_dim, key_dim, family.rope_share)
    rotation = Rotation(style_of(file, key, family), dims, base_of(file, key + "rope.freq_base", 10000.0))
    alpha = stated(file, key, family, "rope.scaling.alpha", 0.0)
    if alpha > 0:
        rotation.base = stretched(rotation.base, alpha, key_dim, key + "rope.scaling.alpha")
    read_scaling(file, key, family, rotation)
    rotation.factor = file.f(key + "rope.scaling.factor", file.f(key + "rope.scale_linear", 1.0)) or 1.0
    if rotation.type == "none":
        rotation.factor = 1.0
    rotation.original = file.u(key + "rope.scaling.original_context_length", spec.context_length)
    if rotation.factor < 0 or rotation.original <= 0:
        raise ModelFileError(
            "the rotary scaling is out of range",
            expected="a positive factor and original context length",
            found=f"{rotation.factor} and {rotation.original}",
            where=key + "rope.scaling",
        )
    return rotation


def stretched(base, alpha, key_dim, name):
    """The base that makes the context `alpha` times as long (dynamic NTK scaling at a fixed length)."""
    if key_dim > 2 and 1 / LARGEST_BASE < alpha < LARGEST_BASE:
        base *= alpha ** (key_dim / (key_dim - 2))
        if 1 < base < LARGEST_BASE:
            return base
    raise ModelFileError("the rotary base is out of range", f"more than 1, below {LARGEST_BASE:g}", f"alpha {alpha:g}", name)


def style_of(file, key, family):
    """The family's pairs. Vision files of one that honours the sections are converted for the others; their first two are set.

    The tokens of a text have one position in the first three sections and none in the fourth."""
    name = "rope.dimension_sections"
    if not file.has(key + name):
        return family.rope
    sections = file.ints(key + name)
    if any(sections[3:]):
        raise UnsupportedError(
            "some pairs would not rotate in a text", expected="three sections", found=sections[:8], where=key + name
        )
    return "neox" if name in family.keys and len(sections) > 1 and sections[0] and sections[1] else family.rope


def read_scaling(file, key, family, rotation):
    """Type, magnitude and, where the family honours them, the YaRN ramp."""
    scaling = key + "rope.scaling."
    rotation.type = file.s(scaling + "type", "linear")
    if rotation.type not in SCALING_TYPES:
        raise UnsupportedError(
            "unknown rotary scaling", expected=" or ".join(SCALING_TYPES), found=f"'{rotation.type[:60]}'", where=scaling + "type"
        )
    rotation.attn_factor = file.f(scaling + "attn_factor", 1.0)
    rotation.beta_fast = stated(file, key, family, "rope.scaling.yarn_beta_fast", rotation.beta_fast)
    rotation.beta_slow = stated(file, key, family, "rope.scaling.yarn_beta_slow", rotation.beta_slow)
    rotation.log_multiplier = stated(file, key, family, "rope.scaling.yarn_log_multiplier", 0.0)


def read_windowed(file, key, family, full, key_dim):
    """The table of windowed layers: its own base and dimensions, and no scaling where the family says so."""
    base = full.base if family.window_base in (None, "base") else family.window_base
    if family.window_base is not None:
        base = base_of(file, key + "rope.freq_base_swa", base)
    usual = min(int(full.dims / family.rope_share), key_dim)
    rotation = Rotation(full.style, read_dims(file, key + "rope.dimension_count_swa", usual, key_dim), base)
    rotation.windowed = True
    rotation.original = full.original
    if family.window_scaled:
        for name in ("type", "factor", "attn_factor", "beta_fast", "beta_slow", "log_multiplier"):
            setattr(rotation, name, getattr(full, name))
    return rotation


def base_of(file, name, default):
    base = file.f(name, default)
    if not 1 < base < LARGEST_BASE:
        raise ModelFileError("the rotary base is out of range", expected="more than 1", found=base, where=name)
    return base
