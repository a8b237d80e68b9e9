"""The names under which values of a running model can be read and replaced, found by walking the steps of its program.

A tap is a buffer at a moment: what it holds once a number of steps have run. No name depends on the family: a layer has
`attention` and `heads` where it has an attention step, `router` where it has a route step, and what it adds to the residual stream
has names after the order of the additions. Layers are counted as they run. Every other step has its number for a name. Called by
walk, trace, patch and lens; the shapes of what they return are these.
"""

from fnmatch import fnmatchcase

from ..backends.cuda.moments import moments
from ..errors import InvalidInputError, UnsupportedError, closest
from ..records import Record, table

WALKED = ("reference", "cpu")  # backends that can be stopped between any two steps, see walk.py
EVERYWHERE = (*WALKED, "cuda")
ATTENTIONS = ("attention", "latent_attention")  # operations that have a pattern
ADDED = (("feed_forward",), ("attention_out", "feed_forward"), ("attention_out", "feed_forward", "layer_input"))  # by additions
HIDDEN = ("embedding", "layers.*.residual_out", "final_norm")  # what `trace` reads where nothing is named
STEPS = ("attention", "heads", "router")  # taps that are shown in a shape of their own
MEANINGS = {
    "embedding": "what the first layer reads: scaled embeddings, with positions where the family adds them",
    "residual_in": "the residual stream before the layer",
    "attention": "attention pattern: rows are the tokens that look, columns those looked at; each row sums to 1. Models with sinks "
    "have one more column, the share that goes to no token",
    "heads": "what each head gives, before the output projection",
    "attention_out": "what attention, or a recurrent mixer in its place or beside it, adds to the residual stream, after a norm "
    "behind it, before the residual scale",
    "router": "the chosen experts with their weights, the most likely one first; fields `expert` and `weight`",
    "feed_forward": "what the feed-forward adds to the residual stream, after a norm behind it, before the residual scale",
    "layer_input": "what the layer's own embedding of the token adds to the residual stream",
    "residual_out": "the residual stream after the layer",
    "final_norm": "what the output matrix reads",
    "logits": "the scores of the next token, scaled and capped",
}


class Tap(Record):
    """One value that can be read (`Model.trace`) and replaced (`Model.patch`)."""

    name: str
    shape: tuple  # of words for what depends on the text, and numbers: rows are the tokens of the text
    meaning: str
    backends: tuple[str, ...]  # that have it
    __slots__ = (*__annotations__,)


class Taps(Record):
    """The taps of a model, in the order of computing."""

    taps: tuple[Tap, ...]
    __slots__ = (*__annotations__,)

    @property
    def names(self):
        """A list of the names."""
        return [tap.name for tap in self.taps]

    def __len__(self):
        return len(self.taps)

    def __iter__(self):
        return iter(self.taps)

    def __repr__(self):
        return "\n".join(f"{tap.name:28} {_shown(tap.shape)}" for tap in self.taps)

    def table(self):
        """One dictionary per tap."""
        return [tap.to_dict() for tap in self.taps]

    def _repr_html_(self):
        rows = [(tap.name, _shown(tap.shape), tap.meaning, ", ".join(tap.backends)) for tap in self.taps]
        return table(("tap", "shape", "meaning", "backends"), rows)


def _shown(shape):
    return f"[{', '.join(map(str, shape))}]"


class Point:
    """Where a tap lies: what `buffer` holds once `at` steps have run. `step` is the one that made it, where that matters."""

    __slots__ = ("at", "backends", "buffer", "kind", "meaning", "name", "shape", "step")

    def __init__(self, name, at, buffer, shape, meaning, kind="rows", step=None, backends=WALKED):
        self.name = name
        self.at = at
        self.buffer = buffer
        self.shape = shape
        self.meaning = meaning
        self.kind = kind  # how the rows of the buffer are shown: rows, heads, attention, router or logits
        self.step = step
        self.backends = backends

    def locate(self, found):
        """Whether the cuda backend has it too; `found`: its moments."""
        if self.kind in ("rows", "heads", "router") and self.at in found and self.buffer in found[self.at].buffers:
            self.backends = EVERYWHERE

    def tap(self):
        return Tap(self.name, self.shape, self.meaning, self.backends)


def points(program):
    """{name: Point} of everything, in the order of computing; the numbered steps come last."""
    layers, steps = program.layers, program.steps
    stream, tail = steps[0].out, head_product(program)
    columns = ("rows", program.width)
    found = [Point("embedding", layers[0], stream, columns, MEANINGS["embedding"])]
    for number in range(len(layers) - 1):
        for word, at, buffer, shape, step in layer_points(program, layers[number], layers[number + 1], stream):
            kind = word if word in STEPS else "rows"
            found.append(Point(f"layers.{number}.{word}", at, buffer, shape, MEANINGS[word], kind, step))
    found.append(Point("final_norm", tail, steps[tail].ins[0], columns, MEANINGS["final_norm"]))
    shape = ("rows", program.vocabulary)
    found.append(Point("logits", len(steps), steps[-1].out, shape, MEANINGS["logits"], "logits", None, EVERYWHERE))
    for number, step in enumerate(steps[:tail]):
        if step.op != "route":  # the router's words are experts, which not every number names
            shape = ("rows", program.widths[step.out])
            found.append(Point(f"steps.{number}.{step.out}", number + 1, step.out, shape, str(step)))
    on_device = moments(program)
    for point in found:
        point.locate(on_device)
    return {point.name: point for point in found}


def layer_points(program, first, last, stream):
    """(word, at, buffer, shape, step) of the layer whose steps are [first, last)."""
    columns = ("rows", program.width)
    yield "residual_in", first, stream, columns, None
    sums = [n for n in range(first, last) if program.steps[n].op == "add" and program.steps[n].out == stream]
    looks_back = any("layer" in step.args or "state" in step.args for step in program.steps[first:last])
    mixes = looks_back and len(sums) == 1  # and there is no feed-forward
    for number in range(first, last):
        step = program.steps[number]
        if step.op in ATTENTIONS:
            heads, looked_at = step.args["heads"], "columns + 1" if step.weights else "columns"
            yield "attention", number + 1, step.out, (heads, "rows", looked_at), step
            yield "heads", number + 1, step.out, ("rows", heads, step.args["value_dim"]), step
        elif step.op == "route":
            yield "router", number + 1, step.out, ("rows", step.args["used"]), step
        elif number in sums:
            words = ("attention_out",) if mixes else ADDED[min(len(sums), len(ADDED)) - 1]
            yield words[sums.index(number)], number, step.ins[1], columns, None
    yield "residual_out", last, stream, columns, None


def head_product(program):
    """The step that multiplies with the output matrix: the first of those that make the logits."""
    return next(n for n in range(program.layers[-1], len(program.steps)) if program.steps[n].out == program.steps[-1].out)


def chosen(known, names, backend=None):
    """The points that `names` (one name or several, with * and ? for parts) mean, in the order of computing; refuses names that
    mean none, and those that `backend` lacks."""
    names = list(names) if isinstance(names, (list, tuple, set)) else [names]
    wanted = set()
    for name in names:
        found = [other for other in known if fnmatchcase(other, name)] if isinstance(name, str) else []
        if not found:
            remedy = f"Model.taps() lists all; near: {closest(str(name), list(known))}"
            raise InvalidInputError("there is no such tap", summary(known), repr(name), remedy=remedy)
        wanted.update(found)
    found = [point for name, point in known.items() if name in wanted]
    for point in found if backend else ():
        if backend not in point.backends:
            expected = f"backend {' or '.join(point.backends)}"
            remedy = f"backend={point.backends[-1]!r} computes beside"
            raise UnsupportedError(f"this backend cannot show {point.name}", expected, backend, remedy=remedy)
    return found


def summary(known):
    """All names in few words: layers.0-29.heads, steps.0-400.*"""
    numbers = {}
    for name in known:
        head, _, rest = name.partition(".")
        number, _, word = rest.partition(".")
        if rest:
            numbers.setdefault((head, "*" if head == "steps" else word), []).append(int(number))
        else:
            numbers[name, ""] = []
    words = []
    for (head, word), own in numbers.items():
        ends = ",".join(f"{first}-{last}" if last > first else str(first) for first, last in runs(sorted(set(own))))
        words.append(f"{head}.{ends}.{word}" if own else head)
    return ", ".join(words)


def runs(numbers):
    """(first, last) of every run of ascending numbers without a gap."""
    found = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return found
