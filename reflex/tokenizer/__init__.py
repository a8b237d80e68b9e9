"""Text to token ids and back, from the vocabulary in a GGUF file: byte-level BPE and SentencePiece-style unigrams.

Everything heavy is native and built when first needed: string offsets to decode, look-up tables to encode. Refused:
other tokenizer models and unknown pre-tokenizers (UnsupportedError), vocabularies that contradict themselves
(TokenizerError). Text is never normalized (some tokenizer.json files ask for NFC; llama.cpp does not do it either).
Called by session, score, generate and inspect through `load`.
"""

from ..errors import TokenizerError, UnsupportedError, closest
from . import pretypes
from .vocabulary import Vocabulary

KEY = "tokenizer.ggml."
LONG = 1 << 19  # bytes of a text that is taken in pieces
CLEANED = ((b" ?", b"?"), (b" !", b"!"), (b" .", b"."), (b" ,", b","), (b" ' ", b"'"))
CLEANED += ((b" 's", b"'s"), (b" 'm", b"'m"), (b" 're", b"'re"), (b" 've", b"'ve"))


def load(file):
    """The Tokenizer of an open GGUF file (reader.File). The file must stay open as long as the tokenizer."""
    model = file.s(KEY + "model")
    if model not in pretypes.MODELS:
        raise UnsupportedError(
            f"unknown tokenizer model {model!r}",
            f"one of {', '.join(pretypes.MODELS)} (near: {closest(model, pretypes.MODELS)})",
            where=file.path,
        )
    return Tokenizer(file, model)


def _optional_id(file, key, size, default):
    """A special token's id: the key, else the default where the vocabulary has it, else None."""
    if not file.has(KEY + key):
        return default if default is not None and default < size else None
    found = file.u(KEY + key)
    if not 0 <= found < size:
        raise TokenizerError(f"{KEY}{key} is out of range", f"0 to {size - 1}", found, file.path)
    return found


class Tokenizer:
    """The vocabulary of one file. Ids are ints; text is str or bytes; decoded text is bytes (a token may hold part of a
    character)."""

    def __init__(self, file, model):
        algorithm, bos, eos, unknown = pretypes.MODELS[model]
        name = pretypes.IMPLIED_PRETYPE.get(model) or file.s(KEY + "pre", "default")
        self.model = model
        self.algorithm = algorithm
        self.pre = name if algorithm == "bpe" else "default"
        self._row = row = pretypes.lookup(name, f"{file.path} key {KEY}pre") if algorithm == "bpe" else pretypes.UNIGRAM
        self._special = None  # spellings of the tokens that are found whole, once asked for
        self._words = words = Vocabulary(file, row, algorithm, name in pretypes.OPTIONAL_MERGES)
        self.size = words.size
        self.bos = _optional_id(file, "bos_token_id", self.size, bos if row.default_bos else None)
        self.eos = _optional_id(file, "eos_token_id", self.size, eos)
        words.unknown = _optional_id(file, "unknown_token_id", self.size, unknown)
        self._padding = _optional_id(file, "padding_token_id", self.size, None) if row.padding_ends else None
        self.add_bos = file.b(KEY + "add_bos_token", row.add_bos) or row.force_bos
        self.add_eos = file.b(KEY + "add_eos_token", False)
        for wanted, token, key in ((self.add_bos, self.bos, "bos"), (self.add_eos, self.eos, "eos")):
            if wanted and token is None:
                raise TokenizerError(f"{KEY}add_{key}_token is set but there is no {key.upper()} token", where=file.path)

    @property
    def eot(self):
        """The id that ends a turn, or None."""
        return self._words.roles().get("eot")

    @property
    def eog(self):
        """Every id after which generation stops, as a frozenset."""
        return self._words.ends() | {token for token in (self.eos, self._padding) if token is not None}

    def encode(self, text, add_special=True, parse_special=True, starts=True):
        """Ids of a text. add_special: BOS and EOS as the file wants them; parse_special: control tokens spelled in the
        text become that token instead of plain characters (user-defined tokens always do); not starts: the text comes behind
        other text, so that no space is put before it. Bytes need not be UTF-8."""
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else bytes(text)
        if len(data) > LONG:
            from .long import encode

            ids = encode(self, self._words, data, parse_special, starts)
        else:
            ids = self._words.encode(data, parse_special, starts) if data else []
        if add_special and self.add_bos:
            ids.insert(0, self.bos)
        if add_special and self.add_eos:
            ids.append(self.eos)
        return ids

    def piece(self, token, special=True):
        """The bytes a token stands for; empty for control tokens where not `special`, and for unused ones."""
        return self._words.piece(token, special)

    def longest(self):
        """The most bytes of a text that one token can stand for; 0 where white space may vanish, so that there is no most."""
        return 0 if self._words.strips() else max(len(self._words.spelling(token)) for token in range(self.size))

    def layout(self):
        """Where the strings of all tokens lie and how to read them; see Vocabulary.layout."""
        return self._words.layout()

    def token_bytes(self, token):
        """The token's own spelling in the vocabulary."""
        return self._words.spelling(token)

    def is_control(self, token):
        """True for control and unknown tokens: marks for the model, not text for a reader."""
        return self._words.type(token) in (2, 3)

    def is_special(self, token):
        """True for every token that is looked for in the text as a whole: control, unknown and user-defined."""
        return self._words.type(token) in (2, 3, 4)

    def decode(self, ids, special=True, clean=False):
        """The bytes of a whole text. Vocabularies that put a space before the text give it up again, as llama.cpp does.
        clean: also take back the spaces before punctuation that some pre-tokenizers ask for; then not every text returns."""
        piece = self._words.piece
        parts = [piece(token, special) for token in ids]
        if parts and self._words.space_prefix and parts[0][:1] == b" ":
            parts[0] = parts[0][1:]
        text = b"".join(parts)
        if clean and self._row.clean_spaces:
            for spaced, tight in CLEANED:
                text = text.replace(spaced, tight)
        return text

    def stem(self, prompt, encode):
        """How to encode many texts that begin with the bytes `prompt`; None where each must be encoded whole. See stem.py."""
        from .stem import of

        return of(self, prompt, encode)

    @property
    def rules(self):
        """The key of rules.RULES that splits words; None where words are not split."""
        return self._row.rules

    def found_whole(self, types):
        """Spellings of the tokens of some types."""
        if self._special is None:
            self._special = [self._words.spelling(token) for token in self._words.of_types(types)]
        return self._special

    def stream(self, special=False):
        """A Stream for text that continues a prompt."""
        return Stream(self, special)

    def close(self):
        """Free the native tables; the tokenizer must not be used afterwards."""
        self._words.close()


class Stream:
    """Turns ids into text one by one. Bytes of an unfinished character wait for the rest; bytes that can never become
    one come out as U+FFFD."""

    __slots__ = ("_piece", "_special", "_waiting")

    def __init__(self, tokenizer, special):
        self._piece = tokenizer.piece
        self._special = special
        self._waiting = b""

    def feed(self, token):
        from _codecs import utf_8_decode

        data = self._waiting + self._piece(token, self._special)
        text, used = utf_8_decode(data, "replace", False)
        self._waiting = data[used:]
        return text

    def finish(self):
        """What is left: U+FFFD for an unfinished character, else nothing."""
        left, self._waiting = self._waiting, b""
        return left.decode("utf-8", "replace")
