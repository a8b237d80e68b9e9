"""The tables of llama.cpp's recipes: facts about what its quantizer gives to which tensor, in its order of precedence.

Conditions ask a `recipes.Place`. A recipe that no row of a kind names gives its main type. Called by the package alone.
"""

RECIPES = {  # name -> (general.file_type, type of most matrices)
    "F32": (0, "F32"),
    "F16": (1, "F16"),
    "BF16": (32, "BF16"),
    "Q4_0": (2, "Q4_0"),
    "Q4_1": (3, "Q4_1"),
    "Q5_0": (8, "Q5_0"),
    "Q5_1": (9, "Q5_1"),
    "Q8_0": (7, "Q8_0"),
    "Q2_K": (10, "Q2_K"),
    "Q2_K_S": (21, "Q2_K"),
    "Q3_K_S": (11, "Q3_K"),
    "Q3_K_M": (12, "Q3_K"),
    "Q3_K_L": (13, "Q3_K"),
    "Q4_K_S": (14, "Q4_K"),
    "Q4_K_M": (15, "Q4_K"),
    "Q5_K_S": (16, "Q5_K"),
    "Q5_K_M": (17, "Q5_K"),
    "Q6_K": (18, "Q6_K"),
    "IQ1_S": (24, "IQ1_S"),
    "IQ1_M": (31, "IQ1_M"),
    "IQ2_XXS": (19, "IQ2_XXS"),
    "IQ2_XS": (20, "IQ2_XS"),
    "IQ2_S": (28, "IQ2_XS"),
    "IQ2_M": (29, "IQ2_S"),
    "IQ3_XXS": (23, "IQ3_XXS"),
    "IQ3_XS": (22, "IQ3_S"),
    "IQ3_S": (26, "IQ3_S"),
    "IQ3_M": (27, "IQ3_S"),
    "IQ4_NL": (25, "IQ4_NL"),
    "IQ4_XS": (30, "IQ4_XS"),
    "TQ1_0": (36, "TQ1_0"),
    "TQ2_0": (37, "TQ2_0"),
    "MXFP4_MOE": (38, "MXFP4"),
    "Q1_0": (40, "Q1_0"),
}

KINDS = (  # part of a name -> kind; the first that is found
    ("attn_qkv.weight", "attn_qkv"),
    ("attn_kv_b.weight", "attn_kv_b"),
    ("attn_v.weight", "attn_v"),
    ("attn_k.weight", "attn_k"),
    ("attn_q.weight", "attn_q"),
    ("attn_output.weight", "attn_output"),
    ("ffn_up", "ffn_up"),
    ("ffn_gate", "ffn_gate"),
    ("ffn_down", "ffn_down"),
)

KEPT = (  # parts of the names of matrices that stay what they are
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "position_embd.weight",
    "token_types.weight",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    "time_mix_first.weight",
    "time_mix_w0.weight",
    "time_mix_w1.weight",
    "time_mix_w2.weight",
    "time_mix_v0.weight",
    "time_mix_v1.weight",
    "time_mix_v2.weight",
    "time_mix_a0.weight",
    "time_mix_a1.weight",
    "time_mix_a2.weight",
    "time_mix_g1.weight",
    "time_mix_g2.weight",
    "time_mix_decay_w1.weight",
    "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight",
    "attn_rel_b.weight",
    ".position_embd",
    "sam.pos_embd",
    "sam.neck.",
    "sam.net_",
    ".rel_pos",
    ".patch_embd",
    ".patch_merger",
    "a.rvq.codebook",
    "mm.a.code_embd",
)

FALLBACK = {  # for rows that are no whole number of blocks
    **dict.fromkeys(("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_XS"), "IQ4_NL"),
    **dict.fromkeys(("Q2_K", "Q3_K", "TQ1_0", "TQ2_0"), "Q4_0"),
    "Q4_K": "Q5_0",
    "Q5_K": "Q5_1",
    "Q6_K": "Q8_0",
}

NEEDED = {"IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", ("Q2_K", "Q2_K_S")}  # types, or with a recipe: importance

TWO = ("IQ2_S", "IQ2_M")
ONE = ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS")
TIED = {*TWO, *ONE, "IQ3_XXS"}  # whose logits come from Q5_K
EXPERT_TYPE = {"MXFP4_MOE": "MXFP4"}  # all that are no experts get Q8_0


def always(at):
    return True


def early(share):
    """In the first 1/share of the layers."""
    return lambda at: at.layer < at.layers // share


def before(layer):
    return lambda at: at.layer < layer


def grouped(at):
    """Four query heads or more for each key head."""
    return at.model.gqa >= 4


def both(*conditions):
    return lambda at: all(condition(at) for condition in conditions)


def without_importance(at):
    return not at.model.importance


def with_importance(at):
    return at.model.importance


def eight(at):
    return at.model.experts == 8


def falcon(at):
    return at.model.arch == "falcon"


def no(condition):
    return lambda at: not condition(at)


def more_bits(at):
    """The first and the last eighth of the layers, and each third one between."""
    eighth = at.layers // 8
    return at.layer < eighth or at.layer >= 7 * at.layers // 8 or (at.layer - eighth) % 3 == 2


def middle(at):
    return at.layers // 8 <= at.layer < 7 * at.layers // 8


def grouped_or_expert(at):
    return grouped(at) or at.model.experts >= 4


RULES = {  # kind -> rows of (recipes, condition, type)
    "token_embd": (
        (ONE, always, "Q2_K"),
        ((*TWO, "IQ3_XXS"), always, "IQ3_S"),
        (("TQ1_0", "TQ2_0"), always, "Q4_K"),
    ),
    "attn_v": (
        ((*ONE, *TWO), grouped_or_expert, "Q4_K"),
        (TWO, always, "IQ3_S"),
        (ONE, always, "Q2_K"),
        (("Q2_K", "Q2_K_S"), grouped, "Q4_K"),
        (("Q2_K",), always, "Q3_K"),
        (("IQ3_XXS", "IQ3_XS", "IQ3_S"), grouped, "Q4_K"),
        (("IQ3_XXS",), without_importance, "IQ3_S"),
        (("IQ3_M",), always, "Q4_K"),
        (("Q3_K_M",), before(2), "Q5_K"),
        (("Q3_K_M",), always, "Q4_K"),
        (("Q3_K_L",), always, "Q5_K"),
        (("IQ4_NL", "IQ4_XS"), grouped, "Q5_K"),
        (("Q4_K_M", "Q5_K_M"), more_bits, "Q6_K"),
        (("Q4_K_S",), before(4), "Q5_K"),
    ),
    "attn_k": (
        ((*ONE, *TWO), eight, "Q4_K"),
        ((*ONE, *TWO), always, None),
        (RECIPES, eight, "Q8_0"),
        (("IQ3_XS",), always, "IQ3_XXS"),
        (("IQ3_XXS",), always, "IQ2_S"),
    ),
    "attn_q": (
        (("IQ3_XS",), always, "IQ3_XXS"),
        (("IQ3_XXS",), always, "IQ2_S"),
    ),
    "ffn_down": (
        (TWO, early(8), "IQ3_S"),
        (ONE, early(8), "Q2_K"),
        (("Q2_K",), always, "Q3_K"),
        (("Q2_K_S",), early(8), "Q4_K"),
        (("IQ3_XXS",), both(without_importance, early(8)), "Q4_K"),
        (("IQ3_XXS",), without_importance, "Q3_K"),
        (("Q3_K_M",), early(16), "Q5_K"),
        (("Q3_K_M",), lambda at: not falcon(at) or more_bits(at), "Q4_K"),
        (("IQ3_M",), lambda at: early(8)(at) or (eight(at) and more_bits(at)), "Q4_K"),
        (("Q3_K_L",), falcon, "Q4_K"),
        (("Q3_K_L",), always, "Q5_K"),
        (("Q4_K_M",), both(falcon, early(16)), "Q6_K"),
        (("Q4_K_M",), both(falcon, more_bits), "Q5_K"),
        (("Q4_K_M",), both(no(falcon), more_bits), "Q6_K"),
        (("IQ4_NL", "IQ4_XS"), both(without_importance, early(8)), "Q5_K"),
        (("Q5_K_M",), more_bits, "Q6_K"),
        (("Q4_K_S",), both(no(falcon), early(8)), "Q5_K"),
        (("Q4_0",), both(with_importance, early(8)), "Q4_1"),
        (("Q5_0",), both(with_importance, early(8)), "Q5_1"),
    ),
    "attn_output": (
        ((*ONE, *TWO), eight, "Q5_K"),
        (("IQ1_S", "IQ1_M"), always, "IQ2_XXS"),
        (TWO, always, "IQ3_S"),
        (("Q3_K_L",), falcon, "Q4_K"),
        (RECIPES, falcon, None),
        (
            ("Q2_K", "IQ3_XS", "IQ3_XXS", "Q3_K_S", "Q3_K_M", "IQ4_NL", "Q4_K_S", "Q4_K_M", "IQ3_S", "IQ3_M", "IQ4_XS"),
            eight,
            "Q5_K",
        ),
        (RECIPES, eight, None),
        (("Q2_K",), always, "Q3_K"),
        (("IQ3_XXS",), always, "IQ3_S"),
        (("Q3_K_M", "IQ3_M"), always, "Q4_K"),
        (("Q3_K_L",), always, "Q5_K"),
    ),
    "ffn_gate": ((("IQ3_XS",), middle, "IQ3_XXS"),),
    "ffn_up": ((("IQ3_XS",), middle, "IQ3_XXS"),),
}
