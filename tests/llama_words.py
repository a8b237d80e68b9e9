"""llama.cpp's tokenizer as an oracle: only the vocabulary of a file is loaded, through the library that llama.py types."""

import ctypes

from llama import Int, Pointer, load_library

MODEL_VOCAB_ONLY = 72  # byte in the parameters of a model


class Words:
    """The vocabulary of one GGUF file as llama.cpp reads it."""

    def __init__(self, path):
        self.library = library = load_library()
        for name, result, arguments in (
            ("llama_tokenize", Int, (Pointer, ctypes.c_char_p, Int, Pointer, Int, ctypes.c_bool, ctypes.c_bool)),
            ("llama_detokenize", Int, (Pointer, Pointer, Int, Pointer, Int, ctypes.c_bool, ctypes.c_bool)),
            ("llama_token_to_piece", Int, (Pointer, Int, Pointer, Int, Int, ctypes.c_bool)),
            ("llama_vocab_is_eog", ctypes.c_bool, (Pointer, Int)),
            ("llama_vocab_is_control", ctypes.c_bool, (Pointer, Int)),
            ("llama_vocab_bos", Int, (Pointer,)),
            ("llama_vocab_eos", Int, (Pointer,)),
            ("llama_vocab_eot", Int, (Pointer,)),
            ("llama_vocab_get_add_bos", ctypes.c_bool, (Pointer,)),
            ("llama_vocab_get_add_eos", ctypes.c_bool, (Pointer,)),
        ):
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        parameters = library.llama_model_default_params()
        ctypes.cast(ctypes.byref(parameters), ctypes.POINTER(ctypes.c_uint8))[MODEL_VOCAB_ONLY] = 1
        self.model = library.llama_model_load_from_file(str(path).encode(), parameters)
        if not self.model:
            raise RuntimeError(f"llama.cpp refuses {path}")
        self.handle = library.llama_model_get_vocab(self.model)
        self.size = library.llama_vocab_n_tokens(self.handle)

    def encode(self, text, add_special=True, parse_special=True):
        data = text if isinstance(text, bytes) else text.encode()
        room = len(data) + 16
        ids = (Int * room)()
        count = self.library.llama_tokenize(self.handle, data, len(data), ids, room, add_special, parse_special)
        return list(ids[:count])

    def piece(self, token, special=True):
        room = ctypes.create_string_buffer(1024)
        size = self.library.llama_token_to_piece(self.handle, token, room, 1024, 0, special)
        return room.raw[:size]

    def decode(self, ids, special=True):
        """The whole text, including the clean-up of spaces that some pre-tokenizers ask for."""
        array = (Int * len(ids))(*ids)
        room = ctypes.create_string_buffer(64 * len(ids) + 64)
        size = self.library.llama_detokenize(self.handle, array, len(ids), room, len(room), False, special)
        return room.raw[:size]

    def ask(self, name, *arguments):
        """The answer of llama_vocab_<name>."""
        return getattr(self.library, f"llama_vocab_{name}")(self.handle, *arguments)

    def close(self):
        self.library.llama_model_free(self.model)
