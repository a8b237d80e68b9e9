"""The vocabulary of programs: one file per operation, found by its name. Declarations and numpy references, no kernels.

An operation file `<op>.py` has its formula and source in the docstring and
    OPERANDS     what goes in and out, with shapes: {"out", "ins", "weights", "args", "state"}; `state` comes from the
                 backend (token ids, positions, cache), everything else from the Step
    reference    float32 numpy: reference(*ins, *weights, **args and state) -> out
    CASES        sizes that straddle tile edges; BENCH: sizes worth timing
    inputs       inputs(case, random) -> (arrays, keywords) for `reference`; random is a numpy Generator
    TOLERANCE    largest allowed |kernel - reference| in units of the largest |reference|
Backends, kernel tests and benchmarks enumerate this folder. numpy is imported inside functions only.
"""


def find(name):
    """The module of an operation; InternalError if there is none: programs are written by reflex/program alone."""
    from ..errors import InternalError, closest

    if name not in operations():
        raise InternalError("unknown operation", expected=closest(name, operations()), found=name)
    return __import__(f"{__name__}.{name}", None, None, ("reference",))


def operations():
    """Names of all operations, sorted. Reads the directory."""
    from posix import listdir

    return sorted(entry[:-3] for entry in listdir(__path__[0]) if entry.endswith(".py") and not entry.startswith("_"))
