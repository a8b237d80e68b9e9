"""Scenarios for the driver layer: source text run in a process of its own over the stub driver, because the driver is opened once
per process. `Stub` runs one and counts the calls; SESSION is a whole session that scenarios go on from."""

import json
import textwrap

from stub import fake

PRELUDE = """
import json, sys
from reflex import native
from reflex.backends import choice
from reflex.errors import ReflexError
from reflex.backends.cuda import device, driver, launch, module, upload

def show(**facts):
    print(json.dumps(facts))

def session(folder, kernels=("add",)):
    starting = device.begin()
    dev = starting.ready()
    images = module.choose(dev, folder)
    return dev, images, module.Module(dev, images)
"""

SESSION = """
    near = launch.relative
    chain = launch.Chain(native.library())
    starting = device.begin()
    add = module.open_images(folder + "/cuda-sm_90.bin").kernel("add")
    first = chain.add(add, 4, (near(0, 0), near(0, 4096), 1000, 0.5))
    chain.repeat(first, first + 1, [(first, 3, 2.0)])
    chain.add(add, (4,), (near(0, 0), near(0, 4096), 3, -1.0), shared=100000, overlap=False)
    dev = starting.ready()
    images = module.choose(dev, folder)
    loaded = module.Module(dev, images)
    base = dev.allocate(8192, "test")
    dev.fill(base, 0, 2048)
    host = dev.pinned(4096)
    numbers = native.view(host, 1024, "f")
    for i in range(1024):
        numbers[i] = i
    dev.copy_in(base + 4096, host, 4096)
    last = chain.copy(host, base, 4096)
    relative = chain.rebase(0, base)
    chain.bind(dev, loaded)
"""


class Stub:
    """Runs scenarios. `calls`: lines that the stub wrote in the last one."""

    def __init__(self, path, folder):
        self.path = path
        self.folder = folder
        self.log = folder / "calls.log"
        self.calls = []

    def run(self, code, environment=None, **settings):
        """The JSON lines that `code` printed; the error's fields when it ended with a ReflexError."""
        self.log.unlink(missing_ok=True)
        body = textwrap.indent(textwrap.dedent(code), "    ")
        ending = "except ReflexError as error:\n    show(code=error.exit_code, text=str(error), **error.as_dict())\n"
        source = f"{PRELUDE}\nfolder = {str(self.folder)!r}\ntry:\n{body}\n{ending}"
        env = {**fake.environment(self.path, self.log, **settings), **(environment or {})}
        done = fake.python(source, env)
        self.calls = self.log.read_text().splitlines() if self.log.exists() else []
        assert done.returncode == 0 and not done.stderr, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def count(self, name):
        return sum(line.split()[0] == name for line in self.calls)

    def matching(self, text):
        return [line for line in self.calls if text in line]
