"""State files on the cuda backend over the stub driver: pages of its cache go to a file and come back, byte for byte.

Nothing is computed; the cache is filled with numbers by hand.
"""

from pathlib import Path

import pytest
import tiny

PREPARE = """
    import random
    from posix import fspath
    import reflex
    from reflex import state
    ids = [3 + i % 400 for i in range({count})]

    def filled(model, count):
        session = model._session
        plan = session.plan
        plan.open()
        plan.grow(count)
        draw = random.Random(5)
        for page in plan.page_addresses:
            size = plan.memory.page_bytes
            halves = native.view(page, size // 2, "H")
            for i in range(len(halves)):
                halves[i] = draw.randrange(0x7C00)  # finite
        session.adopt(ids)
        return pages(plan)

    def pages(plan):
        plan.gpu.starting.ready().attach()
        plan.device.synchronize()
        return [native.bytes_at(page, plan.memory.page_bytes - 256) for page in plan.page_addresses]

    def rows(plan, page, count):
        '''The first slots of each head's keys and values in a page.'''
        found = []
        for (heads, key_dim, value_dim), at in zip(plan.program.caches, plan.memory.layer_places):
            for width in (key_dim, value_dim):
                for head in range(heads):
                    found.append(page[at : at + 2 * count * width])
                    at += 2 * 256 * width
        return found

    model = reflex.load({path!r}, backend="cuda", context=1024)
    before = filled(model, len(ids))
    first = {folder!r} + "/" + "first"
    state.export_state(model._session, ids, first, {kind!r})
"""
BACK = """
    other = reflex.load({path!r}, backend="cuda", context=1024)
    found = state.import_state(other._session, first)
    plan = other._session.plan
    after = pages(plan)
    same = []
    for number, (one, two) in enumerate(zip(before, after)):
        count = min(256, len(ids) - 256 * number)
        same.append(rows(plan, one, count) == rows(plan, two, count))
    by_threads = plan.ring is not None
    again = {folder!r} + "/again"
    state.export_state(other._session, ids, again, {kind!r})
    equal = open(first, "rb").read() == open(again, "rb").read()
    model.close()
    other.close()
    pages = [len(before), len(after)]
    show(same=same, equal=equal, by_threads=by_threads, pages=pages, reused=found.reused, notes=found.notes)
"""


@pytest.fixture
def facts(tmp_path, sm_90):
    tiny.write("llama", tmp_path / "tiny.gguf")
    return {"path": str(tmp_path / "tiny.gguf"), "folder": str(tmp_path)}


@pytest.mark.parametrize("kind", [None, "f32"])
@pytest.mark.parametrize("count", [600, 512, 255, 1])
def test_pages_come_back(stub, facts, count, kind):
    (result,) = stub.run((PREPARE + BACK).format(count=count, kind=kind, **facts))
    pages = -(-count // 256)
    assert result["same"] == [True] * pages and result["equal"] and result["pages"] == [pages, pages]
    assert result["reused"] == count and not result["notes"]
    assert result["by_threads"] == (kind is None)  # others are rearranged on the host


@pytest.mark.parametrize("name", ["deepseek2", "gemma4", "gemma3n", "llama4", "kimi-linear"])
def test_caches_of_other_kinds_come_back(stub, facts, tmp_path, name):
    """Latent rows, heads of two sizes, and caches that layers share, the last page not whole."""
    tiny.write(name, tmp_path / "tiny.gguf")
    (result,) = stub.run((PREPARE + BACK).format(count=300, registered=True, kind=None, **facts))
    assert result["same"] == [True, True] and result["equal"] and result["reused"] == 300 and not result["notes"]


STATES = """
    import reflex
    from reflex import state
    from reflex.tree import evaluate
    ids = [3 + i % 400 for i in range({count})]
    first, again = {folder!r} + "/first", {folder!r} + "/again"

    def places(plan):
        size = 4 * sum(plan.program.states)
        plan.device.synchronize()
        return native.bytes_at(plan.place_addresses[0], size)

    model = reflex.load({path!r}, backend="cuda", context=1024)
    session = model._session
    session.settle(ids)
    plan = session.plan
    place = plan.place_addresses[session.snapshots.behind(len(ids) - 1)]
    size = 4 * sum(plan.program.states)
    native.view(place, size)[:] = bytes(i * 7 % 251 for i in range(size))
    before = native.bytes_at(place, size)
    state.export_state(session, ids, first)
    other = reflex.load({path!r}, backend="cuda", context=1024)
    if {started}:
        other._session.plan.open()
    found = state.import_state(other._session, first, wait=False)
    arriving, waits = other._session.plan.arriving, []
    wait = arriving.wait
    arriving.wait = lambda group: (waits.append(group), wait(group))
    if {use}:
        evaluate(other._session, [*ids, 7], [[8, 9]])
    else:
        other._session.landed()
    same = places(other._session.plan) == before if not {use} else True
    state.import_state(other._session, first)
    same = same and places(other._session.plan) == before
    state.export_state(other._session, ids, again)
    equal = open(first, "rb").read() == open(again, "rb").read()
    data = bytearray(open(first, "rb").read())
    shape = state.layout.Shape(plan.store(), len(ids), True)
    with state.layout.open_state(first) as whole:
        data[whole.offset(shape, shape.blocks) + shape.fixed - 5] ^= 1
    open(again, "wb").write(data)
    try:
        state.import_state(other._session, again)
        said = ""
    except ReflexError as error:
        said = error.message
    model.close()
    other.close()
    show(same=same, equal=equal, said=said, waits=waits[:1], reused=found.reused)
"""


@pytest.mark.parametrize("name", ["qwen35", "mamba2", "falcon-h1"])
@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("use", [False, True])
def test_states_of_recurrent_layers_come_back(stub, facts, name, started, use):
    """With a cache beside them and without; whoever computes behind them waits for them first."""
    tiny.write(name, facts["path"])
    (result,) = stub.run(STATES.format(count=300, started=started, use=use, **facts))
    expected = {"same": True, "equal": True, "said": "the state file is damaged", "waits": [-1] if use else [], "reused": 300}
    assert result == expected


HOST = """
    cpu = reflex.load({path!r}, backend="cpu")
    found = state.import_state(cpu._session, first)
    store = cpu._session.plan.store()
    room = native.alloc(1 << 22)
    same = []
    for number in range(len(before)):
        count = min(256, len(ids) - 256 * number)
        store.read(256 * number, count, room.address, True)
        size = 2 * count * sum(section.values for section in store.sections)
        same.append(b"".join(rows(model._session.plan, before[number], count)) == native.bytes_at(room.address, size))
    show(same=same, reused=found.reused, notes=len(found.notes))
    model.close()
"""


def test_the_host_reads_what_a_device_wrote(stub, facts):
    (result,) = stub.run((PREPARE + HOST).format(count=300, kind=None, **facts))
    assert result == {"same": [True, True], "reused": 300, "notes": 2}


PART = """
    other = reflex.load({path!r}, backend="cuda", context=1024)
    plan = other._session.plan
    data = bytearray(open(first, "rb").read())
    found = state.layout.open_state(first)
    shape = state.layout.Shape(plan.store(), found.tokens, True)
    data[found.offset(shape, 1) + 5] ^= 1  # behind what is asked for
    damaged = {folder!r} + "/damaged"
    open(damaged, "wb").write(data)
    try:
        state.import_state(other._session, damaged, [*ids[:{common}], 7])
        said = ""
    except ReflexError as error:
        said = error.message
    kept = state.import_state(other._session, first, [*ids[:{common}], 7])
    after = pages(plan) if {common} else []
    same = not after or rows(plan, before[0], {common}) == rows(plan, after[0], {common})
    model.close()
    other.close()
    show(said=said, same=same, reused=kept.reused, pages=len(after))
"""


@pytest.mark.parametrize("common", [0, 1, 33, 256])
def test_only_what_a_prompt_shares_is_taken_and_all_is_checked(stub, facts, common):
    (result,) = stub.run((PREPARE + PART).format(count=600, kind=None, common=common, **facts))
    assert result == {"said": "the state file is damaged", "same": True, "reused": common, "pages": min(1, common)}


DAMAGED = """
    found = state.layout.open_state(first)
    plan = model._session.plan
    shape = state.layout.Shape(plan.store(), found.tokens, True)
    whole, said = open(first, "rb").read(), []

    def refused(data, number):
        open(first, "wb").write(data)
        for page in plan.page_addresses:
            native.view(page, 1024)[:] = bytes(1024)
        try:
            state.import_state(model._session, first)
        except reflex.ReflexError as error:
            untouched = native.bytes_at(plan.page_addresses[number], 1024) == bytes(1024)
            said.append([error.category, "damaged" in error.message, untouched, model._session.held(ids)])

    places = [found.offset(shape, number) + {at} % shape.sizes[number] for number in range(3)]
    for number, place in enumerate(places):
        refused(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :], number)
    refused(whole[: places[2]] + whole[places[2] + 1 :], 2)
    open(first, "wb").write(whole)
    state.import_state(model._session, first)
    after = pages(plan)
    model.close()
    show(said=said, same=[rows(plan, one, 88) == rows(plan, two, 88) for one, two in zip(before, after)])
"""


@pytest.mark.parametrize("at", [0, 70001])
def test_nothing_of_a_damaged_file_counts(stub, facts, at):
    """And what was not found right is not even copied; the file is taken when it is whole again."""
    (result,) = stub.run((PREPARE + DAMAGED).format(count=600, kind=None, at=at, **facts))
    assert result["said"] == [["state", True, True, 0]] * 3 + [["state", False, True, 0]] and result["same"] == [True] * 3


@pytest.mark.parametrize("name", ["mimo2", "deepseek2", "gemma2"])
def test_heads_of_other_sizes(stub, facts, name):
    """Keys wider than values, latent vectors, windows."""
    tiny.write(name, facts["path"])
    (result,) = stub.run((PREPARE + BACK).format(count=300, kind=None, **facts))
    assert result["same"] == [True] * 2 and result["equal"] and result["by_threads"]


def test_without_pinned_memory(stub, facts):
    (result,) = stub.run((PREPARE + BACK).format(count=600, kind=None, **facts), FAIL="cuMemHostRegister_v2:2")
    assert result["same"] == [True] * 3 and result["equal"] and result["by_threads"]


BEHIND = """
    from reflex.backends.cuda import arrival, ring
    from reflex.backends.cuda.launch import Chain
    ring.SLOTS, ring.PARTS, ring.THREADS, state.layout.PIECE = {ring}
    state.layout.Shape.piece = state.layout.PIECE
    model._session.plan.ring.close()
    model._session.plan.ring = None  # the next is made with these
    state.export_state(model._session, ids, first, None)
    model.close()
    other = reflex.load({path!r}, backend="cuda", context=1024)
    session = other._session
    plan = session.plan
    if {started}:
        plan.open()
    wait, run_alone, order = arrival.Arrival.wait, Chain.run_alone, []

    def waited(self, group):
        order.append(["wait", group])
        wait(self, group)
        order[-1].append(all(self._ring._held[1][5 + 3 * unit] == 1 for unit in range(self._ends[group])))

    def ran(self, begun, end):
        order.append(["run", begun, end])
        run_alone(self, begun, end)

    arrival.Arrival.wait, Chain.run_alone = waited, ran
    found = state.import_state(session, first, [*ids, 7], wait=False)
    on_its_way = plan.arriving is not None
    decision = other.system1([*ids, 7], ["a", "b c"])
    after = pages(plan)
    same = [rows(plan, one, 88) == rows(plan, two, 88) for one, two in zip(before, after)]
    free = plan.arriving is None
    other.close()
    show(order=order, same=same, on_its_way=on_its_way, free=free, held=found.reused)
"""


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("ring", ["4, 8, 12, 1 << 12", "1, 2, 3, 1 << 12", "2, 1, 1, 1 << 13"])
def test_layers_are_computed_as_they_come(stub, facts, started, ring):
    tiny.write("llama", facts["path"], layers=6)
    (result,) = stub.run((PREPARE + BEHIND).format(count=600, kind=None, started=started, ring=ring, **facts))
    assert result["same"] == [True] * 3 and result["on_its_way"] and result["free"] and result["held"] == 600
    waits = [row for row in result["order"] if row[0] == "wait"]
    assert [row[1] for row in waits] == [*range(6)] and all(row[2] for row in waits)
    runs = [row for row in result["order"] if row[0] == "run"]
    assert [begun for _, begun, _ in runs[1:]] == [end for _, _, end in runs[:-1]] and len(runs) >= 4


LATER = """
    data = bytearray(open(first, "rb").read())
    data[{at}] ^= 1
    open(first, "wb").write(data)
    session, said = model._session, []
    for use in ("system1", "generate", "export", "forget", "close"):
        state.import_state(session, first, [*ids, 7], wait=False)
        try:
            if use == "system1":
                model.system1([*ids, 7], ["a", "b c"])
            elif use == "generate":
                model.generate([*ids, 7], max_tokens=2)
            elif use == "export":
                session.settle(ids)
                state.export_state(session, ids, first + "x", None)
            elif use == "forget":
                session.forget()
                model.system1([9, 10], ["a", "b c"])
            else:
                model.close()
            said.append([use, "none", 0])
        except reflex.ReflexError as error:
            said.append([use, error.category, session.held(ids)])
    show(said=said)
"""


def test_damage_is_said_before_a_result_and_by_nobody_else(stub, facts):
    (result,) = stub.run((PREPARE + LATER).format(count=600, kind=None, at=60000, **facts))
    expected = [[use, "state", 0] for use in ("system1", "generate", "export")]
    assert result["said"] == [*expected, ["forget", "none", 0], ["close", "none", 0]]


def test_a_copy_that_fails_is_no_damaged_file(stub, facts):
    body = """
    state.import_state(model._session, first)
    show(kind="none")
    model.close()
    """
    code = (PREPARE + body).format(count=40, kind=None, **facts)
    assert stub.run(code) == [{"kind": "none"}]
    last = stub.count("cuMemcpyHtoDAsync_v2")
    (error,) = stub.run(code, FAIL=f"cuMemcpyHtoDAsync_v2:719@{last}")
    assert error["code"] == 4 and "CUDA_ERROR_LAUNCH_FAILED" in error["text"]


FAILS = """
    import os
    import reflex
    from reflex import output_file, state
    first = {folder!r} + "/first"
    model = reflex.load({path!r}, backend="cuda", context=1024)
    ids = [3 + i % 400 for i in range(600)]
    model._session.settle(ids)
    own, said = output_file.OutputFile.descriptor, []
    if {refuse}:
        output_file.OutputFile.descriptor = os.open({path!r}, os.O_RDONLY)
    for _ in range(2):
        try:
            state.export_state(model._session, ids, first)
            said.append("")
        except ReflexError as error:
            said.append(error.line())
        output_file.OutputFile.descriptor = own
    left = [name for name in os.listdir({folder!r}) if "first" in name]
    same = bool(left) and state.import_state(model._session, first).reused
    show(said=said, left=left, same=same, failed=len(native.failed))
    model.close()
"""


def test_an_export_that_fails_is_one_error(stub, facts):
    """A file that cannot be written to, or a copy that fails: nothing is left, and the next export is whole."""
    (result,) = stub.run(FAILS.format(refuse=True, **facts))
    assert "cannot write the state; found Bad file descriptor" in result["said"][0] and result["said"][1] == ""
    assert result["left"] == ["first"] and result["same"] == 600 and not result["failed"]
    (Path(facts["folder"]) / "first").unlink()
    (result,) = stub.run(FAILS.format(refuse=False, **facts), FAIL="cuMemcpyDtoHAsync_v2:700@1")
    assert all("CUDA_ERROR_ILLEGAL_ADDRESS" in said for said in result["said"]) and not result["left"] and not result["failed"]


def test_a_thread_that_does_not_get_the_device_is_one_error(stub, facts):
    """That of the thread, and nothing is left for a later request to raise."""
    body = """
    from reflex.backends.cuda import device, ring
    from reflex.errors import DeviceError
    ring.sched_getaffinity = lambda process: range(4)
    attach, problems = device.Device.attach, []

    def refuse(self):
        if _thread.get_ident() != main:
            problems.append(1)
            raise DeviceError("no context for this thread")
        attach(self)

    import _thread, time
    main, join = _thread.get_ident(), ring.Ring.join

    def late(self):
        until = time.monotonic() + 100
        while self.begun and self._block[ring.FAILED] < 0 and time.monotonic() < until:
            time.sleep(0.001)
        return join(self)

    ring.Ring.join = late  # this thread leaves the pieces to the others
    model.close()
    model = reflex.load({path!r}, backend="cuda", context=1024)
    model._session.plan.open()
    model._session.plan.gpu.upload.wait()
    device.Device.attach = refuse
    said = []
    for _ in range(2):
        try:
            state.import_state(model._session, first)
            said.append("")
        except ReflexError as error:
            said.append(error.message)
    device.Device.attach = attach
    show(said=said, failed=len(native.failed), problems=len(problems))
    """
    (result,) = stub.run((PREPARE + body).format(count=600, kind=None, **facts))
    assert result == {"said": ["no context for this thread"] * 2, "failed": 0, "problems": 3}


GROWS = """
    import reflex
    from reflex import state
    small, large = {folder!r} + "/small", {folder!r} + "/large"
    model = reflex.load({path!r}, backend="cuda", context=1024)
    session, ids = model._session, [3 + i % 400 for i in range(900)]
    for path, count in ((small, 2), (large, 900)):
        session.settle(ids[:count])
        state.export_state(session, ids[:count], path)
    model.close()
    other = reflex.load({path!r}, backend="cuda", context=1024)
    plan, found = other._session.plan, []
    for path in (small, large, small):
        state.import_state(other._session, path)
        found.append(plan.ring._pages.size >> 20)
    other.close()
    show(found=found)
"""


def test_no_more_memory_is_pinned_than_a_file_takes(stub, facts):
    tiny.write("llama", facts["path"], layers=6, kv_heads=4, head_dim=256, heads=4, width=64)
    (result,) = stub.run(GROWS.format(**facts))
    assert result["found"] == [2, 22, 22]
    sizes = [int(line.split()[1]) >> 20 for line in stub.matching("cuMemHostRegister_v2")]
    assert {2, 22} <= set(sizes) and 24 not in sizes
