"""Which layers of a program are alike, for backends that lower one and copy the rest with other addresses; what a batch says of its
rows, as words that kernels read."""

from .. import native
from ..errors import InternalError
from ..program.records import PLACES

OWN = ("layer", "state")  # arguments that number what each layer has for itself


def facts(steps, tensors):
    """What some steps say but for the names of weights, the cache and the state: lists that are equal where layers are alike."""
    found = []
    for step in steps:
        args = step.args
        found += step.op, step.out, step.ins, {**args, **{word: 0 for word in OWN if word in args}}
        for name in step.weights:
            if name is None:
                found.append(None)
            else:
                tensor = tensors[name]
                found += tensor.type, tensor.shape
    return found


def checked(strands, rows):
    """The number of strands and then the words of each; they must have every row of the batch once, and places that there are."""
    covered = sorted(row for first, count, _, _ in strands for row in range(first, first + count))
    if covered != list(range(rows)) or not all(-1 <= place < PLACES for strand in strands for place in strand[2:]):
        raise InternalError("the strands of a batch are not its rows", f"{rows} rows, places up to {PLACES - 1}", list(strands)[:8])
    return [len(strands), *(word for strand in strands for word in strand)]


def lists_of_runs(runs):
    """Words of LISTS (kernels/slots.py): per token the address of its list or 0, then the lists; neighbours share one."""
    places, lists, last = [], [], ()
    for own in runs:
        if own and own is not last:
            at = len(lists)
            lists += (len(own), *(slot for ends in own for slot in ends))
        places.append(at if own else -1)
        last = own
    block = (native.Int64 * (len(places) + len(lists)))()
    base = native.address_of(block)
    words = native.view(base, len(block), "q")
    for i, at in enumerate(places):
        words[i] = base + 8 * (len(places) + at) if at >= 0 else 0
    for i, value in enumerate(lists, len(places)):
        words[i] = value
    return block
