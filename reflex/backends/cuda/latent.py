"""Launches of latent attention: a matrix for every head, which is a mixture whose rows all go to all experts, and attention over a
latent cache, the plain way (kernels/cuda/latent_attention.py). Imported for programs that have them."""

from ...errors import UnsupportedError
from ...program.records import Step
from .experts import ExpertLowering
from .parameters import Own, blocks

MOST_DIMENSIONS = 1024  # kernels/cuda/latent_attention.py


class LatentLowering(ExpertLowering):
    """An ExpertLowering that knows the operations of latent attention too."""

    def _step_head_linear(self, step):
        (x, rows), args, tensor = self._at(step.ins[0]), step.args, self.file.tensors[step.weights[0]]
        heads, head_dim, columns, made = args["heads"], args["head_dim"], tensor.shape[0], tensor.shape[1]
        out, rest = self._to(step.out, rows), head_dim - columns
        product = Step("expert_linear", step.out, (step.ins[0], None), (step.weights[0], None), {"used": heads})
        self.of_heads = step
        inputs = self._head_halves(x, rows, heads, head_dim, columns, [product])
        whole = self.memory.named(f"made of heads {made * heads}", 4 * self.memory.rows * made * heads) if rest else out
        self._expert_products([product], inputs, ("heads", heads), rows, [whole])
        if rest:
            self._add("head_join", (heads, rows), (whole, x, out, heads, made, head_dim, columns))

    def _stack(self, step):
        """Where a layer is copied, what stands for a mixture here has the address of its own step."""
        matrix, *rest = super()._stack(step)
        return (Own(self._matrix, self.of_heads) if step.ins[1] is None else matrix, *rest)

    def _head_halves(self, x, rows, heads, stride, columns, steps):
        """As `_expert_halves`, of inputs that are `stride` floats apart."""
        m, split = self.memory, self._splits_halves(steps)
        made, padded = [], blocks(columns, 32) * 32
        for name in ("", "rest of ") if split else ("",):
            pairs = m.named(f"{name}head halves {heads} {columns}", 2 * m.rows * heads * padded)
            made.append((pairs, m.named(f"{name}head factors {heads}", 4 * m.rows * heads)))
        self._add("halves", (rows * heads,), (x, 0, 0, 0.0, columns, stride, *made[0], int(split), *(made[1] if split else (0, 0))))
        return [(*some, 1, columns) for some in made]

    def _tiles_of(self, routes, rows, experts, used, tokens):
        if type(routes) is not tuple:
            return super()._tiles_of(routes, rows, experts, used, tokens)
        each = blocks(rows, tokens)
        name = f"heads {experts} of {rows}"
        order = self.memory.constant(name, lambda: words(row * experts + head for head in range(experts) for row in range(rows)))
        cut = ((h, h * rows + t * tokens, min(tokens, rows - t * tokens), 0) for h in range(experts) for t in range(each))
        tiles = self.memory.constant(f"{name} by {tokens}", lambda: words(word for tile in cut for word in tile))
        return (order, tiles), experts * each

    def _step_latent_attention(self, step):
        args, m = step.args, self.memory
        (q, _), (c, _) = map(self._at, step.ins)
        heads, key_dim, value_dim = args["heads"], args["key_dim"], args["value_dim"]
        if key_dim > MOST_DIMENSIONS or key_dim % 2 or value_dim % 2:
            need = f"even numbers up to {MOST_DIMENSIONS}"
            raise UnsupportedError("the cuda backend has no such latent attention", need, f"{key_dim} and {value_dim} dimensions")
        layer = Own(self._layer_at, step)
        self._add("latent_append", (self.rows,), (c, m.cells, m.pages, key_dim, layer))
        out = self._to(step.out, self.rows)
        values = (q, out, m.cells, m.lists, m.positions, m.shared, m.branch, m.pages, heads, key_dim, value_dim, layer)
        self._add("latent_attention", (heads, self.rows), (*values, float(args["scale"])))


def words(numbers):
    """Bytes of 32-bit numbers."""
    numbers = list(numbers)
    view = memoryview(bytearray(4 * len(numbers))).cast("i")
    for i, number in enumerate(numbers):
        view[i] = number
    return bytes(view)
