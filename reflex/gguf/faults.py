"""Words for what is wrong with a GGUF file. Imported only once something is wrong or unusual.

`explain` turns a code of the native walk into an error, `foreign` judges a file that is not GGUF of a known version,
`check_extents` looks closely at tensor data that is not simply one tensor after the other.
"""

from .. import native
from ..errors import ModelFileError, UnsupportedError
from ..quant.types import by_id
from . import layout
from .layout import FIELDS, RECORD_BYTES, RESULTS_BYTES
from .limits import ELEMENTS, HEADER_BYTES, NESTING

AGAIN = "download or convert the model again"


def shown(data, most=80):
    """Bytes of a file as printable text of bounded length."""
    text = ascii(str(bytes(data[:most]), "utf-8", "replace"))
    return text if len(data) <= most else f"{text}... ({len(data)} bytes)"


def foreign(path, start):
    """The error for a first 24 bytes that are not those of a little-endian GGUF file of version 2 or 3."""
    if start[:4] == layout.MAGIC:
        version = int.from_bytes(start[4:8], "little")
        swapped = int.from_bytes(start[4:8], "big")
        if version > 0xFFFF and swapped in (1, 2, 3):
            return UnsupportedError("big-endian GGUF file", "little-endian", f"version {swapped} in big-endian order", path)
        return UnsupportedError("GGUF version is not supported", "2 or 3", version, f"{path} offset 4", "convert the model again")
    remedy = None
    if start.startswith(b"version https://git"):
        remedy = "this is a Git LFS pointer: fetch the file itself with git lfs pull"
    elif start[:2] == b"PK" or start[8:9] == b"{":
        remedy = "this looks like another model format: convert it to GGUF"
    elif start.lstrip()[:1] == b"<":
        remedy = "this looks like a web page: download the file itself"
    return ModelFileError("not a GGUF file", "GGUF", shown(start[:4]), f"{path} offset 0", remedy)


def _subject(header, results, out, keys):
    """The key or tensor the walk was in: by name if it got that far, else by number."""
    index, field = results[1], results[5]
    kind = "key" if index < keys else "tensor"
    number = index if index < keys else index - keys
    if field in (layout.KEY_LENGTH, layout.KEY, layout.NAME_LENGTH, layout.NAME):
        return f"{kind} number {number}"
    at, length = native.view(out + RESULTS_BYTES + RECORD_BYTES * index, 2, "q").tolist()
    return f"{kind} {shown(native.bytes_at(header.mapping.address + at, length))}"


def _dimensions(header, at, count):
    return native.view(header.mapping.address + at, count, "Q").tolist()


def explain(header, code, results, out, keys):
    """The error for a negative result of the walk; `results` and `out` as laid out by the walk."""
    offset, wanted, found, field = results[2:6]
    where = f"{header.path} {_subject(header, results, out, keys)} offset {offset}"
    wanted, found = wanted & 0xFFFFFFFFFFFFFFFF, found & 0xFFFFFFFFFFFFFFFF
    if code == layout.SHORT:
        if header.size > HEADER_BYTES and found < wanted <= header.size:
            return ModelFileError("header is too large", f"at most {HEADER_BYTES} bytes", where=where, remedy=AGAIN)
        unit = "elements" if field == layout.ITEMS else "bytes"
        return ModelFileError(f"truncated: {FIELDS[field]} need {wanted} {unit}, have room for {found}", where=where, remedy=AGAIN)
    if code == layout.BAD_TYPE:
        return ModelFileError("unknown value type", f"0 to {layout.F64}", found, where, AGAIN)
    if code == layout.DEPTH:
        return ModelFileError("arrays are nested too deep", f"at most {NESTING} levels", where=where, remedy=AGAIN)
    if code == layout.TOO_LONG:
        return ModelFileError(f"{FIELDS[field]} is too long", f"at most {wanted} bytes", found, where, AGAIN)
    if code == layout.RANK:
        return ModelFileError("bad number of dimensions", f"1 to {wanted}", found, where, AGAIN)
    if code == layout.TENSOR_TYPE:
        try:
            by_id(found, where)
        except UnsupportedError as error:
            return error
    rank = native.view(out + RESULTS_BYTES + RECORD_BYTES * results[1] + 16, 1, "q")[0] >> 32
    shape = _dimensions(header, offset, rank)
    if code == layout.RAGGED_ROW:
        return ModelFileError("a row is not a whole number of blocks", f"a multiple of {wanted} columns", shape, where, AGAIN)
    return ModelFileError("tensor is too large", f"at most {ELEMENTS} elements", shape, where, AGAIN)


def check_extents(header):
    """The end of the last tensor, relative to the data; ModelFileError unless all lie aligned, apart and in the file."""
    start = header.mapping.address + header.data_start
    room = header.size - header.data_start
    spans = sorted((t.address - start, t.nbytes, name) for name, t in header.tensors.items())
    end, previous = 0, None
    for offset, nbytes, name in spans:
        where = f"{header.path} tensor {name!a}"
        if offset % header.alignment or offset < 0:
            found = f"offset {offset % (1 << 64)}"
            raise ModelFileError("tensor is misaligned", f"a multiple of {header.alignment}", found, where, AGAIN)
        if nbytes and offset < end:
            raise ModelFileError(f"tensor overlaps {previous!a}", f"offset {end} or more", f"offset {offset}", where, AGAIN)
        if nbytes:
            end, previous = offset + nbytes, name
    if end > room:
        need = header.data_start + end
        raise ModelFileError(
            f"truncated: need {need} bytes, have {header.size}", where=f"{header.path} tensor {previous!a}", remedy=AGAIN
        )
    return end
