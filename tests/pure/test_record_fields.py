"""Every field of the family records: put back to its default, or set to another value, it must be missed by some file.

Missed is: the file is refused, or its logits move by ten times what they may differ from llama.cpp's. A field that nothing
misses would not be tested by comparing with llama.cpp either.
"""

import pytest
import test_families
from tiny import MODELS, Model, write

from reflex import arch
from reflex.arch.spec import FAMILY_DEFAULTS, NORMS, Family
from reflex.errors import ModelFileError, UnsupportedError

# What other files would miss: a number of layers and an output matrix that those here do not have.
ELSEWHERE = {"only_layers", "output"}
SAME_HERE = {("gemma2", "window"), ("exaone4", "window")}  # the key is in the file; the default is for files without it
SAME_HERE |= {(family, "window_every") for family in ("kolibri1", "mimo2", "gemma4", "step35")}
LATER = {("llama4", "chunk"), ("llama4", "temper")}  # after 8192 tokens: tests/cpu/test_long_context.py
PARTS = ("keys", "rope_factors", "biases")  # tuples whose every item must be missed
OTHERS = {  # field -> values of which a record has at most one
    "norm": tuple(NORMS),
    "rope": ("norm", "neox", None),
    "act": ("silu", "gelu", "relu2"),
    "gate": ("split", "fused", None),
    "parallel": ("always", "one norm"),
    "positions": (True,),
    "embed_scale": (None, "sqrt width"),
    "logit_scale": (None, "divide", "multiply"),
    "attn_softcap": (0.0, 2.0),
    "final_softcap": (None, 0.9),
    "attn_out_norm": (None, "post_attention_norm"),
    "ffn_out_norm": (None, "post_ffw_norm"),
    "head_norm": (None, "rms", "row rms", "layer"),
    "head_norm_at": ("before rope", "after rope"),
    "gating": ("softmax", "sigmoid", "softmax of chosen"),
    "renormalize": (True, False),
}
UNSEEN = {  # (field, value) -> of which records a file cannot tell
    ("parallel", "always"): lambda f: f.attn_norm is None or f.parallel == "key" or f.ffn_norm == "attn_norm" or f.streams,
    ("parallel", "one norm"): lambda f: f.parallel == "one norm",
    ("rope", "norm"): lambda f: f.rope is None,
    ("rope", "neox"): lambda f: f.rope is None,
    ("head_norm_at", "after rope"): lambda f: f.head_norm is None,
    ("attn_softcap", 2.0): lambda f: f.attn_softcap or f.latent,
    ("final_softcap", 0.9): lambda f: f.final_softcap is not None,
    ("embed_scale", "sqrt width"): lambda f: "embedding_scale" in f.keys,
    ("rope", None): lambda f: f.latent,
    ("act", "relu2"): lambda f: f.gate is not None,
    ("gate", "fused"): lambda f: f.experts == "always",  # perhaps of every layer
    ("gate", None): lambda f: f.experts == "always",
}
UNSEEN |= {("head_norm", kind): lambda f: f.latent for kind in OTHERS["head_norm"]}
UNSEEN |= {("gating", kind): lambda f: f.experts == "never" or f.gating is None for kind in OTHERS["gating"]}
UNSEEN |= {  # a softmax over all that is divided by the sum of the chosen is one over the chosen
    ("gating", "softmax of chosen"): lambda f: f.experts == "never" or f.gating is None or f.renormalize,
    ("renormalize", True): lambda f: f.experts == "never" or f.gating == "softmax of chosen",
    ("renormalize", False): lambda f: f.experts == "never" or f.beside,  # a norm follows
}


def alone(field, value):
    """Not seen either where a layer is a mixer and nothing else."""
    known = UNSEEN.get((field, value), lambda f: False)
    return lambda f: f.mixer_in == "all" or known(f)


FEED_FORWARD_OR_ATTENTION = ("act", "gate", "parallel", "attn_softcap", "ffn_out_norm", "head_norm")
UNSEEN |= {(field, value): alone(field, value) for field in FEED_FORWARD_OR_ATTENTION for value in OTHERS[field]}


def changes(family):
    """(field, value) for every field of a record that is not the default, and every other value of OTHERS."""
    record = arch.find(family).FAMILY
    seen = []
    for field, default in FAMILY_DEFAULTS.items():
        value = getattr(record, field)
        if field in PARTS and value != default:
            seen += [(field, tuple(item for item in value if item != dropped)) for dropped in value]
        elif field not in ELSEWHERE and (family, field) not in SAME_HERE | LATER:
            seen.append((field, default))
    seen += [(field, value) for field, values in OTHERS.items() for value in values]
    for field, value in dict.fromkeys(seen):
        if value != getattr(record, field) and not UNSEEN.get((field, value), lambda f: False)(record):
            yield family, field, value


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The tiny models of a family, the plain one first and deep ones last, each with its logits; written when asked for."""
    made = {}

    def of(family):
        names = sorted(
            (name for name in MODELS if MODELS[name][0] == family), key=lambda name: (Model(name).layers, name != family)
        )
        for name in names:
            if name not in made:
                path = tmp_path_factory.mktemp("record") / "m.gguf"
                norms = {key: 1e-5 for _, key, _, _ in NORMS.values()}  # so that the other kind of norm finds its key
                write(name, path, keys={} if norms.keys() & Model(name).keys.keys() else norms)
                model = test_families.Tiny(path)
                made[name] = path, test_families.feed(model.plan(), IDS)
                model.file.close()
            yield made[name]

    return of


IDS = test_families.text(60)


@pytest.mark.parametrize("family, field, value", [row for family in arch.families() for row in changes(family)])
def test_every_field_of_a_shipped_family_matters(files, monkeypatch, family, field, value):
    module = arch.find(family)
    facts = {name: getattr(module.FAMILY, name) for name in FAMILY_DEFAULTS} | {field: value}
    for path, right in files(family):
        with monkeypatch.context() as patch:
            patch.setattr(module, "FAMILY", Family(**facts))
            if missed(path, right):
                return
    pytest.fail("no file of the family misses it")


def missed(path, right):
    try:
        model = test_families.Tiny(path)
    except (UnsupportedError, ModelFileError):  # tensors without a reader, keys without a use
        return True
    wrong = test_families.feed(model.plan(), IDS)
    model.file.close()
    return not test_families.distance(wrong, right) < 10 * test_families.AGAINST_LLAMA
