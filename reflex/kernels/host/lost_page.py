"""What happens when a page of the model is read that is no longer in the file: the line that was prepared for it, and the end.

A handler of SIGBUS, which cannot run Python: the thread may be anywhere. It finds its words through the signal stack of the
thread, whose lowest bytes they are (LostPages of gguf/header.py writes them, int64): the number of files, how many threads came
here already, then at ENTRIES per file: its first address, the one behind its last, and address and bytes of what goes to stderr
and of what goes to stdout.
"""

from ..export import export
from ..intrinsics import atomic_add, load_i64, store_64
from ..system import by_machine, system_call, system_call4

COUNT, TOLD, ENTRIES, ENTRY = 0, 8, 256, 48
SIGNAL_STACK, ADDRESS = 16, 16  # in ucontext_t: uc_stack.ss_sp; in siginfo_t: si_addr
SIGBUS, MODEL_FILE = 7, 3  # the signal, and the exit code of ModelFileError


@export
def lost_page(number, information, context):
    """The handler: `information` is a siginfo_t, `context` a ucontext_t. Does not return where a file lost the page."""
    block = load_i64(context + SIGNAL_STACK)
    address = load_i64(information + ADDRESS)
    count = load_i64(block + COUNT) if block != 0 else 0
    for i in range(count):
        entry = block + ENTRIES + ENTRY * i
        if load_i64(entry) <= address and address < load_i64(entry + 8):
            while atomic_add(block + TOLD, 1) != 0:  # another thread says it
                system_call(by_machine(24, 124), 0, 0, 0)  # sched_yield
            system_call(by_machine(1, 64), 2, load_i64(entry + 16), load_i64(entry + 24))  # write
            system_call(by_machine(1, 64), 1, load_i64(entry + 32), load_i64(entry + 40))
            system_call(by_machine(231, 94), MODEL_FILE, 0, 0)  # exit_group
    # Something else: the default action from here on, which ends the process when the access is made again.
    for i in range(4):
        store_64(information + 8 * i, 0)
    system_call4(by_machine(13, 134), SIGBUS, information, 0, 8)  # rt_sigaction
    return 0
