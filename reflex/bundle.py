"""Imports the modules of the cold path from one file instead of forty: 3 ms of a cold start.

Owns the layout of `cache/cold-<tag>.bin`. The first HEAD bytes: the interpreter's magic number, then the marshalled pair
(code of this module, {name: (is a package, CRC-32 of its source, offset, size, needs)}); then the marshalled code of each
module. `needs` are the modules that it imports when it is imported, and theirs, each after its own needs. The build writes
the file into the wheel, the launcher executes this module out of it. Where it is absent or of another Python version, the
modules themselves are imported as always. Refuses nothing: a name it does not hold goes on to the ordinary finders.
"""

import sys
from _frozen_importlib import ModuleSpec
from marshal import loads
from posix import pread

HEAD = 16384


class Finder:
    """A meta-path finder and loader over the open bundle; `folder` holds the installed package."""

    def __init__(self, index, descriptor, folder):
        self.index = index
        self.descriptor = descriptor
        self.folder = folder

    def find_spec(self, name, path=None, target=None):
        """The spec of a bundled module, whose needs are then imported already."""
        entry = self.index.get(name)
        if entry is None:
            return None
        modules = sys.modules
        needs = [other for other in entry[4] if other not in modules]
        if needs:
            self.preload(needs)
        return self.spec(name, entry[0])

    def spec(self, name, package):
        base = f"{self.folder}/{name.replace('.', '/')}"
        spec = ModuleSpec(name, self, origin=f"{base}/__init__.py" if package else f"{base}.py", is_package=package)
        if package:
            spec.submodule_search_locations.append(base)
        spec.has_location = True  # gives the module its __file__
        return spec

    def preload(self, names):
        """Import `names`, in their order, without the search and the locks of the import system: they cost 30 us a module."""
        modules = sys.modules
        for name in names:
            spec = self.spec(name, self.index[name][0])
            module = modules[name] = type(sys)(name)
            facts = module.__dict__
            facts["__spec__"] = spec
            facts["__loader__"] = self
            facts["__file__"] = spec.origin
            facts["__package__"] = spec.parent
            if spec.submodule_search_locations is not None:
                facts["__path__"] = spec.submodule_search_locations
        done = 0
        try:
            for name in names:
                module = modules[name]
                parent, _, leaf = name.rpartition(".")
                if parent:
                    setattr(modules[parent], leaf, module)
                self.exec_module(module)
                done += 1
        finally:
            for name in names[done:]:
                del modules[name]

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        entry = self.index[module.__name__]
        exec(loads(pread(self.descriptor, entry[3], entry[2])), module.__dict__)


def outdated(path, folder):
    """Names in the bundle at `path` whose source below `folder` has changed since; None where it is of another Python."""
    from _frozen_importlib_external import MAGIC_NUMBER
    from binascii import crc32

    with open(path, "rb") as file:
        data = file.read(HEAD)
    if data[: len(MAGIC_NUMBER)] != MAGIC_NUMBER:
        return None
    changed = []
    _, index = loads(data[len(MAGIC_NUMBER) :])
    for name, (package, checksum, *_) in index.items():
        base = f"{folder}/{name.replace('.', '/')}"
        with open(f"{base}/__init__.py" if package else f"{base}.py", "rb") as file:
            if crc32(file.read()) != checksum:
                changed.append(name)
    return changed


def install(index, descriptor, folder):
    """Let the bundled modules be found first."""
    sys.meta_path.insert(0, Finder(index, descriptor, folder))
