"""A copy of a GGUF file, by the `gguf` package, in which some tensors have other bytes: the files that lab tests compare with."""

import re

import gguf
import numpy as np
from gguf.quants import dequantize
from tiny import add_encoded


def rewrite(source, target, change):
    """`change(name, values)`: None to keep a tensor, or its new (values float32, type name); `values` is a function that gives the
    present ones. Returns `target`."""
    reader = gguf.GGUFReader(str(source))
    name = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(str(target), name)
    for key, field in reader.fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture":
            main = field.types[0]
            element = field.types[-1] if main == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(key, field.contents(), main, element)
    for tensor in reader.tensors:

        def values(tensor=tensor):
            found = np.asarray(dequantize(tensor.data, tensor.tensor_type), np.float32)
            return found.reshape([int(n) for n in reversed(tensor.shape)])

        changed = change(tensor.name, values)
        if changed is None:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        elif changed[1] == "F32":
            writer.add_tensor(tensor.name, changed[0])
        else:
            add_encoded(writer, tensor.name, changed[0], gguf.GGMLQuantizationType[changed[1]])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def in_type(kind, pattern):
    """A `change` that encodes the tensors whose name has a match for `pattern` in another type."""
    return lambda name, values: (values(), kind) if re.search(pattern, name) else None
