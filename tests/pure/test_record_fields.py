"""Every field of the family records: each that differs from its default is put back, one at a time, and must be missed.

A field that changes nothing in the logits would not be tested by comparing them with those of llama.cpp.
"""

import pytest
import test_families
from tiny import write

from reflex import arch
from reflex.arch.spec import FAMILY_DEFAULTS, Family
from reflex.errors import UnsupportedError

# What a file refuses without the field is not a matter of numbers: tensors without a reader, keys without a use.
REFUSED = {"attn_out_norm", "ffn_out_norm", "attn_norm", "ffn_norm", "head_norm", "gate", "rope_factors", "output", "only_layers"}
REFUSED |= {"logit_scale", "biases"}
SAME_HERE = {("gemma2", "window"), ("exaone4", "window")}  # the key is in the file; the default is for files without it


def without(family):
    """(family, field, value) for every field that is not the default: the default, or a tuple without one of its items."""
    record = arch.find(family).FAMILY
    for field, default in FAMILY_DEFAULTS.items():
        value = getattr(record, field)
        if value != default and field not in REFUSED and (family, field) not in SAME_HERE:
            if field == "keys":
                yield from ((family, field, tuple(key for key in value if key != dropped)) for dropped in value)
            else:
                yield family, field, default


SHIPPED = [row for family in arch.families() for row in without(family)]
MODEL_FOR = {
    ("gemma2", "scale_by_width"): "gemma2-46-layers",
    ("gemma3", "scale_by_width"): "gemma3-62-layers",
    ("gemma3", "final_softcap"): "gemma3-pattern",
    ("granite", "keys"): "granite-no-rope",
    ("exaone4", "rope_on"): "exaone4-64-layers",
    ("exaone4", "window_if"): "exaone4-64-layers",
    ("exaone4", "window_every"): "exaone4-64-layers",
    ("glm4", "keys"): "glm4-sections",
}


@pytest.mark.parametrize("family, field, value", SHIPPED)
def test_every_field_of_a_shipped_family_matters(tmp_path, monkeypatch, family, field, value):
    path = write(MODEL_FOR.get((family, field), family), tmp_path / "m.gguf")
    record = arch.find(family).FAMILY
    facts = {name: getattr(record, name) for name in FAMILY_DEFAULTS} | {field: value}
    model, ids = test_families.Tiny(path), test_families.text(60)
    right = test_families.feed(model.plan(), ids)
    monkeypatch.setattr(arch.find(family), "FAMILY", Family(**facts))
    try:
        wrong = test_families.feed(test_families.Tiny(path).plan(), ids)
    except UnsupportedError:  # a scale that the file states and nobody would read
        return
    assert test_families.distance(wrong, right) > 10 * test_families.AGAINST_LLAMA
