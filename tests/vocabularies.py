"""Tiny vocabularies for tokenizer tests: keys of byte-level and unigram files."""

K = "tokenizer.ggml."
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def letters():
    """GPT-2's spelling of the 256 bytes, from its definition."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    out = {b: chr(b) for b in plain}
    for b in range(256):
        if b not in out:
            out[b] = chr(256 + len(out) - len(plain))
    return [out[b] for b in range(256)]


MERGES = ["h e", "l l", "he ll", "hell o", "\u0120 w", "o r", "\u0120w or", "l d", "\u0120wor ld", "\u0120 \u0120", "\u010a \u010a"]
SPECIALS = [
    ("<|endoftext|>", CONTROL),
    ("<|im_end|>", CONTROL),
    ("<tag>", USER),
    ("<tag>>", USER),
    ("<unused>", UNUSED),
    ("\u00e9\u00e9!", USER),
]


def bpe_keys(pre="gpt-2", joins=MERGES, extra=(), specials=SPECIALS, **changes):
    tokens = letters() + [m.replace(" ", "") for m in joins] + [name for name, _ in specials]
    types = [NORMAL] * (256 + len(joins)) + [kind for _, kind in specials]
    first = 256 + len(joins)
    keys = {
        "model": ("string", "gpt2"),
        "pre": ("string", pre),
        "tokens": ("array", ("string", tokens)),
        "token_type": ("array", ("i32", types)),
        "merges": ("array", ("string", joins)),
        "bos_token_id": ("u32", first),
        "eos_token_id": ("u32", first),
    }
    keys.update(changes)
    return [(K + name, *value) for name, value in keys.items() if value is not None] + list(extra)


PIECES = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]
PIECES += [(f"<0x{b:02X}>", 0.0, BYTE) for b in range(256)]
PIECES += [
    ("\u2581", -1.0, NORMAL),
    ("h", -2.0, NORMAL),
    ("e", -2.0, NORMAL),
    ("he", -3.0, NORMAL),
    ("\u2581he", -4.0, NORMAL),
    ("l", -2.0, NORMAL),
]
PIECES += [("ll", -3.5, NORMAL), ("hell", -2.5, NORMAL), ("<tag>", 0.0, USER), ("\u2581\u2581", -9.0, NORMAL)]
IDS = {text: i for i, (text, _, _) in enumerate(PIECES)}


def spm_keys(pieces=PIECES, **changes):
    keys = {
        "model": ("string", "llama"),
        "tokens": ("array", ("string", [p[0] for p in pieces])),
        "scores": ("array", ("f32", [p[1] for p in pieces])),
        "token_type": ("array", ("i32", [p[2] for p in pieces])),
    }
    keys.update(changes)
    return [(K + name, *value) for name, value in keys.items() if value is not None]
