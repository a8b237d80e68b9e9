"""Records of a program: Step, Rope and Program. Backends read them; only the emitters of this package write them.

Buffers are float32 [rows, columns]; rows are the tokens of the batch, or the wanted rows after `select`. The meaning of
each operation, with its operands and arguments, is declared in reflex/ops/<op>.py.
"""

BATCH = 512  # most tokens evaluated at once: bounds the activation buffers whatever the length of a prompt
PLACES = 24  # states of recurrent layers that a plan has room for; the session says what lies in each
RUN_WORDS = 8 * BATCH  # most words that list the runs of slots of a batch: one per list, two per run


class Step:
    """One operation: op(ins, weights, **args) -> out. `out` may be one of `ins`: the operation works in place."""

    __slots__ = ("args", "ins", "op", "out", "weights")

    def __init__(self, op, out, ins=(), weights=(), args=None):
        self.op = op
        self.out = out  # buffer name
        self.ins = ins  # buffer names
        self.weights = weights  # tensor names; None: the optional tensor is absent
        self.args = args or {}

    def __str__(self):
        words = [*self.ins, *(w for w in self.weights if w), *(f"{k}={show(v)}" for k, v in self.args.items())]
        return f"{self.out} = {self.op}({', '.join(words)})"


def show(value):
    return f"{value:.6g}" if isinstance(value, float) else str(value)


class Rope:
    """A rotary table: angle of pair i at position p is p * frequencies[i]; cos and sin are multiplied by magnitude."""

    __slots__ = ("frequencies", "magnitude", "style")

    def __init__(self, frequencies, magnitude, style):
        self.frequencies = frequencies  # radians per position, factors and scaling applied
        self.magnitude = magnitude
        self.style = style  # norm: pairs (2i, 2i+1) | neox: pairs (i, i + len(frequencies))


class Program:
    """What to compute for a batch of tokens, once the weights are known by name."""

    __slots__ = ("adapters", "architecture", "caches", "context", "context_length", "layers", "ropes", "states", "steps")
    __slots__ += ("vocabulary", "width", "widths")

    def __init__(self, architecture, vocabulary, context_length, width):
        self.architecture = architecture
        self.vocabulary = vocabulary
        self.context_length = context_length  # tokens the model was made for
        self.context = context_length  # tokens that it is built for
        self.width = width
        self.adapters = None  # Adapters (adapters.py), which follow their matrices
        self.steps = []
        self.layers = []  # where each layer's steps begin, then where the head's begin
        self.widths = {}  # buffer name -> columns
        self.caches = []  # per layer with attention: (kv_heads, key_dim, value_dim)
        self.states = []  # per step with a state: its float32 numbers
        self.ropes = []

    def buffer(self, name, columns):
        """The buffer `name` if its width agrees, else one of its own: layers may differ in size."""
        if self.widths.setdefault(name, columns) == columns:
            return name
        own = f"{name}{columns}"
        self.widths[own] = columns
        return own

    def state(self, numbers):
        """The index of another state, of that many float32."""
        self.states.append(numbers)
        return len(self.states) - 1

    def emit(self, op, out, ins=(), weights=(), args=None):
        self.steps.append(Step(op, out, ins, weights, args))

    def linear(self, out, source, matrix):
        """out = W source + b. Part of a fused tensor: `rows` (first, count) of W, b starting at `bias_row`; else no arguments."""
        args = None
        if matrix.rows is not None:
            args = {"rows": matrix.rows, "bias_row": matrix.bias_row}
        self.steps.append(Step("linear", out, (source,), (matrix.weight, matrix.bias), args))
        if self.adapters:
            self.adapters.linear(self, out, source, matrix)

    def norm(self, out, source, norm, spec):
        """out = the family's norm of source; `norm` are its (weight, bias), None for what it lacks."""
        args = {"eps": spec.eps}
        if spec.norm == "layernorm":
            self.steps.append(Step("layernorm", out, (source,), norm, args))
            return
        self.steps.append(Step("rmsnorm", out, (source,), norm[:1], args))
        if norm[1]:
            self.steps.append(Step("bias", out, (out,), norm[1:]))

    def expert_linear(self, out, source, routes, matrix, used):
        """out = W_e source + b_e for the `used` experts e that each row is routed to; W is a stack of one matrix per expert."""
        args = {"used": used} | ({} if matrix.rows is None else {"rows": matrix.rows})
        self.steps.append(Step("expert_linear", out, (source, routes), (matrix.weight, matrix.bias), args))
        if self.adapters:
            self.adapters.experts(self, out, source, routes, matrix, used)

    def head_linear(self, out, source, matrix, heads, head_dim, transposed=False):
        """out = what W_h makes of the first dimensions of head h, and the others of it: W is a stack of one matrix per head."""
        args = {"heads": heads, "head_dim": head_dim} | ({} if matrix.rows is None else {"rows": matrix.rows})
        self.emit("head_linear", out, (source,), (matrix.weight,), args | ({"transposed": True} if transposed else {}))
        if self.adapters:
            self.adapters.of_heads(self, out, source, matrix, heads, head_dim)

    def __str__(self):
        head = f"{self.architecture}: {len(self.steps)} steps, {len(self.layers) - 1} layers, vocabulary {self.vocabulary}"
        ropes = [
            f"rope {i}: {2 * len(r.frequencies)} dims {r.style}, {r.frequencies[0]:.6g} to {r.frequencies[-1]:.6g} rad, "
            f"magnitude {r.magnitude:.6g}"
            for i, r in enumerate(self.ropes)
        ]
        widths = "buffers: " + ", ".join(f"{name}[{columns}]" for name, columns in self.widths.items())
        return "\n".join([head, widths, *ropes, *(f"{i:4} {step}" for i, step in enumerate(self.steps))])
