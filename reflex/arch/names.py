"""Tensor names: the GGUF spelling of every role, in one place. Used by arch/load.py, tests and inspect.

A layer tensor is `blk.<index>.<role>.weight`, its bias `blk.<index>.<role>.bias`.
"""

EMBEDDING = "token_embd"
POSITIONS = "position_embd"
OUTPUT = "output"
ROPE_FREQS = "rope_freqs.weight"
ROPE_LONG = "rope_factors_long.weight"
ROPE_SHORT = "rope_factors_short.weight"

ATTN_Q, ATTN_K, ATTN_V, ATTN_OUTPUT = "attn_q", "attn_k", "attn_v", "attn_output"
ATTN_QKV = "attn_qkv"  # rows: all of q, then k, then v
ATTN_Q_NORM, ATTN_K_NORM = "attn_q_norm", "attn_k_norm"
FFN_GATE, FFN_UP, FFN_DOWN = "ffn_gate", "ffn_up", "ffn_down"
ATTN_Q_A, ATTN_Q_A_NORM, ATTN_Q_B = "attn_q_a", "attn_q_a_norm", "attn_q_b"
ATTN_KV_A, ATTN_KV_A_NORM = "attn_kv_a_mqa", "attn_kv_a_norm"  # rows: the compressed dimensions, then the rotated key
ATTN_K_B, ATTN_V_B = "attn_k_b", "attn_v_b"  # a matrix per head
ATTN_KV_B = "attn_kv_b"  # both in one, head by head: rows that make keys, then those that make values
ATTN_GATE = "attn_gate"
INPUT_EMBEDDING, INPUT_MATRIX, INPUT_NORM = "per_layer_token_embd", "per_layer_model_proj", "per_layer_proj_norm"
LAYER_INPUT_GATE, LAYER_INPUT_PROJ, LAYER_INPUT_NORM = "inp_gate", "proj", "post_norm"
STREAMS_SPREAD, STREAMS_BACK = "altup_proj", "altup_unembd_proj"
STREAM_ROUTER, STREAM_ROUTER_NORM, STREAM_SCALE = "altup_router", "altup_router_norm", "altup_correct_scale"
STREAM_PREDICT, STREAM_CORRECT = "altup_predict_coef", "altup_correct_coef"
LAUREL_DOWN, LAUREL_UP, LAUREL_NORM = "laurel_l", "laurel_r", "laurel_post_norm"
LAYER_SCALE = "layer_output_scale"
DENSE_NORM, EXPERTS_BEFORE, EXPERTS_BEHIND = "post_ffw_norm_1", "pre_ffw_norm_2", "post_ffw_norm_2"  # of both side by side
ATTN_SINKS = "attn_sinks"
ROUTER, CHOICE_BIAS = "ffn_gate_inp", "exp_probs_b"  # the latter ends in .bias and has no weight
EXPERT_GATE, EXPERT_UP, EXPERT_DOWN = "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"
EXPERT_GATE_UP = "ffn_gate_up_exps"  # rows of every expert: all of gate, then up
ATTN_GATE = "attn_gate"
SSM_IN, SSM_OUT, SSM_NORM, SSM_CONV = "ssm_in", "ssm_out", "ssm_norm", "ssm_conv1d"
SSM_A, SSM_D, SSM_DT = "ssm_a", "ssm_d", "ssm_dt"  # the first two have no suffix, the last is a bias alone
SSM_BETA, SSM_ALPHA, SSM_BA = "ssm_beta", "ssm_alpha", "ssm_ba"  # rows of ssm_ba, per key head: betas, then alphas
SSM_F, SSM_G = "ssm_f", "ssm_g"  # low-rank, as _a and _b
SHORTCONV_IN, SHORTCONV, SHORTCONV_OUT = "shortconv.in_proj", "shortconv.conv", "shortconv.out_proj"
SHRINK, UNSHRINK = "ffn_latent_down", "ffn_latent_up"  # around all routed experts
SHARED_GATE, SHARED_UP, SHARED_DOWN, SHARED_ROUTER = "ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp", "ffn_gate_inp_shexp"


def prefix(index):
    """What the names of layer `index` start with."""
    return f"blk.{index}."


def layer_index(name):
    """The layer a tensor belongs to, or -1."""
    parts = name.split(".", 2)
    return int(parts[1]) if len(parts) == 3 and parts[0] == "blk" and parts[1].isdigit() else -1
