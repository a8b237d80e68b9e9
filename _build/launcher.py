#!python
# Started by `reflex` with -IS, or by itself with `site`. SOURCE is filled in by an editable install.
import _signal
import gc
import sys
from time import perf_counter_ns, process_time_ns

FIRST = perf_counter_ns(), process_time_ns()
SOURCE = None
if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # Ctrl-C ends the process, without a traceback, until the front takes over
gc.disable()  # one request and out: looking for cycles among freshly imported modules costs 1 ms and finds none
if SOURCE or sys.flags.no_site:
    home = sys.executable.rpartition("/bin/")[0]
    packages = f"{home}/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    sys.path += [SOURCE, packages] if SOURCE else [packages]
    try:
        # The modules of the cold path in one file; not for --trace, whose tracebacks should show source lines.
        if not SOURCE and "--trace" not in sys.argv:
            import marshal
            from _frozen_importlib_external import MAGIC_NUMBER
            from posix import O_CLOEXEC, open, read

            file = open(f"{packages}/reflex/cache/cold-{sys.implementation.cache_tag}.bin", O_CLOEXEC)
            head = read(file, 16384)
            if head[:4] == MAGIC_NUMBER:
                code, index = marshal.loads(head[4:])
                bundle = {"__name__": "reflex.bundle"}
                exec(code, bundle)
                bundle["install"](index, file, packages)
    except OSError:
        pass
try:
    from reflex.cli.front import main
except ModuleNotFoundError as error:
    if error.name != "reflex" or not sys.flags.no_site:
        raise
    # The interpreter beside us is not the one this was installed for: the first line of this file names that one.
    from posix import execv

    execv(__file__, [__file__, *sys.argv[1:]])
main(FIRST)
