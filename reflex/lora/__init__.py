"""Adapter files: LoRA as llama.cpp's converter writes it, laid beside the tensors of an open model.

A file has `general.type` adapter, `adapter.type` lora, the model's architecture, `adapter.lora.alpha`, and for every adapted tensor
a pair `<tensor>.lora_a`, `<tensor>.lora_b`, of any block format. It is mapped like a shard, so nothing is copied or expanded;
program/adapters.py says what is computed. Refuses, all of it named in one AdapterError, tensors that the model does not have, other
shapes, and what no step of the model's program multiplies by. Called by open.py, where an adapter is asked for.
"""

from .. import native
from ..arch import load_spec, names
from ..errors import AdapterError, InvalidInputError, ModelFileError, closest
from ..gguf.header import Tensor, open_header
from ..program.adapters import Adapters, Part
from ..quant.types import by_id
from . import rearranged

ENDS = ".lora_a", ".lora_b"
NEUTRAL = (names.ROPE_FREQS, names.ROPE_LONG, names.ROPE_SHORT)  # tensors of the base model that converters copy along
MOST_RANK = 1 << 16
ALPHA, KIND, TYPE, INVOCATION = "adapter.lora.alpha", "general.type", "adapter.type", "adapter.alora.invocation_tokens"
MOST_SCALE = 1e6
NO_NUMBERS = ("I8", "I16", "I32", "I64")


def asked(words):
    """[(path, scale)] of what is given for adapters: FILE, FILE=SCALE, or pairs."""
    if isinstance(words, (str, bytes)) or hasattr(words, "__fspath__"):
        words = (words,)
    return [_asked(word) for word in words]


def _asked(word):
    from posix import fspath

    if isinstance(word, (tuple, list)) and len(word) == 2:
        path, scale = word
        if not isinstance(scale, (int, float)) or isinstance(scale, bool):
            raise InvalidInputError("the scale of an adapter is no number", "a number", repr(scale), "--lora")
        return fspath(path), _checked(scale)
    path = fspath(word)
    before, equals, after = path.rpartition("=")
    if equals:
        try:
            return before, _checked(float(after))
        except ValueError:
            pass  # a path that has the sign in it
    return path, 1.0


def _checked(scale):
    if not abs(scale) <= MOST_SCALE:
        raise InvalidInputError("no such scale of an adapter", f"a number of at most {MOST_SCALE:g}", str(scale), "--lora")
    return float(scale)


class Adapter:
    """One adapter file that is open. `pairs`: {tensor name: {end: Tensor}}; `others`: its Tensors of another kind."""

    def __init__(self, path, scale):
        self.path, self.scale = path, scale
        self.header = _open(path)
        try:
            self.alpha = self._facts()
        except BaseException:
            self.close()
            raise
        self.pairs, self.others = {}, []
        for tensor in self.header.tensors.values():
            if tensor.name.endswith(ENDS):
                self.pairs.setdefault(tensor.name[:-7], {})[tensor.name[-7:]] = tensor
            else:
                self.others.append(tensor)

    def _facts(self):
        """The alpha, once the file has turned out to be an adapter."""
        keys = self.header.metadata
        for key, value in ((KIND, "adapter"), (TYPE, "lora")):
            found = keys.s(key, "") if key in keys else "no such key"
            if found != value:
                raise AdapterError("this is no LoRA adapter", f"{key} {value}", found, self.path)
        if keys.u("split.count", 1) > 1:
            raise AdapterError("an adapter in several shards", "one file", "a shard", self.path, "join it with gguf-split --merge")
        if INVOCATION in keys:
            where = f"{self.path} key {INVOCATION}"
            raise AdapterError("the adapter is not for all tokens", "an adapter of every token", "one of what follows some", where)
        try:
            return keys.f(ALPHA)
        except ModelFileError as error:
            raise AdapterError(error.message, error.expected or "a finite number", error.found, self.path) from None

    def facts(self):
        """Bytes that are the same for the same adapter: a digest of the whole file, and the scale."""
        mapping = self.header.mapping
        return f"{native.library().digest(mapping.address, self.header.size, 0)} {self.scale!r}".encode()

    def close(self):
        """The mapping is the file's once it was laid beside it."""
        self.header.close()


def _open(path):
    try:
        return open_header(path)
    except ModelFileError as error:
        message = error.message.replace("the model file", "the adapter").replace("the model", "the adapter")
        raise AdapterError(message, error.expected, error.found, error.where, "give the path of an adapter in GGUF") from None


class Laid:
    """Adapters beside a model's tensors, before its program is built."""

    def __init__(self, file, wanted, note):
        self.file = file
        self.problems = []  # (what, tensor name, adapter)
        self.parts = {}
        self.tensors = {}
        self.made = rearranged.Rearranged()
        self.latent = {}  # names of the matrices of latent attention -> their layer
        self.adapters = []
        for layer in load_spec(file).layers:
            if layer.latent:
                self.latent.update(dict.fromkeys((layer.latent.k_b.weight, layer.latent.v_b.weight), layer))
        try:
            for path, scale in wanted:
                adapter = Adapter(path, scale)
                self.adapters.append(adapter)
                self._take(adapter, len(self.adapters) - 1, note)
            headers = [adapter.header for adapter in self.adapters]
            made = self.made.header()
            if made:
                headers.append(made)
                self.tensors.update(made.tensors)
        except BaseException:
            self.close()
            raise
        file.lay(headers, self.tensors, self)

    def _take(self, adapter, number, note):
        model, found = self.file.s("general.architecture"), adapter.header.metadata.s("general.architecture", "none")
        if model != found:
            raise AdapterError("the adapter is for another architecture", model, found, adapter.path)
        if not adapter.pairs:
            expected = f"pairs of tensors that end in {' and '.join(ENDS)}"
            raise AdapterError("the adapter adapts nothing", expected, "none", adapter.path)
        for tensor in adapter.others:
            self._other(adapter, tensor, note)
        for name, pair in adapter.pairs.items():
            problem = self._problem(name, pair)
            if problem:
                self.problems.append((problem, name, adapter))
                continue
            own = f"adapter {number}: {name}"
            a, b = (self._add(own + end, pair[end]) for end in ENDS)
            rank = b.shape[0]
            scale = adapter.scale * (adapter.alpha / rank if adapter.alpha else 1.0)
            part = Part(a.name, b.name, rank, scale, rearranged.elements(self.file.tensors[name].shape[2:]))
            if is_table(name):
                part.turned = rearranged.turned(self.made, own, b)
            elif name in self.latent:
                part.heads = rearranged.of_heads(self.made, own, name, self.latent[name], a, b)
            self.parts.setdefault(name, []).append(part)

    def _add(self, name, tensor):
        """A tensor of an adapter under a name of its own."""
        added = Tensor(name, tensor.type, tensor.shape, tensor.address, tensor.nbytes, tensor.elements)
        self.tensors[name] = added
        return added

    def _other(self, adapter, tensor, note):
        """A tensor that is not half of a pair: harmless where it is the model's own, or tells of the model what it says itself."""
        own = self.file.tensors.get(tensor.name)
        same = own is not None and (own.type, own.shape) == (tensor.type, tensor.shape)
        if same and native.bytes_at(own.address, own.nbytes) == native.bytes_at(tensor.address, tensor.nbytes):
            return
        if tensor.name in NEUTRAL:
            note(f"reflex: warning: {adapter.path}: {tensor.name} is not used, the model's own is")
            return
        self.problems.append(("is no half of a pair, and not the model's own", tensor.name, adapter))

    def _problem(self, name, pair):
        """What is wrong with a pair; None where it fits the model."""
        own = self.file.tensors.get(name)
        if own is None:
            return f"is no tensor of the model (near: {closest(name, self.file.tensors, 1)})"
        if len(pair) < 2:
            return f"lacks {next(end for end in ENDS if end not in pair)}"
        if len(own.shape) < 2:
            return "is no matrix of the model"
        for end in ENDS:
            if by_id(pair[end].type).name in NO_NUMBERS:
                return f"{end} holds {by_id(pair[end].type).name}"
        a, b = pair[".lora_a"].shape, pair[".lora_b"].shape
        columns, rows, *stack = own.shape
        rank = b[0]
        expected = ((rank, rows), (rank, columns)) if is_table(name) else ((columns, rank, *stack), (rank, rows, *stack))
        if not 0 < rank <= MOST_RANK or tuple(map(_trimmed, expected)) != (_trimmed(a), _trimmed(b)):
            shapes = " and ".join(f"{end} {list(shape)}" for end, shape in zip(ENDS, expected, strict=True))
            return f"{list(own.shape)} needs {shapes}, has {list(a)} and {list(b)}"
        return None

    def used(self, taken):
        """Raise for all that does not fit, once a program has `taken` what it multiplies by."""
        for adapter in self.adapters:
            for name in adapter.pairs:
                if name in self.parts and name not in taken:
                    self.problems.append(("is nothing that the model's program multiplies by", name, adapter))
        if self.problems:
            paths = dict.fromkeys(adapter.path for _, _, adapter in self.problems)
            message = "tensors of the adapter do not fit the model"
            raise AdapterError(message, found=listed(self.problems), where=", ".join(paths))

    def program(self):
        """Adapters for the program of this model."""
        return Adapters(self.parts)

    def close(self):
        """Of what no file has taken over."""
        for adapter in self.adapters:
            adapter.close()
        self.release()

    def release(self):
        self.made.release()


def is_table(name):
    """Whether a tensor is the table of embeddings, whose adapter has a row of A for every token."""
    return name == names.EMBEDDING + ".weight"


def _trimmed(shape):
    while len(shape) > 1 and shape[-1] == 1:
        shape = shape[:-1]
    return tuple(shape)


def listed(problems):
    """All problems in words: tensors that differ in the number of their layer alone are named together."""
    found = {}
    for problem, name, _ in problems:
        layer = names.layer_index(name)
        pattern = name.replace(f"blk.{layer}.", "blk.*.", 1) if layer >= 0 else name
        found.setdefault((pattern, problem.replace(f"blk.{layer}.", "blk.*.")), []).append(layer)
    return "; ".join([f"{pattern.replace('*', ranges(layers))} {problem}" for (pattern, problem), layers in found.items()])


def ranges(numbers):
    """Numbers as text: 0-3,7."""
    parts = []
    for number in sorted(set(numbers)):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join([f"{first}-{last}" if last > first else str(first) for first, last in parts])
