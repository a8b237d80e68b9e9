#!python
# Started by `reflex` with -IS, or by itself with `site`. SOURCE is filled in by an editable install.
import sys
from time import perf_counter_ns, process_time_ns

FIRST = perf_counter_ns(), process_time_ns()
SOURCE = None
if SOURCE or sys.flags.no_site:
    home = sys.executable.rpartition("/bin/")[0]
    packages = f"{home}/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    sys.path += [SOURCE, packages] if SOURCE else [packages]
try:
    from reflex.cli.front import main
except ModuleNotFoundError as error:
    if error.name != "reflex" or not sys.flags.no_site:
        raise
    # The interpreter beside us is not the one this was installed for: the first line of this file names that one.
    from posix import execv

    execv(__file__, [__file__, *sys.argv[1:]])
main(FIRST)
