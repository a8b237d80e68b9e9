"""Recipes against what llama.cpp's own quantizer gave to every tensor (recorded_recipes.json), and their refusals."""

import json
import re
from pathlib import Path

import pytest
from recipe_models import SHAPES, tensors

from reflex.errors import InvalidInputError, UnsupportedError
from reflex.quant import recipes
from reflex.quant.types import by_name

RECORD = json.loads((Path(__file__).parents[1] / "recorded_recipes.json").read_text())


def model(name, importance=False):
    arch, layers, heads, kv_heads, experts, *_ = SHAPES[name]
    return recipes.Model(arch, layers, heads, kv_heads, experts, importance)


def chosen(name, recipe, importance=False, **options):
    """{tensor: type} by our rules."""
    rows = [(tensor, "F32", shape) for tensor, shape in tensors(name)]
    plans = recipes.choose(rows, model(name, importance), recipe, **options)
    assert [plan.name for plan in plans] == [tensor for tensor, _ in tensors(name)]
    return {plan.name: plan.type for plan in plans}


@pytest.mark.parametrize("recipe", recipes.RECIPES)
@pytest.mark.parametrize("name", SHAPES)
def test_every_tensor_gets_the_type_that_llama_cpp_gives_it(name, recipe):
    without, with_importance = RECORD["models"][name][recipe]
    names = [tensor for tensor, _ in tensors(name)]
    for importance, text in ((False, without), (True, with_importance)):
        if not text:  # llama.cpp wants importance for this one, or knows no type that fits the rows
            continue
        wanted = {tensor: RECORD["types"][ord(code) - 65] for tensor, code in zip(names, text, strict=True)}
        found = chosen(name, recipe, importance)
        assert {t: (found[t], wanted[t]) for t in names if found[t] != wanted[t]} == {}, importance


def test_the_record_covers_every_rule():
    """Each recipe was taken by llama.cpp for most models, and each type of a rule's result occurs."""
    results = {row[2] for rows in recipes.RULES.values() for row in rows if row[2]}
    assert results <= set(RECORD["types"])
    for recipe in recipes.RECIPES:
        taken = sum(bool(RECORD["models"][name][recipe][1]) for name in SHAPES)
        assert taken >= len(SHAPES) - 3, recipe


def test_types_that_do_not_fit_are_replaced_and_said():
    for recipe in ("IQ4_XS", "Q2_K", "Q4_K_M", "Q5_K_S", "Q6_K", "TQ2_0", "MXFP4_MOE", "Q8_0"):
        for columns, least in ((64, 32), (40, 1), (1, 1)):
            rows = [("blk.0.ffn_up.weight", "F32", (columns, 8)), ("output.weight", "F32", (256, 8))]
            plan = recipes.choose(rows, model("plain"), recipe)[0]
            assert columns % by_name(plan.type).elements == 0 and by_name(plan.type).elements <= max(32, least)
            assert (plan.remark and f"not {columns}" in plan.remark) or columns == 64


def test_overrides_and_named_types():
    found = chosen(
        "plain",
        "Q4_K_M",
        overrides=[(re.compile("ffn_down"), "Q8_0"), (re.compile(r"blk\.1\."), "Q5_K")],
        output="F16",
        embedding="Q2_K",
    )
    assert found["blk.1.ffn_down.weight"] == found["blk.9.ffn_down.weight"] == "Q8_0"
    assert found["blk.1.attn_q.weight"] == "Q5_K" and found["blk.2.attn_q.weight"] == "Q4_K"
    assert (found["output.weight"], found["token_embd.weight"], found["blk.1.attn_norm.weight"]) == ("F16", "Q2_K", "F32")
    assert chosen("grouped and tied", "Q4_K_M", output="Q8_0")["token_embd.weight"] == "Q8_0"
    pure = chosen("plain", "Q4_K_M", pure=True)
    assert {type for name, type in pure.items() if name.endswith("weight") and "norm" not in name} == {"Q4_K"}


def test_importance_is_demanded_where_ggml_makes_rubbish_without():
    assert recipes.needs_importance("blk.0.ffn_up.weight", "IQ2_XS", "IQ2_XS")
    assert recipes.needs_importance("blk.0.ffn_up.weight", "Q2_K", "Q2_K_S")
    assert not recipes.needs_importance("blk.0.ffn_up.weight", "Q2_K", "Q2_K")
    assert not recipes.needs_importance("token_embd.weight", "IQ2_XS", "IQ2_XS")


def test_refusals():
    with pytest.raises(InvalidInputError, match="one like Q4_K_M, Q4_K_S"):
        recipes.recipe("Q4_K_N")
    with pytest.raises(InvalidInputError, match="found nothing"):
        recipes.recipe("")
    with pytest.raises(UnsupportedError):
        chosen("plain", "Q4_K_M", output="Q9")
