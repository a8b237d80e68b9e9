"""Every field of the family record: the shipped families, and records of further architectures that llama.cpp knows.

A record that is not shipped is put where `load_spec` looks for it and must give llama.cpp's logits. Then every field that
differs from its default is put back, one at a time, and must be missed: a field that changes nothing would not be tested.
"""

import sys
from types import ModuleType

import pytest
import test_families
from llama import Llama
from tiny import MODELS, write

from reflex import arch
from reflex.arch.spec import FAMILY_DEFAULTS, Family

SIZES = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 96, "tokenizer": "spm"}
SANDWICH = {"attn_out_norm": "post_attention_norm", "ffn_out_norm": "post_ffw_norm"}
LONG = {"rope.scaling.type": "longrope", "rope.scaling.original_context_length": 64, "rope.scaling.attn_factor": 1.2}
LONG_SHORT = ("rope_factors_long", "rope_factors_short")

RECORDS = {  # architecture -> (record, TINY additions)
    "gemma2": (
        {
            **SANDWICH,
            "window": 4096,
            "window_if": "always",
            "window_every": 2,
            "window_base": "base",
            "attn_softcap": 50.0,
            "final_softcap": 30.0,
            "embed_scale": "sqrt width",
            "act": "gelu",
            "output": "never",
        },
        {
            "layers": 4,
            "head_dim": 32,
            "embed_std": 0.12,
            "keys": {
                "attention.sliding_window": 16,
                "attn_logit_softcapping": 3.0,
                "final_logit_softcapping": 1.5,
                "rope.freq_base_swa": 500.0,
            },
        },
    ),
    "granite": (
        {
            "rope": "norm",
            "embed_scale": "key",
            "residual_scale": True,
            "logit_scale": "divide",
            "scale_key": True,
            "rope_on": "unless finetuned=false",
        },
        {
            "embed_std": 0.08,
            "keys": {
                "embedding_scale": 12.0,
                "residual_scale": 0.22,
                "logit_scale": 8.0,
                "attention.scale": 0.1,
                "rope.scaling.finetuned": False,
            },
        },
    ),
    "phi3": ({"gate": "fused", "rope_factors": ("long",)}, {"fused": True, "untied": True, "factors": LONG_SHORT, "keys": LONG}),
    "exaone4": (
        {
            **SANDWICH,
            "attn_norm": None,
            "ffn_norm": None,
            "head_norm": "before rope",
            "window_if": "key",
            "window_every": 4,
            "rope_on": "windowed if any",
        },
        {"layers": 64, "keys": {"attention.sliding_window": 16}},
    ),
}


@pytest.fixture
def worst(tmp_path, monkeypatch):
    """The distance of a record's logits from llama.cpp's; the model is written once, for the right record."""

    def install(architecture, facts):
        module = ModuleType(f"reflex.arch.{architecture}")
        module.FAMILY = Family(**facts)
        module.TINY = SIZES | RECORDS[architecture][1]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(MODELS, architecture, (architecture, {}))

    def measure(architecture, facts):
        path = tmp_path / "m.gguf"
        if not path.exists():
            install(architecture, RECORDS[architecture][0])
            write(architecture, path)
        install(architecture, facts)
        model = test_families.Tiny(path)
        oracle = Llama(path, test_families.CONTEXT)
        ids = test_families.text(60)
        try:
            return test_families.distance(test_families.feed(model.plan(), ids), oracle.logits(ids))
        finally:
            oracle.close()
            model.file.close()

    return measure


@pytest.mark.parametrize("architecture", RECORDS)
def test_record_equals_llama_cpp(worst, architecture):
    assert worst(architecture, RECORDS[architecture][0]) < test_families.AGAINST_LLAMA


# What a file refuses without the field is not a matter of numbers: tensors without a reader, keys without a use.
REFUSED = {"attn_out_norm", "ffn_out_norm", "attn_norm", "ffn_norm", "head_norm", "gate", "rope_factors", "output", "only_layers"}
REFUSED |= {"embed_scale", "residual_scale", "logit_scale", "scale_key"}
SAME_HERE = {
    ("gemma2", "window"),  # the key is in the file; the default is for files without it
    ("granite", "rope"),  # this one does not rotate
}
FIELDS = [
    (architecture, field)
    for architecture, (facts, _) in RECORDS.items()
    for field in facts
    if field not in REFUSED and (architecture, field) not in SAME_HERE
]


SHIPPED = [
    (family, field)
    for family in arch.families()
    for field, default in FAMILY_DEFAULTS.items()
    if getattr(arch.find(family).FAMILY, field) != default and field not in REFUSED - {"embed_scale"}
]
MODEL_FOR = {("gemma3", "scale_by_width"): "gemma3-62-layers", ("gemma3", "final_softcap"): "gemma3-pattern"}


@pytest.mark.parametrize("family, field", SHIPPED)
def test_every_field_of_a_shipped_family_matters(tmp_path, monkeypatch, family, field):
    path = write(MODEL_FOR.get((family, field), family), tmp_path / "m.gguf")
    record = arch.find(family).FAMILY
    facts = {name: getattr(record, name) for name in FAMILY_DEFAULTS} | {field: FAMILY_DEFAULTS[field]}
    model, ids = test_families.Tiny(path), test_families.text(60)
    right = test_families.feed(model.plan(), ids)
    monkeypatch.setattr(arch.find(family), "FAMILY", Family(**facts))
    wrong = test_families.feed(test_families.Tiny(path).plan(), ids)
    assert test_families.distance(wrong, right) > 10 * test_families.AGAINST_LLAMA


@pytest.mark.parametrize("architecture, field", FIELDS)
def test_every_field_matters(worst, architecture, field):
    facts = RECORDS[architecture][0] | {field: FAMILY_DEFAULTS[field]}
    assert worst(architecture, facts) > 10 * test_families.AGAINST_LLAMA
