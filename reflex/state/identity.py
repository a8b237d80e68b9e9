"""What a state belongs to: fingerprints of the model, its tokenizer, its adapters and the form of its cache.

The model's covers every key of the metadata but the tokenizer's, name, type and shape of every tensor, and of the data of every
tensor three pieces of SAMPLE bytes: its first, middle and last. Reading all the data would cost a start more than the state
saves. So another model, fine-tune or block format is seen; a file edited in a few values between the pieces is not.
"""

from .. import native
from ..gguf.layout import ARRAY

SAMPLE = 64  # bytes
NAMES = ("model", "tokenizer", "adapters", "cache")
OTHER = {
    "model": "another model",
    "tokenizer": "another tokenizer",
    "adapters": "other adapters",
    "cache": "another form of the cache (rotation and context, or another version of this program)",
}


def of(file, program, store):
    """The fingerprints, in the order of NAMES. Those of the file are worked out once."""
    if file.identity is None:
        file.identity = model(file), tokenizer(file), adapters(file)
    return *file.identity, cache(program, store)


def digest(data, seed=0):
    """64 bits of some bytes."""
    data = data or b"\0"
    block = (native.UInt8 * len(data)).from_buffer_copy(data)
    return native.library().digest(native.address_of(block), len(data), seed)


def model(file):
    parts = []
    for tensor in file.base.values():
        parts.append(f"{tensor.name} {tensor.type} {tensor.shape}".encode())
        size = min(SAMPLE, tensor.nbytes)
        for at in (0, (tensor.nbytes - size) // 2, tensor.nbytes - size):
            parts.append(native.bytes_at(tensor.address + at, size))
    return digest(b"".join(parts), keys(file, False))


def tokenizer(file):
    return keys(file, True)


def keys(file, tokenizers):
    """Of all keys that begin with `tokenizer.`, or of all others, as they lie in the file."""
    library, total = native.library(), 0
    for key in file.metadata:
        if key.startswith("tokenizer.") == tokenizers:
            kind, element, count, address, nbytes = file.metadata.raw(key)
            facts = f"{key} {kind} {element if kind == ARRAY else 0} {count}".encode()
            total = library.digest(address, nbytes, digest(facts, total))
    return total


def adapters(file):
    """Of every adapter with its scale, in order; 0 without any."""
    total = 0
    for adapter in file.adapters.adapters if file.adapters else ():
        total = digest(adapter.facts(), total)
    return total


def cache(program, store):
    """Of the sections of the state, and of the rotations, which for some models depend on the context."""
    parts = [f"{kind} {s.name} {s.heads} {s.width}" for kind in ("sections", "fixed") for s in getattr(store, kind)]
    for rope in program.ropes:
        parts.append(f"{rope.style} {rope.magnitude!r} {[float(f) for f in rope.frequencies]!r}")
    return digest("\n".join(parts).encode())
