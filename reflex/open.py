"""From a path to a session that can compute: the one place that puts file, tokenizer, program and backend together.

Owns the meaning of MODEL (a path, or `demo`), of `--ctx` and `--threads`. A GPU starts before the file is opened, on a thread of
its own, because its context takes longer than all the rest. `auto` says which backend it took where there was a choice; an
explicit choice is never replaced by another. Called by the API and, on the cold path, by the command line.
"""

from posix import sched_getaffinity

from . import demo
from .backends import choice
from .errors import DeviceError, InvalidInputError, KernelCacheError, UnsupportedError
from .gguf import reader

MOST_THREADS = 16  # more only wait for each other at the barriers between steps


def open_model(
    path, backend="auto", context=None, threads=None, device="", weights="quantized", experts="lazy", expert_memory="",
    mark=None, note=None, prompt=None, change=None, lora=(),
):  # fmt: skip
    """Open a model; returns (file, tokenizer, session).

    `context`: tokens, None or 0 for the model's own limit. `threads`: None or 0 for the cores this process may use. `device`,
    `weights`, `experts`, `expert_memory`: which GPU, how weights lie on it, when experts get there and how much of it they may
    take; only cuda reads them. `mark`: called with the name of each phase that ends here (header, tokenizer, program, kernels).
    `note`: called with a line for the person. `prompt`: a text, or what makes one of (file, tokenizer), to encode on the way, so
    that its tokens are known before anything is prepared for computing. `change`: called with the file before anything is made of
    it (see File.overlay). `lora`: adapters, each FILE, FILE=SCALE or (path, scale).
    Raises the errors of the reader, the families, the tokenizer and the backend; all of them before computing."""
    mark, note = mark or _ignore, note or _ignore
    name = choice.resolve(backend)
    workers, limit = thread_count(threads), choice.memory_size(expert_memory, "--expert-memory")
    gpu = _start_gpu(device, weights, experts, limit) if name == "cuda" else None
    file = None
    try:
        file = reader.open_model(demo.resolve(path))
        if change:
            change(file)
        if lora:
            from .lora import Laid, asked

            Laid(file, asked(lora), note)
        if gpu:
            gpu.load(file)
        elif workers > 1 and name == "cpu":
            file.read_ahead()
        mark("header")
        tokenizer, encoded = _tokenizer(file, prompt)
        mark("tokenizer")
        program, most, longest = _program(file, context)
        mark("program")
        name, plan = _plan(name, backend, gpu, note, (file, program, most), workers)
        file.stop_ahead()
        mark("kernels")
    except BaseException:
        if gpu:
            gpu.close()
        if file:
            file.close()
        raise
    from .session import Session

    return file, tokenizer, Session(plan, tokenizer, file.path, name, longest, encoded)


def _start_gpu(device, weights, experts, limit):
    from .backends.cuda.gpu import Gpu

    return Gpu(device, weights, experts, limit)


def _plan(name, asked, gpu, note, arguments, workers):
    """(name of the backend, its Plan). Where `auto` found a GPU that turns out unusable, the CPU computes and `note` says so."""
    if name == "cuda":
        try:
            plan = plan_class(name)(*arguments, gpu)
            if asked == "auto":
                note(f"reflex: backend cuda: {gpu.description}")
            if warning := gpu.warning():
                note(f"reflex: warning: {warning}")
            return name, plan
        except (DeviceError, KernelCacheError, UnsupportedError) as error:
            if asked != "auto":
                raise
            note(f"reflex: backend cpu, because the GPU cannot be used: {error}")
            gpu.close()
            name = "cpu"
    return name, plan_class(name)(*arguments, workers)


# Each stage imports its own modules: what a file says is known, or refused, before the next stage's code is read.


def _tokenizer(file, prompt):
    """(tokenizer, (prompt, its ids) or None)."""
    from .session import EARLY, prompt_ids
    from .tokenizer import load

    tokenizer = load(file)
    if callable(prompt):
        prompt = prompt(file, tokenizer)
    if prompt is None or len(prompt) > EARLY:  # whether a long text may fit is known only with the context
        return tokenizer, None
    return tokenizer, (prompt, prompt_ids(tokenizer, prompt))


def _program(file, context):
    """(program, tokens of context, tokens the model was trained for)."""
    from .arch import load_spec
    from .program import build

    spec = load_spec(file)
    most = context_tokens(context, spec.context_length)
    adapters = file.adapters and file.adapters.program()
    program = build(spec, most, adapters)  # some files rotate differently where the context is long
    if adapters:
        file.adapters.used(adapters.taken)
    return program, most, spec.context_length


def _ignore(_):
    return None


def plan_class(name):
    """The Plan of a resolved backend; only its module is imported (the reference needs numpy)."""
    if name == "reference":
        from .backends import reference

        return reference.Plan
    if name == "cuda":
        from .backends.cuda import backend

        return backend.Plan
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
