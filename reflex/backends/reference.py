"""The reference backend: every step of a program through the numpy function of its operation, in float32.

It is the oracle of the other backends and the place to look at intermediate values (`taps`); it is not fast. Weights are
decoded on first use and kept, the embedding row by row. Owns its cache of keys and values, one slot per token; which
slots are alive is the session's business. Refuses ids outside the vocabulary, rows outside the batch and slots beyond
the context. Called by session and check.
"""

import numpy as np

from .. import ops, quant
from ..errors import ContextOverflowError, InvalidInputError
from ..native import view
from ..quant.types import by_id, row_bytes


class Rows:
    """A tensor of which only the rows asked for are decoded: rows[[ids]] is float32 [len(ids), columns]."""

    def __init__(self, tensor):
        self.columns = tensor.shape[0]
        self.nbytes = row_bytes(tensor.type, self.columns)
        self.address = tensor.address
        self.format = by_id(tensor.type).name

    def __getitem__(self, ids):
        data = b"".join(view(self.address + i * self.nbytes, self.nbytes) for i in ids)
        return quant.decode(self.format, data).reshape(len(ids), self.columns)


class Batch:
    """What the steps of one evaluation share besides buffers; `rows` says which batch rows a buffer holds."""

    def __init__(self, ids, first_slot, positions, shared, branch, outputs):
        self.ids = ids
        self.slots = list(range(first_slot, first_slot + len(ids)))
        self.positions = positions
        self.shared = shared
        self.branch = branch
        self.outputs = outputs
        self.buffers = {}  # name -> float32 [rows, columns]
        self.rows = {}  # name -> batch rows of that buffer


class Plan:
    """A program bound to the weights of a file and a cache of at most `context` slots. `threads` is numpy's own affair."""

    def __init__(self, file, program, context, threads=1):
        self.file = file
        self.program = program
        self.context = context
        self.threads = threads
        self.vocabulary = program.vocabulary
        self.taps = None  # callable(buffer name, step index, array), called after each step
        self._weights = {}  # tensor name -> float32, rows first
        self._keys = [np.zeros((0, heads * key_dim), np.float32) for heads, key_dim, _ in program.caches]
        self._values = [np.zeros((0, heads * value_dim), np.float32) for heads, _, value_dim in program.caches]
        self._references = {op: ops.find(op).reference for op in {step.op for step in program.steps}}
        self._logits = np.zeros((0, program.vocabulary), np.float32)
        self._state = {"embed": self._embed, "rope": self._rope, "attention": self._attention, "select": self._select}

    def evaluate(self, ids, first_slot, positions, shared, branch, outputs):
        """Runs a batch: token i goes to slot first_slot+i at rope position positions[i] and sees the slots [0, shared[i])
        and [branch[i], first_slot+i]. `outputs`: ascending batch rows whose logits are wanted."""
        self._check(ids, first_slot, positions, shared, branch, outputs)
        batch = Batch(ids, first_slot, positions, shared, branch, list(outputs))
        for index, step in enumerate(self.program.steps):
            ins = [batch.buffers[name] for name in step.ins]
            args = dict(step.args)
            batch.rows[step.out] = batch.rows[step.ins[0]] if step.ins else list(range(len(ids)))
            state = self._state.get(step.op)
            if state is None:
                ins += [self.weight(name) for name in step.weights]
            else:
                state(batch, step, ins, args)
            out = self._references[step.op](*ins, **args)
            batch.buffers[step.out] = out
            if self.taps:
                self.taps(step.out, index, out)
        self._logits = np.ascontiguousarray(batch.buffers["logits"])

    def _check(self, ids, first_slot, positions, shared, branch, outputs):
        count = len(ids)
        if not count or not len(positions) == len(shared) == len(branch) == count:
            found = f"{count} ids, {len(positions)} positions, {len(shared)} shared, {len(branch)} branch"
            raise InvalidInputError("a batch needs one value of each kind per token", expected="equal lengths, not 0", found=found)
        if first_slot < 0 or first_slot + count > self.context:
            raise ContextOverflowError(
                "the batch does not fit the context",
                expected=f"at most {self.context} slots",
                found=f"{count} tokens from slot {first_slot}",
                remedy="raise --ctx or shorten the text",
            )
        self._check_ids(ids)
        for row, (start, end) in enumerate(zip(branch, shared, strict=True)):
            if not 0 <= start <= first_slot + row or not 0 <= end <= first_slot + row:
                found = f"[0, {end}) and [{start}, {first_slot + row}]"
                raise InvalidInputError(
                    "a token sees slots that do not exist yet", expected="ranges of slots before it", found=found
                )
        if list(outputs) != sorted(set(outputs)) or (outputs and not 0 <= outputs[0] <= outputs[-1] < count):
            raise InvalidInputError(
                "outputs must be ascending rows of the batch", expected=f"0 to {count - 1}", found=list(outputs)
            )

    def _check_ids(self, ids):
        bad = [i for i in ids if not 0 <= i < self.vocabulary]
        if bad:
            raise InvalidInputError("a token id is outside the vocabulary", expected=f"0 to {self.vocabulary - 1}", found=bad[0])

    # ---- operations that need more than buffers and weights -----------------------------------------------

    def _embed(self, batch, step, ins, args):
        ins.append(Rows(self.file.tensors[step.weights[0]]))
        args["ids"] = batch.ids

    def _rope(self, batch, step, ins, args):
        args["rope"] = self.program.ropes[args.pop("table")]
        args["positions"] = [batch.positions[r] for r in batch.rows[step.out]]

    def _attention(self, batch, step, ins, args):
        layer = args.pop("layer")
        rows = batch.rows[step.out]
        ins[1] = self._append(self._keys, layer, batch.slots, ins[1])
        ins[2] = self._append(self._values, layer, batch.slots, ins[2])
        for name in ("slots", "positions", "shared", "branch"):
            args[name] = [getattr(batch, name)[r] for r in rows]

    def _select(self, batch, step, ins, args):
        args["outputs"] = batch.rows[step.out] = batch.outputs

    def _append(self, cache, layer, slots, new):
        """Writes the rows of `new` into their slots and returns the whole cache of that layer."""
        old = cache[layer]
        if slots[-1] >= len(old):
            grown = np.zeros((min(self.context, max(2 * len(old), slots[-1] + 1, 64)), old.shape[1]), np.float32)
            grown[: len(old)] = old
            cache[layer] = old = grown
        old[slots[0] : slots[-1] + 1] = new
        return old

    def weight(self, name):
        """A tensor as float32, rows first; None for None."""
        if name is None:
            return None
        if name not in self._weights:
            tensor = self.file.tensors[name]
            values = quant.decode(by_id(tensor.type).name, view(tensor.address, tensor.nbytes))
            self._weights[name] = values.reshape(tensor.shape[::-1])
        return self._weights[name]

    # ---- results of the last evaluation; row is an index into its outputs -----------------------------------

    def logits(self, row):
        """memoryview of float32 [vocabulary]."""
        return memoryview(self._logits[row])

    def logprobs(self, row, token_ids):
        """Log-softmax over the full vocabulary of some ids, in float64."""
        self._check_ids(token_ids)
        x = self._logits[row].astype(np.float64)
        x -= x.max()
        return (x[list(token_ids)] - np.log(np.exp(x).sum())).tolist()

    def argmax(self, row):
        """The most probable id, the lowest one on ties; -1 where the logits are not numbers."""
        best = int(self._logits[row].argmax())  # numpy takes NaN for the largest
        return best if self._logits[row, best] == self._logits[row, best] else -1

    def sample(self, row, temperature, top_k, top_p, min_p, random):
        """One id drawn with the uniform number `random` in [0, 1)."""
        return draw(self._logits[row], temperature, top_k, top_p, min_p, random)

    def close(self):
        """Forgets weights and cache; the file stays its owner's."""
        self._weights.clear()
        self._keys = self._values = ()


def draw(logits, temperature, top_k, top_p, min_p, random):
    """`reflex.sample.choose` over a numpy row: top-k, top-p, min-p, then the temperature; that function is the definition."""
    order = np.argsort(-logits, kind="stable")
    if temperature <= 0:
        return int(order[0])
    if top_k > 0:
        order = order[:top_k]
    x = logits[order].astype(np.float64)
    x -= x[0]
    if top_p < 1:
        mass = np.cumsum(np.exp(x))
        x = x[: int(np.searchsorted(mass, top_p * mass[-1])) + 1]
    if min_p > 0:
        x = x[: max(1, int((np.exp(x) >= min_p).sum()))]
    mass = np.cumsum(np.exp(x / temperature))
    return int(order[min(int(np.searchsorted(mass, random * mass[-1], side="right")), len(x) - 1)])
