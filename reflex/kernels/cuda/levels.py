"""Architectures and feature levels. One Numba pass serves them all: where an instruction differs, the PTX holds one variant
per feature level between marks, and `at_level` keeps the right one. A level is a compute capability times ten.
"""

import re

# arch -> feature level. A cubin runs on every later minor version of its major one: 8.6, 8.7 and 8.9 take sm_80's.
LEVELS = {"sm_75": 75, "sm_80": 80, "sm_90": 90, "sm_100": 90, "sm_120": 90}
TEXT = "ptx"  # the target that is PTX, for the driver's compiler, where no cubin fits
TEXT_LEVEL, TEXT_VERSION = 80, "7.4"  # of that PTX; 7.4 is the first with L1::no_allocate, and the older the better
TARGETS = (*LEVELS, TEXT)
VERSION = "8.7"  # PTX for ptxas 12.8
VARIANTS = re.compile(r"(?:^[ \t]*// level \d+ \w+\n(?:(?![ \t]*// level).*\n)*)+^[ \t]*// level end$", re.M)
VARIANT = re.compile(r"^[ \t]*// level (\d+) (\w+)\n((?:(?![ \t]*// level).*\n)*)", re.M)
TABLE = re.compile(r"^\.global \.align 16 \.b8 (table_\w+)\[.*\n", re.M)  # of a block format, made by memory.py


def level_of(target):
    return TEXT_LEVEL if target == TEXT else LEVELS[target]


def marked(name, text):
    """`text` as it goes into the PTX: itself, or {lowest level: text} with a mark before each variant."""
    if isinstance(text, str):
        return text
    parts = [f"// level {level} {name}\n{variant}\n" for level, variant in sorted(text.items())]
    return "".join(parts) + "// level end"


def at_level(ptx, level):
    """The PTX with every marked instruction in its variant for `level`."""

    def choose(match):
        known = {int(lowest): (name, text) for lowest, name, text in VARIANT.findall(match.group())}
        usable = [lowest for lowest in known if lowest <= level]
        if not usable:
            lowest, (name, _) = next(iter(known.items()))
            raise ValueError(f"{name} needs sm_{lowest}, the kernel is built for sm_{level}: declare it with since={lowest}")
        return known[max(usable)][1].rstrip("\n")

    return VARIANTS.sub(choose, ptx)


def module(bodies, target):
    """One PTX module of several kernels' bodies; what they share (tables of block formats) is there once."""
    tables = {match.group(1): match.group() for body in bodies for match in TABLE.finditer(body)}
    text = at_level("\n".join(TABLE.sub("", body) for body in bodies), level_of(target))
    text = re.sub(r"^[ \t]*//.*\n|^[ \t]*\n", "", text, flags=re.M)
    version = TEXT_VERSION if target == TEXT else VERSION
    header = f".version {version}\n.target sm_{level_of(target)}\n.address_size 64\n"
    return header + "".join(tables[name] for name in sorted(tables)) + text
