"""Opening a model: `open_model(path)` gives one File over one GGUF file or all shards of a split one.

Owns the File and the rules of split files: shards are found by name in the folder of the first, all must be there,
agree, and together hold exactly the tensors announced. Values and tensors stay in the mappings until asked for.
Refuses anything the header walk refuses, a later shard given in place of the first, and shards joined end to end.
"""

from posix import stat as _stat

from ..errors import ModelFileError
from .header import Tensor, open_header
from .keys import REQUIRED, Array
from .limits import SHARDS

__all__ = ["REQUIRED", "Array", "File", "Tensor", "open_model"]


class File:
    """A model's metadata and tensors. The metadata is the first shard's; `close()` ends the life of every address."""

    __slots__ = ("_ahead", "adapters", "alignment", "identity", "metadata", "overlaid", "own", "path", "shards", "size")
    __slots__ += ("tensors", "version")

    def __init__(self, shards):
        first = shards[0]
        self.shards = shards  # Header of each file, in order
        self.path = first.path
        self.version = first.version
        self.alignment = first.alignment
        self.metadata = first.metadata
        self.size = sum(shard.size for shard in shards)  # bytes
        self.tensors = first.tensors  # name -> Tensor, in file order
        self.own = len(shards)  # the first so many shards are the model's; those behind came by `overlay`
        self.overlaid = ()  # names of the tensors that lie in them
        self.adapters = None  # what was laid beside the model (reflex/lora)
        self.identity = None  # fingerprints, once a state file asked for them (reflex/state/identity.py)
        self._ahead = None

    def has(self, key):
        return key in self.metadata

    def u(self, key, default=REQUIRED):
        """An integer of any width; like all reads here: ModelFileError where the key is missing or of another type."""
        return self.metadata.u(key, default)

    def f(self, key, default=REQUIRED):
        """A finite number as float."""
        return self.metadata.f(key, default)

    def s(self, key, default=REQUIRED):
        """A string as text."""
        return self.metadata.s(key, default)

    def b(self, key, default=REQUIRED):
        """A bool."""
        return self.metadata.b(key, default)

    def bytes(self, key, default=REQUIRED):
        """The raw bytes of a string."""
        return self.metadata.bytes(key, default)

    def array(self, key, default=REQUIRED):
        """An Array in the mapping, of any element type."""
        return self.metadata.array(key, default)

    def ints(self, key, default=REQUIRED):
        """A list of ints."""
        return self.metadata.ints(key, default)

    def floats(self, key, default=REQUIRED):
        """A list of floats."""
        return self.metadata.floats(key, default)

    def strings(self, key, default=REQUIRED):
        """A list of bytes."""
        return self.metadata.strings(key, default)

    def per_layer(self, key, layers, default=REQUIRED):
        """One value per layer, from a scalar or an array."""
        return self.metadata.per_layer(key, layers, default)

    def tensor(self, name):
        """The Tensor called `name`; ModelFileError with close names where there is none."""
        tensor = self.tensors.get(name)
        if tensor is None:
            from ..errors import closest

            raise ModelFileError(f"missing tensor {name}", found=f"tensors like {closest(name, self.tensors)}", where=self.path)
        return tensor

    def overlay(self, path):
        """Let the tensors of another GGUF file, take the place of those here of the same names and shapes.
        To be called before anything has used the tensors; the other file belongs to this one from here on, like a shard."""
        header = open_header(path)
        self.shards = [*self.shards, header]
        for name, tensor in header.tensors.items():
            shape = self.tensor(name).shape
            if tensor.shape != shape:
                raise ModelFileError("a tensor laid over another has another shape", shape, tensor.shape, f"{path} tensor {name}")
        self.tensors = {**self.tensors, **header.tensors}
        self.overlaid = (*header.tensors,)

    def lay(self, headers, tensors, adapters):
        """Let tensors of further files, under names of their own, count among those here; these files belong to this one from here
        on, like shards. `adapters`: what they are, with `tensors` and `release()`."""
        self.shards = [*self.shards, *headers]
        self.tensors = {**self.tensors, **tensors}
        self.adapters = adapters

    @property
    def base(self):
        """The model's own tensors, without those laid beside them."""
        if self.adapters is None:
            return self.tensors
        return {name: tensor for name, tensor in self.tensors.items() if name not in self.adapters.tensors}

    def changed(self):
        """Paths of files that were replaced, resized or rewritten since they were opened."""
        return [shard.path for shard in self.shards if shard.is_changed()]

    def rewritten(self):
        """Paths of files whose mapped bytes may have changed since they were opened: what was computed from them may be wrong."""
        return [shard.path for shard in self.shards if shard.is_rewritten()]

    def read_ahead(self):
        """Map the tensors' pages on another thread, until stop_ahead: for a core that would be idle."""
        from .ahead import Ahead

        self._ahead = Ahead(self)

    def stop_ahead(self):
        if self._ahead:
            self._ahead.stop()

    def close(self):
        """Unmap everything; tensors, arrays and views of this file must not be used afterwards."""
        if self._ahead:
            self._ahead.close()
            self._ahead = None
        for shard in self.shards:
            shard.close()
        if self.adapters:
            self.adapters.release()
        self.tensors = {}


def shard_name(path):
    """(prefix, number, count) of a name like `prefix-00002-of-00003.gguf`; None for any other name."""
    stem = path[:-5] if path.endswith(".gguf") else ""
    if len(stem) < 15 or stem[-15] != "-" or stem[-9:-5] != "-of-":
        return None
    number, count = stem[-14:-9], stem[-5:]
    if not (number.isascii() and number.isdigit() and count.isascii() and count.isdigit()):
        return None
    return stem[:-15], int(number), int(count)


def _shard_path(prefix, number, count):
    return f"{prefix}-{number:05d}-of-{count:05d}.gguf"


def _check_name(header, count):
    """The prefix of a split file's names; ModelFileError unless `header` is its first shard under its own name."""
    where = f"{header.path} key split.count"
    if not 1 < count <= SHARDS:
        raise ModelFileError("impossible number of shards", f"1 to {SHARDS}", count, where)
    name = shard_name(header.path)
    number = header.metadata.u("split.no", 0) + 1
    if name is None:
        remedy = "give the first shard under its own name; join shards with gguf-split --merge, not cat"
        found = "a name that is not a shard's"
        if header.size > header.data_end and _joined(header):
            found += ", and another GGUF file after its own data"
        raise ModelFileError(
            f"file is shard {number} of {count}, not a whole model",
            f"a name ending in -{number:05d}-of-{count:05d}.gguf",
            found,
            where,
            remedy,
        )
    prefix, named, named_count = name
    if (named, named_count) != (number, count):
        raise ModelFileError("shard has the wrong name", f"{number:05d}-of-{count:05d}", f"{named:05d}-of-{named_count:05d}", where)
    if number != 1:
        raise ModelFileError(
            f"file is shard {number} of {count}",
            "the first shard",
            remedy=f"give {_shard_path(prefix, 1, count)}",
            where=header.path,
        )
    return prefix


def _joined(header):
    """Whether GGUF's magic follows the data: the sign of shards joined by `cat`."""
    from .. import native
    from .layout import MAGIC

    for at in {header.data_end, (header.data_end + header.alignment - 1) & -header.alignment}:
        if at + 4 <= header.size and native.bytes_at(header.mapping.address + at, 4) == MAGIC:
            return True
    return False


def _exists(path):
    try:
        _stat(path)
        return True
    except OSError:
        return False


def _open_rest(first, count):
    """Headers of all shards, the given first one included."""
    prefix = _check_name(first, count)
    paths = [_shard_path(prefix, n, count) for n in range(2, count + 1)]
    missing = [path for path in paths if not _exists(path)]
    if missing:
        names = ", ".join(path.rpartition("/")[2] for path in missing)
        raise ModelFileError(
            f"{len(missing)} of {count} shards are missing", found=f"no {names}", where=prefix.rpartition("/")[0] or "."
        )
    shards = [first]
    try:
        for number, path in enumerate(paths, 2):
            shards.append(open_header(path))
            _check_shard(shards[-1], number, count)
    except BaseException:
        for shard in shards[1:]:
            shard.close()
        raise
    return shards


def _check_shard(header, number, count):
    found = (header.metadata.u("split.no") + 1, header.metadata.u("split.count"))
    if found != (number, count):
        raise ModelFileError(
            "shard does not belong here", f"shard {number} of {count}", f"shard {found[0]} of {found[1]}", header.path
        )


def _merge(file):
    """Gather the tensors of all shards under the first; ModelFileError on doubles and on a wrong total."""
    tensors = file.tensors = dict(file.tensors)
    for shard in file.shards[1:]:
        for name in shard.tensors:
            if name in tensors:
                raise ModelFileError(f"tensor {name!a} is in two shards", where=shard.path)
        tensors.update(shard.tensors)
    announced = file.metadata.u("split.tensors.count", len(tensors))
    if announced != len(tensors):
        raise ModelFileError(
            "wrong number of tensors in all shards", announced, len(tensors), f"{file.path} key split.tensors.count"
        )


def open_model(path):
    """Open a GGUF model by its path, or the path of the first shard; a File. ModelFileError for anything wrong."""
    first = open_header(path)
    shards = [first]
    try:
        count = first.metadata.u("split.count", 1)
        if count not in (0, 1):
            shards = _open_rest(first, count)
        file = File(shards)
        if len(shards) > 1:
            _merge(file)
        return file
    except BaseException:
        for shard in shards:
            shard.close()
        raise
