"""Runs the programs of tokenizer/patterns.py over decoded text, in linear time and a fixed amount of stack.

Text is one u32 per code point: code point | kind << 24. A run of one character class remembers where it ended and
whether everything after it failed, so no stretch of text is walked again for each of its start positions.
"""

from .export import helper
from .intrinsics import load_i32, load_i64, load_u8, load_u16, load_u32, shift_right, store_32, store_64

ACCEPT, CLASS, RUN, BRANCH, JUMP, LOOK, AHEAD, END_AHEAD, END, GROUPS, LOOP, COMMIT = range(12)
INSTRUCTION = 24  # int32: opcode, class, a, b, c, d
KIND_BLOCKS = 17408  # bytes of the first level of the table of kinds

# A stack entry, four int64: instruction, position, lowest position (runs), kind | step << 8.
ENTRY = 32
RETRY, SHORTEN, MARK_AHEAD, MARK_LOOP = 0, 1, 2, 3
STACK_BYTES = 256 * ENTRY  # a program pushes at most one entry per instruction and has fewer than 256

SLOT = 24  # per unlimited run: start, end, 1 where every continuation failed
REMEMBER = 16  # shorter runs are cheaper to walk again than to remember as failed


@helper
def kind_of(kinds, code_point):
    return load_u8(kinds + KIND_BLOCKS + (load_u16(kinds + ((code_point >> 7) << 1)) << 7) + (code_point & 127))


@helper
def toggled(ranges, count, code_point):
    """1 where one of `count` sorted (first, last) pairs holds the code point."""
    low = 0
    high = count
    while low < high:
        middle = (low + high) >> 1
        if load_u32(ranges + (middle << 3) + 4) < code_point:
            low = middle + 1
        else:
            high = middle
    return 1 if low < count and load_u32(ranges + (low << 3)) <= code_point else 0


@helper
def in_class(program, record, point):
    """1 where the class at program + record holds the code point."""
    code_point = point & 0xFFFFFF
    at = program + record
    if code_point < 128:
        hit = (load_u32(at + ((code_point >> 5) << 2)) >> (code_point & 31)) & 1
    else:
        hit = shift_right(load_i64(at + 16), point >> 24) & 1
        count = load_u32(at + 24)
        if count != 0:
            hit ^= toggled(program + load_u32(at + 28), count, code_point)
    return hit


@helper
def push(stack, top, instruction, position, lowest, kind):
    at = stack + top * ENTRY
    store_64(at, instruction)
    store_64(at + 8, position)
    store_64(at + 16, lowest)
    store_64(at + 24, kind)
    return top + 1


@helper
def run_end(program, record, points, position, limit):
    """First position from `position` on, at most `limit`, that the class does not hold."""
    while position < limit and in_class(program, record, load_u32(points + (position << 2))) != 0:
        position += 1
    return position


@helper
def remembered_end(program, record, points, position, end, slot):
    """run_end over the whole piece, from the slot where a walk from this start or an earlier one is known."""
    if load_i64(slot) <= position and position < load_i64(slot + 8):
        return load_i64(slot + 8)
    found = run_end(program, record, points, position, end)
    store_64(slot, position)
    store_64(slot + 8, found)
    store_64(slot + 16, 0)
    return found


@helper
def popped_to(stack, top, kind):
    """Height of the stack with everything from the nearest entry of `kind` on removed."""
    top -= 1
    while (load_i64(stack + top * ENTRY + 24) & 255) != kind:
        top -= 1
    return top


@helper
def match_at(program, entry, points, start, end, stack, slots):
    """End of the match of one expression that begins at `start` of a piece ending at `end`, or -1."""
    at = program + entry
    position = start
    top = 0
    while True:
        opcode = load_i32(at)
        record = load_i32(at + 4)
        a = load_i32(at + 8)
        alive = True
        if opcode == CLASS:
            alive = position < end and in_class(program, record, load_u32(points + (position << 2))) != 0
            position += 1
        elif opcode == BRANCH:
            if record == 0 or (position < end and in_class(program, record, load_u32(points + (position << 2))) != 0):
                top = push(stack, top, program + a, position, 0, RETRY)
            else:
                at = program + a - INSTRUCTION
        elif opcode == RUN:
            most = load_i32(at + 12)
            slot_number = load_i32(at + 16)
            lowest = position + a
            if slot_number >= 0:
                slot = slots + slot_number * SLOT
                last = remembered_end(program, record, points, position, end, slot)
                alive = last >= lowest and (load_i64(slot + 16) == 0 or position == last)
            else:
                last = run_end(program, record, points, position, min(end, position + most))
                alive = last >= lowest
            if alive and last > lowest and load_i32(at + 20) == 0:
                top = push(stack, top, at, last, lowest, SHORTEN | (1 << 8))
            position = last
        elif opcode == ACCEPT:
            return position
        elif opcode == JUMP:
            at = program + a - INSTRUCTION
        elif opcode == LOOK:
            hit = 0
            if position < end:
                hit = in_class(program, record, load_u32(points + (position << 2)))
            alive = hit != a
        elif opcode == LOOP:
            top = push(stack, top, program + a, position, 0, MARK_LOOP)
        elif opcode == COMMIT:
            top = popped_to(stack, top, MARK_LOOP)
            if load_i64(stack + top * ENTRY + 8) == position:  # an empty round ends the loop
                at = load_i64(stack + top * ENTRY) - INSTRUCTION
            else:
                at = program + a - INSTRUCTION
        elif opcode == AHEAD:
            top = push(stack, top, program + a, position, load_i32(at + 12), MARK_AHEAD)
        elif opcode == END_AHEAD:
            top = popped_to(stack, top, MARK_AHEAD)
            position = load_i64(stack + top * ENTRY + 8)
            alive = load_i64(stack + top * ENTRY + 16) == 0
        elif opcode == GROUPS:
            last = remembered_end(program, record, points, position, end, slots + load_i32(at + 16) * SLOT)
            step = load_i32(at + 12)
            whole = (last - position) // step
            alive = whole >= a
            position += whole * step
        else:  # END
            alive = position == end
        at += INSTRUCTION
        while not alive:
            if top == 0:
                return -1
            record_at = stack + (top - 1) * ENTRY
            kind = load_i64(record_at + 24) & 255
            position = load_i64(record_at + 8)
            if kind == SHORTEN:
                at = load_i64(record_at)
                if position > load_i64(record_at + 16):
                    position -= 1
                    store_64(record_at + 8, position)
                    at += INSTRUCTION
                    alive = True
                else:
                    if load_i32(at + 16) >= 0:
                        slot = slots + load_i32(at + 16) * SLOT
                        if load_i64(slot + 8) - load_i64(slot) > REMEMBER:
                            store_64(slot + 16, 1)
                    top -= 1
            else:
                top -= 1
                at = load_i64(record_at)
                alive = kind != MARK_AHEAD or load_i64(record_at + 16) != 0


@helper
def split_once(program, entry, points, pieces, count, out, stack, slots):
    """Apply one expression inside each of `count` pieces (u32 ends). Writes the ends of the finer pieces; returns their
    number. A match is a piece of its own, and so is what lies between matches; an empty match cuts where it stands."""
    made = 0
    start = 0
    for i in range(count):
        end = load_u32(pieces + (i << 2))
        begun = start  # where text without a match began
        position = start
        while position < end:
            stop = match_at(program, entry, points, position, end, stack, slots)
            if stop < 0:
                position += 1
            else:
                if position > begun:
                    store_32(out + (made << 2), position)
                    made += 1
                if stop > position:
                    store_32(out + (made << 2), stop)
                    made += 1
                    begun = stop
                    position = stop
                else:
                    begun = position
                    position += 1
        if end > begun:
            store_32(out + (made << 2), end)
            made += 1
        start = end
    return made


@helper
def split_pieces(program, points, count, pieces, other, work):
    """Ends of the pieces of `count` code points, u32 at `pieces`; returns their number. `other`: as many bytes again;
    `work`: matcher_work bytes."""
    expressions = load_i32(program)
    slots = work + STACK_BYTES
    for i in range(load_i32(program + 4)):
        store_64(slots + i * SLOT, 0)
        store_64(slots + i * SLOT + 8, 0)
    store_32(pieces, count)
    made = 1 if count > 0 else 0
    source = pieces
    target = other
    for i in range(expressions):
        made = split_once(program, load_i32(program + 8 + 4 * i), points, source, made, target, work, slots)
        source, target = target, source
    if source != pieces:
        for i in range(made):
            store_32(pieces + (i << 2), load_u32(source + (i << 2)))
    return made


@helper
def matcher_work(program):
    """Bytes of scratch for split_pieces."""
    return STACK_BYTES + SLOT * load_i32(program + 4)
