"""The smallest executable around linked code: one read-execute segment and an entry that calls it with the initial stack.

Only x86-64. Format: System V gABI and its x86-64 supplement; the entry follows the kernel's process start-up convention.
Called by precompile.py for the `starter`.
"""

import struct

BASE = 0x400000
ENTRY, CODE = 0xB0, 0x100  # file offsets: headers end before ENTRY, linked code is aligned for its constants
ROOM = 0x4000  # bytes of stack set aside as scratch, and for the two arguments more
EXIT = 60
FACTS = 256


def entry(target, facts):
    """Machine code at ENTRY: call the function at file offset `target` with (initial stack, room, address of the facts), then
    exit with its result."""
    code = b"\x48\x89\xe7"  # mov rdi, rsp
    code += b"\x48\x81\xec" + struct.pack("<i", ROOM)  # sub rsp, ROOM
    code += b"\x48\x83\xe4\xf0"  # and rsp, -16
    code += b"\x48\x89\xe6"  # mov rsi, rsp
    code += b"\xba" + struct.pack("<I", BASE + facts)  # mov edx, facts
    code += b"\xe8" + struct.pack("<i", target - (ENTRY + len(code) + 5))  # call
    code += b"\x89\xc7"  # mov edi, eax
    code += b"\xb8" + struct.pack("<i", EXIT) + b"\x0f\x05"  # mov eax, EXIT; syscall
    return code


def executable(code, offset):
    """An ELF file that runs the function at `offset` of `code`; its last FACTS bytes are zero, see `facts`."""
    end = CODE + len(code)
    size = end + FACTS
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, BASE + ENTRY, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, BASE, BASE, size, size, 0x1000)  # PT_LOAD, read and execute
    stack = struct.pack("<IIQQQQQQ", 0x6474E551, 6, 0, 0, 0, 0, 0, 16)  # PT_GNU_STACK: not executable
    return ((header + load + stack).ljust(ENTRY, b"\0") + entry(CODE + offset, end)).ljust(CODE, b"\0") + code + bytes(FACTS)


def facts(interpreter, start):
    """What the last FACTS bytes say once it is known: the file name of the interpreter, and the name it is given, in the folder it
    starts from, relative to the venv; between them the options and the command that it then gets."""
    data = interpreter.encode().ljust(32, b"\0") + b"-IS".ljust(8, b"\0") + b"-c".ljust(8, b"\0")
    data += b"import encodings;encodings.start()".ljust(48, b"\0") + start.encode()
    if len(interpreter) > 31 or len(data) >= FACTS:
        raise ValueError(f"too long: {interpreter}, {start}")
    return data.ljust(FACTS, b"\0")
