"""Every hard cap of the GGUF reader in one place. A file beyond one of these is refused before anything is allocated.

Strings and arrays have no caps of their own: they lie in the header, so HEADER_BYTES bounds them.
Read by the native header walk at build time and by the reader at run time.
"""

HEADER_BYTES = 256 << 20  # the largest vocabularies in use need under 20 MB
KEYS = 1 << 16
TENSORS = 1 << 18
KEY_BYTES = (1 << 16) - 1  # the format's own limit
TENSOR_NAME_BYTES = 63  # ggml's limit, without its terminating zero
DIMENSIONS = 4
ELEMENTS = 1 << 48  # of one tensor; its size in bytes then always fits 63 bits
NESTING = 4  # arrays within arrays
SHARDS = 1024
ALIGNMENT_MIN, ALIGNMENT_MAX, ALIGNMENT_DEFAULT = 8, 1 << 16, 32

KEY_MIN_BYTES = 13  # key length, no key, value type, one byte
TENSOR_MIN_BYTES = 32  # name length, no name, dimension count, one dimension, type, offset
