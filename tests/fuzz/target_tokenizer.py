"""The tokenizer, both directions: vocabularies with damage, texts of their tokens and of anything, ids in and out of range.

The file and every buffer of native code lie between guard pages. One vocabulary serves TEXTS texts, since making its tables is what
takes time; the input is the file, and a seed for the texts.
"""

import random as randoms

import vocabularies
from changes import Tree, change_key, damage
from gguf_bytes import Gguf
from guarded import Allocator, Guarded

from reflex import native, tokenizer
from reflex.errors import ReflexError
from reflex.gguf.header import Header, parse
from reflex.gguf.reader import File

TEXTS = 64
ROOM = 1 << 17
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
PRES = ("gpt-2", "llama-bpe", "deepseek-v3", "qwen2", "gpt-4o", "sarvam-moe", "kimi-k2", "tekken", "default")


def seeds():
    for pre in PRES:
        yield Gguf([("general.architecture", "string", "t"), *vocabularies.bpe_keys(pre)]).data
    yield Gguf([("general.architecture", "string", "t"), *vocabularies.spm_keys()]).data
    yield Gguf([("general.architecture", "string", "t"), *vocabularies.bpe_keys(model=("string", "gemma4"))]).data


class Target:
    texts = TEXTS

    def __init__(self):
        self.files = list(seeds())
        self.trees = [Tree(data) for data in self.files]
        self.memory = Guarded(ROOM)
        self.allocator = Allocator()

    def make(self, random):
        tree = random.choice(self.trees).copy()
        for _ in range(random.choice((0, 1, 1, 2, 3))):
            change_key(tree, random)
        return random.randbytes(8) + tree.bytes()[: ROOM - 8]

    def again(self, data, random):
        return random.randbytes(8) + damage(data[8:], random)[: ROOM - 8]

    def run(self, data):
        random = randoms.Random(data[:8])
        content = data[8:]
        if len(content) < 24:
            return "short"
        address = self.memory.put(content, random.random() < 0.5)
        header = Header("memory", native.Mapping(address, len(content)), len(content), None)
        found = None
        try:
            parse(header)
            found = tokenizer.load(File([header]))
            for _ in range(TEXTS):
                self.use(found, random)
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
    def use(t, random):
        what = random.random()
        if what < 0.5:
            text = b"".join([random.choice(BITS) for _ in range(random.randrange(12))])
        elif what < 0.8:
            text = b"".join([t.token_bytes(random.randrange(t.size)) for _ in range(random.randrange(8))])[:4096]
        else:
            text = random.randbytes(random.choice((1, 2, 3, 17, 64)))
        ids = t.encode(text, parse_special=random.random() < 0.5, starts=random.random() < 0.5)
        if not all(0 <= token < t.size for token in ids):
            raise AssertionError("an id out of range")
        t.decode(ids, special=random.random() < 0.5)
        ids = [random.randrange(t.size) for _ in range(4)]
        t.decode(ids)
        stream = t.stream()
        for token in ids:
            stream.feed(token)
        stream.finish()
