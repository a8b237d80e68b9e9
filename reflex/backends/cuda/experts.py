"""Launches of a mixture of experts: the router, each row's choice, and products whose matrix depends on it.

Several rows: pairs of a row and an expert are put in the order of the experts and cut into tiles (expert_order); a launch then
takes a tile of one expert like a product of many tokens (expert_tiles), or in formats that are not tiled like one of a few
(linear_rows), both on tensor cores, or value by value (expert_plain).
Results lie at [row, slot], expert_sum adds them up. One row: every block finds the experts by itself (expert_dot), where the
formats have integer products. Imported for programs with experts; sizes repeat those of the kernel files.
"""

from ...errors import UnsupportedError
from ...quant import load
from ...quant.types import by_id, row_bytes
from .fusion import ACTIVATIONS, Linear
from .lowering import Lowering
from .memory import offset
from .parameters import Own, blocks
from .products import MODES, SEGMENTS, TILE, UNTILED, fragment_of, is_summed

GATINGS = {"softmax": 0, "sigmoid": 1, "softmax of chosen": 2, "sigmoid of chosen": 3}
FLOAT32 = 0  # type id
MOST_EXPERTS, MOST_USED, MOST_GROUPS = 512, 32, 32
UNWEIGHTED = 2  # mode of expert_sum
PLAIN_TOKENS = 8  # pairs of a tile of expert_plain
# kernels/cuda/expert_tiles.py: name, pairs and weight rows of a block; the second, if there is one, from CROWDED pairs per expert
TILES = ("32", 32, 64), ("64", 64, 128)
CROWDED = 16
TILE_BYTES = 49920  # of dynamic shared memory
SIMPLE_EXPERTS = 128  # that kernels for one row choose from by themselves
STRAND = 16  # threads
ROOMY = 30  # words of weights of a strand's rows, above which it has one row in expert_down, from shared memory
SHARED_BYTES = 96 << 10  # of it that expert_down may take, where a block may have it
STATIC_BYTES = 1 << 10  # what expert_down has beside that, at most


def refuse(program):
    """UnsupportedError for more experts than the router's kernels choose from."""
    for step in program.steps:
        if step.op == "route":
            experts, used, groups = program.widths[step.ins[0]], step.args["used"], step.args.get("groups", 0)
            if experts > MOST_EXPERTS or used > MOST_USED or groups > MOST_GROUPS:
                need = f"at most {MOST_USED} of {MOST_EXPERTS} experts in {MOST_GROUPS} groups"
                found = f"{used} of {experts} in {groups}"
                raise UnsupportedError("too many experts for the cuda backend", need, found, remedy="use --backend cpu")


class ExpertLowering(Lowering):
    """A Lowering that knows Experts records, and their steps one by one."""

    arranged = None  # (routes, pairs per tile) for which the latest expert_order was launched
    ahead = None  # {id of a step of a router: the same step of the next layer} where that can be asked ahead, see asking.py

    # ---- steps ----

    def _step_route(self, step):
        logits, rows = self._at(step.ins[0])
        settings = self._route_settings(step, self._width(step.ins[0]))
        routes = self._to(step.out, rows)
        self._add("route", (blocks(rows, 4),), (logits, *settings, rows, routes))
        self._stop(step, routes, rows)

    def _stop(self, step, routes, rows, guesses=0):
        """What follows, up to `_stopped`, uses the experts that `step` has chosen."""
        if self.asking:
            self.stops.append([len(self.chain), len(self.chain), step, routes, rows, guesses])

    def _stopped(self):
        if self.asking:
            self.stops[-1][1] = len(self.chain)

    def _step_expert_linear(self, step):
        source, rows = self._at(step.ins[0])
        routes, used = self._at(step.ins[1])[0], step.args["used"]
        columns, self.arranged = self._size(step)[1], None
        each = 1 if self._width(step.ins[0]) > columns else used
        inputs = self._expert_halves((source, 0, 0, 0.0, columns), rows * used // each, used, each, [step])
        self._expert_products([step], inputs, routes, rows, [self._to(step.out, rows)])
        self._stopped()

    def _step_expert_sum(self, step):
        source, rows = self._at(step.ins[0])
        routes, columns = self._at(step.ins[1])[0], self._width(step.out)
        mode = 0 if step.args.get("weighted", True) else UNWEIGHTED
        self._expert_sum(source, routes, self._to(step.out, rows), rows, columns, step.args["used"], mode, 1.0)

    def _step_route_scale(self, step):
        routes, rows = self._at(step.out)
        count = rows * step.args["used"]
        self._add("route_scale", (blocks(count, 256),), (routes, self._floats(step), step.args["used"], count))

    def _step_expert_scale(self, step):
        x, rows = self._at(step.out)
        routes, used = self._at(step.ins[1])[0], step.args["used"]
        columns = self._width(step.out) // used
        self._add("expert_scale", (blocks(columns, 1024), rows * used), (x, routes, columns, used))

    # ---- a whole mixture ----

    def _experts(self, record):
        source, rows = self._at(record.source)
        columns, self.arranged = self._size(record.gate)[1], None
        norm = (Own(self._weight(0), record.norm), 1, float(record.norm.args["eps"])) if record.norm else (0, 0, 0.0)
        source = source, *norm, columns
        logits = self._router(record, source, rows)
        one = rows == 1 and not self.reach
        quick_gate, quick_down = one and self._quick_gate(record), one and self._quick_down(record)
        routed = not (quick_gate and self._simple(record.route)) or bool(self.memory.layout.begins)
        routes = self._to(record.route.out, rows)
        settings = self._route_settings(record.route, self._width(record.router.out))
        if routed or self.asking:
            self._add("route", (blocks(rows, 4),), (logits, *settings, rows, routes))
        self._stop(record.route, routes, rows, self._guess(record, source, rows) if self.asking else 0)
        hidden = self._to(record.gate.out, rows)
        if quick_gate:
            choice = logits, routes, int(routed), *settings[2:7]
            self._gate_of_one(record, source, choice, hidden)
        else:
            self._gate_of_many(record, source, routes, hidden, rows)
        adding = record.mode == "add"
        out = self._at(record.out)[0] if adding else self._to(record.out, rows)
        if quick_down:
            self._down_of_one(record, routes, hidden, out)
        else:
            self._down_of_many(record, routes, hidden, out, rows)

    def _gate_of_many(self, record, source, routes, out, rows):
        used = record.route.args["used"]
        inputs = self._expert_halves(source, rows, used, used, [record.gate, record.up])
        up = self._to(record.up.out, rows)
        self._expert_products([record.gate, record.up], inputs, routes, rows, [out, up], record.act, record.limit)

    def _down_of_many(self, record, routes, hidden, out, rows):
        used = record.route.args["used"]
        source = hidden, 0, 0, 0.0, self._size(record.down)[1]
        inputs, down = self._expert_halves(source, rows * used, used, 1, [record.down]), self._to(record.down.out, rows)
        self._expert_products([record.down], inputs, routes, rows, [down])
        self._stopped()
        tail = MODES[record.mode], float(record.scale)
        self._expert_sum(down, routes, out, rows, self._width(record.out), used, *tail)

    # ---- one row ----

    def _simple(self, step):
        """Whether kernels for one row can choose the experts by themselves."""
        return not step.weights[0] and step.args.get("groups", 0) < 2 and self._width(step.ins[0]) <= SIMPLE_EXPERTS

    def _quick(self, kernel, step):
        """Whether a product of one row has a kernel of its own."""
        kind, columns, _ = self._size(step)
        fits = columns % 256 == 0 and 5 * columns // 2 <= self.image.most_shared_bytes - 2 * STATIC_BYTES
        return fits and f"{kernel}_{by_id(kind).name}" in self.image and not step.weights[1]

    def _quick_gate(self, record):
        gate, up = record.gate, record.up
        alike = self._size(gate) == self._size(up) and self._stack(gate)[1] == self._stack(up)[1]
        return alike and record.act in ACTIVATIONS and self._quick("expert_gate", gate) and self._quick("expert_gate", up)

    def _quick_down(self, record):
        return self._quick("expert_down", record.down) and self._down_layout(record) is not None

    def _gate_of_one(self, record, source, choice, out):
        kind, columns, count = self._size(record.gate)
        kernel = self.image.kernel("expert_gate_" + by_id(kind).name)
        splits, grid = self._strands_of(kernel, record.route.args["used"] * count, columns // 256)
        matrix, stride, *_ = self._stack(record.gate)
        stack = matrix, Own(self._matrix, record.up), stride, count
        values = (*source, *stack, *choice, out, ACTIVATIONS[record.act], splits)
        self._add(kernel.name, (grid,), values, 5 * columns // 2)

    def _down_of_one(self, record, routes, hidden, out):
        kernel, splits, grid, shared = self._down_layout(record)
        columns, used, stack = self._size(record.down)[1], record.route.args["used"], self._stack(record.down)[:3]
        values = (hidden, columns, *stack, routes, used, out, MODES[record.mode], float(record.scale), splits)
        self._add(kernel.name, (grid,), values, shared)
        self._stopped()

    def _down_layout(self, record):
        """(kernel, strands that share a row by columns, blocks, shared memory) of expert_down, None where there is no way."""
        kind, columns, count = self._size(record.down)
        used, name, stride = record.route.args["used"], by_id(kind).name, self._stack(record.down)[1]
        kernel, line = self.image.kernel("expert_down_" + name), row_bytes(kind, columns)
        staged = 2 * load(name).DOT.words >= ROOMY
        aligned = stride % 16 == 0 and offset(self._matrix(record.down)) % 16 == 0
        most = min(SHARED_BYTES, self.image.block_shared_bytes - STATIC_BYTES)

        def shared(splits):
            rows = kernel.threads // STRAND // splits if staged else 0
            return 5 * used * columns // 2 + rows * used * line

        def fits(splits):
            rows = kernel.threads // STRAND // splits
            if not staged:
                return shared(splits) <= self.image.most_shared_bytes - STATIC_BYTES
            return aligned and rows * line % 16 == 0 and shared(splits) <= most

        found = self._strands_of(kernel, blocks(count, 1 if staged else 2), used * columns // 256, fits)
        return found and (kernel, *found, shared(found[0]))

    def _strands_of(self, kernel, units, row_blocks, fits=lambda splits: True):
        """(strands that share a unit by columns, blocks), whichever is done first, or None where none `fits`: getting started takes
        about two steps."""
        strands, steps = kernel.threads // STRAND, blocks(row_blocks, 4)

        def grid(splits):
            return blocks(units, strands // splits)

        def spent(splits):
            return blocks(grid(splits), self.multiprocessors) * (2 + blocks(steps, splits))

        splits = min(filter(fits, range(1, min(strands, steps) + 1)), key=spent, default=0)
        return (splits, grid(splits)) if splits else None

    # ---- several rows ----

    def _router(self, record, source, rows):
        """The router's logits; returns their address."""
        step, (kind, columns, experts) = record.router, self._size(record.router)
        out = self._to(step.out, rows)
        if kind != FLOAT32 or columns % 4:
            self._linear(Linear(record.source, [step], record.norm))
            return out
        self._ask_router((*source, Own(self._matrix, step), *self._own_bias(step), out), experts, rows)
        return out

    def _ask_router(self, values, experts, rows):
        if rows == 1 and not self.reach:
            self._add("router_row", (experts,), values)
        else:
            self._add("router_rows", (blocks(experts, 16), blocks(rows, 8)), (*values, experts, rows))

    def _guess(self, record, source, rows):
        """What the next layer's router would choose for the rows of this one; returns where that is written, 0 where it is not
        asked. A layer that is like this one but has no such next asks its own again, and no one reads that."""
        (kind, columns, experts), route, m = self._size(record.router), record.route, self.memory
        if self.ahead is None:
            from .asking import following

            self.ahead = following(self.program, self.file.tensors)
        steps = [route, record.router, *([record.norm] if record.norm else [])]
        if m.layout.begins or kind != FLOAT32 or columns % 4 or not all(id(step) in self.ahead for step in steps):
            return 0

        def own(word, step):
            return Own(lambda here: word(self.ahead.get(id(here), here)), step)

        norm = (own(self._weight(0), record.norm), *source[2:4]) if record.norm else (0, 0, 0.0)
        bias = (own(self._bias, record.router), 1) if record.router.weights[1] else (0, 0)
        logits = m.named(f"guessed logits {experts}", 4 * m.rows * experts)
        routes = m.named(f"guesses {route.args['used']}", 8 * m.rows * route.args["used"])
        self._ask_router((source[0], *norm, columns, own(self._matrix, record.router), *bias, logits), experts, rows)
        self._add("route", (blocks(rows, 4),), (logits, *self._route_settings(route, experts, own), rows, routes))
        return routes

    def _own_bias(self, step):
        return (Own(self._bias, step), 1) if step.weights[1] else (0, 0)

    def _route_settings(self, step, experts, own=Own):
        """Parameters of the choice, from the bias on."""
        args = step.args
        used, groups = args["used"], args.get("groups", 0)
        bias = (own(self._weight(0), step), 1) if step.weights[0] else (0, 0)
        gating, renormalize = GATINGS[args["gating"]], int(args["renormalize"])
        return (*bias, experts, used, gating, renormalize, float(args["scale"]), groups, args.get("groups_used", 0))

    def _expert_halves(self, source, rows, used, each, steps):
        """[(half floats, factors, pairs per row, columns)] of the inputs of pairs, after the launch that makes them; where weights
        of `steps` are summed, of what these leave too."""
        m, columns, split = self.memory, source[-1], self._splits_halves(steps)
        made = []
        for name, (pairs, factors) in {"": m.halves(), "rest of ": m.rest()}.items() if split else [("", m.halves())]:
            if columns % 32 and each == 1:
                pairs = m.named(f"{name}expert halves {used} {columns}", 2 * m.rows * used * blocks(columns, 32) * 32)
            if each == 1:
                factors = m.named(f"{name}expert factors {used}", 4 * m.rows * used)
            made.append((pairs, factors))
        self._add("halves", (rows,), (*source, columns, *made[0], int(split), *(made[1] if split else (0, 0))))
        return [(*some, each, columns) for some in made]

    def _splits_halves(self, steps):
        """Whether inputs of products are halves of two parts."""
        return any(is_summed(self._size(step)[0]) for step in steps)

    def _tiles_of(self, routes, rows, experts, used, tokens):
        """((order, tiles), most tiles) of the pairs of a batch, after the launch that makes them, where it was not made yet."""
        m, key = self.memory, (routes, tokens)

        def most(rows):
            pairs = rows * used
            return (pairs + (tokens - 1) * min(experts, pairs)) // tokens

        order = m.named(f"expert order {used}", 4 * m.rows * used)
        tiles = m.named(f"expert tiles {tokens} {used} {experts}", 16 * most(m.rows))
        if key != self.arranged:
            values = routes, rows, experts, used, tokens, order, tiles, most(rows)
            self._add("expert_order", (1,), values, 4 * rows * used)
            self.arranged = key
        return (order, tiles), most(rows)

    def _expert_products(self, steps, inputs, routes, rows, outs, act=None, limit=()):
        """y_j of every pair for one or two stacks of one input; `act`: gate and up, the result in place of the gate's; with the
        unit's `limit`, if it has one."""
        parts = [(step, self._size(step), self._stack(step), out) for step, out in zip(steps, outs, strict=True)]
        ways = {}
        for part in parts:
            ways.setdefault(self._expert_way(part[1]), []).append(part)
        gated = act in ACTIVATIONS and len(ways) == 1 and self._alike(parts) and not is_summed(parts[0][1][0])
        if gated:
            gated = next(iter(ways)) != self._plain_experts
        for way, some in ways.items():
            for group in [some] if self._alike(some) or way == self._tiled_experts else [[part] for part in some]:
                way(inputs[0], group, routes, rows, (MODES["gated" if gated else "store"], ACTIVATIONS.get(act, 0)))
                if is_summed(group[0][1][0]):
                    rest = [(step, size, (*stack[:3], 0, 0, 0), out) for step, size, stack, out in group]
                    way(inputs[1], rest, routes, rows, (MODES["add"], 0))
        if act is not None and not gated:
            count = rows * self._width(steps[0].out)
            self._add("gated_" + act, (blocks(count, 1024),), (*outs, count, *limit))

    @staticmethod
    def _alike(parts):
        """Whether two stacks are so alike that one launch may take them."""
        return all(part[1] == parts[0][1] and part[2][4:] == parts[0][2][4:] for part in parts)

    def _expert_way(self, size):
        if size[1] % 32 or fragment_of(size[0]) is None:
            return self._plain_experts
        return self._tiled_experts if fragment_of(size[0]).tiled else self._few_experts

    # Parts below: (step, size, stack, address of the results)

    def _tiled_experts(self, inputs, parts, routes, rows, tail):
        used, experts = self._choice(parts)
        many = rows * used >= CROWDED * experts and not self.reach and "expert_tiles_64" in self.image
        tile, tokens, tile_rows = TILES[many]
        listed, count = self._tiles_of(routes, rows, experts, used, tokens)
        values = []
        for _, (kind, _, _), (matrix, *rest), out in parts:
            values += [matrix, kind, *rest, out]
        values += [0] * (8 * (2 - len(parts)))
        sizes = [part[1] for part in parts]
        wide = 2 * sizes[0][2] if tail[0] == MODES["gated"] else None
        grid = count, blocks(wide, tile_rows) if wide else sum(blocks(size[2], tile_rows) for size in sizes)
        self._add("expert_tiles_" + tile, grid, (*inputs, *listed, *values, sizes[0][2], *tail), TILE_BYTES)

    def _few_experts(self, inputs, parts, routes, rows, tail):
        (pairs, factors, each, columns), (used, experts) = inputs, self._choice(parts)
        (order, tiles), count = self._tiles_of(routes, rows, experts, used, UNTILED)
        sizes, values, nexts = [part[1] for part in parts], [], []
        for _, (kind, _, wide), (matrix, stride, _, bias, biased, _), out in parts:
            values += [matrix, kind, wide, bias, biased, out, wide]
            nexts.append(stride)
        values += [0] * (7 * (SEGMENTS - len(parts)))
        busy = 1 if self.reach else min(experts, rows * used)  # tiles that have pairs; steady batches hang on nothing
        splits, _ = self._splits(sizes * busy, tail[0] == MODES["gated"], columns)
        grid = blocks(sum(blocks(size[2], TILE) for size in sizes) * splits, 8)
        nexts += [0] * (2 - len(nexts))
        values = pairs, factors, 0, columns, *values, *tail, 1.0, splits, each, order, tiles, *nexts, parts[0][2][5]
        self._add("linear_rows_" + f"{UNTILED}_{by_id(sizes[0][0]).name}", (grid, count), values)

    def _plain_experts(self, inputs, parts, routes, rows, tail):
        used, experts = self._choice(parts)
        listed, count = self._tiles_of(routes, rows, experts, used, PLAIN_TOKENS)
        for _, (kind, _, wide), stack, out in parts:
            values = (*inputs, *listed, *stack, out, wide, tail[0])
            self._add("expert_plain_" + by_id(kind).name, (blocks(wide, 4), count), values)

    def _choice(self, parts):
        """(experts of a row, experts) of stacks."""
        step = parts[0][0]
        return step.args["used"], self.file.tensors[step.weights[0]].shape[2]

    def _stack(self, step):
        """(matrix of the first expert, bytes to the next, rows, bias, whether there is one, floats to the next)."""
        tensor = self.file.tensors[step.weights[0]]
        kind, columns, rows = self._size(step)
        stride = tensor.shape[1] * row_bytes(kind, columns)
        bias = (Own(self._stack_bias, step), 1) if step.weights[1] else (0, 0)
        return (Own(self._matrix, step), stride, rows, *bias, tensor.shape[1])

    def _stack_bias(self, step):
        return self.memory.floats(self.file.tensors[step.weights[1]]) + 4 * step.args.get("rows", (0, 0))[0]

    def _expert_sum(self, source, routes, out, rows, columns, used, mode, scale):
        self._add("expert_sum", (blocks(columns, 1024), rows), (source, routes, out, columns, used, mode, scale))
