"""Pre-tokenizers by the name in `tokenizer.ggml.pre`: which expressions split the text, and what else the name implies.

The names are those of llama.cpp (src/llama-vocab.cpp); the expressions are those of the models' own tokenizer.json
files, so where llama.cpp only approximates one (upper and lower case beyond ASCII, digits grouped from the right) the
model's rule is kept. An expression list is applied in order, each inside the pieces of the one before. Refused with the
closest names: anything that is not in ROWS. Called by tokenizer.load; kernels/host/tokenize.py compiles RULES.
"""

from ..errors import UnsupportedError, closest

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_ENDING = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_PLAIN = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_START = r"[^\r\n\p{L}\p{N}]?"
_PATH_ENDING = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_CJK_WIDE = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_ASCII_MARK = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"
_MARKED = _ASCII_MARK + r"[A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
_MARKED_ENDING = r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_NOT_PUNCTUATION = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
# Groups of three digits counted from the right.
_DIGIT_GROUPS = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"
_CASED_LATIN = (
    "A-Za-z\xb5\xc0-\xd6\xd8-\xf6\xf8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d"
    "\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-"
    "\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-"
    "\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-"
    "\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d"
    "\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-"
    "\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-"
    "\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80"
    "-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)


def _cased(upper, lower, suffix):
    """Words that end in lower case, then words of upper case; `suffix` follows either."""
    return f"{_START}{upper}*{lower}+{suffix}|{_START}{upper}+{lower}*{suffix}"


_NOT_HAN = ("[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]", "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]")
_LINES = r"[^\n]+|[\n]+"

RULES = {
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _WORDS, r"\p{N}+", "[0-9][0-9][0-9]"),
    "words": (_WORDS,),
    "digits_words": (r"\p{N}", _WORDS),
    "triples": (f"{_CONTRACTIONS}|{_PLAIN}|\\p{{N}}{{1,3}}{_ENDING}",),
    "singles": (f"{_CONTRACTIONS}|{_PLAIN}|\\p{{N}}{_ENDING}",),
    "plain_singles": (f"{_PLAIN}|\\p{{N}}{_ENDING}",),
    "marks_singles": (
        f"{_CONTRACTIONS}|[^\\r\\n\\p{{L}}\\p{{N}}]?[\\p{{L}}\\p{{M}}]+|\\p{{N}}"
        r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    "lines_singles": (_LINES, f"{_CONTRACTIONS}|{_PLAIN}|\\p{{N}}{_ENDING}"),
    "digits_triples": (r"\p{N}{1,3}", f"{_CONTRACTIONS}|{_PLAIN}|\\p{{N}}+{_ENDING}"),
    "halving_spaces": (
        f"{_CONTRACTIONS}|{_PLAIN}|\\p{{N}}{{1,3}}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        + "".join(f"|\\s{{{n}}}(?!\\S)" for n in ("512", "256", "128", "64", "32", "16", "8", "4", "1,2"))
        + r"|\s{1}",
    ),
    "cased_latin": (
        "[\r\n]",
        f"\\s?[{_CASED_LATIN}]+",
        "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
        r"\s+$",
        _CJK_WIDE,
        r"\p{N}+",
    ),
    "letters_marks": ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK_WIDE, r"\p{N}"),
    "marked": (r"\p{N}{1,3}", _CJK, _MARKED + _MARKED_ENDING),
    "marked_lines": (r"\p{N}{1,3}", _CJK, _MARKED + r"| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+", r"\p{N}"),
    "marked_groups": (
        _DIGIT_GROUPS,
        "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f\u0e80-\u0eff"
        "\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+",
        _MARKED + _MARKED_ENDING,
    ),
    "scripts_cased": (
        "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+"
        "|[\u3105-\u312f]+|" + _CJK,
        _cased(_UPPER, _LOWER, _CONTRACTIONS + "?") + r"|\p{N}" + _PATH_ENDING,
    ),
    "punctuation_triples": (r"[\p{P}\$\+<=>\^~\|`]+", _WORDS, "[0-9][0-9][0-9]"),
    "not_punctuation": (_NOT_PUNCTUATION,),
    "not_punctuation_digits": (_NOT_PUNCTUATION, r"\p{N}"),
    "cased": (_cased(_UPPER, _LOWER, "") + r"|\p{N}" + _PATH_ENDING,),
    "cased_triples": (_cased(_UPPER, _LOWER, _CONTRACTIONS + "?") + r"|\p{N}{1,3}" + _PATH_ENDING,),
    # \b after digits is "no word character next".
    "groups_cased_triples": (
        r"\d{1,3}(?=(?:\d{3})*(?!\w))",
        _cased(_UPPER, _LOWER, _CONTRACTIONS + "?") + r"|\p{N}{1,3}" + _PATH_ENDING,
    ),
    "han_cased_triples": (r"[\p{Han}]+|" + _cased(*_NOT_HAN, _CONTRACTIONS + "?") + r"|\p{N}{1,3}" + _ENDING,),
    "images": (
        "<sentinel:[0-9]+>",
        "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
        r"([\t\n]|    |  )",
        r"\p{N}",
        r"[\p{P}!-/:-@\[-`{-~]",
        _WORDS,
    ),
    "groups": (r"\p{N}+", r"(?=(\d{3})+(?!\d))"),
    "single_break": (f"'(?i:[sdmt]|ll|ve|re)|{_PLAIN}|\\p{{N}}" + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",),
    "no_break_marks": (f"{_CONTRACTIONS}|{_PLAIN}|\\p{{N}}{{1}}" + r"| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+",),
    "spaced_letters": (
        f"{_CONTRACTIONS}|" + r"[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",
    ),
    "lines": (_LINES,),
    "lines_spaces": (_LINES, "\u2581[^\u2581\\n]*"),
    "not_spaces": (r"\S+",),
}


class Pretype:
    """One row: the key of RULES and the facts a pre-tokenizer's name implies."""

    __slots__ = (
        "add_bos",
        "byte_letters",
        "clean_spaces",
        "default_bos",
        "escape_spaces",
        "force_bos",
        "ignore_merges",
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


_CLEAN = {"clean_spaces": True}
_PLAIN_UTF8 = {"byte_letters": False, "escape_spaces": True}
_TABLE = (  # names, key of RULES, facts
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


ROWS = {name: Pretype(rules, **facts) for names, rules, facts in _TABLE for name in names.split()}
UNIGRAM = Pretype(None, add_bos=True, byte_letters=False)  # what tokenizer model "llama" implies


def lookup(name, where):
    """The row of a `tokenizer.ggml.pre` value; an absent key means "default". UnsupportedError names the closest three."""
    row = ROWS.get(name)
    if row is None:
        raise UnsupportedError(f"unknown pre-tokenizer {name!r}", expected=f"names like {closest(name, ROWS)}", where=where)
    return row


# `tokenizer.ggml.model` -> (algorithm, default ids of bos, eos, unknown).
MODELS = {"gpt2": ("bpe", 11, 11, None), "llama": ("spm", 1, 2, 0), "gemma4": ("bpe", None, None, None)}
IMPLIED_PRETYPE = {"gemma4": "gemma4"}
OPTIONAL_MERGES = ("kimi-k2",)  # pre-tokenizers whose files may come without a list of merges


KEPT_SPACES = (b"<unk>", b"<s>", b"<|endoftext|>")  # even there, white space after these stays


def strips_after(model_name):
    """True for models whose special tokens swallow the white space after them; only `general.name` tells."""
    name = model_name.lower()
    return "phi-3" in name or "phi3" in name
