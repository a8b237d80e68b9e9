"""Rotary frequencies: a Rotation of the spec, as the file states it, becomes the numbers a backend multiplies.

Angle of pair i at position p: p * base^(-2i/n) / divisor_i / factor, n rotated dimensions. YaRN (Peng et al. 2023,
arXiv 2309.00071) blends interpolated and plain frequencies by how often a pair turns within the trained context and
stretches cos and sin. Called by program/build.py.
"""

from ..errors import ModelFileError
from .records import Rope

MOST_ANGLE = (1 << 31) * 1.5707963267948966  # kernels take angles apart into at most 2^31 quarter turns (kernels/host/rope.py)
LARGEST_MAGNITUDE = 1e30


def rope_table(rotation, context):
    """The Rope of a Rotation; `context`, in tokens, chooses between long and short divisors.

    ModelFileError where the numbers of the file give no usable frequencies."""
    try:
        rope = _rope_table(rotation, context)
    except (ArithmeticError, ValueError):  # a division by zero, a logarithm of what is not positive
        rope = None
    most = MOST_ANGLE / context
    if rope is None or not (all(0 <= f < most for f in rope.frequencies) and abs(rope.magnitude) < LARGEST_MAGNITUDE):
        raise ModelFileError(
            "the rotary scaling gives no usable frequencies",
            expected=f"angles below 2^31 quarter turns over {context} tokens",
            found=f"base {rotation.base:g}, factor {rotation.factor:g}, magnitude {rotation.attn_factor:g}",
            where="rope.scaling",
        )
    return rope


def _rope_table(rotation, context):
    n = rotation.dims
    base = rotation.base
    plain = [base ** (-2 * i / n) for i in range(n // 2)]
    for divisors in (rotation.freqs, rotation.long if context > rotation.original else rotation.short):
        if divisors:
            plain = [frequency / divisor for frequency, divisor in zip(plain, divisors, strict=True)]
    factor = rotation.factor
    if rotation.type == "yarn":
        return Rope(yarn(rotation, plain), rotation.attn_factor * yarn_magnitude(rotation), rotation.style)
    return Rope(tuple([frequency / factor for frequency in plain]), rotation.attn_factor, rotation.style)


def yarn(rotation, plain):
    """Pairs that turn often keep their frequency, slow ones are interpolated, those between are blended."""
    from math import ceil, floor, log, pi  # a shared object to load, which most models do not need

    n, base = rotation.dims, rotation.base

    def pair_turning(times):
        return n * log(rotation.original / (times * 2 * pi)) / (2 * log(base))

    low = max(0, floor(pair_turning(rotation.beta_fast)))
    high = min(n - 1, ceil(pair_turning(rotation.beta_slow)))
    span = max(0.001, high - low)
    out = []
    for i, frequency in enumerate(plain):
        keep = 1 - min(1.0, max(0.0, (i - low) / span))
        out.append(frequency / rotation.factor * (1 - keep) + frequency * keep)
    return tuple(out)


def yarn_magnitude(rotation):
    if rotation.factor <= 1:
        return 1.0
    from math import log

    growth = 0.1 * log(rotation.factor)
    return (1 + growth) / (1 + rotation.log_multiplier * growth)
