"""Which layers of a program are alike: backends lower one and copy the rest with other addresses."""


def repeats(program, tensors, first, other, count):
    """Whether the `count` steps from `other` on differ from those from `first` on in nothing but weights and cache layer."""
    steps = program.steps
    for k in range(count):
        a, b = steps[first + k], steps[other + k]
        if a.op != b.op or a.out != b.out or a.ins != b.ins or len(a.weights) != len(b.weights):
            return False
        if a.args != b.args and {**a.args, "layer": 0} != {**b.args, "layer": 0}:
            return False
        for x, y in zip(a.weights, b.weights, strict=True):
            if x is None or y is None:
                if x is not y:
                    return False
            elif tensors[x].type != tensors[y].type or tensors[x].shape != tensors[y].shape:
                return False
    return True
