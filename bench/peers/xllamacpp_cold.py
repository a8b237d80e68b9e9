"""llama.cpp from a cold start, as lean as Python allows: only ctypes over the C API that the `xllamacpp` wheel exports.

    python3 -IS bench/peers/xllamacpp_cold.py LIBRARY MODEL PROMPT CANDIDATE...

Scores single-token candidates after the prompt with one decode and prints one JSON line with the log-probabilities.
Written to be the fastest honest peer of `reflex system1`: no numpy, no wheel package import, no warm-up, no weight
repacking (it costs more than it gives in one short decode), no teardown. Run by hand or by bench/cold.py --against;
bench/warm.py uses `load` and `encode` too. Refuses: candidates of several tokens, and a library whose parameter blocks
are laid out differently.
"""

import os
import sys
from ctypes import CDLL, CFUNCTYPE, POINTER, Structure, byref, c_bool, c_char_p, c_float, c_int, c_int8, c_int32, c_void_p, cast
from math import exp, log

# Offsets in llama_model_params and llama_context_params, which are otherwise opaque here (llama.cpp b11026 to b11739).
GPU_LAYERS, EXTRA_BUFFERS = 16, 74
CONTEXT, BATCH, MICRO_BATCH, THREADS, THREADS_BATCH, FLASH_ATTENTION = 0, 4, 8, 28, 32, 52


class Parameters(Structure):
    """Room for either parameter struct; both are passed by value through memory."""

    _fields_ = (("block", c_int8 * 512),)

    def __getitem__(self, offset):
        return cast(byref(self, offset), POINTER(c_int32))[0]

    def __setitem__(self, offset, value):
        cast(byref(self, offset), POINTER(c_int32))[0] = value


class Batch(Structure):
    """llama_batch, by the order of its fields; used only as llama_batch_get_one fills it."""

    _fields_ = (("count", c_int32), ("token", POINTER(c_int32)), *((name, c_void_p) for name in "abcde"))


def load(library, path, threads, context_tokens=512, repack=False, flash_attention=-1):
    """(the C API, model handle, context handle, vocabulary handle). `flash_attention`: -1 as the library decides, 0, 1."""
    api = CDLL(library)
    for name in ("llama_model_load_from_file", "llama_init_from_model", "llama_model_get_vocab"):
        getattr(api, name).restype = c_void_p
    api.llama_model_default_params.restype = api.llama_context_default_params.restype = Parameters
    api.llama_get_logits_ith.restype = POINTER(c_float)
    api.llama_batch_get_one.restype = Batch
    api.llama_decode.argtypes = (c_void_p, Batch)
    api.llama_model_load_from_file.argtypes = (c_char_p, Parameters)
    api.llama_init_from_model.argtypes = (c_void_p, Parameters)
    api.quiet = CFUNCTYPE(None, c_int, c_char_p, c_void_p)(lambda *_: None)
    api.llama_log_set(api.quiet, None)
    api.llama_backend_init()
    of_model, of_context = api.llama_model_default_params(), api.llama_context_default_params()
    if (of_context[CONTEXT], of_context[BATCH], of_context[MICRO_BATCH]) != (512, 2048, 512):
        sys.exit(f"{library}: its parameter layout is not the one known here")
    of_model[GPU_LAYERS] = 0
    of_model.block[EXTRA_BUFFERS] = repack
    of_context[CONTEXT], of_context[FLASH_ATTENTION] = context_tokens, flash_attention
    of_context[THREADS] = of_context[THREADS_BATCH] = threads
    model = c_void_p(api.llama_model_load_from_file(path.encode(), of_model))
    if not model:
        sys.exit(f"{path}: llama.cpp cannot load it")
    context = c_void_p(api.llama_init_from_model(model, of_context))
    if not context:
        sys.exit(f"{path}: llama.cpp cannot make a context")
    return api, model, context, c_void_p(api.llama_model_get_vocab(model))


def encode(api, vocabulary, text, special):
    data = text.encode()
    ids = (c_int32 * (len(data) + 8))()
    count = api.llama_tokenize(vocabulary, data, len(data), ids, len(ids), c_bool(special), c_bool(True))
    return ids, count


def main():
    library, path, prompt, *candidates = sys.argv[1:]
    api, _, context, vocabulary = load(library, path, len(os.sched_getaffinity(0)))
    ids, count = encode(api, vocabulary, prompt, True)
    chosen = []
    for text in candidates:
        tokens, length = encode(api, vocabulary, text, False)
        if length != 1:
            sys.exit(f"candidate {text!r} has {length} tokens; only single tokens are scored here")
        chosen.append(tokens[0])
    if api.llama_decode(context, api.llama_batch_get_one(ids, count)):
        sys.exit("llama_decode failed")
    logits = api.llama_get_logits_ith(context, -1)[: api.llama_vocab_n_tokens(vocabulary)]
    top = max(logits)
    total = top + log(sum([exp(x - top) for x in logits]))
    scores = ", ".join(f"{logits[token] - total:.6f}" for token in chosen)
    sys.stdout.write(f'{{"prompt_tokens": {count}, "logprobs": [{scores}]}}\n')
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
