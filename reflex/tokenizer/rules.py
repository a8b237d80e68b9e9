"""The expressions that split a text into words, under the names that the rows of `pretypes` use.

Those of the models' own tokenizer.json files. An expression list is applied in order, each inside the pieces of the one before.
Compiled into the blob by kernels/host/tokenize.py; nothing imports them at run time.
"""

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
