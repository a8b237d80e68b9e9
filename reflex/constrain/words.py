"""The tokens of a vocabulary as bytes in native memory, sorted by their first byte, for kernels/host/constrain.py.

Left out are tokens that are no text: control, unknown and unused ones, all that end a generation, and user-defined ones but
white space (they are marks for the model). Called by guide; kept as long as the model.
"""

from .. import native
from ..errors import TokenizerError

CONTROL = 3  # tokenizer.ggml.token_type
SPELLINGS = {"plain": 0, "escaped": 1, "letters": 2}
LETTERS = 512  # code points that may spell a byte
ENTRY = 12  # bytes
LAST = (1 << 31) - 1


class Words:
    """`single[b]`: whether byte b is a token of its own; `inner[b]`: whether any has it. `longest`: bytes of the longest token."""

    def __init__(self, tokenizer, size):
        self.library = native.library()
        (address, nbytes, count), types, spelled, forced = tokenizer.layout()
        count = min(count, size)
        self.maps = []
        self.text = self._map(nbytes, "token bytes")
        self.entries = self._map(ENTRY * count, "token places")
        self.first = self._map(4 * 258 + 256, "token index")
        unsorted = native.alloc(ENTRY * count, "token places")
        letters, kinds = self._letters(spelled), self._kinds({**forced, **dict.fromkeys(tokenizer.eog, CONTROL)})
        self.count = self.library.constrain_words(
            *(address, nbytes, count, types, native.address_of(kinds), SPELLINGS[spelled], native.address_of(letters)),
            *(self.text, self.entries, self.first, unsorted.address),
        )
        unsorted.free()
        if self.count < 0:
            raise TokenizerError("tokenizer.ggml.tokens has a string longer than the array")
        self.longest = native.view(self.first, 258, "I")[257]
        self.single = native.view(self.first + 4 * 258, 256).tolist()
        text = native.bytes_at(self.text, nbytes) if 0 in self.single else b""
        self.inner = [bool(single) or bytes((byte,)) in text for byte, single in enumerate(self.single)]

    def _map(self, size, what):
        self.maps.append(native.alloc(size, what))
        return self.maps[-1].address

    def _letters(self, spelled):
        """int16 per code point: the byte it spells, or -1."""
        block = (native.Int64 * (LETTERS // 4))(*[-1] * (LETTERS // 4))
        if spelled == "letters":
            letters = native.view(native.address_of(block), LETTERS, "h")
            at = self.library.address("byte_letters")
            table = native.view(at, 256, "I")
            for byte in range(256):
                letters[ord(native.bytes_at(at + 4 * byte, table[byte] >> 16).decode())] = byte
        return block

    @staticmethod
    def _kinds(kinds):
        """int32 pairs (id, type) by rising id, and one beyond all."""
        pairs = [*sorted(kinds.items()), (LAST, 0)]
        block = (native.Int64 * len(pairs))()
        view = native.view(native.address_of(block), 2 * len(pairs), "i")
        for i, (token, kind) in enumerate(pairs):
            view[2 * i], view[2 * i + 1] = token, kind
        return block

    def close(self):
        for mapping in self.maps:
            mapping.free()
        self.maps = []
