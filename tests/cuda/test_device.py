"""A device over the stub driver: started on a thread of its own, chosen among several, hidden, or out of reach."""


import pytest


def test_the_caller_goes_on_while_the_device_starts(stub):
    code = """
    starting = device.begin()
    order = []
    starting.then(lambda dev: order.append(dev.name))
    order.append("the caller")
    starting.then(lambda dev: order.append("second"))
    dev = starting.ready()
    show(order=order, phases=[name for name, _ in dev.marks])
    """
    (result,) = stub.run(code, DELAY=2000)
    assert result["order"] == ["the caller", "Stub GPU 0", "second"]
    assert result["phases"] == ["begin", "driver", "cuInit", "context"]
    assert stub.matching("cuInit 0 connections=1 visible=-")
    stub.run(code, {"CUDA_DEVICE_MAX_CONNECTIONS": "8"})
    assert stub.matching("cuInit 0 connections=8")


def test_the_device_is_known_before_it_is_ready(stub):
    code = """
    starting = device.begin()
    dev = starting.chosen()
    show(capability=dev.capability, again=starting.chosen() is dev is starting.ready(), context=dev.context)
    starting.close()
    """
    assert stub.run(code) == [{"capability": [9, 0], "again": True, "context": 0xC0}]
    assert stub.count("cuDevicePrimaryCtxRelease_v2") == 1
    for failing, word in (("cuInit:999", "does not start"), ("cuDeviceGetName:3", "cuDeviceGetName")):
        (error,) = stub.run("starting = device.begin(); starting.close(); starting.chosen()", FAIL=failing)
        assert error["code"] == 4 and word in error["text"]


def test_an_error_in_a_job_is_raised_by_ready(stub):
    code = """
    starting = device.begin()
    starting.then(lambda dev: dev.allocate(1 << 50, "the cache"))
    starting.then(lambda dev: show(never=True))
    starting.ready()
    """
    (error,) = stub.run(code)
    assert error["code"] == 5 and "the cache" in error["text"]


SELECTIONS = [(None, 0), ("", 0), ("1", 1), (1, 1), ("GPU-a1a1a1a1-a1a1", 1), ("gpu-A0A0A0", 0), ("MIG-a1a1a1a1", 1)]


@pytest.mark.parametrize(("selection", "ordinal"), SELECTIONS)
def test_device_selection(stub, selection, ordinal):
    (result,) = stub.run(f"dev = device.begin({selection!r}).ready(); show(ordinal=dev.ordinal, name=dev.name)", DEVICES=2)
    assert result == {"ordinal": ordinal, "name": f"Stub GPU {ordinal}"}


@pytest.mark.parametrize("selection", ["2", "-1", "GPU-ffff", "GPU-", "all", "MIG-0"])
def test_unknown_device(stub, selection):
    (error,) = stub.run(f"device.begin({selection!r}).ready()", DEVICES=2)
    assert error["code"] == 4 and error["where"] == "--device" and error["found"] == selection
    assert "0 (GPU-a0a0a0a0-a0a0-" in error["text"] and "Stub GPU 1" in error["text"]


def test_a_mig_instance_is_shown_to_the_driver(stub):
    stub.run("device.begin('MIG-a0a0a0a0').ready()")
    assert stub.matching("visible=MIG-a0a0a0a0")
    stub.run("device.begin('MIG-a0a0a0a0').ready()", {"CUDA_VISIBLE_DEVICES": "3"})
    assert stub.matching("visible=3")


@pytest.mark.parametrize(("visible", "hidden"), [(None, False), ("0", False), ("GPU-1", False), ("", True), ("-1", True)])
def test_hidden_devices_are_not_available(stub, visible, hidden):
    code = "choice.NODES = ('/dev/null',); show(found=choice.gpu_shown()); choice.NODES = ('/no',); show(found=choice.gpu_shown())"
    found = stub.run(code, {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
    assert [row["found"] for row in found] == [not hidden, False]
    assert not stub.calls


def test_a_forked_child_is_told(stub):
    code = """
    import os
    dev = device.begin().ready()
    child = os.fork()
    if not child:
        try:
            dev.attach()
        except ReflexError as error:
            os._exit(error.exit_code)
        os._exit(0)
    show(child=os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert stub.run(code) == [{"child": 4}]
