"""What fits where, from a file alone: the bytes that each backend takes, and the longest context that they leave room for.

Touches no device: the cuda backend's memory is laid out here as that backend lays it out, before it asks for any. Sizes of GPUs
are those that are sold; of the machine at hand its own memory counts. Called by inspect.
"""

from .backends import cpu
from .backends.cuda.attention import reach_of
from .backends.cuda.launch import Chain
from .backends.cuda.lowering import lowering
from .backends.cuda.memory import SLOTS, Layout, Memory
from .backends.cuda.module import roomiest
from .backends.lowering import Lowering
from .errors import ReflexError
from .native import cache_folder, library
from .open import thread_count
from .program.records import BATCH, PLACES

GPUS = 8, 12, 16, 24, 32, 48, 80, 140  # GiB
MULTIPROCESSORS = 192  # of the largest
DRIVER_BYTES = 640 << 20  # of a GPU: context, kernels, what the driver keeps, buffers of single batch sizes; assumed, not asked


def fits(file, program, weights):
    """{backend: what it takes and what fits}. `weights`: bytes of all tensors."""
    return {"cpu": on_cpu(file, program, weights), "cuda": on_cuda(file, program)}


def on_cpu(file, program, weights):
    """Weights stay in the page cache, read where they lie. Of the rest, what prompts and contexts that long touch: all of it."""
    short, long = (Outline(library(), program, context, thread_count(None)).lay(file) for context in (BATCH, 2 * BATCH))
    each = (long - short) // BATCH
    own = short - BATCH * each
    total, available = machine()
    room = None if total is None else total - own
    return {
        "weights_bytes": weights,
        "fixed_bytes": own,
        "bytes_per_token": each,
        "machine_bytes": total,
        "available_bytes": available,
        "weights_fit": None if room is None else weights <= room,
        "context": None if room is None else longest(room - weights, each, 1, program.context_length),
    }


class Outline(cpu.Memory):
    """The memory of a plan that computes nothing: mapped, which costs none, but no weight is read for it."""

    def decoded(self, tensor):
        return self._named("decoded " + tensor.name, 4 * tensor.elements)

    def lay(self, file):
        """Ask for all that lowering a program and drawing a token does; the bytes of it. Nothing is there afterwards."""
        try:
            Lowering(self.library, file, self.program, self).lower()
            self.sampling_heap()
            return self.bytes
        finally:
            self.free()


def on_cuda(file, program):
    """Weights, buffers, states and pages of the cache lie there. `context`: tokens per size of a GPU; 0: it does not fit."""
    try:
        lowering(program)
        layout = Layout(file)
        memory = DeviceOutline(layout, program, program.context_length)
        memory.lay(file)
    except ReflexError as error:
        return {"supported": False, "reason": str(error)}
    fixed, page = memory.seal()[1] + 4 * PLACES * sum(program.states), memory.page_bytes
    rooms = {size: (size << 30) - DRIVER_BYTES - layout.size - fixed for size in GPUS}
    return {
        "supported": True,
        "reason": None,
        "weights_bytes": layout.size,
        "fixed_bytes": fixed,
        "page_bytes": page,
        "page_tokens": SLOTS,
        "driver_bytes": DRIVER_BYTES,
        "context": {f"{size} GiB": longest(room, page, SLOTS, program.context_length) for size, room in rooms.items()},
    }


class DeviceOutline(Memory):
    """The same of a device, where no weight is read either."""

    def floats(self, tensor):
        return self.weight(tensor) if tensor.type == 0 else self.named("decoded " + tensor.name, 4 * tensor.elements)

    def lay(self, file):
        """Ask for the buffers of launches: of long prompts, of those whose results depend on no length, of one token. Where there
        are no kernels that would say, they count among the bytes of the driver."""
        images = roomiest(cache_folder())
        for shape in ((self.rows, 1), (self.rows, 1, reach_of(self.program.context_length), 1), (1, 1)) if images else ():
            chain = Chain(library())
            try:
                lowering(self.program)(images, MULTIPROCESSORS, chain, file, self.program, self, *shape).lower()
            finally:
                chain.close()


def longest(room, each, tokens, most):
    """The longest context that `room` bytes hold, where `tokens` take `each` bytes."""
    if room < each:
        return 0
    return min(most, room // each * tokens) if each else most


def machine():
    """(bytes of memory, those that are free or could be), None where the system does not say."""
    found = {}
    try:
        with open("/proc/meminfo") as file:
            for line in file:
                name, _, value = line.partition(":")
                found[name] = int(value.split()[0]) << 10
    except (OSError, ValueError, IndexError):
        return None, None
    return found.get("MemTotal"), found.get("MemAvailable")


def lines(found, size):
    """The same as lines of text; `size` words bytes."""
    return [f"  cpu        {_cpu(found['cpu'], size)}", f"  cuda       {_cuda(found['cuda'], size)}"]


def _cpu(found, size):
    each = found["bytes_per_token"]
    taken = f"weights {size(found['weights_bytes'])} in the page cache, {size(found['fixed_bytes'])} and {size(each)} per token"
    if found["machine_bytes"] is None:
        return taken
    has = f"this machine has {size(found['machine_bytes'])}"
    if found["available_bytes"] is not None:
        has += f", {size(found['available_bytes'])} of it free"
    if not found["weights_fit"]:
        return f"{taken}: too large, {has}, so every token reads weights from the disk again"
    return f"{taken}: {found['context']} tokens of context fit, {has}"


def _cuda(found, size):
    if not found["supported"]:
        return f"no: {found['reason']}"
    taken = f"weights {size(found['weights_bytes'])}, {size(found['fixed_bytes'])} and {size(found['page_bytes'])}"
    taken += f" per {found['page_tokens']} tokens"
    fitting = {name: tokens for name, tokens in found["context"].items() if tokens}
    if not fitting:
        return f"{taken}: fits no GPU of up to {GPUS[-1]} GiB"
    shown, most = [], max(fitting.values())
    for name, tokens in fitting.items():
        shown.append(f"{tokens} tokens in {name}")
        if tokens == most:
            break
    return f"{taken}: {', '.join(shown)}"
