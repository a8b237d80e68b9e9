"""Threads of the CUDA backend whose first call to the driver fails, or which fail in Python: an error of the caller, no traceback.

Stub.run fails where anything is on stderr, or where the process does not end.
"""

import pytest
import tiny

ANSWER = """
    import _thread
    import reflex
    here, where = _thread.get_ident(), {where!r}
    starts = native.start_thread

    def start(function, arguments, name, *held):
        def labelled(*arguments):
            doomed.add(_thread.get_ident())
            function(*arguments)
        return starts(labelled if name == where else function, arguments, name, *held)

    doomed, attach = set(), device.Device.attach
    def attached(self):
        if _thread.get_ident() in doomed:
            raise ValueError("injected")
        attach(self)

    device.Device.attach = attached
    native.start_thread = start
    ids = [3 + i % 400 for i in range(600)]
    upload.FILE_SYSTEMS = ()
    said = []
    try:
        with reflex.load({path!r}, backend="cuda", context=1024) as model:
            for again in range(200):
                if {state!r}:
                    model.import_state({state!r})
                model._session.forget()
                model._session.settle(ids[:5])
    except (ReflexError, ValueError) as problem:
        said.append(f"{{type(problem).__name__}}: {{problem}}")
    show(doomed=len(doomed), said=said)
"""
EXPORT = """
    import reflex
    import reflex.state
    ids = [3 + i % 400 for i in range(600)]
    model = reflex.load({path!r}, backend="cuda", context=1024)
    plan = model._session.plan
    plan.open()
    plan.grow(600)
    model._session.adopt(ids)
    reflex.state.export_state(model._session, ids, {state!r})
"""


@pytest.fixture
def facts(tmp_path, sm_90):
    tiny.write("llama", tmp_path / "tiny.gguf")
    return {"path": str(tmp_path / "tiny.gguf"), "state": ""}


@pytest.mark.parametrize("where", ["upload", "state file", "experts"])
def test_a_thread_that_fails_in_python(stub, facts, tmp_path, where):
    if where == "experts":
        tiny.write("olmoe", facts["path"])
    if where == "state file":
        facts["state"] = str(tmp_path / "state")
        stub.run(EXPORT.format(**facts))
    (result,) = stub.run(ANSWER.format(where=where, **facts))
    assert result["doomed"] and len(result["said"]) == 1, result
