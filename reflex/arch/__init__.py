"""Model families: from an open GGUF file to a Spec.

`load_spec(file)` finds the family record by the file's general.architecture (the directory is the registry: importing
`reflex.arch.<architecture>` is the look-up), reads the sizes and names every tensor. It refuses an architecture without
a record (UnsupportedError with the closest names), variants that would compute something else (UnsupportedError with
key, expected, found) and files that contradict themselves (ModelFileError). Called by session, inspect and tests.
"""

from ..errors import UnsupportedError, closest

NOT_FAMILIES = ("experts", "latent", "layer_inputs", "streams", "names", "recurrent", "rotation", "sizes", "spec", "tensors")
ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-")


def load_spec(file):
    """The Spec of an open file (reflex.gguf.reader.File)."""
    from .sizes import read_sizes
    from .tensors import read_tensors

    architecture = file.s("general.architecture")
    family = find(architecture).FAMILY
    spec = read_sizes(file, architecture, family)
    read_tensors(file, family, spec)
    return spec


def find(architecture):
    """The module of a family, by exact name."""
    module = f"{__name__}.{architecture}"
    if architecture and architecture[0].isalpha() and ALLOWED.issuperset(architecture) and architecture not in NOT_FAMILIES:
        try:
            return __import__(module, None, None, ("FAMILY",))
        except ModuleNotFoundError as e:
            if e.name != module:
                raise
    shown = architecture[:60].encode("unicode_escape").decode()
    raise UnsupportedError(
        "this architecture has no family record",
        expected=f"one of the known ones, nearest: {closest(shown, families())}",
        found=f"'{shown}'",
        where="general.architecture",
        remedy="add reflex/arch/<architecture>.py",
    )


def families():
    """Names of all families, sorted. Reads the directory; used by messages, tests and docs."""
    from posix import listdir

    names = {entry[:-3] for entry in listdir(__path__[0]) if entry.endswith(".py") and not entry.startswith("_")}
    return sorted(names.difference(NOT_FAMILIES))
