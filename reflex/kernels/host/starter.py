"""The program that `reflex` is: finds the Python beside itself and becomes it, started without `site`.

Python is told a name of its own that lies in the folder of `_build/start.py`, where one is installed for its version: it then
takes that folder for its home. The wheel's build writes the version into the program (elf.facts). A shell script without that
is half a millisecond later still (_build/launcher.sh, which other machines than x86-64 get). This is linked on its own into an
executable (kernels/elf.py) that enters `starter`; nothing at run time calls it.
"""

from ..export import export, helper
from ..intrinsics import load_i64, load_u8, store_8, store_64
from ..system import system_call

READLINK, EXECVE, ACCESS = 89, 59, 21  # x86-64 numbers
SLASH = 47
LONGEST = 3800  # bytes of a path; two of them fit into `room`


def word(text, at=0):
    """Eight bytes of `text` from `at`, zero padded, as the int64 that stores them."""
    return int.from_bytes(text.encode()[at : at + 8].ljust(8, b"\0"), "little")


EXE, EXE_END = word("/proc/self/exe"), word("/proc/self/exe", 8)
PYTHON, FLAGS = word("python"), word("-IS")
SCRIPT, SCRIPT_END = word("reflex-python"), word("reflex-python", 8)
PTH = word("._pth")
NAME, DASH_IS, DASH_C, COMMAND, START = 0, 32, 40, 48, 96  # places in the facts, see elf.facts


@helper
def copy_text(to, at):
    """Copy a text with its final zero; returns the address of that."""
    while load_u8(at) != 0:
        store_8(to, load_u8(at))
        to += 1
        at += 1
    store_8(to, 0)
    return to


@export
def starter(stack, room, facts):
    """`stack`: [argument count, arguments, 0, environment, 0] as the kernel lays them out; `room`: 8 KB of scratch below it, and
    two words between; `facts`: see elf.facts.

    Where the facts name a folder that exists, becomes the Python of exactly that version with this folder for its home:
    `<start>/python -IS -c COMMAND ARGUMENTS`. Else becomes `<folder of this program>/python -IS <folder>/reflex-python ARGUMENTS`,
    or, where that Python is missing, the script itself, whose first line names another. Returns 127 where none of them exists."""
    count = load_i64(stack)
    environment = stack + 16 + 8 * count
    store_64(room, EXE)
    store_64(room + 8, EXE_END)
    store_64(room + 16, FLAGS)
    python, script = room + 64, room + 64 + 4096
    end = system_call(READLINK, room, python, LONGEST) - 1
    if end < 1 or end >= LONGEST - 1 or count < 1:
        return 127
    while load_u8(python + end) != SLASH:
        end -= 1
    for i in range(end + 1):
        store_8(script + i, load_u8(python + i))
    if load_u8(facts + NAME) != 0:
        folder = end - 1
        while folder > 0 and load_u8(python + folder) != SLASH:
            folder -= 1
        last = copy_text(script + folder + 1, facts + START)
        store_64(last, PTH)
        if system_call(ACCESS, script, 4, 0) == 0:
            store_8(last, 0)
            copy_text(python + end + 1, facts + NAME)
            # The new arguments in place: three more than there were, over the count and the two words before it.
            store_64(stack - 16, script)
            store_64(stack - 8, facts + DASH_IS)
            store_64(stack, facts + DASH_C)
            store_64(stack + 8, facts + COMMAND)
            system_call(EXECVE, python, stack - 16, environment)
        for i in range(end + 1):
            store_8(script + i, load_u8(python + i))
    store_64(python + end + 1, PYTHON)
    store_64(script + end + 1, SCRIPT)
    store_64(script + end + 9, SCRIPT_END)
    # Two more than there were.
    store_64(stack - 8, python)
    store_64(stack, room + 16)
    store_64(stack + 8, script)
    system_call(EXECVE, python, stack - 8, environment)
    system_call(EXECVE, script, stack + 8, environment)
    return 127
