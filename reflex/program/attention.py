"""Emitter of the attention half of a block: norm, projections, head norms, rotation, attention, output, residual."""

HEAD_NORMS = {"rms": "head_rmsnorm", "layer": "head_layernorm"}


def emit_attention(program, spec, layer, select):
    """Adds the steps that leave x + attention(norm(x)) in x, or what a mixer gives in its place or beside it. `select`: only wanted
    rows go past the keys and values.

    Returns the buffer that the feed-forward of a parallel block reads, made before x changed; None in any other block.
    """
    x = h = "x"
    if layer.attn_norm:
        h = program.buffer("h", spec.width)
        program.norm(h, x, layer.attn_norm, spec)
    if layer.mixer:
        from .recurrent import emit_mixer  # an import that most programs need not wait for

        m = emit_mixer(program, spec, layer, h)
        for buffer in (m, *(() if layer.kv_heads else ("x",))) if select else ():
            program.emit("select", buffer, (buffer,))
    if layer.latent:
        from .latent import emit_latent  # an import that most programs need not wait for

        a = emit_latent(program, spec, layer, h, select)
    elif layer.kv_heads:
        a = emit_heads(program, spec, layer, h, select)
    elif not layer.mixer:
        a = h
        if select:
            emit_select(program, h)
    parts = [(a, layer.o)] if layer.o else []
    if layer.mixer:
        parts.append((m, layer.mixer.out))
    if not parts:
        return None
    y = program.buffer("y", spec.width)
    program.linear(y, *parts[0])
    for part in parts[1:]:
        other = program.buffer("ym", spec.width)
        program.linear(other, *part)
        program.emit("add", y, (y, other), (), {"scale": 1.0})
    if layer.attn_out_norm:
        program.norm(y, y, layer.attn_out_norm, spec)
    if layer.parallel and layer.ffn_norm is not layer.attn_norm:
        h = program.buffer("f", spec.width)
        program.norm(h, x, layer.ffn_norm, spec)
    program.emit("add", x, (x, y), (), {"scale": spec.residual_scale})
    return h if layer.parallel else None


def emit_select(program, h):
    for buffer in dict.fromkeys((h, "x", *(("inputs",) if "inputs" in program.widths else ()))):
        program.emit("select", buffer, (buffer,))


def emit_heads(program, spec, layer, h, select):
    """Queries, keys and values of h, and attention; returns its buffer."""
    q = program.buffer("q", layer.heads * layer.key_dim)
    k = program.buffer("k", layer.kv_heads * layer.key_dim)
    v = program.buffer("v", layer.kv_heads * layer.value_dim)
    both, gate = q, None
    if layer.query_gate:
        both, gate = program.buffer("qg", 2 * layer.heads * layer.key_dim), program.buffer("gate", layer.heads * layer.key_dim)
    queries, others = [(both, layer.q)], [(k, layer.k), (v, layer.v)]
    if layer.out_gate:
        gate = program.buffer("gate", layer.heads * (layer.value_dim if spec.family.out_gate == "elements" else 1))
        queries.append((gate, layer.out_gate))
    others = [part for part in others if part[1]]  # a layer may lack v, and one that reads another's cache both
    emit_products(program, spec, h, others if select else queries + others)
    if not select:
        emit_queries(program, spec, layer, q, both, gate)
    if layer.owner is None:
        emit_keys(program, spec, layer, k, v)
    if select:
        emit_select(program, h)
        emit_products(program, spec, h, queries)
        emit_queries(program, spec, layer, q, both, gate)
    a = program.buffer("a", layer.heads * layer.value_dim)
    ins = (q, k, v) if layer.owner is None else (q,)
    program.emit("attention", a, ins, (layer.sinks,) if layer.sinks else (), attention_args(program, spec, layer))
    if spec.value_scale != 1.0:
        program.emit("scale", a, (a,), (), {"factor": spec.value_scale})
    if gate is None:
        return a
    if spec.family.out_gate == "heads":
        program.emit("gate_heads", a, (a, gate), (), {"heads": layer.heads})
        return a
    program.emit("gated", gate, (gate, a), (), {"act": "sigmoid"})
    return gate


def emit_keys(program, spec, layer, k, v):
    """What keys and values go through before the cache. Without a matrix of their own values are keys before that."""
    if layer.v is None:
        width = layer.kv_heads * layer.value_dim
        program.emit("head_part", v, (k,), (), {"heads": 1, "head_dim": width, "stride": width, "first": 0})
    if spec.unit_norm == "v":
        emit_unit_norm(program, spec, v, layer.kv_heads, layer.value_dim)
    emit_turned(program, spec, layer, k, layer.kv_heads, layer.k_norm)


def emit_products(program, spec, h, parts):
    for buffer, matrix in parts:
        program.linear(buffer, h, matrix)
    if spec.clamp:
        for buffer, _ in parts:
            program.emit("clamp", buffer, (buffer,), (), {"limit": spec.clamp})


def emit_queries(program, spec, layer, q, both, gate):
    for part, buffer in enumerate((q, gate) if layer.query_gate else ()):  # each head has queries and then as many gates
        args = {"heads": layer.heads, "head_dim": layer.key_dim, "stride": 2 * layer.key_dim, "first": part * layer.key_dim}
        program.emit("head_part", buffer, (both,), (), args)
    emit_turned(program, spec, layer, q, layer.heads, layer.q_norm)
    if spec.temper and (layer.rope is None or not spec.family.temper):
        emit_temper(program, spec, q)


def emit_temper(program, spec, q):
    scale, length, ahead = spec.temper
    program.emit("temper", q, (q,), (), {"scale": scale, "length": length} | ({"ahead": ahead} if ahead else {}))


def emit_turned(program, spec, layer, buffer, heads, norm):
    """Head norm and rotation of q or k, in the order of the family."""
    first = spec.family.head_norm_at == "before rope"
    if norm and first:
        emit_head_norm(program, spec, layer, buffer, heads, norm)
    if layer.rope is not None:
        program.emit("rope", buffer, (buffer,), (), {"heads": heads, "head_dim": layer.key_dim, "table": layer.rope})
        if spec.unit_norm == "q and k":
            emit_unit_norm(program, spec, buffer, heads, layer.key_dim)
    if norm and not first:
        emit_head_norm(program, spec, layer, buffer, heads, norm)


def emit_unit_norm(program, spec, buffer, heads, head_dim):
    program.emit("head_rmsnorm", buffer, (buffer,), (None,), {"heads": heads, "head_dim": head_dim, "eps": spec.eps})


def emit_head_norm(program, spec, layer, buffer, heads, norm):
    if spec.family.head_norm == "row rms":
        program.emit("rmsnorm", buffer, (buffer,), (norm,), {"eps": spec.eps})
        return
    args = {"heads": heads, "head_dim": layer.key_dim, "eps": spec.eps}
    program.emit(HEAD_NORMS[spec.family.head_norm], buffer, (buffer,), (norm,), args)


def attention_args(program, spec, layer):
    cache = layer.owner
    if cache is None:
        cache = len(program.caches)
        program.caches.append((layer.kv_heads, layer.key_dim, layer.value_dim))
    return {
        "layer": cache,
        "heads": layer.heads,
        "kv_heads": layer.kv_heads,
        "key_dim": layer.key_dim,
        "value_dim": layer.value_dim,
        "scale": layer.scale,
        "window": layer.window,
        "softcap": spec.attn_softcap,
    } | ({"chunk": layer.chunk} if 0 < layer.chunk < program.context else {})
