"""One small kernel end to end on the device: start, choose the file, load, copy in, launch, copy out, compare.

Called by the commands that prove an installation (smoke, doctor); a model's path is the backend's.
"""

from ... import native
from ...errors import DeviceError
from . import device, launch, module

COUNT, SCALE = 5000, 0.5  # the last block is not full


def begin(selection=None, folder=None):
    """Start the device and the trial on its thread; `finish` gives the facts."""
    starting = device.begin(selection)
    facts = {}
    starting.then(lambda dev: facts.update(_compute(dev, folder)))
    return starting, facts


def finish(trial):
    """(facts, marks of the device thread); raises what went wrong on the way."""
    starting, facts = trial
    dev = starting.ready()
    dev.close()
    return facts, dev.marks


def _compute(dev, folder):
    images = module.choose(dev, folder)
    loaded = module.Module(dev, images)
    kernel = images.kernel("add")
    size = 4 * COUNT
    host = dev.pinned(2 * size)
    base = dev.allocate(2 * size, "the trial")
    numbers = native.view(host, 2 * COUNT, "f")
    for i in range(COUNT):
        numbers[i], numbers[COUNT + i] = i, 2 * i
    dev.copy_in(base, host, 2 * size)
    dev.mark("copy in")
    chain = launch.Chain(native.library(), 4, 16)
    chain.add(kernel, -(-COUNT // kernel.threads), (base, base + size, COUNT, SCALE))
    chain.bind(dev, loaded)
    chain.run()
    dev.copy_out(host, base, size)
    dev.synchronize()
    dev.mark("kernel run")
    wrong = [i for i in range(COUNT) if numbers[i] != i + SCALE * 2 * i]
    if wrong:
        first = wrong[0]
        found = f"{numbers[first]} at {first}, {len(wrong)} of {COUNT} numbers"
        raise DeviceError("the device computes wrongly", first + SCALE * 2 * first, found, dev.name, "use --backend cpu")
    free, total = dev.memory()
    numbers.release()
    chain.close()
    dev.free(base)
    dev.free_pinned(host)
    loaded.close()
    return {
        "name": dev.name,
        "uuid": dev.uuid,
        "capability": list(dev.capability),
        "driver": dev.driver,
        "target": images.target,
        "free_bytes": free,
        "total_bytes": total,
        "multiprocessors": dev.multiprocessors,
    }
