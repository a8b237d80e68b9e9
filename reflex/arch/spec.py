"""Records of the model layer: what a family is (Family) and what one file holds (Spec and its parts).

Family states the facts of an architecture that no file states; `arch/<architecture>.py` is one Family and nothing else.
Spec is the answer for one file: every size known, every tensor named, every default applied. It refuses nothing itself
(arch/load.py does); program/build.py is its reader. Plain classes with slots, because dataclasses cost a cold start 2 ms.
"""

from ..errors import InternalError

FAMILY_DEFAULTS = {
    "only_layers": 0,  # the one number of layers that this record describes; 0: any
    "missing_parts": False,  # layers may lack a part: head_count 0: attention; head_count_kv 0: all of it but attn_output;
    # feed_forward_length 0: the whole layer does not run
    "keys": (),  # keys of the file, without the architecture, whose mathematics this family has: those of sizes.NEUTRAL, which
    # are refused elsewhere, those of rotation.py, which are of no effect elsewhere, and those of experts.py, which elsewhere must
    # agree with the record
    # norms, by tensor role; None: the block has no norm at that place; a tuple: the first of them that the file has
    "attn_norm": "attn_norm",  # before attention
    "attn_out_norm": None,  # on the output of attention, before the residual addition
    "ffn_norm": "ffn_norm",  # before the feed-forward
    "ffn_out_norm": None,  # on the output of the feed-forward, before the residual addition
    "norm": "rms",  # of the blocks and the last one, see NORMS: rms | "rms+bias" | layer | "layer+bias" | "layer-weight"
    "parallel": "one norm",  # when the feed-forward reads, like attention, what the block began with: "one norm" (where both norms
    # are one tensor) | always | "key" (use_parallel_residual)
    "head_norm": None,  # norm of q and k: None | "rms" (of each head) | "row rms" (of all heads together) | "layer" (of each
    # head, by weights of its own)
    "head_norm_if": "always",  # always | stored (where the file has the tensors)
    "head_norm_at": "before rope",  # "before rope" | "after rope"
    "unit_norm": None,  # RMS norm of every head without weights: None | "q and k" (of those that rotate, behind the rotation,
    # unless there are 128 experts) | "v"
    "latent": None,  # queries, keys and values by way of compressed ones (arch/latent.py): None | "same strength" (the rotated
    # dimensions have YaRN's strength for all dimensions) | "strength 1"
    "query_gate": False,  # attn_q has, head by head, queries and then as many gates, whose sigmoid multiplies the head's output
    "out_gate": None,  # attn_gate, a matrix whose product, through a sigmoid, multiplies what attention gives before attn_output:
    # None | "elements" (one gate per element) | "heads" (one per head)
    "keys_as_values": False,  # a layer without attn_v takes what attn_k gives, before norm and rotation, as values
    # mixers that carry a state from token to token (arch/recurrent.py)
    "mixer": None,  # None | "delta" (gated delta rule) | "delta of channels" (Kimi's) | "scan" (Mamba-2) | "conv" (short one)
    "mixer_in": "no keys",  # layers that have it instead of attention: "no keys" (head_count_kv 0) | "interval" (all but every
    # full_attention_interval-th, or as recurrent_layers says) | "all" (and nothing else) | "beside" (all, beside attention)
    "key_order": "tiled",  # which key head a value head h of a delta rule reads: "tiled" (h mod key heads) | "grouped"
    "scan_norm": "required",  # ssm_norm behind a scan: required | optional (without it nothing is normed there)
    "one_part": False,  # a block is one norm and one part: feed-forward where feed_forward_length is not 0, attention where
    # head_count_kv is not 0, else the mixer
    # positions
    "positions": False,  # position_embd is added to the embedding
    "rope": "neox",  # norm: pairs (2i, 2i+1) | neox: pairs (i, i + n/2) | None: nothing rotates
    "rope_on": "all",  # all | "not every 4th" | "windowed" | "windowed if any"
    "rope_factors": (),  # factor tensors: "freqs" (rope_freqs), "long" (rope_factors_long and _short, of type longrope)
    # | "always long" (of any type); "full freqs": of layers without a window
    "rope_share": 1.0,  # part of rope.dimension_count that layers without a window rotate
    # sliding window
    "window_if": "never",  # never | key (where the key is set) | always
    "window_layers": 0,  # only a model with this many layers has windows; 0: any
    "window": 0,  # default of attention.sliding_window, tokens, the current one included; 0: a file must say
    "window_every": 0,  # every n-th layer attends to everything, the others to the window; None: the file must say of each
    "chunk": 0,  # windowed layers see the positions from the last multiple of it on, whatever attention.sliding_window says but 0
    "temper": None,  # (scale, positions): queries of layers that do not rotate grow by ops/temper.py, counted from position 1
    "window_base": None,  # windowed layers rotate by rope.freq_base_swa; its default: a number | "base" (as the others)
    "sinks": None,  # attn_sinks, one more score per head, without a value: None | "optional" | "required"
    "window_scaled": True,  # windowed layers get the rope scaling too
    # scales
    "attn_scale": 0.0,  # of the scores; 0: 1/sqrt(key_dim)
    "scale_by_width": 0,  # a model with this many layers scales scores by 1/sqrt(width/heads), not 1/sqrt(key_dim)
    "attn_softcap": 0.0,  # default of attn_logit_softcapping; 0: never capped
    "final_softcap": None,  # default of final_logit_softcapping; None: never capped
    "embed_scale": None,  # embedding factor where no key gives one: None (1) | "sqrt width"
    "logit_scale": None,  # the key logit_scale: None (unused) | "multiply" | "divide"
    # feed-forward and output
    "output_norm": "output_norm",  # role of the last norm
    "act": "silu",  # silu | gelu (tanh form) | swiglu_oai (clamped) | relu2 | xielu (its numbers are keys)
    "gate": "split",  # split: ffn_gate and ffn_up | fused: ffn_up holds the gate, then up | None: down(act(up))
    "sparse": False,  # activation_sparsity_scale: per layer, of the gate (ops/sparsify.py)
    "inputs": False,  # a small embedding of its own for every layer, embedding_length_per_layer_input; 0: there is none
    "out_scale": False,  # layer_output_scale multiplies the residual stream behind the layer, where the file has it
    "streams": False,  # several residual streams that learnt coefficients mix (arch/streams.py)
    "biases": ("qkv",),  # matrices that may have a bias: "qkv", "attn_output", "ffn", "experts", "output"
    "output": "optional",  # output.weight: optional (absent: the embedding) | tied (always the embedding) | required
    # mixtures of experts; which layers have one, and groups of experts, are keys of the file (arch/experts.py)
    "experts": "never",  # never (expert_count must be 0) | optional (expert_count decides) | always
    "gating": "softmax",  # of the router: softmax | sigmoid | "softmax of chosen" | "sigmoid of chosen" (whose choice is made by
    # the router's own numbers) | None: the key expert_gating_func must say
    "renormalize": True,  # the weights are divided by their sum; where the key expert_weights_norm is honoured: without that key
    "choice_bias": None,  # exp_probs_b, which chooses and does not weigh: None | "optional" | "required"
    "beside": False,  # a mixture has a dense feed-forward beside it, both with norms of their own, and a norm for its router alone
    "split_width": False,  # without expert_feed_forward_length an expert has feed_forward_length / expert_used_count, not all of it
    "weight_input": False,  # an expert's weight multiplies what the expert reads, not what it gives
    "shared": None,  # width of the shared expert: None | "key" (expert_shared_feed_forward_length; 0: there is none)
    # | "key or dense" (else feed_forward_length) | "key or routed" (else an expert's) | "routed" (an expert's) | "count"
    # (expert_shared_count times an expert's) | "count of key" (times the key)
    "shared_gate": False,  # ffn_gate_inp_shexp weights the shared expert's output
}

NORMS = {  # kind -> operation, key of its epsilon, whether it has a weight, a bias
    "rms": ("rmsnorm", "attention.layer_norm_rms_epsilon", True, False),
    "rms+bias": ("rmsnorm", "attention.layer_norm_rms_epsilon", True, True),
    "layer": ("layernorm", "attention.layer_norm_epsilon", True, False),
    "layer+bias": ("layernorm", "attention.layer_norm_epsilon", True, True),
    "layer-weight": ("layernorm", "attention.layer_norm_epsilon", False, False),
}


class Family:
    """The facts of one architecture; keyword arguments override FAMILY_DEFAULTS, unknown ones are refused."""

    __slots__ = tuple(FAMILY_DEFAULTS)

    def __init__(self, **facts):
        for name, value in FAMILY_DEFAULTS.items():
            setattr(self, name, facts.pop(name, value))
        if facts:
            raise InternalError("unknown field in a family record", expected=", ".join(FAMILY_DEFAULTS), found=", ".join(facts))

    def but(self, **changes):
        """Another record: this one with other facts."""
        return Family(**{name: getattr(self, name) for name in FAMILY_DEFAULTS} | changes)


class Matrix:
    """One linear map: a tensor, or the rows of a fused tensor, and its optional bias."""

    __slots__ = ("bias", "bias_row", "rows", "weight")

    def __init__(self, weight, bias=None, rows=None, bias_row=0):
        self.weight = weight  # tensor name, ne = [in, out]
        self.bias = bias  # tensor name or None
        self.rows = rows  # None: all of it | (first, count): only these output rows of weight
        self.bias_row = bias_row  # where this map's part of the bias starts


class Rotation:
    """Parameters of one rotary table, as the file states them; program/rope.py turns them into frequencies."""

    __slots__ = ("attn_factor", "base", "beta_fast", "beta_slow", "dims", "factor", "freqs", "log_multiplier")
    __slots__ += ("long", "original", "short", "style", "type", "windowed")

    def __init__(self, style, dims, base):
        self.style = style  # norm | neox
        self.dims = dims  # rotated dimensions of each head; the rest is copied
        self.base = base
        self.windowed = False  # of the layers with a window alone
        self.type = "none"  # none | linear | yarn | longrope
        self.factor = 1.0
        self.attn_factor = 1.0  # multiplies cos and sin
        self.original = 0  # context length the model was trained with before scaling, tokens
        self.beta_fast = 32.0
        self.beta_slow = 1.0
        self.log_multiplier = 0.0
        self.freqs = None  # [dims/2] divisors of the frequencies, or None
        self.long = None  # [dims/2] divisors for contexts past `original`, or None
        self.short = None  # [dims/2] divisors otherwise, or None


class Layer:
    """One block: sizes, its norms as (weight, bias) names and its matrices. What a block lacks is None, or 0 heads."""

    __slots__ = ("act_parameters", "attn_norm", "attn_out_norm", "chunk", "down", "experts", "feed_forward", "ffn_norm")
    __slots__ += ("ffn_out_norm", "gate", "heads", "index", "input_gate", "input_norm", "input_proj", "k", "k_norm", "key_dim")
    __slots__ += ("kv_heads", "latent", "limit", "mixer", "o", "out_gate", "out_scale", "owner", "parallel", "q", "q_norm")
    __slots__ += ("query_gate", "rope", "scale", "sinks", "sparsity", "streams", "up", "v", "value_dim", "window")

    def __init__(self):
        for name in ABSENT:
            setattr(self, name, None)
        self.limit = self.sparsity = 0.0  # of the activation's parts, 0: none; deviations of the gate, 0: none


# Of a layer, what few families have. owner: index of the cache that a layer without keys of its own reads.
ABSENT = ("experts", "input_gate", "input_norm", "input_proj", "latent", "mixer", "out_gate", "out_scale", "owner", "streams")


class Spec:
    """One model file, fully resolved. `layers` are those that run."""

    __slots__ = ("architecture", "attn_softcap", "clamp", "context_length", "embed_scale", "embedding", "eps", "family")
    __slots__ += ("final_softcap", "inputs", "layers", "logit_factor", "norm", "output", "output_norm", "positions")
    __slots__ += ("residual_scale", "rotations", "streams", "temper", "unit_norm", "value_scale", "vocabulary", "width")

    def __str__(self):
        first = next((layer for layer in self.layers if layer.kv_heads), self.layers[0])
        windows = sum(1 for layer in self.layers if layer.window)
        return (
            f"{self.architecture}: {len(self.layers)} layers, width {self.width}, heads {first.heads}/{first.kv_heads} of "
            f"{first.key_dim}, feed-forward {first.feed_forward}{self.mixture()}, vocabulary {self.vocabulary}, "
            f"context {self.context_length}"
            + self.recurrence()
            + (f", window {max(layer.window for layer in self.layers)} in {windows} layers" if windows else "")
        )

    def recurrence(self):
        """How many layers carry a state, in words; empty for a model without."""
        mixed = [layer.mixer.kind for layer in self.layers if layer.mixer]
        return f", {mixed[0]} in {len(mixed)} layers" if mixed else ""

    def mixture(self):
        """What the experts are, in words; empty for a model without."""
        mixed = [layer.experts for layer in self.layers if layer.experts]
        if not mixed:
            return ""
        e = mixed[0]
        shared = f", one of {e.shared.feed_forward} for all" if e.shared else ""
        return f", {e.count} experts of {e.width} in {len(mixed)} layers, {e.used} used{shared}"
