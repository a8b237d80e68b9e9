"""The reference backend: every step of a program through the numpy function of its operation, in float32.

It is the oracle of the other backends and the place to look at intermediate values (`buffers`); it is not fast. Weights are
decoded on first use and kept, the embedding row by row. Owns its cache of keys and values, one slot per token; which
slots are alive is the session's business. Refuses ids outside the vocabulary, rows outside the batch and slots beyond
the context. Called by session and check.
"""

import numpy as np

from .. import ops, quant
from ..errors import ContextOverflowError, InvalidInputError
from ..native import view
from ..program.records import BATCH, PLACES
from ..quant.types import by_id, row_bytes
from .layers import checked

LOGITS_BYTES = 32 << 20  # of the rows of logits that lie in memory at once


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


class Stack:
    """The matrices of a layer's experts, of which only those asked for are decoded: stack[expert, rows] is float32 [rows, in]."""

    def __init__(self, tensor):
        columns, rows, experts = tensor.shape
        self.shape = (experts, rows, columns)
        self.nbytes = rows * row_bytes(tensor.type, columns)
        self.address = tensor.address
        self.format = by_id(tensor.type).name
        self.decoded = {}  # by expert; lives as long as one step, since all experts of a model are more than a memory holds

    def __getitem__(self, place):
        expert, rows = place
        if expert not in self.decoded:
            data = view(self.address + int(expert) * self.nbytes, self.nbytes)
            self.decoded[expert] = quant.decode(self.format, data).reshape(self.shape[1:])
        return self.decoded[expert][rows]


class Batch:
    """What the steps of one evaluation share besides buffers; `rows` says which batch rows a buffer holds."""

    def __init__(self, ids, first_slot, positions, shared, branch, outputs, runs, strands):
        self.ids = ids
        self.slots = list(range(first_slot, first_slot + len(ids)))
        self.positions = positions
        self.shared = shared
        self.branch = branch
        self.outputs = outputs
        self.runs = runs or [()] * len(ids)
        self.strands = strands
        self.buffers = {}  # name -> float32 [rows, columns]
        self.rows = {}  # name -> batch rows of that buffer


class Plan:
    """A program bound to the weights of a file and a cache of at most `context` slots. `threads` is numpy's own affair."""

    steady = True  # every batch is

    def __init__(self, file, program, context, threads=1):
        self.file = file
        self.program = program
        self.context = context
        self.threads = threads
        self.vocabulary = program.vocabulary
        self.most_outputs = BATCH
        self._weights = {}  # tensor name -> float32, rows first
        self._keys = [np.zeros((0, heads * key_dim), np.float32) for heads, key_dim, _ in program.caches]
        self._values = [np.zeros((0, heads * value_dim), np.float32) for heads, _, value_dim in program.caches]
        self.places = PLACES if program.states else 0
        self._states = [np.zeros((0, numbers), np.float32) for numbers in program.states]  # [places used so far, numbers]
        self._references = {op: ops.find(op).reference for op in {step.op for step in program.steps}}
        self.most_logits = max(1, LOGITS_BYTES // (4 * program.vocabulary))  # rows of logits in memory
        self._logits = np.zeros((0, program.vocabulary), np.float32)
        self._batch, self._first = None, 0  # the latest; the output whose logits come first
        self._state = {"embed": self._embed, "rope": self._rope, "attention": self._attention, "select": self._select}
        self._state |= {"latent_attention": self._latent_attention}
        self._state |= {"add_position": self._add_position, "temper": self._temper, "expert_linear": self._expert_linear}
        self._state |= dict.fromkeys(("conv", "delta_rule", "state_scan"), self._recurrent)

    def evaluate(self, ids, first_slot, positions, shared, branch, outputs, runs=(), steady=True, strands=()):
        """Runs a batch: token i goes to slot first_slot+i at rope position positions[i] and sees the slots [0, shared[i]), those
        of the pairs (first, end) in runs[i], and [branch[i], first_slot+i]: one slot for every position up to its own.
        `outputs`: ascending batch rows whose logits are wanted. `strands` as of the cpu backend. Results never depend on the
        number of tokens (`steady`)."""
        self.begin(ids, first_slot, positions, shared, branch, outputs, runs, strands)
        self.run(0, self.program.layers[-1])
        self.finish()

    def begin(self, ids, first_slot, positions, shared, branch, outputs, runs=(), strands=()):
        """Take up a batch: whoever then runs all steps before the head, and `finish`, did what `evaluate` does."""
        self._check(ids, first_slot, positions, shared, branch, outputs, runs)
        if self.places:
            checked(strands, len(ids))
        self._batch = Batch(ids, first_slot, positions, shared, branch, list(outputs), runs, strands)

    def finish(self):
        """Make logits of the states that the layers left."""
        self._head(0)

    @property
    def buffers(self):
        """{name: float32 [rows, columns]} of the batch taken up; what stands in it is what the next steps read."""
        return self._batch.buffers

    def cached(self, layer):
        """Keys [slots, kv_heads * key_dim] and values [slots, kv_heads * value_dim] of a layer's cache."""
        return self._keys[layer], self._values[layer]

    def run(self, first, last):
        """Steps `first` to `last` - 1 of the program, over the batch taken up."""
        batch = self._batch
        for index in range(first, last):
            step = self.program.steps[index]
            ins = [batch.buffers[name] for name in step.ins]
            args = dict(step.args)
            batch.rows[step.out] = batch.rows[step.ins[0]] if step.ins else list(range(len(batch.ids)))
            state = self._state.get(step.op)
            if state is None:
                ins += [self.weight(name) for name in step.weights]
            else:
                state(batch, step, ins, args)
            out = self._references[step.op](*ins, **args)
            batch.buffers[step.out] = out

    def _head(self, first):
        """Logits of the outputs from `first` on, as many as may lie in memory."""
        batch, head, most = self._batch, self.program.layers[-1], self.most_logits
        source = self.program.steps[head].ins[0]
        wanted = batch.buffers[source]
        batch.buffers[source] = wanted[first : first + most]
        self.run(head, len(self.program.steps))
        batch.buffers[source] = wanted
        self._logits, self._first = np.ascontiguousarray(batch.buffers["logits"]), first

    def _row(self, row):
        """float32 [vocabulary]"""
        if not self._first <= row < self._first + len(self._logits):
            self._head(row - row % self.most_logits)
        return self._logits[row - self._first]

    def _check(self, ids, first_slot, positions, shared, branch, outputs, runs):
        count = len(ids)
        if not count or not len(positions) == len(shared) == len(branch) == count or (runs and len(runs) != count):
            found = f"{count} ids, {len(positions)} positions, {len(shared)} shared, {len(branch)} branch, {len(runs)} runs"
            raise InvalidInputError("a batch needs one value of each kind per token", expected="equal lengths, not 0", found=found)
        if first_slot < 0 or first_slot + count > self.context:
            raise ContextOverflowError(
                "the batch does not fit the context",
                expected=f"at most {self.context} slots",
                found=f"{count} tokens from slot {first_slot}",
                remedy="raise --ctx or shorten the text",
            )
        self._check_ids(ids)
        for row, ends in enumerate(zip(shared, branch, positions, strict=True)):
            self._check_path(first_slot + row, *ends, runs[row] if runs else ())
        if list(outputs) != sorted(set(outputs)) or (outputs and not 0 <= outputs[0] <= outputs[-1] < count):
            raise InvalidInputError(
                "outputs must be ascending rows of the batch", expected=f"0 to {count - 1}", found=list(outputs)
            )

    @staticmethod
    def _check_path(own, stop, start, position, runs):
        ranges = ((0, stop), *runs, (start, own + 1))
        seen = sum(end - first for first, end in ranges)
        if seen != position + 1 or not all(0 <= first <= end <= own + 1 for first, end in ranges):
            found = " and ".join(f"[{first}, {end})" for first, end in ranges)
            expected = f"{position + 1} slots up to {own}"
            raise InvalidInputError("a token sees slots that do not exist yet, or not one per position", expected, found)

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

    def _add_position(self, batch, step, ins, args):
        ins.append(Rows(self.file.tensors[step.weights[0]]))
        args["positions"] = [batch.positions[r] for r in batch.rows[step.out]]

    def _temper(self, batch, step, ins, args):
        args["positions"] = [batch.positions[r] for r in batch.rows[step.out]]

    def _attention(self, batch, step, ins, args):
        layer = args.pop("layer")
        rows = batch.rows[step.out]
        if len(ins) > 1:
            ins[1] = self.put(self._keys, layer, batch.slots, ins[1])
            ins[2] = self.put(self._values, layer, batch.slots, ins[2])
        else:  # the cache is that of another layer
            ins += [self._keys[layer], self._values[layer]]
        ins += map(self.weight, step.weights)
        for name in ("slots", "positions", "shared", "branch", "runs"):
            args[name] = [getattr(batch, name)[r] for r in rows]

    def _latent_attention(self, batch, step, ins, args):
        ins[1] = self.put(self._keys, args.pop("layer"), batch.slots, ins[1])
        for name in ("slots", "positions", "shared", "branch", "runs"):
            args[name] = [getattr(batch, name)[r] for r in batch.rows[step.out]]

    def _expert_linear(self, batch, step, ins, args):
        ins += [Stack(self.file.tensors[step.weights[0]]), self.weight(step.weights[1])]

    def _recurrent(self, batch, step, ins, args):
        self._reach(max(place for strand in batch.strands for place in strand[2:]))
        ins += map(self.weight, step.weights)
        args |= {"states": self._states[args.pop("state")], "strands": batch.strands}

    def _reach(self, place):
        """Have room for states up to that place."""
        for index, have in enumerate(self._states):
            if place >= len(have):
                self._states[index] = np.zeros((place + 1, have.shape[1]), np.float32)
                self._states[index][: len(have)] = have

    def state(self, place):
        """float32 [numbers] of every step with a state, in order, to read and to write."""
        self._reach(place)
        return [states[place] for states in self._states]

    def _select(self, batch, step, ins, args):
        args["outputs"] = batch.rows[step.out] = batch.outputs

    def put(self, cache, layer, slots, new):
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
        return memoryview(self._row(row))

    def logprobs(self, row, token_ids):
        """Log-softmax over the full vocabulary of some ids, in float64."""
        self._check_ids(token_ids)
        x = self._row(row).astype(np.float64)
        x -= x.max()
        return (x[list(token_ids)] - np.log(np.exp(x).sum())).tolist()

    def logprobs_of_rows(self, rows, ids):
        """[logprobs(row, ids of that row)]"""
        return list(map(self.logprobs, rows, ids))

    def argmax(self, row):
        """The most probable id, the lowest one on ties; -1 where the logits are not numbers."""
        logits = self._row(row)
        best = int(logits.argmax())  # numpy takes NaN for the largest
        return best if logits[best] == logits[best] else -1

    def sample(self, row, temperature, top_k, top_p, min_p, random):
        """One id drawn with the uniform number `random` in [0, 1); -1 where its logit is no number."""
        logits = self._row(row)
        token = draw(logits, temperature, top_k, top_p, min_p, random)
        return token if np.isfinite(logits[token]) else -1

    def store(self):
        """What reads and writes the memory of earlier tokens, for state files; see sections.py."""
        from .reference_state import Store

        return Store(self)

    def close(self):
        """Forgets weights and cache; the file stays its owner's."""
        self._weights.clear()
        self._keys = self._values = self._states = ()


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
    grows = int(np.searchsorted(mass, mass[-1]))  # the last place that adds to the sum
    return int(order[min(int(np.searchsorted(mass, random * mass[-1], side="right")), grows)])
