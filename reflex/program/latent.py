"""Emitter of latent attention in its absorbed form: queries go into the space of the cache, results come out of it.

One form serves prompts and single tokens. Against keys and values of each head made anew it multiplies
2 (rank + turned) + 2 rank instead of 2 (key_dim + value_dim) numbers per head and pair of tokens, but reads a cache that is
2 heads times smaller, one row for all heads, and never expands one behind a held prefix; and a row's bits depend on its own text
alone, however a text is cut. docs/LOG.md has counts and times: within 1.2 of the other form up to 2,000 tokens on a CPU.
"""

from .attention import emit_select, emit_temper


def emit_latent(program, spec, layer, h, select):
    """Adds the steps of latent attention over h; returns the buffer of its results. `select`: as of emit_attention."""
    m = layer.latent
    size = m.rank + m.turned
    c = program.buffer("c", size)
    program.linear(c, h, m.kv_a)
    program.emit("head_rmsnorm", c, (c,), (m.kv_a_norm,), {"heads": 1, "head_dim": size, "eps": spec.eps})
    emit_turned(program, layer, c, 1)
    if select:
        emit_select(program, h)
    q = program.buffer("q", layer.heads * layer.key_dim)
    if m.q_a:
        a = program.buffer("qa", m.q_rank)
        program.linear(a, h, m.q_a)
        program.norm(a, a, m.q_a_norm, spec)
        h = a
    program.linear(q, h, layer.q)
    if spec.temper:
        emit_temper(program, spec, q)
    absorbed = program.buffer("absorbed", layer.heads * size)
    program.head_linear(absorbed, q, m.k_b, layer.heads, layer.key_dim, m.transposed)
    emit_turned(program, layer, absorbed, layer.heads)
    mixed = program.buffer("mixed", layer.heads * m.rank)
    program.caches.append((1, size, 0))
    args = {"layer": len(program.caches) - 1, "heads": layer.heads, "key_dim": size, "value_dim": m.rank, "scale": layer.scale}
    program.emit("latent_attention", mixed, (absorbed, c), (), args)
    out = program.buffer("a", layer.heads * layer.value_dim)
    program.head_linear(out, mixed, m.v_b, layer.heads, m.rank)
    return out


def emit_turned(program, layer, buffer, heads):
    """Rotation of what lies behind the compressed dimensions of every head."""
    m = layer.latent
    if layer.rope is None:
        return
    args = {"heads": heads, "head_dim": m.rank + m.turned, "table": layer.rope, "first": m.rank}
    program.emit("rope", buffer, (buffer,), (), args)
