"""What Numba does again and again while it compiles, done once or not at all: a third of the time of a build.

Nothing here changes the code that is compiled (names inside host objects, which linking removes, may differ). Called by the
compiler processes of precompile.py; objects are not named after this file.
"""

import gc

RARELY = 100_000, 20, 20  # a compilation makes millions of objects, few of them in cycles

def install(cuda):
    """Make Numba faster in this process, which has not imported it yet. `cuda`: also what compiles for GPUs."""
    gc.set_threshold(*RARELY)
    from numba.core import ir, targetconfig
    from numba.core.types.functions import BaseFunction

    _remember_calls(BaseFunction)
    _adapt(ir, targetconfig)
    if cuda:
        from numba.cuda.core import ir, targetconfig

        _adapt(ir, targetconfig)


def _remember_calls(function_type):
    """Which signature a call of a built-in function has depends on the types of its arguments alone. What is found by compiling
    something is not remembered: that has to be there for each caller."""
    resolve, known = function_type.get_call_type, {}

    def get_call_type(self, context, args, kws):
        if kws:
            return resolve(self, context, args, kws)
        key = id(self), id(context), tuple(args)
        found = known.get(key)
        if found is None:
            signature = resolve(self, context, args, kws)
            implementation = self._impl_keys[signature.args]
            if implementation is self.typing_key:
                known[key] = signature, implementation, self, context  # the last two keep their ids
            return signature
        self._impl_keys[found[0].args] = found[1]
        return found[0]

    function_type.get_call_type = get_call_type


def _adapt(ir, targetconfig):
    """Shorter ways to the same answers."""

    def values(self):
        own = self._values
        return {name: own.get(name, option.default) for name, option in self.options.items()}

    targetconfig.TargetConfig.values = values
    kinds = {}  # type -> what to do with its values
    known = (getattr(ir, "var_types", ir.Var), "variable"), (getattr(ir, "inst_types", ir.Inst), "instruction")
    known = *known, ((list, tuple), "sequence"), (dict, "mapping"), (object, "")

    def list_vars(self, value):
        """The variables in a value, in order."""
        found, pending = [], [value]
        while pending:
            item = pending.pop()
            kind = kinds.get(type(item))
            if kind is None:
                kind = kinds[type(item)] = next(name for types, name in known if isinstance(item, types))
            if kind == "variable":
                found.append(item)
            elif kind == "instruction":
                found += item.list_vars()
            elif kind == "sequence":
                pending += reversed(item)
            elif kind == "mapping":
                pending += reversed(item.values())
        return found

    ir.Inst._rec_list_vars = list_vars
