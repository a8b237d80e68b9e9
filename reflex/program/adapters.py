"""Low-rank adapters (LoRA, arXiv 2106.09685) as further steps of a program: y = W x + b becomes y + scale B (A x), whatever type
W has.

The steps are those that programs have anyway, so no backend knows of adapters, and W is never expanded. A stack of experts has a
stack of A and of B. What adapts the table of embeddings is stored the other way round, a row of A for every token: E + scale A B',
where B' is B transposed; where that table is the output matrix too, it is adapted there as well. Called by the emitters, by way of
Program; reflex/lora makes the records.
"""


class Part:
    """What one adapter adds to one matrix: names of tensors of the program's file."""

    __slots__ = ("a", "b", "heads", "rank", "scale", "stack", "turned")

    def __init__(self, a, b, rank, scale, stack=1):
        self.a = a  # ne = [in, rank], of embeddings [rank, vocabulary], of a stack [in, rank, stack]
        self.b = b  # ne = [rank, out], of a stack [rank, out, stack]
        self.rank = rank
        self.scale = scale  # of the product, alpha / rank applied
        self.stack = stack  # matrices of the tensor
        self.turned = None  # of embeddings: b transposed, ne = [out, rank]
        self.heads = None  # of latent attention: {rows of the matrix: (A, B, rows of B)}, each with a matrix for every head


class Adapters:
    """The Parts of every adapted matrix, {tensor name: [Part]}, and which of them a program has taken."""

    def __init__(self, parts):
        self.parts = parts
        self.taken = set()  # tensor names

    def _of(self, name):
        found = self.parts.get(name, ())
        if found:
            self.taken.add(name)
        return found

    def embedding(self, program, out, name, scale):
        """Behind the look-up of rows of a table; `scale`: what that multiplied them by."""
        for part in self._of(name):
            low = program.buffer("lora", part.rank)
            program.emit("embed", low, (), (part.a,), {"scale": 1.0})
            self._add(program, out, low, part.b, part.scale * scale)

    def linear(self, program, out, source, matrix):
        """Behind out = W source + b."""
        for part in self._of(matrix.weight):
            rank = part.stack * part.rank
            low = program.buffer("lora", rank)
            every = {"rows": (0, rank), "bias_row": 0} if part.stack > 1 else None
            program.emit("linear", low, (source,), (part.turned or part.a, None), every)
            if part.stack > 1:  # matrices below each other, each with a B for its own rows of A
                self._heads(program, out, low, part.b, part, part.stack, None)
            else:
                self._add(program, out, low, part.a if part.turned else part.b, part.scale, matrix.rows)

    def experts(self, program, out, source, routes, matrix, used):
        """Behind the product with a stack of matrices."""
        for part in self._of(matrix.weight):
            low = program.buffer("lora", used * part.rank)
            high = program.buffer("adapted", program.widths[out])
            rows = {} if matrix.rows is None else {"rows": matrix.rows}
            program.emit("expert_linear", low, (source, routes), (part.a, None), {"used": used})
            program.emit("expert_linear", high, (low, routes), (part.b, None), {"used": used} | rows)
            program.emit("add", out, (out, high), (), {"scale": part.scale})

    def of_heads(self, program, out, source, matrix, heads, head_dim):
        """Behind the product with a matrix for each head."""
        for part in self._of(matrix.weight):
            a, b, rows = part.heads[matrix.rows] if part.heads else (part.a, part.b, None)
            low = program.buffer("lora", heads * part.rank)
            program.emit("head_linear", low, (source,), (a,), {"heads": heads, "head_dim": head_dim})
            self._heads(program, out, low, b, part, heads, rows)

    @staticmethod
    def _heads(program, out, low, name, part, heads, rows):
        """out_h += scale W_h low_h"""
        high = program.buffer("adapted", program.widths[out])
        args = {"heads": heads, "head_dim": part.rank} | ({} if rows is None else {"rows": rows})
        program.emit("head_linear", high, (low,), (name,), args)
        program.emit("add", out, (out, high), (), {"scale": part.scale})

    @staticmethod
    def _add(program, out, low, name, scale, rows=None):
        """out += scale W low"""
        high = program.buffer("adapted", program.widths[out])
        program.emit("linear", high, (low,), (name, None), None if rows is None else {"rows": rows, "bias_row": 0})
        program.emit("add", out, (out, high), (), {"scale": scale})
