"""The token strings of a file and the native tables over them, each built when first asked for.

Owns the blocks of native memory. Refuses arrays of the wrong type or size and ids out of range (TokenizerError).
Called by the Tokenizer only.
"""

from _thread import RLock

from .. import native
from ..errors import InvalidInputError, TokenizerError
from . import pretypes, special

KEY = "tokenizer.ggml."
STRING, FLOAT32, INT32 = 8, 6, 5  # GGUF value types
GUARD = 16  # bytes before every text that native code may read
SPM, IGNORE_MERGES, ESCAPE_SPACES, SPACE_PREFIX, WHOLE_LINES, SPACE_WORDS = 1, 2, 4, 8, 16, 32  # kernels/host/tokenize.py
STRIP_AFTER = 64
KEEP_AFTER, STRIP_BEFORE = 16, 32  # beside the token type
SPLITS = 12  # int64 of a block that is not 0 where the tokens say what the merges do, kernels/strings.py
LONGEST = 8  # int64 of a block: bytes of the longest string
MADV_POPULATE_WRITE = 23
SHELF = 1 << 14  # bytes for the filter of special tokens (10 KiB) and the small tables
LONGEST_TEXT = 1 << 28  # bytes; positions are 32-bit
KEEP_SCRATCH = 1 << 24  # bytes of scratch worth keeping for the next text
BYTE_NAMES = tuple(b"<0x%02X>" % value for value in range(256))


def _array(file, key, types, count, optional=False):
    """An array with one of the element types and at least `count` elements; None where absent and optional."""
    found = file.array(KEY + key, None)
    if found is None:
        if optional:
            return None
        raise TokenizerError(f"the file has no {KEY}{key}", where=file.path, remedy="convert the model with its tokenizer")
    if found.type not in types:
        raise TokenizerError(
            f"wrong element type of {KEY}{key}", f"value type {' or '.join(map(str, types))}", found.type, file.path
        )
    if found.count < count:
        raise TokenizerError(f"{KEY}{key} is too short", f"{count} elements", found.count, file.path)
    return found
CONTINUES = 2  # of encode_text's parse_special: no word begins where the text does


class Vocabulary:
    """Token strings, types, scores and merges of one file, with what native code needs to use them."""

    def __init__(self, file, row, algorithm, optional_merges):
        self._file = file
        self._row = row
        self._algorithm = algorithm
        self._tokens = _array(file, "tokens", (STRING,), 1)
        self.size = self._tokens.count
        self._types = _array(file, "token_type", (INT32,), self.size, optional=True)
        self._scores = _array(file, "scores", (FLOAT32, INT32), self.size, optional=True)
        self._merges = _array(file, "merges", (STRING,), 0, optional_merges) if algorithm == "bpe" else None
        for array, key in ((self._tokens, "tokens"), (self._merges, "merges")):
            if array is not None and array.nbytes >= 1 << 32:
                raise TokenizerError(f"{KEY}{key} is too large", "less than 4 GiB", f"{array.nbytes} bytes", file.path)
        self.space_prefix = file.b(KEY + "add_space_prefix", algorithm == "spm")
        self.unknown = None
        self._kinds = None if self._types is None else native.view(self._types.address, 4 * self.size).cast("i")
        self._library = native.library()
        self._mappings = []
        self._lock = RLock()  # around building; encoding itself needs none
        self._block = self._places = self._context = self._scratch = self._shelf = None
        self._known = self._letters = None

    # ---- one token -----------------------------------------------------------------------------------

    def _checked(self, token):
        if not 0 <= token < self.size:
            raise InvalidInputError("token id out of range", f"0 to {self.size - 1}", token)
        return token

    def spelling(self, token):
        """The token's string as stored."""
        if self._places is None:
            with self._lock:
                self._places = self._indexed()
        at = self._library.string_address(self._places, self._checked(token))
        return native.bytes_at(at + 8, native.view(at, 1, "q")[0])

    def type(self, token):
        """The token's type: the file's, unless its text forces another."""
        kind = special.NORMAL if self._kinds is None else self._kinds[self._checked(token)]
        if self._known is not None:
            return self._known[2].get(token, kind)
        name = self.spelling(token).decode("utf-8", "replace")
        if name in special.ENTANGLED:
            return self._resolved()[2].get(token, kind)
        return special.forced_type(name, self._keyed()) or kind

    def of_types(self, types):
        """Ids of the tokens whose type in the file is one of `types`, and of those whose text forces a type."""
        if self._kinds is None:
            return sorted(self._resolved()[2])
        kinds = bytes(self._kinds.cast("B")[::4])  # the low bytes: types are less than 256
        found = set(self._resolved()[2])
        for kind in types:
            at = kinds.find(kind)
            while at >= 0:
                found.add(at)
                at = kinds.find(kind, at + 1)
        return sorted(found)

    def piece(self, token, show_special):
        kind = self.type(token)
        text = self.spelling(token)
        if kind in (special.UNKNOWN, special.CONTROL):
            return text if show_special else b""
        if kind == special.USER_DEFINED:
            return text
        if kind == special.BYTE:
            return bytes((int(text[3:5], 16),)) if text in BYTE_NAMES else text
        if kind != special.NORMAL:
            return b""
        if self._algorithm == "spm" or self._row.escape_spaces:
            return text.replace(b"\xe2\x96\x81", b" ")
        return self._bytes_of_letters(text) if self._row.byte_letters else text

    def _bytes_of_letters(self, text):
        """Undo the spelling of bytes as letters; a token that is not so spelled (an added one) stands for itself."""
        if self._letters is None:
            table = native.view(self._library.address("byte_letters"), 256, "I")
            self._letters = {
                native.bytes_at(self._library.address("byte_letters") + 4 * b, table[b] >> 16).decode(): b for b in range(256)
            }
        letters = self._letters
        try:
            return bytes([letters[c] for c in text.decode()])
        except (KeyError, UnicodeDecodeError):
            return text

    # ---- roles ---------------------------------------------------------------------------------------

    def _keyed(self):
        """{role: id} for the roles that the file names with a key of its own."""
        found = {}
        for role in special.ROLES:
            for key in (f"{KEY}{role}_token_id", *special.OLD_KEYS.get(role, ())):
                token = self._file.u(key, None)
                if token is not None and 0 <= token < self.size:
                    found[role] = token
        return found

    def _resolved(self):
        with self._lock:
            if self._known is None:
                self._known = special.resolve(self._find_special(), self._keyed())
        return self._known

    def roles(self):
        return self._resolved()[0]

    def ends(self):
        return self._resolved()[1]

    # ---- native tables -------------------------------------------------------------------------------

    def _small(self, size):
        """`size` zeroed bytes from one shared buffer: a mapping each would cost more than filling them."""
        if self._shelf is None or self._shelf[1] + size > SHELF:
            self._shelf = [self._map(max(SHELF, size), "tokenizer facts"), 0]
        at = self._shelf[1]
        self._shelf[1] = at + ((size + 63) & -64)
        return self._shelf[0] + at

    def _map(self, size, what, touched=None):
        mapping = native.alloc(size, what)
        self._mappings.append(mapping)
        # One call instead of a fault per page saves half of what the pages cost; older kernels refuse it, harmlessly.
        # Huge pages gain less than it costs the kernel to clear one (4.5 ms on a small virtual machine).
        native.libc("madvise", 3)(mapping.address, touched or mapping.size, MADV_POPULATE_WRITE)
        return mapping.address

    def _new_block(self, array):
        library = self._library
        return self._map(library.strings_bytes(array.count), "token table", library.strings_touched(array.count))

    def _filled(self, status, key, block):
        if status:
            raise TokenizerError(f"{KEY}{key} has a string longer than the array", where=self._file.path)
        return block

    def _indexed(self):
        """A block that tells where each token's string lies."""
        tokens, block = self._tokens, self._new_block(self._tokens)
        return self._filled(self._library.strings_index(block, tokens.address, tokens.nbytes, tokens.count), "tokens", block)

    def _table(self):
        """The look-up table of the tokens, which may tell what the merges do."""
        with self._lock:
            if self._block is None:
                tokens, merges = self._tokens, self._merges
                block = self._new_block(tokens)
                said = (0, 0, 0, 0)
                if merges is not None and merges.count and self._row.byte_letters:
                    said = merges.address, merges.nbytes, merges.count, self._map(merges.count, "merge splits")
                status = self._library.strings_merged(block, tokens.address, tokens.nbytes, tokens.count, *said)
                self._block = self._places = self._filled(status, "tokens", block)
        return self._block

    def _merge_table(self):
        """The block to look merges up in, one of no merges where a file comes without; 0 where scores say what is merged."""
        merges, tokens = self._merges, self._table()
        if self._algorithm != "bpe":
            return 0
        if merges is None:
            block = self._map(self._library.strings_bytes(0), "token table")
            return self._filled(self._library.strings_table(block, self._tokens.address, 0, 0, 0), "merges", block)
        if native.view(tokens, SPLITS + 1, "q")[SPLITS]:
            return tokens
        block = self._new_block(merges)
        return self._filled(self._library.strings_table(block, merges.address, merges.nbytes, merges.count, 0), "merges", block)

    def _find_special(self):
        """{name: id} for those of special.NAMES that are tokens."""
        return self._look_up(special.NAMES, self._library.address("special_names") + 8)

    def _look_up(self, names, packed):
        """{name: id} for those of `names` that are tokens; `packed`: where they lie as a GGUF array."""
        out = self._small(4 * len(names))
        self._library.strings_find(self._table(), packed, len(names), out)
        found = native.view(out, len(names), "i").tolist()
        return {names[i]: token for i, token in enumerate(found) if token >= 0}

    def _pack(self, names):
        """Address of byte strings as a GGUF array holds them, after eight bytes that searching may read."""
        data = bytes(8) + b"".join(len(name).to_bytes(8, "little") + name for name in names)
        at = self._small(len(data))
        native.view(at, len(data))[:] = data
        return at + 8

    def _forced(self):
        """Kinds that are not what the file says: u32 count, then pairs of a token and its type with flags."""
        kinds = dict(self._resolved()[2])
        marked = [(name, KEEP_AFTER) for name in pretypes.KEPT_SPACES] if self._strips_after() else []
        if self._row.strip_before is not None:
            marked.append((self._row.strip_before, STRIP_BEFORE))
        if marked:
            names = [name for name, _ in marked]
            found = self._look_up(names, self._pack(names))
            for name, flag in marked:
                token = found.get(name)
                if token is not None:
                    kind = kinds.get(token, special.NORMAL if self._kinds is None else self._kinds[token])
                    kinds[token] = (kind if 0 <= kind <= special.BYTE else 0) | flag
        at = self._small(4 + 8 * len(kinds))
        view = native.view(at, 1 + 2 * len(kinds), "I")
        view[0] = len(kinds)
        for i, (token, kind) in enumerate(kinds.items()):
            view[2 * i + 1], view[2 * i + 2] = token, kind
        return at

    def strips(self):
        """True where a special token swallows the white space beside it."""
        return self._strips_after() or self._row.strip_before is not None

    def _strips_after(self):
        return self._algorithm == "spm" and pretypes.strips_after(self._file.s("general.name", ""))

    def _score_address(self):
        """float32 scores; zeros where the file has none."""
        if self._algorithm != "spm":
            return 0
        if self._scores is not None and self._scores.type == FLOAT32:
            return self._scores.address
        scores = self._map(4 * self.size, "token scores")
        if self._scores is not None:
            whole = native.view(self._scores.address, 4 * self.size).cast("i")
            view = native.view(scores, self.size, "f")
            for i in range(self.size):
                view[i] = whole[i]
        return scores

    def _byte_ids(self):
        """int32[256]: the token for a byte of text that no other token covers."""
        at = self._small(1024 + 64)
        letters = self._row.byte_letters
        self._library.byte_tokens(self._table(), at + 1024, at, int(not letters), int(letters or self._algorithm == "spm"))
        return at

    def _filter(self, types, forced):
        block = self._table()
        filter_at = self._small(self._library.special_bytes())
        longest = native.view(block, LONGEST + 1, "q")[LONGEST]
        seen = native.alloc(longest + 1, "token lengths")
        try:
            if self._library.special_filter(filter_at, block, types, forced, seen.address, longest + 1) < 0:
                raise TokenizerError("too many different lengths of special tokens", "at most 512", where=self._file.path)
        finally:
            seen.free()
        return filter_at

    def _prepare(self):
        """The context for encode_text, in the order of its fields in kernels/host/tokenize.py."""
        row = self._row
        tokens = self._table()
        merges = self._merge_table()
        types = 0 if self._types is None else self._types.address
        forced = self._forced()
        flags = SPM if self._algorithm == "spm" else 0
        flags |= (IGNORE_MERGES if row.ignore_merges else 0) | (ESCAPE_SPACES if row.escape_spaces else 0)
        flags |= (SPACE_PREFIX if self.space_prefix else 0) | (WHOLE_LINES if row.whole_lines else 0)
        flags |= (SPACE_WORDS if row.space_words else 0) | (STRIP_AFTER if self._strips_after() else 0)
        fields = (
            tokens,
            merges,
            self._score_address(),
            types,
            self._filter(types, forced),
            self._library.address(f"split_{row.rules}") if row.rules else 0,
            self._library.address("unicode_kinds"),
            self._library.address("byte_letters") if row.byte_letters else 0,
            self._byte_ids(),
            -1 if self.unknown is None else self.unknown,
            flags,
            forced,
        )
        context = self._small(8 * len(fields))
        view = native.view(context, len(fields), "q")
        for i, value in enumerate(fields):
            view[i] = value
        self._context = context

    def encode(self, data, parse_special, starts=True):
        """Ids of a non-empty byte string. Several threads may encode at once; each takes its own scratch."""
        size = len(data)
        if size > LONGEST_TEXT:
            raise InvalidInputError("text is too long", f"at most {LONGEST_TEXT} bytes", size)
        if self._context is None:
            with self._lock:
                if self._context is None:
                    self._prepare()
        need = self._library.encode_scratch(self._context, size) + GUARD + size
        scratch, self._scratch = self._scratch, None
        if scratch is None or scratch.size < need:
            if scratch is not None:
                scratch.free()
            scratch = native.alloc(need, "tokenizer scratch")
        text = scratch.address + scratch.size - size
        native.view(text, size)[:] = data
        flags = int(parse_special) | (0 if starts else CONTINUES)
        count = self._library.encode_text(self._context, text, size, flags, scratch.address)
        ids = native.view(scratch.address, 4 * count).cast("i").tolist() if count else []
        if scratch.size <= KEEP_SCRATCH and self._scratch is None:
            self._scratch = scratch
        else:
            scratch.free()
        return ids

    def layout(self):
        """What native code needs to read all pieces: the strings (address, bytes, count), the address of their types or 0, how
        normal ones are spelled (letters, escaped, plain), and {id: type} of those whose text forces another type."""
        tokens, escaped = self._tokens, self._algorithm == "spm" or self._row.escape_spaces
        spelled = "escaped" if escaped else "letters" if self._row.byte_letters else "plain"
        types = 0 if self._types is None else self._types.address
        return (tokens.address, tokens.nbytes, tokens.count), types, spelled, self._resolved()[2]

    def close(self):
        for mapping in self._mappings:
            mapping.free()
        if self._scratch is not None:
            self._scratch.free()
        self._mappings = []
        self._scratch = self._context = self._block = self._places = self._shelf = None
