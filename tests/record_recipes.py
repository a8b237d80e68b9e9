"""Writes tests/recorded_recipes.json: what llama.cpp's own quantizer makes of the models of recipe_models.py and of the demo.

    python tests/record_recipes.py FOLDER VERSION

FOLDER holds a build of llama.cpp's shared libraries with llama_model_quantize (such as the npm package @node-llama-cpp/linux-x64).
Needs the demo model and the compiled kernels: an F16 file of it is made by Reflex, then quantized by llama.cpp.
"""

import ctypes
import hashlib
import json
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np
from recipe_models import SHAPES, keys, tensors

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from real import locate  # noqa: E402

from reflex.gguf.reader import open_model  # noqa: E402
from reflex.quant.recipes import RECIPES  # noqa: E402
from reflex.quant.types import by_id  # noqa: E402
from reflex.tools import quantize  # noqa: E402

REAL, WEIGHTED = "Q4_K_M", "IQ1_S"  # recipes of the demo model, the second one with importance


class Matrix(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("data", ctypes.c_void_p), ("size", ctypes.c_size_t))


class Parameters(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int32) for name in ("threads", "file_type", "output", "embedding")),
        *((name, ctypes.c_bool) for name in ("again", "quantize_output", "copy", "pure", "keep_split", "dry_run")),
        *((name, ctypes.c_void_p) for name in ("imatrix", "keys", "overrides", "pruned")),
        ("buffer", ctypes.c_size_t),
    )


class Llama:
    def __init__(self, folder):
        names = [next(Path(folder).glob(f"{stem}*.so*")) for stem in ("libggml-base", "libggml.", "libllama.")]
        self.ggml, self.llama = [ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL) for path in names][1:]
        self.ggml.ggml_backend_load_all_from_path(str(folder).encode())
        self.quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
        self.llama.llama_log_set(self.quiet, None)
        self.llama.llama_model_quantize_default_params.restype = Parameters

    def quantize(self, source, target, file_type, importance=None):
        """{tensor's name: type's name} of a file made by llama.cpp."""
        p = self.llama.llama_model_quantize_default_params()
        p.file_type, p.threads, p.again = file_type, 2, True
        if importance:
            table = (Matrix * (len(importance) + 1))()
            for row, (name, values) in zip(table, importance.items(), strict=False):
                row.name, row.data, row.size = name.encode(), values.ctypes.data, values.size
            p.imatrix = ctypes.addressof(table)
        if self.llama.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(p)):
            return None
        file = open_model(str(target))
        found = {name: by_id(tensor.type).name for name, tensor in file.tensors.items()}
        file.close()
        return found


def write(name, path):
    """A model of recipe_models.py with small random values; {name: importance}."""
    rng, importance = np.random.default_rng(1), {}
    writer = gguf.GGUFWriter(str(path), keys(name)["general.architecture"])
    for key, value in keys(name).items():
        if key != "general.architecture":
            (writer.add_float32 if isinstance(value, float) else writer.add_uint32)(key, value)
    for tensor, shape in tensors(name):
        writer.add_tensor(tensor, rng.standard_normal(shape[::-1]).astype("f4"))
        importance[tensor] = np.ones(shape[0] * (shape[2] if len(shape) > 2 else 1), "f4")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return importance


def record(llama, folder):
    """{model: {recipe: [types as digits to a list without importance, with it]}}; "" where llama.cpp refuses."""
    types, found = [], {}
    for name in SHAPES:
        importance, found[name] = write(name, folder / "model.gguf"), {}
        for recipe, (number, _) in RECIPES.items():
            texts = []
            for matrix in (None, importance):
                chosen = llama.quantize(folder / "model.gguf", folder / "out.gguf", number, matrix) or {}
                types += [one for one in dict.fromkeys(chosen.values()) if one not in types]
                texts.append("".join(chr(65 + types.index(chosen[tensor])) for tensor, _ in tensors(name) if chosen))
            found[name][recipe] = texts
    return types, found


def importance_of(tensors):
    """{name: float32 [columns]}, random numbers, for the matrices of layers; `tensors`: {name: shape in GGUF's order}."""
    names = sorted(name for name, shape in tensors.items() if len(shape) == 2 and name.startswith("blk."))
    return {name: np.exp(2 * np.random.default_rng(i).random(tensors[name][0])).astype("f4") for i, name in enumerate(names)}


def record_real(llama, folder, recipe, weighted=False):
    """{tensor: [type, SHA-256 of its bytes]} of the demo model, to F16 by Reflex and on by llama.cpp."""
    source = open_model(str(locate("smollm2")))
    quantize.write(source, str(folder / "f16.gguf"), "F16", quantize.plan(source, "F16"))
    importance = importance_of({t.name: t.shape for t in source.tensors.values()}) if weighted else None
    source.close()
    llama.quantize(folder / "f16.gguf", folder / "out.gguf", RECIPES[recipe][0], importance)
    reader = gguf.GGUFReader(folder / "out.gguf")
    return {t.name: [t.tensor_type.name, hashlib.sha256(t.data.tobytes()).hexdigest()] for t in reader.tensors}


def main():
    llama = Llama(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        types, models = record(llama, Path(folder))
        real = {REAL: record_real(llama, Path(folder), REAL)}
        weighted = {WEIGHTED: record_real(llama, Path(folder), WEIGHTED, True)}
    facts = {"made_by": "llama_model_quantize of " + sys.argv[2], "types": types, "models": models}
    facts |= {"real": real, "weighted": weighted}
    (HERE / "recorded_recipes.json").write_text(json.dumps(facts, indent=0) + "\n")


if __name__ == "__main__":
    main()
