"""Launches of several residual streams (kernels/cuda/residual_streams.py), and of the sparse gates that such models have.
`ResidualStreams` goes before the Lowering of a program that has them, whose file others do not import.
"""

from .batch import Batch
from .parameters import blocks

MIXERS = 256  # threads, a column each


class ResidualStreams(Batch):
    """The steps; see lowering.py."""

    def _level(self, step, columns, stride, ending):
        (x, rows), (others, _) = map(self._at, step.ins)
        self._add("streams_level", (rows,), (x, others, self._to(step.out, rows), columns, stride, int(ending)))

    def _step_streams_begin(self, step):
        columns = self._width(step.ins[0])
        self._level(step, columns, columns, False)

    def _step_streams_end(self, step):
        self._level(step, self._width(step.out), self._width(step.ins[0]), True)

    def _mix(self, step, columns):
        """A launch over the columns of a stream. Steps in place have no result beside their inputs."""
        _, rows = self._at(step.ins[0])
        sources = [self._at(name)[0] for name in step.ins]
        out = [] if step.out == step.ins[0] else [self._to(step.out, rows)]
        self._add(step.op, (blocks(columns, MIXERS), rows), (*sources, *out, columns))

    def _step_streams_predict(self, step):
        self._mix(step, self._width(step.out) // 4)

    def _step_streams_correct(self, step):
        self._mix(step, self._width(step.ins[1]))

    def _step_streams_inject(self, step):
        self._mix(step, self._width(step.ins[1]))

    def _step_sparsify(self, step):
        x, rows = self._at(step.out)
        self._add("sparsify", (rows,), (x, self._width(step.out), float(step.args["deviations"])))
