"""The native step loop: one call runs a whole forward pass on one thread; all threads make the same call.

A step table is int64[n][STEP]: [kernel address, barrier after (0/1), 15 operands]. A kernel is called as
kernel(operands address, thread, threads) and does its share. Threads meet where a step says so.
"""

from ..export import export, helper
from ..intrinsics import atomic_add, atomic_load, atomic_store, call3, call7, load_i64, pause

STEP_BYTES = 136
SPINS = 4000  # pauses before sleeping: about 20 us, longer than the work between most barriers
# Team block, int64 at byte offsets, one cache line apart: what the threads share.
ARRIVED, GENERATION, SLEEPERS, COMMAND = 0, 64, 128, 192
SYSCALL, FUTEX_NUMBER = 256, 264
FUTEX_WAIT, FUTEX_WAKE = 128, 129  # with FUTEX_PRIVATE_FLAG


@helper
def wait_change(team, word, old):
    """Return once the int64 at team + word differs from `old`: spin a little, then sleep in the kernel."""
    spins = 0
    while atomic_load(team + word) == old:
        spins += 1
        if spins < SPINS:
            pause()
        else:
            atomic_add(team + SLEEPERS, 1)
            call7(load_i64(team + SYSCALL), load_i64(team + FUTEX_NUMBER), team + word, FUTEX_WAIT, old & 0xFFFFFFFF, 0, 0, 0)
            atomic_add(team + SLEEPERS, -1)
    return 0


@helper
def announce(team, word, value):
    """Store `value` at team + word and wake whoever sleeps on it."""
    atomic_store(team + word, value)
    if atomic_add(team + SLEEPERS, 0) > 0:
        call7(load_i64(team + SYSCALL), load_i64(team + FUTEX_NUMBER), team + word, FUTEX_WAKE, 0x7FFFFFFF, 0, 0, 0)
    return 0


@helper
def barrier(team, threads):
    generation = atomic_load(team + GENERATION)
    if atomic_add(team + ARRIVED, 1) == threads - 1:
        atomic_store(team + ARRIVED, 0)
        announce(team, GENERATION, generation + 1)
    else:
        wait_change(team, GENERATION, generation)
    return 0


@helper
def run_steps(table, count, team, thread, threads):
    for i in range(count):
        step = table + i * STEP_BYTES
        call3(load_i64(step), step + 16, thread, threads)
        if threads > 1 and load_i64(step + 8) != 0:
            barrier(team, threads)
    return 0


# Worker protocol: the caller publishes table and count, then bumps COMMAND; a negative COMMAND ends the workers.
TABLE, COUNT = 272, 280


@export
def execute(table, count, team, threads):
    """Run `count` steps with this thread as number 0 and `threads - 1` workers already in `worker`."""
    if threads > 1:
        atomic_store(team + TABLE, table)
        atomic_store(team + COUNT, count)
        announce(team, COMMAND, atomic_load(team + COMMAND) + 1)
    run_steps(table, count, team, 0, threads)
    if threads > 1:
        barrier(team, threads)
    return 0


@export
def worker(team, thread, threads, seen):
    """Serve `execute` calls until dismissed. `seen` is the COMMAND value at the time this worker was started."""
    while True:
        wait_change(team, COMMAND, seen)
        seen = atomic_load(team + COMMAND)
        if seen < 0:
            return 0
        run_steps(atomic_load(team + TABLE), atomic_load(team + COUNT), team, thread, threads)
        barrier(team, threads)


@export
def dismiss(team):
    """End the workers of a team."""
    return announce(team, COMMAND, -1)
