"""Imports the modules of the cold path from one file instead of forty: 3 ms of a cold start.

Owns the layout of `cache/cold-<tag>.bin`. The first HEAD bytes: the interpreter's magic number, then the marshalled pair
(code of this module, index), the index being (groups, alone). A group is (offset, size, ((module name, is a package), ...)); at
its offset lie the marshalled codes of its modules, in an order in which each comes after what it imports. A group is imported as
a whole: what a stage of a cold start needs. `alone` lists the modules that are groups of their own, of which few are wanted:
a line "name offset size is-a-package" each, which costs nothing until it is searched. After the groups: the marshalled {module
name: CRC-32 of its source}, size in the last 8 bytes of the file. The build writes the file into the wheel, the launcher executes
this module out of it. Where it is absent or of another Python version, the modules themselves are imported
as always. Refuses nothing: a name it does not hold goes on to the ordinary finders.
"""

import sys
from _frozen_importlib import ModuleSpec
from marshal import loads
from posix import pread

HEAD = 16384
SHARED_OBJECTS = ("_ctypes", "binascii", "math")  # what the cold path takes from the folder that Python has for them


class Finder:
    """A meta-path finder and loader over the open bundle; `folder` holds the installed package."""

    def __init__(self, index, descriptor, folder):
        self.groups, self.alone = groups, _ = index
        self.descriptor = descriptor
        self.folder = folder
        self.group_of = {name: group for group in groups for name, _ in group[2]}

    def find_spec(self, name, path=None, target=None):
        """The spec of a bundled module, which is then imported already with its whole group."""
        group = self.group_of.get(name) or self.of_one(name)
        if group is None:
            return _shared_object(name) if name in SHARED_OBJECTS else None
        parent = group[2][0][0].rpartition(".")[0]
        if parent and parent not in sys.modules and self.group_of.get(parent) is not group:
            __import__(parent)  # of a module that is asked for out of turn
        self.run(group)
        return sys.modules[name].__spec__

    def of_one(self, name):
        """The group that a module is alone; None where it is not."""
        at = self.alone.find(f"\n{name} ".encode())
        return _group(self.alone[at + 1 : self.alone.find(b"\n", at + 1)]) if at >= 0 else None

    def run(self, group):
        """Import a group without the search and the locks of the import system: they cost 30 us a module."""
        offset, size, names = group
        modules, folder, kind = sys.modules, self.folder, type(sys)
        fresh = []
        for name, package in names:
            base = f"{folder}/{name.replace('.', '/')}"
            origin = f"{base}/__init__.py" if package else f"{base}.py"
            spec = ModuleSpec(name, self, origin=origin, is_package=package)
            spec.has_location = True  # so that the import system would give the module its __file__
            module = modules[name] = kind(name)
            facts = module.__dict__
            facts["__spec__"] = spec
            facts["__loader__"] = self
            facts["__file__"] = origin
            if package:
                facts["__package__"] = name
                facts["__path__"] = spec.submodule_search_locations
                spec.submodule_search_locations.append(base)
            else:
                facts["__package__"] = name.rpartition(".")[0]
            fresh.append(module)
        done = 0
        try:
            for module, code in zip(fresh, loads(pread(self.descriptor, size, offset)), strict=True):
                parent, _, leaf = names[done][0].rpartition(".")
                if parent:
                    setattr(modules[parent], leaf, module)
                exec(code, module.__dict__)
                done += 1
        finally:
            for name, _ in names[done:]:
                del modules[name]

    def create_module(self, spec):
        """The module of a spec that find_spec gave."""
        return sys.modules[spec.name]

    def exec_module(self, module):
        """Done by `run`."""


def _group(line):
    """The group of a line of `alone`."""
    name, offset, size, package = line.decode().split()
    return int(offset), int(size), ((name, package == "1"),)


def _shared_object(name):
    """The spec of a module in lib-dynload, where it is there; else None. The path search would list two folders first."""
    from _frozen_importlib_external import EXTENSION_SUFFIXES, ExtensionFileLoader
    from posix import stat

    if name in sys.builtin_module_names:
        return None
    for folder in sys.path:
        if folder.endswith("/lib-dynload"):
            path = f"{folder}/{name}{EXTENSION_SUFFIXES[0]}"
            try:
                stat(path)
            except OSError:
                continue
            return ModuleSpec(name, ExtensionFileLoader(name, path), origin=path)
    return None


def outdated(path, folder):
    """Names in the bundle at `path` whose source below `folder` has changed since; None where it is of another Python."""
    from _frozen_importlib_external import MAGIC_NUMBER
    from binascii import crc32

    with open(path, "rb") as file:
        data = file.read()
    if data[: len(MAGIC_NUMBER)] != MAGIC_NUMBER:
        return None
    changed = []
    _, (groups, alone) = loads(data[len(MAGIC_NUMBER) :])
    checksums = loads(data[-int.from_bytes(data[-8:], "little") - 8 :])
    for _, _, names in (*groups, *map(_group, alone.split(b"\n")[1:-1])):
        for name, package in names:
            base = f"{folder}/{name.replace('.', '/')}"
            with open(f"{base}/__init__.py" if package else f"{base}.py", "rb") as file:
                if crc32(file.read()) != checksums[name]:
                    changed.append(name)
    return changed


def install(index, descriptor, folder):
    """Let the bundled modules be found first; returns the finder."""
    finder = Finder(index, descriptor, folder)
    sys.meta_path.insert(0, finder)
    return finder
