"""What the text of a token says about it: end of generation, fill-in-the-middle roles, forced token types.

GGUF files often name only BOS and EOS; llama.cpp finds the others by their text and so does this module, with the
same lists. Called by the Tokenizer, on a vocabulary that can look names up.
"""

END_OF_TURN = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "<end_of_utterance>",
]
END_OF_MESSAGE = ["<|eom_id|>"]
END_OF_GENERATION = [
    *END_OF_TURN,
    *END_OF_MESSAGE,
    *["<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "</s>", "[EOS]", "<eos>", "<turn|>", "<|tool_response>", "[e~["],
]
# Key of the id in the file -> texts that mean the same where the file has no such key.
ROLES = {
    "eot": END_OF_TURN,
    "eom": END_OF_MESSAGE,
    "fim_pre": [
        "<|fim_prefix|>",
        "<fim-prefix>",
        "<fim_prefix>",
        "<\uff5cfim\u2581begin\uff5c>",
        "<PRE>",
        "\u2581<PRE>",
        "<|code_prefix|>",
        "<|prefix|>",
    ],
    "fim_suf": [
        "<|fim_suffix|>",
        "<fim-suffix>",
        "<fim_suffix>",
        "<\uff5cfim\u2581hole\uff5c>",
        "<SUF>",
        "\u2581<SUF>",
        "<|code_suffix|>",
        "<|suffix|>",
    ],
    "fim_mid": [
        "<|fim_middle|>",
        "<fim-middle>",
        "<fim_middle>",
        "<\uff5cfim\u2581end\uff5c>",
        "<MID>",
        "\u2581<MID>",
        "<|code_middle|>",
        "<|middle|>",
    ],
    "fim_pad": ["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"],
    "fim_rep": ["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"],
    "fim_sep": ["<|file_sep|>"],
}
OLD_KEYS = {
    role: (f"tokenizer.ggml.{old}_token_id",) for role, old in (("fim_pre", "prefix"), ("fim_suf", "suffix"), ("fim_mid", "middle"))
}
ENDING_ROLES = ("fim_pad", "fim_rep", "fim_sep", "eot", "eom")
# Parts of a reply that a reader should see although the files call them control tokens.
SHOWN = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")
NAMES = tuple(dict.fromkeys([*END_OF_GENERATION, *(n for names in ROLES.values() for n in names), *SHOWN]))

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # tokenizer.ggml.token_type


def forced_type(name, keyed):
    """The token type that a text forces whatever the file says, or None. keyed: roles that the file names itself."""
    if name in SHOWN:
        return USER_DEFINED
    if name in END_OF_GENERATION:
        return CONTROL
    return CONTROL if any(name in names and role not in keyed for role, names in ROLES.items()) else None


# Forced types that hang on which other tokens exist, so that `resolve` must be asked.
ENTANGLED = ("<|end|>", "</s>")


def resolve(ids, keyed):
    """Decide roles from texts. ids: {name of NAMES: token id} of those in the vocabulary; keyed: {role: id} from the file.

    Returns (roles {role: id}, end-of-generation set without EOS, {id: forced token type}).
    """
    roles = {role: ids[name] for role, names in ROLES.items() for name in reversed(names) if name in ids} | keyed
    ends = {roles[role] for role in ENDING_ROLES if role in roles} | {ids[n] for n in END_OF_GENERATION if n in ids}
    forced = {}
    for name, token in ids.items():
        kind = forced_type(name, keyed)
        if kind is not None:
            forced[token] = kind
    called = "<|call|>" in ids or "<|calls|>" in ids
    if "<|end|>" in ids and called and ("<|return|>" in ids or "<|flush|>" in ids):  # there it ends a message only
        ends.discard(ids["<|end|>"])
        forced[ids["<|end|>"]] = USER_DEFINED
    if "</s>" in ids and "<|tool_response>" in ids:  # there it is an ordinary tag
        ends.discard(ids["</s>"])
        forced[ids["</s>"]] = NORMAL
    return roles, frozenset(ends), forced
