"""Tiny models with keys or tensors that are not as they should be."""

from gguf import GGUFWriter
from tiny import Model, add_key, add_tokenizer, values


def write_changed(path, name="llama", drop=(), keys=(), tensors=(), architecture=None):
    """A tiny model with keys or tensors changed: {full key: value or None}, {tensor: numpy shape or None}."""
    model = Model(name)
    writer = GGUFWriter(str(path), architecture or model.architecture)
    metadata = model.metadata() | dict(keys)
    for key, value in metadata.items():
        if value is not None:
            add_key(writer, key, value)
    add_tokenizer(writer, model.tokenizer)
    for tensor, shape in (dict(model.shapes()) | dict(tensors)).items():
        if shape is not None:
            writer.add_tensor(tensor, values(tensor, shape, 1.0, 0))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)
