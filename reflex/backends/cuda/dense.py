"""Decoding by one kernel: which programs the persistent kernel (kernels/cuda/persistent.py) takes, and its launch for them.

It takes models whose every layer is alike: RMSNorm, q, k, v with or without head norms and biases, rotation, full attention,
residual, RMSNorm, gated feed-forward, residual; with matrices in the formats of persistent.UNITS, on devices whose blocks may have
227 KB of shared memory (sm_90, sm_100). Everything else decodes by the graph of separate kernels (lowering.py). Called by
decode.py.
"""

from itertools import pairwise

from ... import native
from . import persistent
from .fusion import Attention, Linear, Plain, fuse
from .memory import EXPANDED, WEIGHTS, offset
from .parameters import COLUMNS, blocks

LOG2_E = 1.4426950408889634
NARROW = 1024  # columns of the residual stream, up to which threads hold fewer values at once


class Unfit(Exception):
    """Why a program is not for this kernel; never leaves this file."""


def need(holds, reason):
    if not holds:
        raise Unfit(reason)


def same(values, what):
    """The value that all have."""
    kinds = set(values)
    need(len(kinds) == 1, f"{what} differ between layers")
    return kinds.pop()


class Layer:
    """The records of one layer, in order."""

    def __init__(self, steps):
        need(not any(step.op == "route" for step in steps), "experts")
        records = fuse(steps, False)
        apart = dict.fromkeys(record.step.op for record in records if type(record) is Plain)
        need(not apart, f"operations that stand apart: {', '.join(apart)}")
        kinds = [type(record) for record in records]
        need(kinds == [Linear, Attention, Linear, Linear, Linear], "a layer of another form")
        self.qkv, self.attention, self.out, self.gate, self.down = records
        products = [(record.mode, len(record.steps), record.norm is not None) for record in records if type(record) is Linear]
        need(products == [("store", 3, True), ("add", 1, False), ("gated", 2, True), ("add", 1, False)], "a layer of another form")
        inputs = {step.out: step for step in self.qkv.steps}
        need(set(inputs) == set(self.attention.step.ins), "other inputs of attention")
        self.inputs = [inputs[name] for name in self.attention.step.ins]  # q, k, v
        self.steps = [*self.inputs, *self.out.steps, *self.gate.steps, *self.down.steps]
        need(not any(step.args for step in self.steps), "matrices that are parts of others")
        need(not any(step.weights[1] for step in self.steps[3:]), "biases outside q, k and v")
        need(self.qkv.norm.ins[0] == self.out.out == self.gate.norm.ins[0] == self.down.out, "another residual stream")
        found = self.attention
        need(not any(found.step.args.get(word) for word in ("window", "chunk", "softcap")), "windows or capped scores")
        need(not found.step.weights, "sinks")
        need((found.q_norm is None) == (found.k_norm is None) and found.norm_first, "other head norms")


class Dense:
    """The launch of the persistent kernel for one plan. Raises Unfit."""

    def __init__(self, plan):
        self.plan, self.memory = plan, plan.memory
        program, tensors = plan.program, plan.file.tensors
        bounds = program.layers
        need(len(bounds) > 1, "no layers")
        self.layers = [Layer(program.steps[first:last]) for first, last in pairwise(bounds)]
        self.tensors = tensors
        self._ends(fuse(program.steps[: bounds[0]], False), fuse(program.steps[bounds[-1] :], False))
        self._facts()
        width, hidden = program.width, tensors[self.layers[0].down.steps[0].weights[0]].shape[0]
        heads, kv_heads, size = self.heads
        facts = len(self.layers), width, heads, kv_heads, size, hidden, program.vocabulary, plan.multiprocessors
        self.sizes = persistent.Sizes(*facts)
        name = "persistent_narrow" if width <= NARROW else "persistent"
        need(name in plan.image and plan.image.target in persistent.TARGETS, f"no kernel for {plan.image.target}")
        self.kernel = plan.image.kernel(name)
        types = [[plan.gpu.layout.kind(self._tensor(step)) for step in layer.steps] for layer in self.layers]
        outer = [plan.gpu.layout.kind(self._tensor(step)) for step in (self.head, self.embed)]
        known = {kind for row in types for kind in row} | set(outer)
        need(known <= set(persistent.UNITS), "other block formats")
        self.types, self.outer = types, outer
        words, listed = self._table(lambda address: 0)
        refused = self.sizes.refusal(known, self.kernel.shared, listed)
        need(refused is None, refused)
        places = [self._place(step) for layer in self.layers for step in layer.steps] + [self._place(self.head)]
        need(all(offset(place) % 16 == 0 for place in places), "matrices that begin anywhere")
        self.stages = self.sizes.stages(self.kernel.shared, listed)
        self.listed = listed
        self.table = self.memory.named("persistent table", 8 * len(words))
        self.exchange = self.memory.zeros("persistent exchange", 4 * self.sizes.exchange_words())
        self.out = self.memory.named("persistent tokens", 8)
        self.status = self.memory.zeros("persistent status", 4 * plan.multiprocessors)
        self.frequencies = self.memory.frequencies(self.rope) if self.rope is not None else self.memory.cells

    def _ends(self, first, last):
        """The embedding, and the output with its norm."""
        need(len(first) == 1 and type(first[0]) is Plain and first[0].step.op == "embed", "another embedding")
        self.embed = first[0].step
        self.logit_scale = 1.0
        if len(last) == 2 and type(last[1]) is Plain and last[1].step.op == "scale":
            self.logit_scale = float(last[1].step.args["factor"])
            last = last[:1]
        need(len(last) == 1 and type(last[0]) is Linear and last[0].norm is not None, "another output")
        need(last[0].mode == "store" and len(last[0].steps) == 1, "another output")
        self.head, self.norm = last[0].steps[0], last[0].norm
        need(not self.head.args and not self.head.weights[1], "another output")

    def _facts(self):
        """What all layers must agree on."""
        layers, program = self.layers, self.plan.program
        found = [layer.attention for layer in layers]
        args = [a.step.args for a in found]
        need(all(a["key_dim"] == a["value_dim"] for a in args), "keys and values of different widths")
        self.heads = same(((a["heads"], a["kv_heads"], a["key_dim"]) for a in args), "heads")
        need([a["layer"] for a in args] == list(range(len(layers))), "caches in another order")
        self.scale = float(same((a["scale"] for a in args), "scales"))
        self.rope = same((a.table for a in found), "rotations")
        norms = [n for layer in layers for n in (layer.qkv.norm, layer.gate.norm)] + [self.norm]
        norms += [n for a in found for n in (a.q_norm, a.k_norm) if n]
        self.eps = float(same((n.args["eps"] for n in norms), "eps"))
        self.residual_scale = float(same((r.scale for layer in layers for r in (layer.out, layer.down)), "residual scales"))
        act = same((layer.gate.act for layer in layers), "activations")
        need(act in persistent.ACTIVATIONS, f"the activation {act}")
        biased = any(step.weights[1] for layer in layers for step in layer.inputs)
        style = "neox" if self.rope is None else program.ropes[self.rope].style
        self.flags = persistent.HALVES * (style == "neox") | persistent.ACTIVATIONS[act] | persistent.BIASED * biased
        shapes = ([self._tensor(step).shape for step in layer.steps] for layer in layers)
        same((tuple(map(tuple, row)) for row in shapes), "shapes")

    def _tensor(self, step):
        return self.tensors[step.weights[0]]

    def _place(self, step):
        return self.memory.weight(self._tensor(step))

    def _floats(self, name):
        return self.memory.floats(self.tensors[name]) if name else None

    def _table(self, address):
        """See persistent.table; `address` turns relative addresses into absolute ones."""

        def floats(name):
            return address(self._floats(name)) if name else 0

        layers = []
        for layer, types in zip(self.layers, self.types, strict=True):
            norms = [layer.attention.q_norm, layer.attention.k_norm]
            layers.append({
                "matrices": [(address(self._place(step)), kind) for step, kind in zip(layer.steps, types, strict=True)],
                "norms": [floats(norm.weights[0]) for norm in (layer.qkv.norm, layer.gate.norm)],
                "head_norms": [floats(norm.weights[0]) if norm else 0 for norm in norms],
                "biases": [floats(step.weights[1]) for step in layer.inputs],
            })  # fmt: skip
        head, embed = ((address(self._place(step)), kind) for step, kind in zip((self.head, self.embed), self.outer, strict=True))
        return persistent.table(self.sizes, layers, head, embed, floats(self.norm.weights[0]), self.memory.layer_places)

    def add(self, chain):
        """Append the evaluation of one token: its logits, and what `logits_stats` says of them."""
        m, s, program = self.memory, self.sizes, self.plan.program
        rope = program.ropes[self.rope] if self.rope is not None else None
        pairs, magnitude = (len(rope.frequencies), float(rope.magnitude)) if rope else (0, 1.0)
        logits = m.places["logits"]
        values = (
            self.table, self.frequencies, m.pages, m.cells, m.ids, m.positions, m.shared, m.branch, m.ids, self.exchange, logits,
            self.out, self.status, s.layers, s.width, s.heads, s.kv_heads, s.size, s.hidden, s.vocabulary, pairs, self.flags,
            self.stages, s.stage, s.room, 1, 0, self.eps, self.scale * LOG2_E, float(self.embed.args["scale"]),
            self.residual_scale, self.logit_scale, magnitude,
        )  # fmt: skip
        shared = s.shared_bytes(self.stages, self.listed)
        chain.add(self.kernel, self.plan.multiprocessors, values, shared, overlap=False, cooperative=True)
        parts = blocks(program.vocabulary, COLUMNS)
        partials = m.of_wanted("stats partials", 1, 16 * parts)
        counters = m.zeros("stats counters", 4 * m.rows)
        values = logits, m.stats_of(1), partials, counters, program.vocabulary
        chain.add(self.plan.image.kernel("logits_stats"), (parts, 1), values)

    def send(self):
        """Write the table, once every arena has its place."""
        plan = self.plan

        def address(place):
            area = place >> 48 & 0xFF
            bases = {WEIGHTS: plan.gpu.base, EXPANDED: plan.gpu.expanded}
            return bases[area] + offset(place) if area in bases else plan.address(place)

        words, _ = self._table(address)
        block = native.alloc(8 * len(words), "persistent table")
        native.view(block.address, len(words), "q")[:] = memoryview((native.Int64 * len(words))(*words)).cast("B").cast("q")
        plan.device.copy_in(plan.address(self.table), block.address, 8 * len(words))
        plan.device.synchronize()
        block.free()


def dense(plan):
    """(the Dense of a plan, None), or (None, why it decodes by separate kernels)."""
    try:
        return Dense(plan), None
    except Unfit as reason:
        return None, str(reason)
