"""State files on the cuda backend over the stub driver: pages of its cache go to a file and come back, byte for byte.

Nothing is computed; the cache is filled with numbers by hand.
"""

import process
import pytest
import tiny

PREPARE = """
    import random
    from posix import fspath
    import reflex
    from reflex import state
    upload.FILE_SYSTEMS = type("Any", (), {{"__contains__": lambda self, number: {registered}}})()
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
    plan.beside and plan.beside[0].wait()
    after = pages(plan)
    same = []
    for number, (one, two) in enumerate(zip(before, after)):
        count = min(256, len(ids) - 256 * number)
        same.append(rows(plan, one, count) == rows(plan, two, count))
    way = plan.beside[0].way if plan.beside else None
    again = {folder!r} + "/again"
    state.export_state(other._session, ids, again, {kind!r})
    equal = open(first, "rb").read() == open(again, "rb").read()
    model.close()
    other.close()
    show(same=same, equal=equal, way=way, pages=[len(before), len(after)], reused=found.reused, notes=found.notes)
"""


@pytest.fixture
def facts(tmp_path):
    if not (process.ROOT / "cache" / "cuda-sm_90.bin").exists():
        pytest.skip("no sm_90 kernels in cache/: python precompile.py --only sm_90")
    tiny.write("llama", tmp_path / "tiny.gguf")
    return {"path": str(tmp_path / "tiny.gguf"), "folder": str(tmp_path)}


@pytest.mark.parametrize("kind", [None, "f32"])
@pytest.mark.parametrize(("count", "registered", "way"), [(600, True, "registered"), (512, False, "ring"), (40, True, None)])
def test_pages_come_back(stub, facts, count, registered, way, kind):
    (result,) = stub.run((PREPARE + BACK).format(count=count, registered=registered, kind=kind, **facts))
    pages = -(-count // 256)
    assert result["same"] == [True] * pages and result["equal"] and result["pages"] == [pages, pages]
    assert result["reused"] == count and not result["notes"]
    assert result["way"] == (None if kind == "f32" else way)  # others are rearranged on the host


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
    (result,) = stub.run((PREPARE + HOST).format(count=300, registered=True, kind=None, **facts))
    assert result == {"same": [True, True], "reused": 300, "notes": 2}


DAMAGED = """
    data = bytearray(open(first, "rb").read())
    data[len(data) // 2] ^= 1
    open(first, "wb").write(data)
    try:
        state.import_state(model._session, first)
        kind = "none"
    except reflex.ReflexError as error:
        kind = error.category
    held = model._session.held(ids)
    model.close()
    show(kind=kind, held=held)
"""


def test_nothing_of_a_damaged_file_counts(stub, facts):
    (result,) = stub.run((PREPARE + DAMAGED).format(count=600, registered=True, kind=None, **facts))
    assert result == {"kind": "state", "held": 0}
