"""A copy of a model with its matrices in other types, by a recipe: `plan` says what becomes of each tensor, `write` makes the file.

Metadata stay byte for byte what they are, in their order, but for the two keys that say how the file is quantized and those of
split files, which become one. Tensors keep their order. Work goes chunk by chunk through all cores, so memory does not depend on
the model. Called by the command `quantize`.
"""

import re
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor

from .. import native
from ..errors import InvalidInputError, UnsupportedError
from ..gguf import writer
from ..output_file import OutputFile, refuse_inputs
from ..quant import decode, encode, recipes
from ..quant.encoders import encodable
from ..quant.types import by_id, by_name, row_bytes

VERSION = 2  # of quantization: what ggml writes today
CHUNK = 1 << 20  # values that a thread does at a time
LARGE = 30000  # sizes beyond may give scales that are no half floats
SPLIT = ("split.no", "split.count", "split.tensors.count")


class Piece:
    """What becomes of one tensor: `source` (a Tensor), the name of its new type, `importance` (float32 [matrices, columns] or
    None), `remark` (why it is not the wanted type)."""

    def __init__(self, source, plan, importance):
        self.source = source
        self.type = plan.type
        self.remark = plan.remark
        self.importance = importance
        self.old = by_id(source.type).name
        columns = source.shape[0]
        self.nbytes = source.elements // columns * row_bytes(by_name(plan.type).id, columns) if source.elements else 0


def pattern(text):
    """(compiled pattern, type's name) of an override `REGEX=TYPE`."""
    expression, equals, name = text.rpartition("=")
    if not equals or not expression:
        raise InvalidInputError("bad override", "REGEX=TYPE", text)
    try:
        return re.compile(expression), _type(name)
    except re.error as error:
        raise InvalidInputError("bad regular expression in an override", found=f"{error}", where=expression) from None


def _type(name):
    """The name of a type that can be made, in ggml's spelling; None for an empty one."""
    if not name:
        return None
    found = by_name(name).name
    if found not in encodable():
        raise UnsupportedError(f"nothing can be encoded as {found}", f"one of {', '.join(encodable())}", found)
    return found


def plan(file, recipe, overrides=(), output="", embedding="", pure=False, importance=None):
    """[Piece] for every tensor of an open model, in its order. `overrides`: texts REGEX=TYPE; `output`, `embedding`: names of
    types or empty; `importance`: a lab.imatrix.Importance or None."""
    arch, tensors = file.s("general.architecture"), list(file.tensors.values())
    layers = file.u(f"{arch}.block_count", 0)
    heads = max(file.per_layer(f"{arch}.attention.head_count", layers, 0)[:1], default=0)
    kv_heads = max(file.per_layer(f"{arch}.attention.head_count_kv", layers, heads)[:1], default=0)
    model = recipes.Model(arch, layers, heads, kv_heads, file.u(f"{arch}.expert_count", 0), importance is not None)
    rows = [(tensor.name, by_id(tensor.type).name, tensor.shape) for tensor in tensors]
    chosen = recipes.choose(rows, model, recipe, [pattern(o) for o in overrides], _type(output), _type(embedding), pure)
    pieces = []
    for tensor, choice in zip(tensors, chosen, strict=True):
        pieces.append(Piece(tensor, choice, _importance(tensor, choice.type, recipe, importance)))
    return pieces


def _importance(tensor, type, recipe, importance):
    """The importance of a tensor's columns for its new type, or None; refuses a type that cannot be made, or not without."""
    if type == by_id(tensor.type).name:
        return None
    found = importance.of(tensor.name, tensor.shape) if importance else None
    if found is None and recipes.needs_importance(tensor.name, type, recipe):
        remedy = "give --imatrix, or another type"
        raise InvalidInputError(f"{type} is rubbish without importance", "an importance matrix", "none", tensor.name, remedy)
    _type(type)
    return found


def keys(file, recipe):
    """{key: type and value} of the new file."""
    values = {key: writer.kept_value(file.metadata, key) for key in file.metadata if key not in SPLIT}
    values["general.quantization_version"] = writer.u32_value(VERSION)
    values["general.file_type"] = writer.u32_value(recipes.recipe(recipe)[0])
    return values


def write(file, path, recipe, pieces, threads=0, progress=None):
    """Write the model to `path`, atomically; bytes of the file. progress(done, total): called with bytes of weights, often."""
    refuse_inputs(path, [shard.path for shard in file.shards])
    rows = [(p.source.name, by_name(p.type).id, p.source.shape, p.nbytes) for p in pieces]
    head, offsets = writer.header(keys(file, recipe), rows, file.alignment)
    size = max([len(head), *(writer.padded(at + p.nbytes, file.alignment) for at, p in zip(offsets, pieces, strict=True))])
    total, done = sum(p.source.nbytes for p in pieces), 0
    with OutputFile(path, size) as out:
        out.write(head)
        for piece, data, share, last in _made(pieces, threads or native_threads()):
            out.write(data)
            if last:
                out.write(bytes(writer.padded(piece.nbytes, file.alignment) - piece.nbytes))
            done += share
            if progress:
                progress(done, total)
    return size


def native_threads():
    from os import sched_getaffinity

    return len(sched_getaffinity(0))


def _made(pieces, threads):
    """(piece, bytes, bytes of the source that they stand for, whether it is the piece's last) in order; few chunks ahead."""
    with ThreadPoolExecutor(threads) as pool:
        waiting, jobs = deque(), _jobs(pieces)
        try:
            while True:
                while len(waiting) < 2 * threads + 1 and (job := next(jobs, None)):
                    piece, first, count, last = job
                    share = piece.source.nbytes * count // max(1, piece.source.elements // piece.source.shape[0]) if count else 0
                    waiting.append((piece, pool.submit(_chunk, piece, first, count), share, last))
                if not waiting:
                    return
                piece, future, share, last = waiting.popleft()
                yield piece, future.result(), share, last
        finally:
            for _, future, _, _ in waiting:
                future.cancel()


def _jobs(pieces):
    """(piece, first row, rows, whether it is the last) of every chunk; none crosses from one matrix of a stack to the next."""
    for piece in pieces:
        columns = piece.source.shape[0]
        rows = piece.source.elements // columns if columns else 0
        matrix = piece.source.shape[1] if len(piece.source.shape) > 2 else rows
        most, first = max(1, CHUNK // max(1, columns)), 0
        if not rows:
            yield piece, 0, 0, True
        while first < rows:
            count = min(most, matrix - first % matrix)
            yield piece, first, count, first + count == rows
            first += count


def _chunk(piece, first, count):
    """The bytes of some rows in the new type."""
    source, columns = piece.source, piece.source.shape[0]
    if not count:
        return b""
    old = row_bytes(source.type, columns)
    if piece.old == piece.type:
        return native.bytes_at(source.address + first * old, count * old)
    importance = None
    if piece.importance is not None:
        importance = piece.importance[first // source.shape[1] if len(source.shape) > 2 else 0]
    import numpy as np

    values = floats(source, first, count)
    try:
        blocks = encode(piece.type, values, importance, 1)
        if max(values.max(), -values.min()) > LARGE and not np.isfinite(decode(piece.type, blocks)).all():
            where = f"tensor {source.name} rows {first} to {first + count}"
            raise UnsupportedError(f"values are too large for {piece.type}", f"sizes up to {LARGE}", np.abs(values).max(), where)
        return blocks.data
    except InvalidInputError as error:
        row, column = divmod(int(np.argmin(np.isfinite(values))), columns)
        where = f"tensor {source.name} row {first + row} column {column}"
        raise InvalidInputError(error.message, error.expected, error.found, where, "make the model again") from None


def floats(tensor, first=0, count=None):
    """Rows of a Tensor as float32 [rows, columns]."""
    import numpy as np

    columns = tensor.shape[0]
    count = tensor.elements // columns if count is None else count
    values = np.empty((count, columns), dtype=np.float32)
    kernel = getattr(native.library(), f"decode_{by_id(tensor.type).name}")
    kernel(tensor.address + first * row_bytes(tensor.type, columns), values.ctypes.data, count * columns)
    return values


class Meter:
    """Says on stderr how far the work is: nothing in the first second, then once in each."""

    def __init__(self, note, clock=time.monotonic):
        self.note, self.clock = note, clock
        self.start = self.said = clock()

    def __call__(self, done, total):
        now = self.clock()
        if now - self.said < 1 or not done:
            return
        self.said = now
        left = (now - self.start) * (total - done) / done
        self.note(f"{done / total:4.0%}  {done >> 20} of {total >> 20} MiB, {left:.0f} s left")


def warnings(pieces, importance):
    """What a person should know before the file is used, one line each."""
    changed = [piece for piece in pieces if piece.old != piece.type]
    twice = [piece for piece in changed if by_name(piece.old).elements > 1]
    if twice:
        kinds = ", ".join(dict.fromkeys(piece.old for piece in twice))
        yield f"{len(twice)} tensors are quantized already ({kinds}) and lose quality a second time"
    for remark, count in _counted(piece.remark for piece in changed if piece.remark):
        yield f"{count} tensors get another type: {remark}"
    if importance:
        unused = set(importance.entries) - {piece.source.name for piece in pieces}
        if unused:
            example = min(unused)
            yield f"{len(unused)} matrices of the importance file are not in the model, {example!a} for one"


def _counted(things):
    found = {}
    for thing in things:
        found[thing] = found.get(thing, 0) + 1
    return found.items()


def report(recipe, pieces):
    """The facts of a result as plain data."""
    number, main = recipes.recipe(recipe)
    values = sum(piece.source.elements for piece in pieces)
    before, after = sum(piece.source.nbytes for piece in pieces), sum(piece.nbytes for piece in pieces)
    tensors = [
        {
            "name": piece.source.name,
            "shape": list(piece.source.shape),
            "from": piece.old,
            "to": piece.type,
            "bytes": piece.nbytes,
            "importance": piece.importance is not None,
            "remark": piece.remark,
        }
        for piece in pieces
    ]
    facts = {"type": recipe.upper(), "file_type": number, "main_type": main, "bytes_before": before, "bytes_after": after}
    return {**facts, "bits_per_weight": round(8 * after / max(1, values), 3), "tensors": tensors}


def render(pieces, every=False):
    """The same as text: how many tensors go from what to what, or each of them."""
    lines = []
    if every:
        width = max(len(piece.source.name) for piece in pieces)
        for p in pieces:
            importance = "  by importance" if p.importance is not None else ""
            lines.append(f"{p.source.name:<{width}}  {p.old:>7} -> {p.type:<7} {p.nbytes / 2**20:10.2f} MiB{importance}")
    for (old, new), count in _counted((piece.old, piece.type) for piece in pieces):
        size = sum(piece.nbytes for piece in pieces if (piece.old, piece.type) == (old, new))
        lines.append(f"{count:5} tensors  {old:>7} -> {new:<7} {size / 2**20:10.2f} MiB")
    before, after = sum(piece.source.nbytes for piece in pieces), sum(piece.nbytes for piece in pieces)
    bits = 8 * after / max(1, sum(piece.source.elements for piece in pieces))
    lines.append(f"{before / 2**20:.2f} MiB -> {after / 2**20:.2f} MiB, {bits:.2f} bits per weight")
    return "\n".join(lines) + "\n"
