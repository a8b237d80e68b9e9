"""A copy of a GGUF file with its matrices in another block format: `python bench/requantize.py IN OUT TYPE`.

For measurements on formats that no file at hand has; needs the gguf package. Matrices whose rows do not fit the format keep theirs.
"""

import sys

import gguf
import numpy


def copy(source, target, kind):
    reader = gguf.GGUFReader(source)
    name = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(target, name)
    for key, field in reader.fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture":
            main = field.types[0]
            sub = field.types[-1] if main == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(key, field.contents(), main, sub)
    block = gguf.GGML_QUANT_SIZES[kind][0]
    for tensor in reader.tensors:
        data, stored = tensor.data, tensor.tensor_type
        if len(tensor.shape) == 2 and tensor.shape[0] % block == 0:
            values = gguf.quants.dequantize(data, stored).astype(numpy.float32)
            data, stored = gguf.quants.quantize(values, kind), kind
        writer.add_tensor(tensor.name, data, raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    copy(sys.argv[1], sys.argv[2], gguf.GGMLQuantizationType[sys.argv[3]])
