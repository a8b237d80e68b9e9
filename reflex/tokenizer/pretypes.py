"""Pre-tokenizers by the name in `tokenizer.ggml.pre`: which expressions split the text, and what else the name implies.

The names are those of llama.cpp (src/llama-vocab.cpp); the expressions (rules.RULES) are those of the models' own tokenizer.json
files, so where llama.cpp only approximates one (upper and lower case beyond ASCII, digits grouped from the right) the
model's rule is kept. An expression list is applied in order, each inside the pieces of the one before. Refused with the
closest names: anything that is not in TABLE. Called by tokenizer.load.
"""

from ..errors import UnsupportedError, closest


class Pretype:
    """One row: the key of rules.RULES and the facts a pre-tokenizer's name implies."""

    __slots__ = (
        "add_bos",
        "byte_letters",
        "clean_spaces",
        "default_bos",
        "escape_spaces",
        "force_bos",
        "ignore_merges",
        "padding_ends",
        "rules",
        "space_words",
        "strip_before",
        "whole_lines",
    )

    def __init__(
        self,
        rules,
        ignore_merges=False,
        add_bos=False,
        clean_spaces=False,
        default_bos=True,
        byte_letters=True,
        escape_spaces=False,
        whole_lines=False,
        force_bos=False,
        space_words=False,
        strip_before=None,
        padding_ends=False,
    ):
        self.rules = rules
        self.ignore_merges = ignore_merges  # a word that is a token stays whole
        self.add_bos = add_bos  # where the file has no add_bos_token
        self.clean_spaces = clean_spaces  # "text ." becomes "text." when a whole text is decoded for display
        self.default_bos = default_bos  # token 11 is BOS where the file names none (and EOS always)
        self.byte_letters = byte_letters  # tokens spell bytes as letters (GPT-2); else they are plain UTF-8
        self.escape_spaces = escape_spaces  # a space is spelled U+2581
        self.whole_lines = whole_lines  # a run of line breaks that is a token stays whole
        self.space_words = space_words  # every line's first word starts with a space, given or not
        self.strip_before = strip_before  # the special token that swallows the white space before it
        self.force_bos = force_bos  # BOS even where the file says no
        self.padding_ends = padding_ends  # the file's padding token ends a generation too


_CLEAN = {"clean_spaces": True}
_PLAIN_UTF8 = {"byte_letters": False, "escape_spaces": True}
TABLE = (  # names, key of rules.RULES, facts
    ("default", "default", _CLEAN),
    (
        "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
        "triples",
        {"ignore_merges": True, "add_bos": True, **_CLEAN},
    ),
    ("dbrx smaug-bpe", "triples", _CLEAN),
    ("chatglm-bpe", "triples", {"default_bos": False, **_CLEAN}),
    ("glm4 glm5", "triples", {"default_bos": False, "ignore_merges": True, **_CLEAN}),
    ("jais-2", "halving_spaces", _CLEAN),
    ("deepseek-llm", "cased_latin", {}),
    ("deepseek-coder", "letters_marks", {}),
    ("deepseek-v3 hunyuan-dense hy_v4 joyai-llm", "marked", {}),
    ("spark2_5", "marked_lines", {}),
    ("youtu", "scripts_cased", {"ignore_merges": True}),
    ("falcon", "punctuation_triples", _CLEAN),
    ("starcoder refact codeshell exaone minerva-7b mellum2", "digits_words", _CLEAN),
    ("command-r smollm", "digits_words", {}),
    ("gpt-2 phi-2 jina-es jina-de gigachat a.x-4.0 mellum modern-bert", "words", _CLEAN),
    ("jina-v2-es jina-v2-de jina-v2-code", "words", {"strip_before": b"<mask>", **_CLEAN}),
    ("jina-v1-en roberta-bpe mpt olmo jais exaone4", "words", _CLEAN),
    ("trillion granite-docling", "words", {}),
    ("stablelm2 megrez", "singles", _CLEAN),
    ("qwen2 deepseek-r1-qwen kormo f2llmv2 hunyuan solar-open grok-2", "singles", {}),
    ("kolibri1", "singles", {"padding_ends": True}),
    ("qwen35", "marks_singles", {}),
    ("ufakzeka", "plain_singles", {}),
    ("laguna", "lines_singles", {}),
    ("bloom gpt3-finnish", "not_punctuation", _CLEAN),
    ("poro-chat", "not_punctuation", {}),
    ("viking", "not_punctuation_digits", {}),
    ("tekken", "cased", {"ignore_merges": True, "add_bos": True}),
    ("chameleon", "images", {"add_bos": True}),
    ("gpt-4o llama4 kanana2 talkie minimax-m2", "cased_triples", {}),
    ("granite-embed-multi-97m", "cased_triples", {"ignore_merges": True}),
    ("tiny_aya cohere2moe", "groups_cased_triples", {}),
    ("kimi-k2", "han_cased_triples", {}),
    ("superbpe", "groups", {}),
    ("bailingmoe bailingmoe2 llada-moe", "single_break", {}),
    ("seed-coder", "no_break_marks", {}),
    ("afmoe", "marked_groups", {}),
    ("exaone-moe", "spaced_letters", _CLEAN),
    ("minicpm5", "digits_triples", {"ignore_merges": True, **_CLEAN}),
    ("whitespace", "not_spaces", {"byte_letters": False, **_CLEAN}),
    ("gemma4 granite-embed-multi-311m", "lines", {"whole_lines": True, "force_bos": True, **_PLAIN_UTF8, **_CLEAN}),
    ("sarvam-moe", "lines", _PLAIN_UTF8),
    ("mmbert", "lines_spaces", {"whole_lines": True, "space_words": True, "strip_before": b"<mask>", **_PLAIN_UTF8, **_CLEAN}),
)


UNIGRAM = Pretype(None, add_bos=True, byte_letters=False)  # what tokenizer model "llama" implies


def rows():
    """{name: row} of all pre-tokenizers."""
    return {name: Pretype(rules, **facts) for names, rules, facts in TABLE for name in names.split()}


def lookup(name, where):
    """The row of a `tokenizer.ggml.pre` value; an absent key means "default". UnsupportedError names the closest three."""
    for names, rules, facts in TABLE:
        if name in names.split():
            return Pretype(rules, **facts)
    raise UnsupportedError(f"unknown pre-tokenizer {name!r}", expected=f"names like {closest(name, rows())}", where=where)


# `tokenizer.ggml.model` -> (algorithm, default ids of bos, eos, unknown).
MODELS = {"gpt2": ("bpe", 11, 11, None), "llama": ("spm", 1, 2, 0), "gemma4": ("bpe", None, None, None)}
IMPLIED_PRETYPE = {"gemma4": "gemma4"}
OPTIONAL_MERGES = ("kimi-k2",)  # pre-tokenizers whose files may come without a list of merges


KEPT_SPACES = (b"<unk>", b"<s>", b"<|endoftext|>")  # even there, white space after these stays


def strips_after(model_name):
    """True for models whose special tokens swallow the white space after them; only `general.name` tells."""
    name = model_name.lower()
    return "phi-3" in name or "phi3" in name
