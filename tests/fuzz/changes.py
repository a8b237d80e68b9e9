"""Damage with a plan: a GGUF file as keys, tensors and data, changed piece by piece and written again, and bytes changed blindly.

Values are chosen where code goes wrong: 0, 1, powers of two at the edges of types, not-a-number; whole entries are dropped,
doubled, renamed and exchanged. Everything is drawn from the `random.Random` that is passed in.
"""

import struct

WHOLE = (0, 1, 2, 3, 4, 7, 8, 31, 32, 64, 255, 256, 65535, 65536, 1 << 24, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32)
WHOLE += (1 << 48, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, -1, -2, -(1 << 31), -(1 << 63))
REAL = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1e-30,
    1e-45,
    1e30,
    3e38,
    1e300,
    -1e300,
    5e-324,
    float("inf"),
    float("-inf"),
    float("nan"),
    2.0,
    1e4,
)
CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
TEXTS = (
    b"",
    b"a",
    b"llama",
    b"gpt2",
    b"default",
    b"none",
    b"linear",
    b"yarn",
    b"longrope",
    b"\xff\xfe",
    b"\x1b[31m",
    b"x" * 300,
    b"\0",
)
SHORTEST = 1 << 16  # bytes that one insertion may add


def number(kind, random):
    """A value of a numeric type, packed."""
    code = CODES[kind]
    if code in "fd":
        value = random.choice(REAL)
        if code == "f" and abs(value) > 3.4e38 and value - value == 0:
            value = 3.4e38 if value > 0 else -3.4e38
        return struct.pack("<" + code, value)
    size = struct.calcsize("<" + code)
    value = random.choice(WHOLE) if random.random() < 0.8 else random.randrange(1 << 16)
    return (value % (1 << 8 * size)).to_bytes(size, "little")


def text(data):
    return len(data).to_bytes(8, "little") + data


class Entry:
    """A key: its name, its type, and its value as the bytes of the file, head of an array included."""

    def __init__(self, name, kind, value):
        self.name, self.kind, self.value = name, kind, value

    def copy(self):
        return Entry(self.name, self.kind, self.value)

    def bytes(self):
        return text(self.name) + self.kind.to_bytes(4, "little") + self.value


class Tree:
    """A file taken apart. Offsets of tensors stay as they were, so that the data need not move."""

    def __init__(self, data=None):
        if data is None:
            return
        at = 24
        self.version = int.from_bytes(data[4:8], "little")
        tensors, keys = struct.unpack("<QQ", data[8:24])
        self.keys, self.tensors = [], []

        def string():
            nonlocal at
            size = int.from_bytes(data[at : at + 8], "little")
            at += 8 + size
            return data[at - size : at]

        def skip(kind):
            nonlocal at
            if kind == STRING:
                string()
            elif kind == ARRAY:
                inner, count = struct.unpack("<IQ", data[at : at + 12])
                at += 12
                if inner in CODES:
                    at += count * struct.calcsize("<" + CODES[inner])
                else:
                    for _ in range(count):
                        skip(inner)
            else:
                at += struct.calcsize("<" + CODES[kind])

        for _ in range(keys):
            name = string()
            kind = int.from_bytes(data[at : at + 4], "little")
            at += 4
            start = at
            skip(kind)
            self.keys.append(Entry(name, kind, data[start:at]))
        for _ in range(tensors):
            name = string()
            rank = int.from_bytes(data[at : at + 4], "little")
            dims = list(struct.unpack(f"<{rank}Q", data[at + 4 : at + 4 + 8 * rank]))
            at += 4 + 8 * rank
            kind, offset = struct.unpack("<IQ", data[at : at + 12])
            at += 12
            self.tensors.append([name, dims, kind, offset])
        self.data = data[(at + 31) & -32 :]

    def copy(self):
        tree = Tree()
        tree.version, tree.data = self.version, self.data
        tree.keys = list(self.keys)  # entries are replaced, never changed
        tree.tensors = [[name, list(dims), kind, offset] for name, dims, kind, offset in self.tensors]
        return tree

    def bytes(self):
        parts = [b"GGUF", struct.pack("<IQQ", self.version, len(self.tensors), len(self.keys))]
        parts += [entry.bytes() for entry in self.keys]
        for name, dims, kind, offset in self.tensors:
            parts.append(text(name) + struct.pack("<I", len(dims)))
            parts += [(d % (1 << 64)).to_bytes(8, "little") for d in dims]
            parts.append((kind % (1 << 32)).to_bytes(4, "little") + (offset % (1 << 64)).to_bytes(8, "little"))
        head = b"".join(parts)
        return head + bytes(-len(head) % 32) + self.data


# ---- changes of a key ------------------------------------------------------------------------------------


def change_value(entry, random):
    """Another value of the same type; an array changes one element, its length, or the bytes of one string."""
    if entry.kind in CODES:
        return Entry(entry.name, entry.kind, number(entry.kind, random))
    if entry.kind == STRING:
        return Entry(entry.name, STRING, text(random.choice(TEXTS) if random.random() < 0.5 else damage(entry.value[8:], random)))
    inner, count = struct.unpack("<IQ", entry.value[:12])
    items = bytearray(entry.value[12:])
    if inner in CODES and count and random.random() < 0.6:
        size = len(items) // count
        for _ in range(random.choice((1, 1, 3))):
            at = random.randrange(count) * size
            items[at : at + size] = number(inner, random)
    elif inner == STRING and count and random.random() < 0.6:
        items = change_string(items, random.randrange(min(count, 600)), random)
    elif inner in CODES and count:
        size = len(items) // count
        count = random.choice((0, 1, count - 1, count // 2))
        items = items[: count * size]
    else:
        count = random.choice(WHOLE) % (1 << 64)
    return Entry(entry.name, ARRAY, struct.pack("<IQ", inner, count) + bytes(items))


def change_string(items, index, random):
    at = 0
    for _ in range(index):
        at += 8 + int.from_bytes(items[at : at + 8], "little")
    size = int.from_bytes(items[at : at + 8], "little")
    new = random.choice(TEXTS) if random.random() < 0.5 else damage(bytes(items[at + 8 : at + 8 + size]), random)
    return items[:at] + text(new) + items[at + 8 + size :]


def change_kind(entry, random):
    kind = random.choice((*CODES, STRING))
    return Entry(entry.name, kind, text(random.choice(TEXTS)) if kind == STRING else number(kind, random))


def make_array(entry, random):
    inner = random.choice(tuple(CODES))
    count = random.choice((0, 1, 2, 3, 5, 8))
    return Entry(entry.name, ARRAY, struct.pack("<IQ", inner, count) + b"".join(number(inner, random) for _ in range(count)))


def change_key(tree, random, known=()):
    keys = tree.keys
    what = random.randrange(10)
    i = random.randrange(len(keys)) if keys else None
    if what == 0 and keys:
        del keys[i]
    elif what == 1 and keys:
        keys.insert(random.randrange(len(keys)), keys[i])
    elif what == 2 and keys:
        keys[i] = change_kind(keys[i], random)
    elif what == 3 and keys:
        keys[i] = make_array(keys[i], random)
    elif what == 4 and keys:
        j = random.randrange(len(keys))
        keys[i] = Entry(keys[i].name, keys[j].kind, keys[j].value)
    elif what == 5 and known:
        entry = random.choice(known)
        keys.append(change_value(entry, random) if random.random() < 0.7 else entry)
    elif keys:
        keys[i] = change_value(keys[i], random)


# ---- changes of a tensor ---------------------------------------------------------------------------------


def change_tensor(tree, random):
    tensors = tree.tensors
    if not tensors:
        return
    i, what = random.randrange(len(tensors)), random.randrange(10)
    name, dims, kind, offset = tensors[i]
    if what == 0:
        del tensors[i]
    elif what == 1:
        tensors.append([damage(name, random)[:63], dims, kind, offset])
    elif what == 2:
        j = random.randrange(len(tensors))
        tensors[i][0], tensors[j][0] = tensors[j][0], tensors[i][0]
    elif what == 3 and dims:
        dims[random.randrange(len(dims))] = random.choice(WHOLE)
    elif what == 4 and dims:
        d = random.randrange(len(dims))
        dims[d] = max(0, dims[d] + random.choice((-32, -1, 1, 32)))
    elif what == 5:
        tensors[i][1] = dims[::-1] if random.random() < 0.5 else [*dims, random.choice((0, 1, 2))][:4]
    elif what == 6:
        tensors[i][2] = random.choice((*range(42), 1 << 31))
    elif what == 7:
        tensors[i][3] = random.choice((*WHOLE, offset + 32, offset - 32, 0))
    else:
        change_data(tree, offset, random)


def change_data(tree, offset, random):
    """Weights that are no numbers, infinite or noise, from the start of a tensor on."""
    if not tree.data:
        return
    size = random.choice((4, 32, 256, 4096))
    fill = random.choice((b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\0\0\x80\xff", b"\0\0\0\0", b"\xff\xff\x7f\x7f", None))
    new = random.randbytes(size) if fill is None else fill * (size // 4)
    offset = min(max(offset, 0), len(tree.data))
    tree.data = (tree.data[:offset] + new + tree.data[offset + size :])[: len(tree.data)]


def change(tree, random, known=()):
    """A copy with one to four changes, as bytes; now and then with bytes changed blindly too."""
    tree = tree.copy()
    for _ in range(random.choice((1, 1, 1, 2, 3, 4))):
        if random.random() < 0.6:
            change_key(tree, random, known)
        else:
            change_tensor(tree, random)
    data = tree.bytes()
    if random.random() < 0.05:
        data = damage(data, random)
    return data


# ---- bytes -----------------------------------------------------------------------------------------------


def damage(data, random):
    """Bytes flipped, set to an extreme, cut, doubled, taken out or put in."""
    data = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 4))):
        what = random.randrange(7)
        if not data or what == 0:
            at = random.randrange(len(data) + 1)
            data[at:at] = random.randbytes(random.choice((1, 2, 8)))
            continue
        a, b = sorted((random.randrange(len(data) + 1), random.randrange(len(data) + 1)))
        if what == 1:
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        elif what == 2:
            data[random.randrange(len(data))] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
        elif what == 3:
            size = random.choice((4, 8))
            at = random.randrange(max(1, len(data) - size))
            data[at : at + size] = (random.choice(WHOLE) % (1 << 8 * size)).to_bytes(size, "little")
        elif what == 4:
            del data[random.randrange(len(data)) :]
        elif what == 5:
            del data[a : min(b, a + 64)]
        else:
            data[a:a] = data[a : min(b, a + SHORTEST)]
    return bytes(data)
