"""Which type each tensor of a model gets: llama.cpp's recipes, from the names, shapes and a few sizes of the model.

A recipe is a row: the number that `general.file_type` has for it and the type that most matrices get. What departs from that is in
RULES: per kind of tensor, rows of recipes, a condition on the model and the layer, and a type; the first row that fits decides.
`choose` applies them to a whole model. Reads no weights and no files. Called by tools/quantize.py and the tests.
"""

from ...errors import InvalidInputError, closest
from ..types import by_name
from .rules import EXPERT_TYPE, FALLBACK, KEPT, KINDS, NEEDED, ONE, RECIPES, RULES, TIED, TWO

__all__ = ["RECIPES", "Plan", "choose", "needs_importance", "recipe"]


class Plan:
    """The choice for one tensor: its type's name, and why it is not what the recipe or an override says (or None)."""

    __slots__ = ("name", "remark", "type")

    def __init__(self, name, type, remark=None):
        self.name = name
        self.type = type
        self.remark = remark


class Model:
    """What the rules ask about: `arch`, `layers`, `gqa` (query heads per key head), `experts`, whether importance is known."""

    def __init__(self, arch, layers, heads, kv_heads, experts, importance=False):
        self.arch = arch
        self.layers = layers
        self.gqa = heads // kv_heads if kv_heads else 0
        self.experts = experts
        self.importance = importance
        self.shared_heads = layers == 80 and heads != kv_heads  # what llama.cpp calls 70B


class Place:
    """A tensor among those of its kind: `layer` of `layers`, and the model."""

    def __init__(self, model, layer, layers):
        self.model = model
        self.layer = layer
        self.layers = layers


def recipe(name):
    """(file type number, name of the type of most matrices) of a recipe; InvalidInputError with close names."""
    found = RECIPES.get(name.upper())
    if found is None:
        raise InvalidInputError("no recipe of that name", f"one like {closest(name.upper(), RECIPES)}", name or "nothing")
    return found


def kind_of(name):
    """The kind of a tensor, for the rules."""
    if name == "output.weight":
        return "output"
    if name in ("token_embd.weight", "per_layer_token_embd.weight"):
        return "token_embd"
    return next((kind for text, kind in KINDS if text in name), "other")


def is_kept(name, shape):
    """Whether a tensor stays what it is, whatever the recipe: no matrix, or one that is small and delicate."""
    while shape and shape[-1] == 1:
        shape = shape[:-1]
    return len(shape) < 2 or not name.endswith("weight") or any(part in name for part in KEPT)


def layer_of(name):
    """The number in blk.N.; -1 where there is none."""
    parts = name.split(".")
    return int(parts[1]) if parts[0] == "blk" and len(parts) > 1 and parts[1].isascii() and parts[1].isdigit() else -1


def needs_importance(name, type, recipe_name):
    """Whether ggml's encoder makes rubbish of a tensor without importance."""
    return kind_of(name) not in ("token_embd", "output") and (type in NEEDED or (type, recipe_name.upper()) in NEEDED)


def fallback(type, columns):
    """(type that fits rows of that length, why it is not the wanted one or None)."""
    wanted = type
    if columns % by_name(type).elements:
        type = FALLBACK.get(type, type)
        if columns % by_name(type).elements:
            type = "F16"
    return type, None if type == wanted else f"{wanted} needs a multiple of {by_name(wanted).elements} columns, not {columns}"


def choose(tensors, model, name, overrides=(), output=None, embedding=None, pure=False):
    """[Plan] in the order of `tensors`, rows of (name, type's name, shape in GGUF's order).

    `overrides`: (compiled pattern, type's name), the first that is found in a tensor's name decides; `output`, `embedding`: types
    of these two; `pure`: the main type everywhere. Types that do not fit a tensor's rows are replaced, which the plan says."""
    found, seen = {}, {}
    base = recipe(name)[1]
    tied = not any(tensor == "output.weight" for tensor, _, _ in tensors)
    values = sum(kind_of(tensor) in ("attn_v", "attn_qkv", "attn_kv_b") for tensor, _, _ in tensors)
    for tensor, own, shape in sorted(tensors, key=lambda row: (layer_of(row[0]), row[0])):
        kind = kind_of(tensor)
        if is_kept(tensor, shape):
            found[tensor] = Plan(tensor, own)
            continue
        own = next((goal for pattern, goal in overrides if pattern.search(tensor)), None)
        given = {"token_embd": embedding, "output": output}.get(kind)
        if given and not (own and tensor == "per_layer_token_embd.weight"):
            type = given
        elif by_name(base).elements == 1:
            type = base
        elif own or pure:
            type = own or base
        elif output and tied and kind == "token_embd":
            type = output
        else:
            type = _by_rules(name.upper(), base, model, tensor, kind, shape, tied, values, seen)
        found[tensor] = Plan(tensor, *fallback(by_name(type).name, shape[0]))
    return [found[tensor] for tensor, _, _ in tensors]


def _by_rules(name, base, model, tensor, kind, shape, tied, values, seen):
    """The type by the recipe's rules; `seen` counts the tensors of each kind that were asked about."""
    if kind == "output" or (tied and kind == "token_embd"):
        return _output(name, base, model, shape)
    if name in EXPERT_TYPE:
        return EXPERT_TYPE[name] if len(shape) > 2 and shape[2] > 1 else "Q8_0"
    group = "attn_v" if kind in ("attn_v", "attn_qkv", "attn_kv_b") else kind
    number = seen.get(group, 0)
    seen[group] = number + 1
    if group == "attn_v":
        place = Place(model, number, values)
    else:
        by_layer = model.experts > 1 and name not in (*ONE, *TWO)
        place = Place(model, layer_of(tensor) if by_layer else number, model.layers)
    type = base
    for recipes, condition, goal in RULES.get(group, ()):
        if name in recipes and condition(place):
            type = goal or base
            break
    if group == "attn_v" and name not in (*ONE, *TWO):
        if model.shared_heads and type in ("Q3_K", "Q4_K"):
            type = "Q5_K"
        if model.experts == 8:
            type = "Q8_0"
    return type


def _output(name, base, model, shape):
    """The type of the matrix that makes logits."""
    if name in EXPERT_TYPE or model.arch == "falcon" or shape[0] % by_name(base).elements:
        return "Q8_0"
    if name in TIED:
        return "Q5_K"
    return base if base == "Q8_0" else "Q6_K"
