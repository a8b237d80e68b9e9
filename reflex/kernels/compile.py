"""Compile the entry points of one kernel file to one relocatable object, for the target of this process."""

import importlib

import llvmlite.binding as llvm
from numba import cfunc, types

from . import export, target


def _initialize():
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()


def _module_of(name, function, fast):
    """LLVM module of one entry point, its C wrapper renamed to `name`."""
    arity = function.__code__.co_argcount
    signature = types.int64(*[types.int64] * arity)
    compiled = cfunc(signature, error_model="numpy", nogil=True, fastmath=export.FAST if fast else False)(function)
    text = compiled._library.get_llvm_str()
    for spelling in (f'@"{compiled.native_name}"', f"@{compiled.native_name}"):
        text = text.replace(spelling + "(", f"@{name}(")
    return llvm.parse_assembly(text)


def _optimize(module, machine):
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.slp_vectorization = False  # it undoes hand-placed vector code
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)


def compile_stem(stem):
    """Returns (object bytes, {entry point: arity}, {table: bytes}) of reflex/kernels/host/<stem>.py."""
    _initialize()
    export.EXPORTS.clear()
    source = importlib.import_module(f"reflex.kernels.host.{stem}")
    entries = dict(export.EXPORTS)
    tables = getattr(source, "TABLES", {})
    goal = target.current()
    features = f"{goal.features},{getattr(source, 'FEATURES', '')}".strip(",")  # a file's own are asked for at run time
    machine = llvm.Target.from_triple(goal.triple).create_target_machine(
        cpu=goal.cpu, features=features, opt=3, reloc="pic", codemodel="small"
    )
    whole = None
    for name, (function, fast) in entries.items():
        module = _module_of(name, function, fast)
        if whole is None:
            whole = module
        else:
            whole.link_in(module)
    if whole is None:
        return b"", {}, tables
    for function in whole.functions:
        if not function.is_declaration:
            function.linkage = "external" if function.name in entries else "internal"
    for variable in whole.global_variables:
        if not variable.is_declaration:
            variable.linkage = "internal"
    whole.triple = goal.triple
    whole.verify()
    _optimize(whole, machine)
    arities = {name: f.__code__.co_argcount for name, (f, _) in entries.items()}
    return machine.emit_object(whole), arities, tables
