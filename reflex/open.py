"""From a path to a session that can compute: the one place that puts file, tokenizer, program and backend together.

Owns the meaning of MODEL (a path, or `demo`), of `--backend`, `--ctx` and `--threads`. Refuses a backend that this build does
not have: an explicit choice is never replaced by another. Called by the API and, on the cold path, by the command line.
"""

from posix import sched_getaffinity

from . import demo
from .errors import DeviceError, InvalidInputError, closest
from .gguf import reader

BACKENDS = ("auto", "cpu", "cuda", "reference")
MOST_THREADS = 16  # more only wait for each other at the barriers between steps


def open_model(path, backend="auto", context=None, threads=None, mark=None, prompt=None):
    """Open a model; returns (file, tokenizer, session).

    `context`: tokens, None or 0 for the model's own limit. `threads`: None or 0 for the cores this process may use.
    `mark`: called with the name of each phase that ends here (header, tokenizer, program, kernels). `prompt`: a text to encode
    on the way, so that its tokens are known before anything is prepared for computing. Nothing is read from the weights yet.
    Raises the errors of the reader, the families, the tokenizer and the backend; all of them before computing."""
    mark = mark or _ignore
    name = resolve_backend(backend)
    workers = thread_count(threads)
    file = reader.open_model(demo.resolve(path))
    mark("header")
    try:
        tokenizer, encoded = _tokenizer(file, prompt)
        mark("tokenizer")
        program, most, longest = _program(file, context)
        mark("program")
        plan = plan_class(name)(file, program, most, workers)
        mark("kernels")
    except BaseException:
        file.close()
        raise
    from .session import Session

    return file, tokenizer, Session(plan, tokenizer, file.path, name, longest, encoded)


# Each stage imports its own modules: what a file says is known, or refused, before the next stage's code is read.


def _tokenizer(file, prompt):
    """(tokenizer, (prompt, its ids) or None)."""
    from .session import prompt_ids
    from .tokenizer import load

    tokenizer = load(file)
    return tokenizer, None if prompt is None else (prompt, prompt_ids(tokenizer, prompt))


def _program(file, context):
    """(program, tokens of context, tokens the model was trained for)."""
    from .arch import load_spec
    from .program import build

    spec = load_spec(file)
    most = context_tokens(context, spec.context_length)
    return build(spec, most), most, spec.context_length  # some files rotate differently where the context is long


def _ignore(_):
    return None


def resolve_backend(name):
    """The backend that `name` means; `auto` is the fastest this build has."""
    if name == "auto":
        return "cpu"
    if name == "cuda":
        remedy = "use --backend cpu (or auto)"
        raise DeviceError("this build has no CUDA kernels", "cpu, reference or auto", "cuda", "--backend", remedy)
    if name not in BACKENDS:
        remedy = f"did you mean {closest(str(name), BACKENDS, 1)}?"
        raise InvalidInputError("no such backend", ", ".join(BACKENDS), repr(name), "--backend", remedy)
    return name


def plan_class(name):
    """The Plan of a resolved backend; only its module is imported (the reference needs numpy)."""
    if name == "reference":
        from .backends import reference

        return reference.Plan
    from .backends import cpu

    return cpu.Plan


def context_tokens(wanted, longest):
    """The context in tokens: what was asked for, or what the model was trained for and never more."""
    if not wanted:
        return longest
    if wanted < 1 or wanted > longest:
        raise InvalidInputError("the model cannot have this context", f"1 to {longest} tokens", str(wanted), "--ctx")
    return wanted


def thread_count(wanted):
    """Threads to compute with: what was asked for, or the cores this process may run on, at most MOST_THREADS."""
    if not wanted:
        return min(MOST_THREADS, len(sched_getaffinity(0)))
    if not 1 <= wanted <= 1024:
        raise InvalidInputError("no such number of threads", "1 to 1024", str(wanted), "--threads")
    return wanted
