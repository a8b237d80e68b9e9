"""Adapter files for tests: random pairs for chosen tensors of a model, and the same model with them merged into float weights."""

import gguf
import numpy as np
from gguf.quants import dequantize, quantize

TABLE = "token_embd.weight"


def matrices(path):
    """{name: shape in GGUF's order} of the tensors of a model that have two dimensions or three."""
    found = {t.name: tuple(int(n) for n in t.shape) for t in gguf.GGUFReader(str(path)).tensors}
    return {name: shape for name, shape in found.items() if len(shape) > 1}


def pair(shape, rank, random, name=""):
    """(a, b) float32 arrays, last dimension first as numpy has it, for a matrix of `shape`; of embeddings the other way round."""
    columns, rows, *stack = shape
    if name == TABLE:
        first, second, inner = (rows, rank), (columns, rank), rank
    else:
        first, second, inner = (*stack, rank, columns), (*stack, rows, rank), columns
    a = random.standard_normal(first, "float32") / inner**0.5
    return a, (random.standard_normal(second, "float32") / rank**0.5 * 0.3).astype("float32")


def delta(name, a, b):
    """What a pair adds to its matrix."""
    return a @ b.T if name == TABLE else b @ a


def write(path, model, names, rank=8, seed=1, alpha=16.0, kind="F32", change=None, others=(), keys=()):
    """Write an adapter of `model` for the tensors `names`; {name: (a, b)} as they can be read back. `change(pairs)`: what is to be
    written instead; `others`: (name, array) beside the pairs; `keys`: {key: value or None} that differ."""
    random, shapes = np.random.default_rng(seed), matrices(model)
    architecture = gguf.GGUFReader(str(model)).fields["general.architecture"].contents()
    facts = {"general.architecture": architecture, "general.type": "adapter", "adapter.type": "lora", "adapter.lora.alpha": alpha}
    facts |= dict(keys)
    writer = gguf.GGUFWriter(str(path), facts.pop("general.architecture"))
    for key, value in facts.items():
        if value is not None:
            (writer.add_float32 if isinstance(value, float) else writer.add_string)(key, value)
    pairs = {name: pair(shapes[name], rank, random, name) for name in names}
    written = {f"{name}.lora_{end}": values for name, both in pairs.items() for end, values in zip("ab", both, strict=True)}
    for name, values in ((change(written) if change else written) | dict(others)).items():
        if kind == "F32" or values.shape[-1] % (32 if kind == "Q8_0" else 1):
            writer.add_tensor(name, values)
        else:
            data = quantize(values, gguf.GGMLQuantizationType[kind])
            writer.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType[kind])
            written[name] = dequantize(data, gguf.GGMLQuantizationType[kind]).reshape(values.shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return {name: (written[f"{name}.lora_a"], written[f"{name}.lora_b"]) for name in names}


def merging(*parts):
    """For rewrite.rewrite: matrices with all `parts` added, each (pairs, factor: scale * alpha / rank), as float32."""

    def change(name, values):
        added = [factor * delta(name, *pairs[name]) for pairs, factor in parts if name in pairs]
        return (values() + sum(added).astype("float32"), "F32") if added else None

    return change
