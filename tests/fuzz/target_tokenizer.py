"""The tokenizer, both directions: vocabularies of every pre-tokenizer, whole and damaged, texts of their tokens and of anything,
ids in and out of range.

The file and every buffer of native code lie between guard pages. One vocabulary serves many texts, since making its tables is what
takes time: an input is a seed for the texts, the file, and behind it, where one text alone is meant, that use of it.
"""

import random as randoms

import tiny
import vocabularies
from changes import STRING, Entry, Tree, change_key, damage, text
from gguf_bytes import Gguf
from guarded import Allocator, Guarded

from reflex import native, tokenizer
from reflex.errors import InvalidInputError, ReflexError
from reflex.gguf.header import Header, parse
from reflex.gguf.reader import File
from reflex.tokenizer import pretypes

USES = 512  # of one vocabulary
ROOM = 1 << 17
DECODED = 50  # ids of a text: more show nothing else and take their time
BITS = [
    b"<tag>",
    b"<|im_end|>",
    b"hello",
    b" world",
    "\u00e9\u00e9!".encode(),
    b"\n\n",
    "\U0001f642".encode(),
    b"   ",
    b"a" * 50,
    b"<",
]
BITS += [b"\xff", b"\xc3", b"\xf0\x9f", b"\x80", b"\0", "\u2581".encode(), b"12345", b"'s", b"\t\r", b"<0x0A>", "\ufffd".encode()]
BITS += [
    "\u4e2d\u6587".encode(),
    "\u0e01\u0e33".encode(),
    "e\u0301".encode(),
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xc0\x80",
    b"A.B,c",
]
WORDS = [
    b"",
    b"\0",
    b"\xff",
    b"a" * 5000,
    b"<|im_end|>",
    b"<0x41>",
    b"<unk>",
    b"hello",
    b" ",
    b"<|endoftext|>",
    b"\xe2\x96\x81" * 40,
    b"h",
    b"a a a",
]
IDS = (-1, -(1 << 31), -(1 << 63), 1 << 31, 1 << 32, 1 << 63, 1 << 64, 1 << 200)


class Keys:
    """Takes the place of a GGUFWriter for tiny.add_tokenizer."""

    def __init__(self):
        self.keys = [("general.architecture", "string", "t")]

    def add_string(self, name, value):
        self.keys.append((name, "string", value))

    def add_uint32(self, name, value):
        self.keys.append((name, "u32", value))

    def add_bool(self, name, value):
        self.keys.append((name, "bool", value))

    def add_array(self, name, values):
        kind = {str: "string", int: "i32", float: "f32"}[type(values[0])]
        self.keys.append((name, "array", (kind, values)))


def seeds():
    """A vocabulary of every row of the table of pre-tokenizers, then those of the tiny models."""
    for names, _, _ in pretypes.TABLE:
        model = "gemma4" if names.startswith("gemma4") else "gpt2"
        keys = vocabularies.bpe_keys(names.split()[-1], model=("string", model))
        yield Gguf([("general.architecture", "string", "t"), ("general.name", "string", "phi-3"), *keys]).data
    yield Gguf([("general.architecture", "string", "t"), *vocabularies.spm_keys()]).data
    yield Gguf([("general.architecture", "string", "t"), ("general.name", "string", "phi-3"), *vocabularies.spm_keys()]).data
    for name in tiny.TOKENIZERS:
        writer = Keys()
        tiny.add_tokenizer(writer, name)
        yield Gguf(writer.keys).data


def change_words(tree, random):
    """Other strings in place of some tokens or merges: hostile ones, those of another place, pieces of two."""
    places = [i for i, entry in enumerate(tree.keys) if entry.value[:4] == STRING.to_bytes(4, "little") and len(entry.value) > 20]
    if not places:
        return
    i = random.choice(places)
    entry = tree.keys[i]
    words, at = [], 12
    while at < len(entry.value):  # not as many as it says: that may be damaged already
        size = int.from_bytes(entry.value[at : at + 8], "little")
        words.append(entry.value[at + 8 : at + 8 + size])
        at += 8 + size
    count = len(words)
    if not count:
        return
    for _ in range(random.choice((1, 4, 16, 64))):
        a, b = random.randrange(count), random.randrange(count)
        words[a] = random.choice((random.choice(WORDS), words[b], words[b] + words[a], words[b] + b" " + words[a], words[a][:1]))[
            :9999
        ]
    tree.keys[i] = Entry(entry.name, entry.kind, entry.value[:12] + b"".join(map(text, words)))


class Target:
    def __init__(self):
        self.trees = [Tree(data) for data in seeds()]
        self.memory = Guarded(ROOM)
        self.allocator = Allocator()
        self.took = 0

    def make(self, random):
        tree = random.choice(self.trees).copy()
        for _ in range(random.choice((0, 1, 1, 2, 3))):
            if random.random() < 0.4:
                change_words(tree, random)
            else:
                change_key(tree, random)
        return self.whole(tree.bytes(), random)

    def again(self, data, random):
        size = int.from_bytes(data[8:12], "little")
        return self.whole(damage(data[12 : 12 + size], random), random)

    @staticmethod
    def whole(content, random):
        content = content[:ROOM]
        return random.randbytes(8) + len(content).to_bytes(4, "little") + content

    def run(self, data):
        self.took = 0
        random = randoms.Random(data[:8])
        size = int.from_bytes(data[8:12], "little")
        content, use = data[12 : 12 + size], data[12 + size :]
        if len(content) < 24:
            return "short"
        address = self.memory.put(content, random.random() < 0.5)
        header = Header("memory", native.Mapping(address, len(content)), len(content), None)
        found = None
        try:
            parse(header)
            found = tokenizer.load(File([header]))
            for one in [use] if use else (self.make_use(found, random) for _ in range(USES)):
                self.watch(one)
                self.use(found, one)
                self.took += 1
        except ReflexError as error:
            line = str(error)
            if error.exit_code != 3 or not line.isprintable() or len(line) > 3000:
                raise AssertionError(line) from error
            return error.category
        finally:
            if found:
                found.close()
        return "loads"

    @staticmethod
    def make_use(t, random):
        """A byte of flags (bit 7: ids, else a text), then the text, or ids of four bytes each."""
        flags, what = random.randrange(128), random.random()
        if what < 0.2:
            ids = [random.randrange(t.size) if random.random() < 0.9 else random.randrange(1 << 32) for _ in range(6)]
            return bytes((flags | 128,)) + b"".join([token.to_bytes(4, "little") for token in ids])
        if what < 0.6:
            words = b"".join([random.choice(BITS) for _ in range(random.randrange(12))])
        elif what < 0.9:
            words = b"".join([t.token_bytes(random.randrange(t.size))[:1000] for _ in range(random.randrange(8))])
        elif what < 0.998:
            words = random.randbytes(random.choice((1, 2, 3, 17, 64)))
        else:
            words = (random.choice(BITS) * 40_000)[: random.randrange(1, 40_000)]
        return bytes((flags,)) + words

    @staticmethod
    def use(t, one):
        flags, data = one[0], one[1:]
        if flags & 128:
            decode(t, [int.from_bytes(data[i : i + 4], "little", signed=True) for i in range(0, len(data), 4)], flags)
            return
        given = {"add_special": bool(flags & 4), "parse_special": bool(flags & 1), "starts": bool(flags & 2)}
        ids = t.encode(data, **given)
        if ids and not 0 <= min(ids) <= max(ids) < t.size:
            raise AssertionError("an id out of range")
        t.decode(ids[:DECODED], special=bool(flags & 8), clean=bool(flags & 16))
        if flags & 96 == 0 and t.encode(data, **given) != ids:
            raise AssertionError("the same text gives other ids")


def decode(t, ids, flags):
    """Ids to text, all at once and one by one; those out of range are refused, and the others are still good."""
    ids = ids if flags & 1 else [*ids, IDS[flags % len(IDS)]]
    good = [token for token in ids if 0 <= token < t.size]
    for some in (good, ids):
        try:
            t.decode(some, special=bool(flags & 8))
            if some is ids and good != ids:
                raise AssertionError("an id out of range is decoded")
        except InvalidInputError as error:
            if some is good or "out of range" not in str(error):
                raise AssertionError(str(error)) from error
    stream = t.stream()
    for token in good:
        stream.feed(token)
    stream.finish()
