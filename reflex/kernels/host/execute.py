"""The native step loop: one call runs a whole forward pass; worker threads help as far as they get a processor.

A step table is int64[n][STEP]: [kernel address, wait after (0/1), 15 operands]. Steps up to and including one that
waits form a phase. Each phase is divided into as many shares as there are threads; a kernel called as
kernel(operands address, share, shares) does one. Threads claim shares, so the caller takes over the share of a worker
that the system has not scheduled, and nobody waits but for a share that somebody is computing.

CLAIMED and FINISHED count shares over the life of the team and only grow: every share ever run has a number of its
own, and a worker that wakes too late finds its numbers taken. COMMAND is odd while an evaluation is being prepared,
even once it may be joined, and negative at the end.
"""

from ..export import export, helper
from ..intrinsics import atomic_add, atomic_load, atomic_store, call3, call7, compare_exchange, load_i64, pause

STEP_BYTES = 136
SPINS = 3000  # pauses before sleeping: some 50 us, longer than the work between most waits
# Team block: int64 at byte offsets, one cache line apart where threads write them.
CLAIMED, FINISHED, SLEEPERS, COMMAND = 0, 64, 128, 192
SYSCALL, FUTEX_NUMBER, TABLE, COUNT, BASE = 256, 264, 272, 280, 288
FUTEX_WAIT, FUTEX_WAKE = 128, 129  # with FUTEX_PRIVATE_FLAG


@helper
def sleep_while(team, word, value):
    """Sleep in the kernel unless the int64 at team + word has already moved on from `value`."""
    atomic_add(team + SLEEPERS, 1)
    call7(load_i64(team + SYSCALL), load_i64(team + FUTEX_NUMBER), team + word, FUTEX_WAIT, value & 0xFFFFFFFF, 0, 0, 0)
    return atomic_add(team + SLEEPERS, -1)


@helper
def wake(team, word):
    if atomic_add(team + SLEEPERS, 0) > 0:
        call7(load_i64(team + SYSCALL), load_i64(team + FUTEX_NUMBER), team + word, FUTEX_WAKE, 0x7FFFFFFF, 0, 0, 0)
    return 0


@helper
def await_finished(team, goal):
    """Return once FINISHED has reached `goal`."""
    spins = 0
    while True:
        finished = atomic_load(team + FINISHED)
        if finished >= goal:
            return 0
        spins += 1
        if spins < SPINS:
            pause()
        else:
            sleep_while(team, FINISHED, finished)


@helper
def run_phase(table, first, last, share, shares):
    for i in range(first, last):
        step = table + i * STEP_BYTES
        call3(load_i64(step), step + 16, share, shares)
    return 0


@helper
def run_steps(table, count, team, base, shares):
    """Take part in every phase that is not over yet; returns when the last phase is."""
    first = 0
    number = base  # of the phase's first share
    while first < count:
        last = first
        while load_i64(table + last * STEP_BYTES + 8) == 0:
            last += 1
        last += 1
        claimed = atomic_load(team + CLAIMED)
        while claimed < number + shares:
            if compare_exchange(team + CLAIMED, claimed, claimed + 1) != 0:
                run_phase(table, first, last, claimed - number, shares)
                if atomic_add(team + FINISHED, 1) + 1 == number + shares:
                    wake(team, FINISHED)
            claimed = atomic_load(team + CLAIMED)
        number += shares
        await_finished(team, number)
        first = last
    return 0


@export
def execute(table, count, team, threads):
    """Run `count` steps, the last of which waits; with more than one thread the workers of `team` help."""
    if threads == 1:
        return run_phase(table, 0, count, 0, 1)
    base = atomic_load(team + FINISHED)
    command = atomic_load(team + COMMAND)
    atomic_store(team + COMMAND, command + 1)
    atomic_store(team + TABLE, table)
    atomic_store(team + COUNT, count)
    atomic_store(team + BASE, base)
    atomic_store(team + COMMAND, command + 2)
    wake(team, COMMAND)
    return run_steps(table, count, team, base, threads)


@export
def worker(team, threads):
    """Help with every `execute` of the team until dismissed."""
    seen = 0
    spins = 0
    while True:
        command = atomic_load(team + COMMAND)
        if command < 0:
            return 0
        if command == seen and spins >= SPINS:
            sleep_while(team, COMMAND, seen)
        elif command == seen or command & 1 != 0:
            spins += 1
            pause()
        else:
            table, count, base = atomic_load(team + TABLE), atomic_load(team + COUNT), atomic_load(team + BASE)
            if atomic_load(team + COMMAND) == command:  # else the next evaluation was being prepared while we read
                seen = command
                spins = 0
                run_steps(table, count, team, base, threads)


@export
def dismiss(team):
    """End the workers of a team."""
    atomic_store(team + COMMAND, -1)
    return wake(team, COMMAND)
