"""Modules that are there, but are run only when somebody touches them: what others import and a sidecar never uses.

uvicorn's first module brings its command line, its settings bring those of logging, asyncio brings TLS: together a third of what
there is to import before the first answer. Called by main, before asyncio and server are imported.
"""

import sys
from importlib.machinery import PathFinder
from types import ModuleType

UNUSED = {  # name -> {attribute that is asked for all the same: the module that has it}
    "ipaddress": {},
    "locale": {},
    "random": {},
    "logging.config": {},
    "uvicorn": {"Config": "uvicorn.config"},
}
TLS = {"PROTOCOL_TLS_SERVER": 16, "CERT_NONE": 0}  # numbers of OpenSSL, which uvicorn has as defaults of settings
NEEDED = ("starlette",)


class Later(ModuleType):
    """A module that is run when an attribute is asked for that it does not have yet, and that is not one of `elsewhere`: those are
    taken from the modules that have them. Modules inside it are imported as ever."""

    def __init__(self, name, elsewhere):
        super().__init__(name)
        self._elsewhere = elsewhere

    def __getattr__(self, name):
        if name in self.__dict__["_elsewhere"]:
            return getattr(__import__(self._elsewhere[name], None, None, [name]), name)
        spec = self.__dict__.get("__spec__")
        if name.startswith("__") or spec is None or "_run" in self.__dict__:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        self.__dict__["_run"] = True
        spec.loader.exec_module(self)
        return getattr(self, name)


def set_aside():
    """A Later for each of UNUSED. ModuleNotFoundError where something that is needed later is not there."""
    for name, elsewhere in UNUSED.items():
        later(name, elsewhere)
    if "ssl" not in sys.modules:
        sys.modules["ssl"] = None  # type: ignore[assignment]  # asyncio then goes without
        import asyncio  # noqa: F401

        del sys.modules["ssl"]
        later("ssl", {})
        vars(sys.modules["ssl"]).update(TLS)
    for name in NEEDED:
        if name not in sys.modules and PathFinder.find_spec(name) is None:
            raise ModuleNotFoundError(name=name)


def later(name, elsewhere):
    """Put a Later of this name in place, unless the module is imported already or is not there."""
    parent, _, leaf = name.rpartition(".")
    above = __import__(parent, None, None, ["__path__"]) if parent else None
    spec = None if name in sys.modules else PathFinder.find_spec(name, above and above.__path__)
    if spec is None:
        return
    module = sys.modules[name] = Later(name, elsewhere)
    module.__spec__, module.__loader__, module.__file__ = spec, spec.loader, spec.origin
    if spec.submodule_search_locations is not None:
        module.__path__ = spec.submodule_search_locations
    module.__package__ = spec.parent
    if above:
        setattr(above, leaf, module)
