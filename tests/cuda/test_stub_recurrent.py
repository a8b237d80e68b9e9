"""Layers with a state on the cuda backend over the stub driver: places, what a batch tells the kernels, state files.

Nothing is computed; the places are filled with numbers by hand. tests/cuda/test_whole.py compares results.
"""

import pytest
import tiny

OPEN = """
    import reflex
    from reflex import state
    from reflex.sample import Sampling
    from reflex.tree import evaluate
    ids = [3 + i % 400 for i in range(60)]
    model = reflex.load({path!r}, backend="cuda", context=512)
    session = model._session
    plan = session.plan
    size = 4 * sum(plan.program.states)
    words = plan.memory.strand_words

    def strands():
        plan.gpu.starting.ready().attach()
        plan.device.synchronize()
        at = plan.address(plan.memory.strands)
        return native.view(at, 1 + 4 * native.view(at, 1, "i")[0], "i").tolist()
"""
USED = """
    before = plan.device_bytes
    session.sync(ids)
    one = [strands(), len(plan.place_addresses)]
    session.append(5)
    session.append(6)
    two = [strands(), len(plan.place_addresses)]
    more = plan.device_bytes - before
    evaluate(session, ids, [[3, 4], [3, 5], [6, 7, 8]])
    three = [strands(), len(plan.place_addresses)]
    table = native.view(plan.address(plan.memory.place_table), len(plan.place_addresses), "q").tolist()
    same = table == plan.place_addresses
    model.close()
    show(one=one, two=two, three=three, same=same)
"""


@pytest.fixture
def facts(tmp_path, sm_90):
    tiny.write("qwen35", tmp_path / "tiny.gguf")
    return {"path": str(tmp_path / "tiny.gguf"), "folder": str(tmp_path)}


def test_places_are_there_when_something_is_left_in_them(stub, facts):
    """The prompt leaves its state before the last token and at the end; tokens move the latter on. A tree, which is steady, has
    the prompt computed again and begins at its end."""
    (result,) = stub.run((OPEN + USED).format(**facts))
    assert result["one"] == [[2, 0, 59, -1, 0, 59, 1, 0, 1], 2]
    assert result["two"] == [[1, 0, 1, 1, 1], 2]
    assert result["three"] == [[4, 0, 59, -1, 0, 59, 1, 0, 1, 60, 1, 1, -1, 61, 2, 1, -1], 2]
    assert result["same"]


RUN = """
    session.sync(ids)
    token = 5
    for following, _ in session.follow(token, Sampling(), 1, (), 7):
        session.accept(token)
        token = following
    left = dict(session.snapshots.places)
    session.append(token)
    show(left=left, places=len(plan.place_addresses), strands=strands(), ring=session.snapshots.ring)
"""


def test_a_run_of_tokens_has_a_ring_of_places(stub, facts):
    """The state before it stays where a text begins again; what nobody asked for is not kept."""
    (result,) = stub.run((OPEN + RUN).format(**facts))
    assert result["ring"] == [60, [2, 3, 4, 5, 6]]
    assert result["left"] == {"59": 0, "67": 3} and result["places"] == 7
    assert result["strands"] == [1, 0, 1, 3, 3]


FILES = """
    plan.open()
    from reflex.backends.cuda.recurrent import reach
    reach(plan, 2)
    plan.gpu.starting.ready().attach()
    plan.device.synchronize()
    for number, address in enumerate(plan.place_addresses):
        native.view(address, size)[:] = bytes((number * 50 + i) % 251 for i in range(size))
    plan.grow(60)
    session.adopt(ids, 59)
    session.snapshots.adopt(59, 2)
    first = {folder!r} + "/first"
    state.export_state(session, ids, first)
    other = reflex.load({path!r}, backend="cuda", context=512)
    found = state.import_state(other._session, first)
    other._session.plan.device.synchronize()
    same = native.bytes_at(other._session.plan.place_addresses[0], size) == native.bytes_at(plan.place_addresses[2], size)
    again = {folder!r} + "/again"
    state.export_state(other._session, ids, again)
    equal = open(first, "rb").read() == open(again, "rb").read()
    start = other._session.start([*ids, 4])
    show(same=same, equal=equal, reused=found.reused, start=start)
"""


def test_a_state_file_brings_the_state_back(stub, facts):
    (result,) = stub.run((OPEN + FILES).format(**facts))
    assert result == {"same": True, "equal": True, "reused": 60, "start": 59}


def test_a_state_that_no_block_keeps_is_refused(stub, facts):
    code = """
        from types import SimpleNamespace
        from reflex.backends.cuda.recurrent import refuse
        step = SimpleNamespace(op="delta_rule", args={"key_dim": 513})
        refuse(SimpleNamespace(steps=[step]))
    """
    (error,) = stub.run(code)
    assert error["expected"] == "at most 512 rows" and "cpu" in error["text"]
