"""Emitter of the attention half of a block: norm, projections, head norms, rotation, attention, output, residual."""


def emit_attention(program, spec, layer, select):
    """Adds the steps that leave x + attention(norm(x)) in x. `select`: only wanted rows go past the keys and values."""
    x = "x"
    source = x
    if layer.attn_norm:
        source = program.buffer("h", spec.width)
        program.emit("rmsnorm", source, (x,), (layer.attn_norm,), {"eps": spec.eps})
    q = program.buffer("q", layer.heads * layer.key_dim)
    k = program.buffer("k", layer.kv_heads * layer.key_dim)
    v = program.buffer("v", layer.kv_heads * layer.value_dim)
    if not select:
        program.linear(q, source, layer.q)
    program.linear(k, source, layer.k)
    program.linear(v, source, layer.v)
    if not select:
        emit_heads(program, spec, layer, q, layer.heads, layer.q_norm)
    emit_heads(program, spec, layer, k, layer.kv_heads, layer.k_norm)
    if select:
        for buffer in (source, x) if source != x else (x,):
            program.emit("select", buffer, (buffer,))
        program.linear(q, source, layer.q)
        emit_heads(program, spec, layer, q, layer.heads, layer.q_norm)
    a = program.buffer("a", layer.heads * layer.value_dim)
    program.emit("attention", a, (q, k, v), (), attention_args(program, spec, layer))
    y = program.buffer("y", spec.width)
    program.linear(y, a, layer.o)
    if layer.attn_out_norm:
        program.emit("rmsnorm", y, (y,), (layer.attn_out_norm,), {"eps": spec.eps})
    program.emit("add", x, (x, y), (), {"scale": spec.residual_scale})


def emit_heads(program, spec, layer, buffer, heads, norm):
    """Head norm and rotation of q or k, in the order of the family."""
    normed = {"heads": heads, "head_dim": layer.key_dim, "eps": spec.eps}
    if norm and spec.family.head_norm == "before rope":
        program.emit("head_rmsnorm", buffer, (buffer,), (norm,), normed)
    if layer.rope is not None:
        program.emit("rope", buffer, (buffer,), (), {"heads": heads, "head_dim": layer.key_dim, "table": layer.rope})
    if norm and spec.family.head_norm == "after rope":
        program.emit("head_rmsnorm", buffer, (buffer,), (norm,), normed)


def attention_args(program, spec, layer):
    program.caches.append((layer.kv_heads, layer.key_dim, layer.value_dim))
    return {
        "layer": len(program.caches) - 1,
        "heads": layer.heads,
        "kv_heads": layer.kv_heads,
        "key_dim": layer.key_dim,
        "value_dim": layer.value_dim,
        "scale": layer.scale,
        "window": layer.window,
        "softcap": spec.attn_softcap,
    }
