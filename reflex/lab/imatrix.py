"""Importance matrices: how much each column of each matrix matters, as mean squares of what it is multiplied by.

Reads and writes both of llama.cpp's files, GGUF and the older .dat. The GGUF file has for each matrix `NAME.in_sum2`, F32
[columns, matrices], sums of squares, and `NAME.counts`, F32 [1, matrices], how many rows they are of. Refuses what contradicts
itself; that a matrix fits a model is checked where it is used (`Importance.of`). importance.py computes them.
"""

import os

import numpy as np

from ..errors import InvalidInputError, ModelFileError
from ..gguf import writer
from ..gguf.limits import TENSOR_NAME_BYTES
from ..gguf.reader import open_model
from ..native import bytes_at
from ..output_file import OutputFile
from ..output_file import write as write_whole
from ..quant.types import by_name

SUMS, COUNTS = ".in_sum2", ".counts"
MOST_ENTRIES = 1 << 18
MOST_BYTES = 1 << 30  # of a .dat file
ALIGNMENT = 32


class Importance:
    """How much each column of a model's matrices matters.

    `sums`: {tensor's name: (sums of squares, float32 [matrices, columns]; rows that they are of, float32 [matrices])}. `entries`:
    {tensor's name: float32 [matrices, columns], mean squares; ones for an expert that no row went to}. `datasets`: what text they
    come from; `chunks` pieces of it, of `chunk_size` tokens each. `path`: of the file, or of the model."""

    def __init__(self, path, sums, datasets=(), chunks=0, chunk_size=0):
        self.path = path
        self.sums = sums
        self.entries = {name: _means(*parts) for name, parts in sums.items()}
        self.datasets = tuple(datasets)
        self.chunks = chunks
        self.chunk_size = chunk_size

    def save(self, path):
        """Write it to a file that appears whole or not at all: the older format where its name ends in .dat, else GGUF."""
        path = os.fspath(path)
        (write_dat if path.lower().endswith(".dat") else write)(path, self.sums, self.datasets, self.chunks, self.chunk_size)

    def of(self, name, shape):
        """float32 [matrices, columns] for a tensor of that shape (GGUF's order), or None where nothing is known of it."""
        found = self.entries.get(name)
        if found is None:
            return None
        matrices = 1
        for count in shape[2:]:
            matrices *= count
        if found.size != shape[0] * matrices:
            message, where = "importance does not fit the tensor", f"{self.path} {name}"
            raise InvalidInputError(message, f"{shape[0] * matrices} values", found.size, where, "use the file made for this model")
        return found.reshape(matrices, shape[0])


def read(path):
    """The Importance in a file; ModelFileError for anything wrong with it, a value that is not finite or negative included."""
    try:
        with open(path, "rb") as file:
            start = file.read(4)
    except (OSError, ValueError) as error:
        found = getattr(error, "strerror", None) or "a zero byte in its name"
        raise ModelFileError("cannot open the importance matrix", found=found, where=path) from None
    importance = _read_gguf(path) if start == b"GGUF" else _read_dat(path)
    for name, values in importance.entries.items():
        if not (np.isfinite(values).all() and (values >= 0).all()):
            raise ModelFileError("importance is not a size", "finite numbers from 0", "others", f"{path} {name}")
    if not importance.entries:
        raise ModelFileError("no importance in the file", "at least one matrix", "none", path)
    return importance


def _read_gguf(path):
    file = open_model(path)
    try:
        names = [name[: -len(SUMS)] for name in file.tensors if name.endswith(SUMS)]
        sums = {name: _parts(file, name) for name in names}
        datasets = [one.decode("utf-8", "replace") for one in file.strings("imatrix.datasets", [])]
        return Importance(path, sums, datasets, file.u("imatrix.chunk_count", 0), file.u("imatrix.chunk_size", 0))
    finally:
        file.close()


def _means(sums, counts):
    """Mean squares [matrices, columns]; ones for an expert that no row went to."""
    counts = counts.reshape(-1, 1)
    with np.errstate(all="ignore"):
        return np.where(counts > 0, sums / counts, np.float32(1))


def _parts(file, name):
    """(sums of squares [matrices, columns], rows that they are of [matrices]) of a tensor."""
    sums, counts = (_floats(file, file.tensor(name + suffix)) for suffix in (SUMS, COUNTS))
    if counts.size != len(sums):
        where = f"{file.path} {name}{COUNTS}"
        raise ModelFileError("counts do not fit the sums", f"{len(sums)} of them", counts.size, where)
    return sums, counts.reshape(-1)


def _floats(file, tensor):
    """A tensor of the file as float32 [everything else, fastest dimension]."""
    if tensor.type != by_name("F32").id or not tensor.nbytes:
        where = f"{file.path} {tensor.name}"
        raise ModelFileError("importance is of another type", "F32 and not empty", f"type {tensor.type}", where)
    return np.frombuffer(bytes_at(tensor.address, tensor.nbytes), "<f4").reshape(-1, tensor.shape[0])


class _Cursor:
    """Reads numbers and bytes in turn; ModelFileError where the file ends too soon."""

    def __init__(self, path, data):
        self.path, self.data, self.at = path, data, 0

    def take(self, size, what):
        if not 0 <= size <= len(self.data) - self.at:
            where, found = f"{self.path} offset {self.at}", f"{len(self.data) - self.at}"
            remedy = "is it an importance matrix?"
            raise ModelFileError(f"truncated: {what} needs {size} bytes", found=found, where=where, remedy=remedy)
        self.at += size
        return self.data[self.at - size : self.at]

    def i32(self, what):
        return int.from_bytes(self.take(4, what), "little", signed=True)


def _read_dat(path):
    """The older file: i32 entries; of each i32 length, name, i32 calls, i32 values, f32 sums; then i32 chunks, i32 length, name."""
    if os.path.getsize(path) > MOST_BYTES:
        raise ModelFileError("not an importance matrix", f"at most {MOST_BYTES} bytes", os.path.getsize(path), path)
    with open(path, "rb") as file:
        cursor = _Cursor(path, file.read())
    count, found = cursor.i32("the number of entries"), {}
    if not 0 < count <= MOST_ENTRIES:
        raise ModelFileError("not an importance matrix", f"1 to {MOST_ENTRIES} entries, or GGUF", count, f"{path} offset 0")
    for number in range(count):
        length = cursor.i32("a name's length")
        if not 0 < length <= TENSOR_NAME_BYTES:
            where = f"{path} entry {number}"
            raise ModelFileError("bad length of a name", f"1 to {TENSOR_NAME_BYTES}", length, where)
        name = cursor.take(length, "a name").decode("utf-8", "replace")
        calls, values = cursor.i32("a count of calls"), cursor.i32("a count of values")
        if values < 1 or name in found:
            raise ModelFileError("bad entry", "a new name with values", f"{values} values", f"{path} entry {name!a}")
        sums = np.frombuffer(cursor.take(4 * values, f"entry {name!a}"), "<f4")
        found[name] = sums.reshape(1, -1), np.float32([max(1, calls)])
    chunks, datasets = 0, []
    if cursor.at < len(cursor.data):
        chunks = cursor.i32("the number of chunks")
        datasets = [cursor.take(cursor.i32("a name's length"), "the name of the data set").decode("utf-8", "replace")]
    return Importance(path, found, datasets, max(0, chunks))


def write(path, sums, datasets=(), chunks=0, chunk_size=0):
    """Write a GGUF importance matrix; `sums` as of Importance."""
    values = {
        "general.type": writer.text_value("imatrix"),
        "imatrix.datasets": writer.texts_value(list(datasets)),
        "imatrix.chunk_count": writer.u32_value(chunks),
        "imatrix.chunk_size": writer.u32_value(chunk_size),
    }
    rows, data = [], []
    for name, (squares, counts) in sorted(sums.items()):
        for suffix, array in ((SUMS, squares), (COUNTS, np.reshape(counts, (-1, 1)))):
            array = np.ascontiguousarray(array, "<f4")
            rows.append((name + suffix, by_name("F32").id, (array.shape[1], array.shape[0]), array.nbytes))
            data.append(array.tobytes())
    head, offsets = writer.header(values, rows, ALIGNMENT)
    size = writer.padded(offsets[-1] + len(data[-1]), ALIGNMENT) if rows else len(head)
    with OutputFile(path, size) as out:
        out.write(head)
        for one in data:
            out.write(one.ljust(writer.padded(len(one), ALIGNMENT), b"\0"))


def write_dat(path, sums, datasets=(), chunks=0, chunk_size=0):
    """Write the older format, which has no rows of experts: mean squares times the calls, chunks begun, of each tensor."""
    parts = [_i32(len(sums))]
    for name, (squares, counts) in sorted(sums.items()):
        calls = -(-int(np.max(counts)) // max(1, chunk_size))
        values = _means(squares, np.asarray(counts, np.float32)) * np.float32(calls)
        spelled = name.encode()
        parts += [_i32(len(spelled)), spelled, _i32(calls), _i32(values.size), values.astype("<f4").tobytes()]
    dataset = (datasets[-1] if datasets else "").encode()
    write_whole(path, b"".join([*parts, _i32(chunks), _i32(len(dataset)), dataset]), "the importance matrix")


def _i32(number):
    return int(number).to_bytes(4, "little", signed=True)
