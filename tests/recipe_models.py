"""Small models whose tensors show every rule of llama.cpp's recipes, for tests/recorded_recipes.json and the test that reads it.

A model is a row of SHAPES; `tensors` lists its tensors as (name, shape in GGUF's order), `keys` its metadata. Rows are as short as
the formats allow, so that llama.cpp can really quantize them.
"""

WIDTH, WIDE = 256, 512
SHAPES = {  # name -> (architecture, layers, heads, key heads, experts, tied, width, extra)
    "plain": ("llama", 16, 4, 4, 0, False, WIDTH, ()),
    "grouped and tied": ("llama", 24, 8, 2, 0, True, WIDTH, ()),
    "eighty layers": ("llama", 80, 8, 1, 0, False, WIDTH, ()),
    "eight experts": ("llama", 16, 4, 2, 8, False, WIDTH, ("experts",)),
    "many experts": ("qwen3moe", 16, 4, 4, 16, False, WIDTH, ("experts",)),
    "short rows": ("llama", 8, 2, 2, 0, False, 96, ()),
    "odd rows": ("llama", 3, 2, 2, 0, True, 40, ()),
    "joined": ("phi3", 16, 4, 4, 0, False, WIDTH, ("joined",)),
    "falcon": ("falcon", 32, 8, 1, 0, False, WIDTH, ("joined",)),
    "positions": ("gpt2", 9, 4, 4, 0, True, WIDTH, ("joined", "positions")),
}


def tensors(name):
    """[(tensor's name, shape)] of a model."""
    _, layers, _, _, experts, tied, width, extra = SHAPES[name]
    rows = [("token_embd.weight", (width, 4)), ("output_norm.weight", (width,))]
    rows += [] if tied else [("output.weight", (width, 4))]
    rows += [("position_embd.weight", (width, 4))] if "positions" in extra else []
    inner = WIDE if width == WIDTH else width
    for layer in range(layers):
        own = [("attn_norm.weight", (width,)), ("attn_output.weight", (width, 2)), ("attn_output.bias", (2,))]
        own += [(f"attn_{part}.weight", (width, 2)) for part in (("qkv",) if "joined" in extra else "qkv")]
        if "experts" in extra:
            own.append(("ffn_gate_inp.weight", (width, experts)))
            own += [(f"ffn_{part}_exps.weight", (width, 2, experts)) for part in ("gate", "up", "down")]
        else:
            own += [("ffn_up.weight", (width, 2)), ("ffn_down.weight", (inner, 2))]
            own += [] if "joined" in extra else [("ffn_gate.weight", (width, 2))]
        rows += [(f"blk.{layer}.{part}", shape) for part, shape in own]
    return rows


def keys(name):
    """{key: number, float or text} that llama.cpp asks for before it quantizes."""
    arch, layers, heads, kv_heads, experts, _, width, _ = SHAPES[name]
    sizes = {"block_count": layers, "embedding_length": width, "context_length": 64, "feed_forward_length": 2}
    sizes |= {"attention.head_count": heads, "attention.head_count_kv": kv_heads, "vocab_size": 4}
    sizes |= {"expert_count": experts, "expert_used_count": 2, "expert_feed_forward_length": 2} if experts else {}
    floats = {"attention.layer_norm_rms_epsilon": 1e-5, "attention.layer_norm_epsilon": 1e-5}
    return {"general.architecture": arch, **{f"{arch}.{key}": value for key, value in {**sizes, **floats}.items()}}
