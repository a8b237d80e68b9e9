"""llama.cpp as an oracle: its C interface through ctypes, as exported by the extension module of the xllamacpp wheel.

Parameter structures are passed as blocks of bytes with a few fields written at known offsets; the offsets are checked
against the library's own defaults. Configured for exactness: plain kernels (no repacked weights, no flash attention) and
a float32 cache, so that what remains is llama.cpp's arithmetic on the file's own weights.
"""

import ctypes
import importlib.util
from pathlib import Path

import numpy as np

F32, F16 = 0, 1  # ggml type ids
MODEL_GPU_LAYERS, MODEL_REPACK = 16, 74
CONTEXT_SIZE, CONTEXT_BATCH, CONTEXT_MICRO, CONTEXT_THREADS, CONTEXT_BATCH_THREADS = 0, 4, 8, 28, 32
CONTEXT_FLASH, CONTEXT_WATCH, CONTEXT_TYPE_K, CONTEXT_TYPE_V = 52, 88, 104, 108

Pointer, Int = ctypes.c_void_p, ctypes.c_int32


class Block(ctypes.Structure):
    """Either parameter structure; larger than both and passed by value."""

    _fields_ = (("words", Int * 128),)

    def __getitem__(self, offset):
        return self.words[offset // 4]

    def __setitem__(self, offset, value):
        self.words[offset // 4] = value


class Batch(ctypes.Structure):
    _fields_ = (
        ("count", Int),
        ("tokens", ctypes.POINTER(Int)),
        ("embeddings", Pointer),
        ("positions", ctypes.POINTER(Int)),
        ("sequence_counts", ctypes.POINTER(Int)),
        ("sequences", ctypes.POINTER(ctypes.POINTER(Int))),
        ("wanted", ctypes.POINTER(ctypes.c_int8)),
    )


class Node(ctypes.Structure):
    """A ggml_tensor: a value of the graph that is computed."""


Node._fields_ = (
    ("type", Int),
    ("buffer", Pointer),
    ("ne", ctypes.c_int64 * 4),
    ("nb", ctypes.c_size_t * 4),
    ("op", Int),
    ("parameters", Int * 16),
    ("flags", Int),
    ("src", ctypes.POINTER(Node) * 10),
    ("view_src", Pointer),
    ("view_offset", ctypes.c_size_t),
    ("data", Pointer),
    ("name", ctypes.c_char * 64),
)


def array(node, kind=np.float32):
    """A copy of a node's values, in numpy's order of axes."""
    ne, nb = node.ne[::-1], node.nb[::-1]
    whole = (ctypes.c_uint8 * (sum((n - 1) * b for n, b in zip(ne, nb, strict=True)) + 4)).from_address(node.data)
    return np.ndarray(tuple(ne), kind, whole, 0, tuple(nb)).copy()


WATCH = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.POINTER(Node), ctypes.c_bool, Pointer)
LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, Pointer)
SIGNATURES = {  # function -> (result, arguments)
    "llama_log_set": (None, (LOG, Pointer)),
    "llama_backend_init": (None, ()),
    "llama_model_default_params": (Block, ()),
    "llama_context_default_params": (Block, ()),
    "llama_model_load_from_file": (Pointer, (ctypes.c_char_p, Block)),
    "llama_init_from_model": (Pointer, (Pointer, Block)),
    "llama_model_get_vocab": (Pointer, (Pointer,)),
    "llama_vocab_n_tokens": (Int, (Pointer,)),
    "llama_get_memory": (Pointer, (Pointer,)),
    "llama_memory_clear": (None, (Pointer, ctypes.c_bool)),
    "llama_decode": (Int, (Pointer, Batch)),
    "llama_get_logits_ith": (ctypes.POINTER(ctypes.c_float), (Pointer, Int)),
    "llama_adapter_lora_init": (Pointer, (Pointer, ctypes.c_char_p)),
    "llama_set_adapters_lora": (Int, (Pointer, ctypes.POINTER(Pointer), ctypes.c_size_t, ctypes.POINTER(ctypes.c_float))),
    "ggml_op_name": (ctypes.c_char_p, (Int,)),
    "llama_free": (None, (Pointer,)),
    "llama_model_free": (None, (Pointer,)),
}
_quiet = LOG(lambda level, text, data: None)


def load_library():
    """The shared object with its functions typed."""
    origin = importlib.util.find_spec("xllamacpp").origin
    library = ctypes.CDLL(str(next(Path(origin).parent.glob("xllamacpp*.so"))))
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    library.llama_log_set(_quiet, None)
    library.llama_backend_init()
    return library


class Llama:
    """A loaded model and one sequence. Close it: the library holds the memory. `watch(operation, node)` is called for every value
    that is computed."""

    def __init__(self, path, context=512, threads=1, micro=0, watch=None, own_cache=False):
        """`micro`: tokens evaluated at once, all where it is 0. `own_cache`: its usual one, float16, with flash attention."""
        self.library = library = load_library()
        parameters = library.llama_model_default_params()
        parameters[MODEL_GPU_LAYERS] = 0
        ctypes.cast(ctypes.byref(parameters), ctypes.POINTER(ctypes.c_uint8))[MODEL_REPACK] = 0
        options = library.llama_context_default_params()
        known = [options[offset] for offset in (CONTEXT_SIZE, CONTEXT_BATCH, CONTEXT_MICRO, CONTEXT_TYPE_K, CONTEXT_TYPE_V)]
        if known != [512, 2048, 512, F16, F16]:
            raise RuntimeError(f"this build of llama.cpp lays out its parameters differently: {known}")
        for offset in (CONTEXT_SIZE, CONTEXT_BATCH, CONTEXT_MICRO):
            options[offset] = context
        options[CONTEXT_MICRO] = micro or context
        options[CONTEXT_THREADS] = options[CONTEXT_BATCH_THREADS] = threads
        if not own_cache:
            options[CONTEXT_FLASH] = 0
            options[CONTEXT_TYPE_K] = options[CONTEXT_TYPE_V] = F32
        if watch:
            self._called = WATCH(lambda node, asked, _: asked or watch(library.ggml_op_name(node[0].op).decode(), node[0]) or True)
            address = ctypes.cast(self._called, Pointer).value
            options[CONTEXT_WATCH], options[CONTEXT_WATCH + 4] = address & 0x7FFFFFFF | -(address & 0x80000000), address >> 32
        self.model = library.llama_model_load_from_file(str(path).encode(), parameters)
        if not self.model:
            raise RuntimeError(f"llama.cpp refuses {path}")
        self.context = library.llama_init_from_model(self.model, options)
        self.vocabulary = library.llama_vocab_n_tokens(library.llama_model_get_vocab(self.model))

    def adapt(self, *adapters):
        """Apply adapters, pairs (path, scale), from here on."""
        loaded = [self.library.llama_adapter_lora_init(self.model, str(path).encode()) for path, _ in adapters]
        if not all(loaded):
            raise RuntimeError("llama.cpp refuses an adapter")
        count = len(loaded)
        scales = (ctypes.c_float * count)(*(scale for _, scale in adapters))
        if self.library.llama_set_adapters_lora(self.context, (Pointer * count)(*loaded), count, scales):
            raise RuntimeError("llama.cpp cannot apply these adapters")

    def logits(self, ids):
        """float32 [len(ids), vocabulary]: the logits after each token of a fresh sequence."""
        library, count = self.library, len(ids)
        library.llama_memory_clear(library.llama_get_memory(self.context), True)
        zero = (Int * 1)(0)
        sequences = (ctypes.POINTER(Int) * count)(*[ctypes.cast(zero, ctypes.POINTER(Int))] * count)
        batch = Batch(
            count,
            (Int * count)(*ids),
            None,
            (Int * count)(*range(count)),
            (Int * count)(*[1] * count),
            sequences,
            (ctypes.c_int8 * count)(*[1] * count),
        )
        code = library.llama_decode(self.context, batch)
        if code:
            raise RuntimeError(f"llama_decode failed with {code}")
        rows = [np.ctypeslib.as_array(library.llama_get_logits_ith(self.context, i), (self.vocabulary,)) for i in range(count)]
        return np.array(rows)

    def close(self):
        self.library.llama_free(self.context)
        self.library.llama_model_free(self.model)
