"""What the launches of a layer with a state do at once: convolutions side by side with their activation; a recurrence with what its
steps, weights, keys and queries are made from; the norm of its heads, or of its groups, with their gate.

What does not follow these patterns runs step by step (fusion.py, which imports this for programs with such layers).
"""

MOST_CONVS = 3
IN_RECORDS = "conv", "delta_rule", "state_scan"  # operations that are always in a record
GATES = "silu", "sigmoid"  # activations that the norm of heads can be gated by


class Convs:
    """Convolutions of one length of filter. `silu`: with that activation behind them."""

    __slots__ = ("silu", "steps")

    def __init__(self, steps, silu):
        self.steps = steps
        self.silu = silu

    def buffers(self):
        """(those that it reads, those that it writes)"""
        return [step.ins[0] for step in self.steps], [step.out for step in self.steps]


class Recurrence:
    """A step over a matrix of state. `bias`: the step that is followed by softplus to make dt, or None; `sigmoid`: of beta;
    `norm`: the one of keys and queries, or None. Inputs hold what goes into these."""

    __slots__ = ("bias", "joined", "norm", "sigmoid", "step")

    def __init__(self, step):
        self.step = step
        self.bias = self.norm = None
        self.sigmoid = False
        self.joined = []  # numbers of the steps that it does besides

    def buffers(self):
        return self.step.ins, [self.step.out]


class GatedNorm:
    """z = act(z) * rmsnorm(o) of every head, where nothing else reads the norm."""

    __slots__ = ("gate", "norm")

    def __init__(self, norm, gate):
        self.norm = norm
        self.gate = gate

    def buffers(self):
        return [self.norm.out, self.gate.out], [self.gate.out]


class NormedGate:
    """z = group_rmsnorm(silu(z) * o)."""

    __slots__ = ("gate", "norm")

    def __init__(self, gate, norm):
        self.gate = gate
        self.norm = norm

    def buffers(self):
        return self.gate.ins, [self.gate.out]


class Patterns:
    """The records of a segment's steps. readers(steps, i, buffer): who reads a buffer after i, as indices."""

    def __init__(self, steps, readers):
        self.steps, self._readers = steps, readers
        found = [at for at, step in enumerate(steps) if step.op in ("delta_rule", "state_scan")]
        self.recurrences = {at: self._recurrence(at) for at in found}
        self.joined = {number for record in self.recurrences.values() for number in record.joined}

    def record(self, at, taken):
        """The record that begins at a step, or None. `taken` gets the numbers of the steps that it does besides."""
        op = self.steps[at].op
        if op == "conv":
            return self._convs(at, taken)
        if op == "head_rmsnorm":
            return self._gated_norm(at, taken)
        if op == "gated":
            return self._normed_gate(at, taken)
        found = self.recurrences.get(at)
        if found:
            taken.update(found.joined)
        return found

    # ---- recurrences ----

    def _recurrence(self, at):
        step = self.steps[at]
        found = Recurrence(step)
        q, k, dt, beta = (*step.ins[:2], *step.ins[3:]) if step.op == "delta_rule" else (None, None, step.ins[3], None)
        soft = self._last(at, dt, "unary", act="softplus")
        bias = self._last(soft, dt, "bias") if soft is not None else None
        if bias is not None and self._only(bias, dt, (soft, at)):
            found.bias = self.steps[bias]
            found.joined += bias, soft
        weight = self._last(at, beta, "unary", act="sigmoid")
        if weight is not None and self._only(weight, beta, (at,)):
            found.sigmoid = True
            found.joined.append(weight)
        norms = [self._last(at, buffer, "head_l2norm") for buffer in (q, k)]
        if None not in norms and q != k:
            alike = len({(self.steps[i].args["head_dim"], self.steps[i].args["eps"]) for i in norms}) == 1
            whole = self.steps[norms[0]].args["head_dim"] == step.args["key_dim"]
            if alike and whole and self._only(norms[0], q, (at,)) and self._only(norms[1], k, (at,)):
                found.norm = self.steps[norms[0]]
                found.joined += norms
        return found

    def _last(self, at, buffer, op, **args):
        """The step that made what step `at` finds in a buffer, if it is one of this kind and in place."""
        for i in range(at - 1, -1, -1):
            step = self.steps[i]
            if step.out == buffer:
                fits = step.op == op and step.ins[0] == buffer and all(step.args.get(name) == value for name, value in args.items())
                return i if fits else None
        return None

    def _only(self, at, buffer, wanted):
        """Whether what is in a buffer from step `at` on is for these steps alone."""
        return all(i in wanted for i in range(at + 1, len(self.steps)) if buffer in self._used(i))

    def _used(self, i):
        step = self.steps[i]
        return (*step.ins, step.out)

    # ---- what is around them ----

    def _convs(self, at, taken):
        found, i, kinds = [], at, set()
        while i < len(self.steps) and self.steps[i].op == "conv" and len(found) < MOST_CONVS:
            conv, act = self.steps[i], self.steps[i + 1] if i + 1 < len(self.steps) else None
            silu = act is not None and act.op == "unary" and act.out == conv.out and act.args["act"] == "silu"
            kind = conv.args["taps"], conv.weights[1] is None, silu
            if (found and kind not in kinds) or any(conv.ins[0] == other.out or conv.out in other.ins for other in found):
                break
            kinds.add(kind)
            found.append(conv)
            taken.update(range(i, i + 1 + silu))
            i += 1 + silu
        return Convs(found, kinds.pop()[2])

    def _gated_norm(self, at, taken):
        norm, i = self.steps[at], at + 1
        gate = self.steps[i] if i < len(self.steps) else None
        if gate is None or gate.op != "gated" or gate.ins != (gate.out, norm.out) or gate.out == norm.out:
            return None
        if gate.args["act"] not in GATES or gate.args.get("limit") or norm.weights[0] is None:
            return None
        if self._readers(self.steps, i, norm.out):
            return None
        taken.add(i)
        return GatedNorm(norm, gate)

    def _normed_gate(self, at, taken):
        gate, norm = self.steps[at], self.steps[at + 1] if at + 1 < len(self.steps) else None
        if norm is None or norm.op != "group_rmsnorm" or norm.out != gate.out:
            return None
        if gate.args["act"] != "silu" or gate.args.get("limit"):
            return None
        taken.add(at + 1)
        return NormedGate(gate, norm)
