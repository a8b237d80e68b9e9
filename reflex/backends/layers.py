"""Which layers of a program are alike: backends lower one and copy the rest with other addresses."""


def facts(steps, tensors):
    """What some steps say but for the names of weights and the cache layer: lists that are equal where layers are alike."""
    found = []
    for step in steps:
        args = step.args
        found += step.op, step.out, step.ins, {**args, "layer": 0} if "layer" in args else args
        for name in step.weights:
            if name is None:
                found.append(None)
            else:
                tensor = tensors[name]
                found += tensor.type, tensor.shape
    return found
