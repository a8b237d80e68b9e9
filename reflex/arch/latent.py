"""Multi-head latent attention: its sizes, its rotary scaling and its matrices (DeepSeek-V2, arXiv 2405.04434).

A cached row is what kv_a makes of a token: `rank` compressed dimensions, normed, and one key of `turned` dimensions that rotates
and serves all heads. A head's query has `plain` dimensions, which k_b brings into the compressed space, and `turned` rotated ones;
v_b brings the attention's result out of it. Older files hold k_b and v_b as rows of one tensor, attn_kv_b, head by head: first
`plain` rows that make keys, which is the transpose of k_b, then those of v_b.
Refuses sizes that contradict each other (ModelFileError). Called by arch/sizes.py and arch/tensors.py for such families only.
"""

from math import log

from ..errors import ModelFileError
from . import names
from .sizes import positive, stated
from .spec import Matrix

MOST_SCALE = 1e6


class Latent:
    """Latent attention of one layer. `k_b` and `v_b` hold a matrix per head; Layer.key_dim and value_dim are those of a head."""

    __slots__ = ("k_b", "kv_a", "kv_a_norm", "plain", "q_a", "q_a_norm", "q_rank", "rank", "transposed", "turned", "v_b")

    def __init__(self, rank, plain, turned):
        self.rank = rank
        self.plain = plain
        self.turned = turned
        self.transposed = False  # k_b is stored the other way round


def read_latent(file, key, family, spec):
    """Fills `latent`, the sizes of a head, the scale and the tempering of every layer, once the rotations are read."""
    rank = positive(file, key + "attention.kv_lora_rank")
    split = file.has(key + "attention.key_length_mla")
    ending = "_mla" if split else ""  # with it key_length is that of the compressed form
    key_dim = positive(file, key + "attention.key_length" + ending)
    value_dim = positive(file, key + "attention.value_length" + ending)
    turned = file.u(key + "rope.dimension_count", key_dim)
    if not 0 < turned < key_dim:
        raise ModelFileError(
            "the rotated dimensions do not fit a head",
            expected=f"fewer than key_length{ending} {key_dim}",
            found=turned,
            where=key + "rope.dimension_count",
        )
    # of the compressed form; its value_length is not checked: that of Kimi Linear's files is the width by heads, which nothing has
    stated_dim = file.u(key + "attention.key_length", rank + turned) if split else rank + turned
    if stated_dim != rank + turned:
        expected = f"kv_lora_rank + rope.dimension_count = {rank + turned}"
        raise ModelFileError("sizes of latent attention disagree", expected, stated_dim, key + "attention.key_length")
    strength = magnitude(spec.rotations[0], family) if spec.rotations else 1.0
    scale = strength**2 / key_dim**0.5
    if not scale < MOST_SCALE:
        where = key + "rope.scaling.yarn_log_multiplier"
        raise ModelFileError("YaRN makes scores beyond any number", f"a scale below {MOST_SCALE:g}", scale, where)
    for layer in spec.layers:
        if layer.mixer:
            continue
        if layer.kv_heads not in (1, layer.heads):
            found, where = layer.kv_heads, f"{key}attention.head_count_kv, layer {layer.index}"
            raise ModelFileError("latent attention has one key for all heads", f"1 or {layer.heads}", found, where)
        layer.latent = Latent(rank, key_dim - turned, turned)
        layer.latent.q_rank = file.u(key + "attention.q_lora_rank", -1)
        layer.key_dim, layer.value_dim, layer.kv_heads, layer.scale = key_dim, value_dim, 1, scale
    temper = stated(file, key, family, "attention.temperature_scale", 0.0)
    spec.temper = (temper, positive(file, key + "attention.temperature_length"), 0) if temper else None


def magnitude(rotation, family):
    """What YaRN makes of queries and of keys each, rotated dimensions included. Sets what program/rope.py makes of the latter.

    The file says a tenth of the strength that all dimensions have, and nothing of that of the rotated ones: it is the same, or 1
    (Family.latent). Without the key, which older files lack, both are 1 and the rotated dimensions get it twice."""
    strength = 10 * rotation.log_multiplier
    if rotation.type != "yarn" or rotation.factor <= 1:
        rotation.log_multiplier = 0.0
        return 1.0
    growth = 0.1 * log(rotation.factor)
    rotation.log_multiplier = (1.0 if family.latent == "same strength" else strength) if strength else 0.0
    return 1 + growth * (1 if family.latent == "strength 1" or not strength else strength)


def read_latent_tensors(taken, start, layer, width):
    """Names the matrices of a layer's attention."""
    m, heads = layer.latent, layer.heads
    m.q_a = m.q_a_norm = None
    inputs, role = width, names.ATTN_Q
    if f"{start}{role}.weight" not in taken.tensors:
        role = names.ATTN_Q_B
        a = taken.tensors.get(f"{start}{names.ATTN_Q_A}.weight")
        inputs = a.shape[-1] if a is not None and len(a.shape) == 2 else 0
        m.q_a = taken.matrix(start + names.ATTN_Q_A, width, inputs, False)
        m.q_a_norm = taken.norm(start + names.ATTN_Q_A_NORM, inputs)
    rank = inputs if m.q_a else 0
    if m.q_rank not in (-1, rank):
        found = f"{rank} in {start}{names.ATTN_Q_A if m.q_a else names.ATTN_Q}.weight"
        raise ModelFileError("compressed queries contradict the metadata", f"attention.q_lora_rank {m.q_rank}", found)
    m.q_rank = rank  # dimensions of compressed queries, 0: they are not compressed
    layer.q = taken.matrix(start + role, inputs, heads * layer.key_dim, False)
    m.kv_a = taken.matrix(start + names.ATTN_KV_A, width, m.rank + m.turned, False)
    m.kv_a_norm = taken.need(f"{start}{names.ATTN_KV_A_NORM}.weight", (m.rank,))
    m.transposed = f"{start}{names.ATTN_KV_B}.weight" in taken.tensors
    if m.transposed:
        both = taken.need(f"{start}{names.ATTN_KV_B}.weight", (m.rank, heads * (m.plain + layer.value_dim)))
        m.k_b, m.v_b = Matrix(both, None, (0, m.plain)), Matrix(both, None, (m.plain, layer.value_dim))
    else:
        m.k_b = Matrix(taken.need(f"{start}{names.ATTN_K_B}.weight", (m.plain, m.rank, heads)))
        m.v_b = Matrix(taken.need(f"{start}{names.ATTN_V_B}.weight", (m.rank, layer.value_dim, heads)))
    layer.o = taken.matrix(start + names.ATTN_OUTPUT, heads * layer.value_dim, width, False)
