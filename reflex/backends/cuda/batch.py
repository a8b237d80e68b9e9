"""One batch being lowered: where its buffers and weights lie, and how a launch is added. What lowering.py, products.py and
attention.py share.
"""

from .parameters import Own


class Batch:
    """An evaluation of `rows` tokens, `wanted` of them with logits, on its way to a chain of launches.

    `reach`: 0, or the batch is steady, so that nothing that changes a bit is chosen by the number of rows, and lies in the first
    `reach` slots. `tree`: rows in branches, at most. `asking`: experts come when they have been chosen, see `stops`."""

    def __init__(self, image, multiprocessors, chain, file, program, memory, rows, wanted, reach=0, tree=0, asking=False):
        self.image = image  # module.Images
        self.multiprocessors = multiprocessors
        self.chain = chain
        self.file = file
        self.program = program
        self.memory = memory
        self.rows = rows
        self.wanted = wanted
        self.reach = reach
        self.tree = tree
        self.asking = asking
        self.selected = {}  # buffer -> address of its wanted rows
        self.own = []  # (row, parameter, step, word) of the layer being lowered
        self.stops = []  # [first, last, step, address of its result, rows]: launches that use what the step `route` chose

    def _add(self, kernel, grid, values, shared=0, alone=False):
        row = len(self.chain)
        for i, value in enumerate(values):
            if type(value) is Own:
                self.own.append((row, i, value.step, value.word))
        plain = [value.word(value.step) if type(value) is Own else value for value in values]
        # The first launch waits for the copy of the request, so that later ones may read it before they wait.
        self.chain.add(self.image.kernel(kernel), (*grid, 1, 1)[:3], plain, shared, overlap=row > 0 and not alone)

    def _angles(self, index):
        return self.memory.named(f"angles {index}", 8 * self.memory.rows * len(self.program.ropes[index].frequencies))

    def _at(self, buffer):
        """(address, rows) of a buffer: all rows, or the wanted ones once they were selected."""
        address = self.selected.get(buffer)
        return (address, self.wanted) if address else (self._buffer(buffer), self.rows)

    def _buffer(self, name):
        return self.memory.logits(self.wanted) if name == "logits" else self.memory.buffer(name)

    def _to(self, buffer, rows):
        """The address to write `rows` rows of a buffer to."""
        if rows == self.rows:
            self.selected.pop(buffer, None)
            return self._buffer(buffer)
        self.selected[buffer] = address = self.memory.selected(buffer, self.wanted)
        return address

    def _width(self, buffer):
        return self.program.widths[buffer]

    def _weight(self, number):
        """Function of a step: the address of its weight `number` as float32."""
        return lambda step: self.memory.floats(self.file.tensors[step.weights[number]])

    def _floats(self, step, number=0):
        """Parameter for the float32 weight of a step that may be absent."""
        return Own(self._weight(number), step) if step and step.weights[number] else 0
