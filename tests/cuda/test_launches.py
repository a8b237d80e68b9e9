"""Launches over the stub driver: one call each, graphs, attributes, and what a chain refuses."""

from scenario import SESSION
from stub import fake


def test_a_chain_computes_with_one_call_per_launch(stub):
    show = "show(relative=relative, values=[numbers[i] for i in (1, 2, 3, 999, 1000)])"
    (result,) = stub.run(f"{SESSION}    chain.run(); dev.synchronize(); {show}")
    assert result == {"relative": 6, "values": [1.5, 3.0, 7.5, 2497.5, 0.0]}
    assert stub.count("cuLaunchKernelEx") == 3 and stub.count("cuMemcpyAsync") == 1 and stub.count("cuStreamSynchronize") == 1
    assert stub.count("cuInit") == stub.count("cuDevicePrimaryCtxRetain") == stub.count("cuModuleLoadData") == 1
    assert stub.count("cuModuleGetFunction") == 1  # one look-up for three launches
    assert stub.matching("cuFuncSetAttribute add 8 100000")
    assert stub.matching("cuLaunchKernelEx add grid=4,1,1 block=256 shared=0 6=1")
    assert stub.matching("cuLaunchKernelEx add grid=4,1,1 block=256 shared=100000") == [
        "cuLaunchKernelEx add grid=4,1,1 block=256 shared=100000"
    ]


def test_a_graph_is_captured_once_and_replayed_with_one_call(stub):
    stub.run(SESSION + "    graph = chain.capture()\n    for i in range(5): graph.launch()\n    graph.close(); dev.close()")
    assert stub.count("cuGraphLaunch") == 5 and stub.count("cuLaunchKernelEx") == 3
    assert stub.matching("cuGraphInstantiateWithFlags 0 launches=3 copies=1")
    assert stub.count("cuGraphExecDestroy") == stub.count("cuGraphDestroy") == stub.count("cuDevicePrimaryCtxRelease_v2") == 1


def test_parts_of_a_chain_can_be_patched(stub):
    code = """
    chain.grid(first, 2); chain.set(first, 2, 4); chain.set(first, 3, 8.0)
    chain.run(0, 1); chain.run(last, last + 1); dev.synchronize()
    show(values=[numbers[i] for i in (3, 4)])
    """
    (result,) = stub.run(SESSION + code)
    assert result == {"values": [24.0, 0.0]} and stub.matching("grid=2,1,1")


def test_attributes(stub):
    code = """
    dev, images, loaded = session(folder)
    chain, add = launch.Chain(native.library()), images.kernel("add")
    for options in ({}, {"cooperative": True}, {"cluster": 2, "overlap": False}, {"overlap": False}):
        chain.add(add, 1, (0, 0, 0, 0.0), **options)
    chain.copy(0, 0, 0)
    chain.add(add, 1, (0, 0, 0, 0.0))
    chain.bind(dev, loaded); chain.run()
    """
    stub.run(code)
    rows = [line.split("shared=0")[1].split() for line in stub.matching("cuLaunchKernelEx")]
    assert rows == [["6=1"], ["2=1", "6=1"], ["4=2"], [], []]  # none behind a copy
    stub.run(code, CAPABILITY="8.9")
    rows = [line.split("shared=0")[1].split() for line in stub.matching("cuLaunchKernelEx")]
    assert not rows  # no kernel file for it
    fake.kernel_file(stub.folder, "sm_80")
    stub.run(code, CAPABILITY="8.9")
    rows = [line.split("shared=0")[1].split() for line in stub.matching("cuLaunchKernelEx")]
    assert rows[0] == ["0=1"] and rows[1] == ["2=1", "0=1"]  # 0: an attribute to ignore


def test_old_drivers_get_the_older_launch(stub):
    fake.kernel_file(stub.folder, "ptx", image=b"// PTX\n\0")
    (result,) = stub.run(SESSION + "    chain.run(); dev.synchronize(); show(ptx=images.is_ptx, x=numbers[999])", DRIVER=11040)
    assert result == {"ptx": True, "x": 2497.5}
    assert stub.count("cuLaunchKernel") == 3 and stub.count("cuLaunchKernelEx") == 0


def test_old_drivers_cannot_launch_what_waits_for_all_blocks(stub):
    fake.kernel_file(stub.folder, "ptx", image=b"// PTX\n\0")
    code = "chain.add(add, 1, (0, 0, 0, 0.0), cooperative=True); chain.bind(dev, loaded)"
    (error,) = stub.run(f"{SESSION}    {code}", DRIVER=11040)
    assert error["code"] == 4 and "CUDA 11.8" in error["expected"] and error["found"] == "CUDA 11.4"


def test_wrong_number_of_parameters(stub):
    chain = "launch.Chain(native.library())"
    (error,) = stub.run(f"dev, images, loaded = session(folder); {chain}.add(images.kernel('add'), 1, (0, 0))")
    assert error["category"] == "internal" and "add" in error["text"]


def test_full_tables_are_refused(stub):
    code = """
    dev, images, loaded = session(folder)
    chain = launch.Chain(native.library(), rows=4)
    for i in range(3): chain.add(images.kernel("add"), 1, (0, 0, 0, 0.0))
    {}
    """
    for line in ("chain.repeat(0, 3)", "for i in range(2): chain.copy(0, 0, 0)"):
        (error,) = stub.run(code.format(line))
        assert "launch table is full" in error["text"]
