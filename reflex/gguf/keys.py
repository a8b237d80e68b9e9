"""Typed reads of a GGUF file's metadata. Every read names the type it wants; a value of another type is refused, never bent.

Values stay in the mapping until asked for. Called by reader.File, which exposes these reads, and by the header itself.
"""

from ..errors import ModelFileError, closest
from .layout import ARRAY, BOOL, FLOATS, INTEGERS, ITEM_CODES, STRING, type_name

REQUIRED = object()


class Array:
    """An array in the mapping. `address` is its first element; strings are a u64 length and that many bytes each."""

    __slots__ = ("address", "count", "nbytes", "type")

    def __init__(self, type, count, address, nbytes):
        self.type = type  # GGUF value type id of the elements
        self.count = count
        self.address = address
        self.nbytes = nbytes

    def __repr__(self):
        return f"Array({type_name(self.type)}[{self.count}])"


class Metadata:
    """The keys of one file: name -> (value type, offset, count, element type, bytes), read on demand."""

    __slots__ = ("_base", "_entries", "_view", "path")

    def __init__(self, path, view, base, entries):
        self.path = path
        self._view = view  # the header's bytes
        self._base = base
        self._entries = entries

    def release(self):
        """Forget the mapping; every later read fails as if the key were missing."""
        self._view = None
        self._entries = {}

    def __contains__(self, key):
        return key in self._entries

    def __iter__(self):
        return iter(self._entries)

    def __len__(self):
        return len(self._entries)

    def type(self, key):
        """GGUF value type id of a key, or None where it is absent."""
        entry = self._entries.get(key)
        return entry[0] if entry else None

    def raw(self, key):
        """(value type, element type, count, address, bytes) of a key's value as it lies in the file, without lengths in front."""
        kind, offset, count, element, nbytes = self._entries[key]
        return kind, element, count, self._base + offset, nbytes

    def _where(self, key):
        return f"{self.path} key {key}"

    def _missing(self, key):
        return ModelFileError(f"missing key {key}", found=f"keys like {closest(key, self._entries)}", where=self.path)

    def _wrong(self, key, expected, entry):
        found = type_name(entry[0]) if entry[0] != ARRAY else f"array of {type_name(entry[3])}"
        return ModelFileError("wrong type of value", expected, found, self._where(key))

    def _entry(self, key, default):
        """The record of a key; None where absent and a default exists."""
        entry = self._entries.get(key)
        if entry is None and default is REQUIRED:
            raise self._missing(key)
        return entry

    def _items(self, entry, kind):
        """A memoryview of the `count` numbers of a record."""
        return self._view[entry[1] : entry[1] + entry[4]].cast(ITEM_CODES[kind])

    def u(self, key, default=REQUIRED):
        """An integer of any width and sign."""
        entry = self._entry(key, default)
        if entry is None:
            return default
        if entry[0] not in INTEGERS:
            raise self._wrong(key, "an integer", entry)
        return self._items(entry, entry[0])[0]

    def f(self, key, default=REQUIRED):
        """A finite number of any numeric type, as float."""
        entry = self._entry(key, default)
        if entry is None:
            return default
        if entry[0] not in FLOATS and entry[0] not in INTEGERS:
            raise self._wrong(key, "a number", entry)
        value = float(self._items(entry, entry[0])[0])
        if value - value != 0.0:
            raise ModelFileError("value is not finite", "a finite number", value, self._where(key))
        return value

    def b(self, key, default=REQUIRED):
        """A bool; GGUF allows only the bytes 0 and 1."""
        entry = self._entry(key, default)
        if entry is None:
            return default
        if entry[0] != BOOL:
            raise self._wrong(key, "a bool", entry)
        value = self._view[entry[1]]
        if value > 1:
            raise ModelFileError("bad bool", "0 or 1", value, self._where(key))
        return value == 1

    def bytes(self, key, default=REQUIRED):
        """The raw bytes of a string."""
        entry = self._entry(key, default)
        if entry is None:
            return default
        if entry[0] != STRING:
            raise self._wrong(key, "a string", entry)
        return bytes(self._view[entry[1] : entry[1] + entry[4]])

    def s(self, key, default=REQUIRED):
        """A string as text; ModelFileError unless it is UTF-8."""
        data = self.bytes(key, default)
        if data is default:
            return default
        try:
            return str(data, "utf-8")
        except UnicodeDecodeError as error:
            raise ModelFileError("string is not UTF-8", found=f"byte {data[error.start]:#x}", where=self._where(key)) from None

    def array(self, key, default=REQUIRED):
        """An Array of any element type; an empty one keeps its type."""
        entry = self._entry(key, default)
        if entry is None:
            return default
        if entry[0] != ARRAY:
            raise self._wrong(key, "an array", entry)
        return Array(entry[3], entry[2], self._base + entry[1], entry[4])

    def _numbers(self, key, default, kinds, what):
        entry = self._entry(key, default)
        if entry is None:
            return None
        if entry[0] != ARRAY or entry[3] not in kinds:
            raise self._wrong(key, what, entry)
        return self._items(entry, entry[3]).tolist()

    def ints(self, key, default=REQUIRED):
        """A list of ints from an array of any integer type."""
        values = self._numbers(key, default, INTEGERS, "an array of integers")
        return default if values is None else values

    def floats(self, key, default=REQUIRED):
        """A list of floats from an array of any numeric type."""
        values = self._numbers(key, default, FLOATS | INTEGERS, "an array of numbers")
        return default if values is None else [float(v) for v in values]

    def bools(self, key, default=REQUIRED):
        """A list of bools from an array of bools."""
        values = self._numbers(key, default, (BOOL,), "an array of bools")
        return default if values is None else [v != 0 for v in values]

    def strings(self, key, default=REQUIRED, most=None):
        """A list of bytes from an array of strings, at most the first `most`; slow for a whole vocabulary."""
        entry = self._entry(key, default)
        if entry is None:
            return default
        if entry[0] != ARRAY or entry[3] != STRING:
            raise self._wrong(key, "an array of strings", entry)
        view, at, strings = self._view, entry[1], []
        for _ in range(entry[2] if most is None else min(most, entry[2])):
            length = int.from_bytes(view[at : at + 8], "little")
            strings.append(bytes(view[at + 8 : at + 8 + length]))
            at += 8 + length
        return strings

    def per_layer(self, key, layers, default=REQUIRED):
        """A list of `layers` numbers or bools: a scalar repeated, or an array of exactly that many."""
        entry = self._entry(key, default)
        if entry is None:
            return [default] * layers
        kind = entry[3] if entry[0] == ARRAY else entry[0]
        if kind not in INTEGERS and kind not in FLOATS and kind != BOOL:
            raise self._wrong(key, "a number or an array of numbers", entry)
        values = self._items(entry, kind).tolist()
        if kind == BOOL:
            values = [v != 0 for v in values]
        if entry[0] != ARRAY:
            return values * layers
        if len(values) != layers:
            raise ModelFileError("wrong number of values", f"one per layer, {layers}", len(values), self._where(key))
        return values

    def value(self, key, most=None):
        """Any value as plain Python: number, bool, bytes, or a list of the first `most` (nested arrays as None)."""
        kind, _, count, element, _ = self._entries[key]
        if kind == STRING:
            return self.bytes(key)
        if kind != ARRAY:
            number = self._items(self._entries[key], kind)[0]
            return bool(number) if kind == BOOL else number
        if element == STRING:
            return self.strings(key, most=most)
        if element == ARRAY:
            return None
        values = self._items(self._entries[key], element)[: count if most is None else most].tolist()
        return [bool(v) for v in values] if element == BOOL else values
