"""The driver layer against a stub driver library: what is called, how often, and what a person reads when it fails.

Every scenario runs in a process of its own, because the driver is opened once per process.
"""

import json
import textwrap

import pytest
import tiny
from stub import fake

PRELUDE = """
import json, sys
from reflex import native
from reflex.backends import choice
from reflex.errors import ReflexError
from reflex.backends.cuda import device, driver, launch, module, upload

def show(**facts):
    print(json.dumps(facts))

def session(folder, kernels=("add",)):
    starting = device.begin()
    dev = starting.ready()
    images = module.choose(dev, folder)
    return dev, images, module.Module(dev, images)
"""


class Stub:
    """Runs scenarios. `calls`: lines that the stub wrote in the last one."""

    def __init__(self, path, folder):
        self.path = path
        self.folder = folder
        self.log = folder / "calls.log"
        self.calls = []

    def run(self, code, environment=None, **settings):
        """The JSON lines that `code` printed; the error's fields when it ended with a ReflexError."""
        self.log.unlink(missing_ok=True)
        body = textwrap.indent(textwrap.dedent(code), "    ")
        ending = "except ReflexError as error:\n    show(code=error.exit_code, text=str(error), **error.as_dict())\n"
        source = f"{PRELUDE}\nfolder = {str(self.folder)!r}\ntry:\n{body}\n{ending}"
        env = {**fake.environment(self.path, self.log, **settings), **(environment or {})}
        done = fake.python(source, env)
        self.calls = self.log.read_text().splitlines() if self.log.exists() else []
        assert done.returncode == 0 and not done.stderr, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def count(self, name):
        return sum(line.split()[0] == name for line in self.calls)

    def matching(self, text):
        return [line for line in self.calls if text in line]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = fake.build(tmp_path_factory.mktemp("stub"))
    return path or pytest.skip("no C compiler")


@pytest.fixture
def stub(library, tmp_path):
    fake.kernel_file(tmp_path, "sm_90")
    return Stub(library, tmp_path)


# ---- a whole session ------------------------------------------------------------------------------------

SESSION = """
    near = launch.relative
    chain = launch.Chain(native.library())
    starting = device.begin()
    add = module.open_images(folder + "/cuda-sm_90.bin").kernel("add")
    first = chain.add(add, 4, (near(0, 0), near(0, 4096), 1000, 0.5))
    chain.repeat(first, first + 1, [(first, 3, 2.0)])
    chain.add(add, (4,), (near(0, 0), near(0, 4096), 3, -1.0), shared=100000, overlap=False)
    dev = starting.ready()
    images = module.choose(dev, folder)
    loaded = module.Module(dev, images)
    base = dev.allocate(8192, "test")
    dev.fill(base, 0, 2048)
    host = dev.pinned(4096)
    numbers = native.view(host, 1024, "f")
    for i in range(1024):
        numbers[i] = i
    dev.copy_in(base + 4096, host, 4096)
    last = chain.copy(host, base, 4096)
    relative = chain.rebase(0, base)
    chain.bind(dev, loaded)
"""


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


def test_the_caller_goes_on_while_the_device_starts(stub):
    code = """
    from time import perf_counter
    started = perf_counter()
    starting = device.begin()
    order = []
    starting.then(lambda dev: order.append(dev.name))
    begun = perf_counter() - started
    starting.then(lambda dev: order.append("second"))
    dev = starting.ready()
    show(begun=begun, ready=perf_counter() - started, order=order, phases=[name for name, _ in dev.marks])
    """
    (result,) = stub.run(code, DELAY=300)
    assert result["begun"] < 0.1 and result["ready"] >= 0.3
    assert result["order"] == ["Stub GPU 0", "second"] and result["phases"] == ["begin", "driver", "cuInit", "context"]
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


# ---- choosing a device ----------------------------------------------------------------------------------


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


# ---- which file -----------------------------------------------------------------------------------------

FILES = ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120", "ptx"]


@pytest.mark.parametrize(
    ("capability", "target"),
    [("7.5", "sm_75"), ("8.0", "sm_80"), ("8.6", "sm_86"), ("8.7", "sm_86"), ("8.9", "sm_89"), ("9.0", "sm_90"), ("10.0", "sm_100"),
     ("10.3", "sm_100"), ("12.0", "sm_120"), ("12.1", "sm_120"), ("11.0", "ptx"), ("13.0", "ptx")],
)  # fmt: skip
def test_file_for_a_capability(stub, capability, target):
    for name in FILES:
        fake.kernel_file(stub.folder, name)
    code = "dev, images, loaded = session(folder); show(target=images.target, ptx=images.is_ptx)"
    (result,) = stub.run(code, CAPABILITY=capability)
    assert result == {"target": target, "ptx": target == "ptx"}


def test_an_architecture_specific_file_is_preferred(stub):
    fake.kernel_file(stub.folder, "sm_90a")
    (result,) = stub.run("dev, images, loaded = session(folder); show(target=images.target)")
    assert result == {"target": "sm_90a"}


@pytest.mark.parametrize("capability", ["7.0", "8.0", "12.0"])
def test_no_file_for_the_device(stub, capability):
    (error,) = stub.run("session(folder)", CAPABILITY=capability)
    assert error["code"] == 4 and "no kernels for this device" in error["text"]
    assert f"sm_{capability.replace('.', '')} (Stub GPU 0)" in error["found"] and error["expected"] == "sm_90"


def test_driver_too_old_for_any_file(stub):
    (error,) = stub.run("session(folder)", DRIVER=11080)
    assert (error["code"], error["expected"], error["found"]) == (4, "a driver for CUDA 12.0 or newer", "CUDA 11.8")
    fake.kernel_file(stub.folder, "sm_100")
    (error,) = stub.run("session(folder)", DRIVER=12040, CAPABILITY="10.0")
    assert error["expected"] == "a driver for CUDA 12.8 or newer"


def test_no_files_at_all(stub):
    (error,) = stub.run("session(folder + '/empty')")
    assert error["code"] == 7 and "precompile" in error["text"]


DAMAGE = {
    "empty": lambda data: b"",
    "other": lambda data: b"PK\x03\x04" + data[4:],
    "short": lambda data: data[:-1],
    "long": lambda data: data + b"\0",
    "listing": lambda data: data.replace(b"add ", b"odd ", 1),
    "header": lambda data: data.replace(b"sm_90 ", b"sm_90_", 1),
    "image": lambda data: data[:-1] + b"\x01",
    "zeros": lambda data: bytes(len(data)),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_file(stub, name):
    path = stub.folder / "cuda-sm_90.bin"
    path.write_bytes(DAMAGE[name](path.read_bytes()))
    (error,) = stub.run("dev, images, loaded = session(folder); loaded.handle(images.kernel('add'))")
    assert error["code"] == 7 and error["where"] == str(path) and "precompile.py" in error["remedy"]
    assert stub.count("cuModuleLoadData") == 0


# ---- failures of the driver -----------------------------------------------------------------------------


def test_no_driver(tmp_path):
    env = {**fake.environment(tmp_path / "none"), "LD_LIBRARY_PATH": ""}
    code = "driver.LIBRARY = 'libcuda-that-is-not-there.so.1'\ntry: device.begin().ready()\n"
    ending = "except ReflexError as error: show(code=error.exit_code, text=str(error))"
    error = json.loads(fake.python(PRELUDE + code + ending, env).stdout)
    assert error["code"] == 4 and "no CUDA driver" in error["text"] and "--backend cpu" in error["text"]


FAILURES = {  # name: (settings, exit code, words of the message)
    "no device": ({"DEVICES": 0}, 4, ("no CUDA device", "CUDA_ERROR_NO_DEVICE (100)", "--gpus all")),
    "no visible device": ({"FAIL": "cuDeviceGetCount:100"}, 4, ("CUDA_ERROR_NO_DEVICE",)),
    "driver does not start": ({"FAIL": "cuInit:999"}, 4, ("does not start", "CUDA_ERROR_UNKNOWN (999)", "cuInit", "nvidia-smi")),
    "driver mismatch": ({"FAIL": "cuInit:803"}, 4, ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "reboot")),
    "stub library": ({"FAIL": "cuInit:34"}, 4, ("34", "LD_LIBRARY_PATH")),
    "exclusive": ({"FAIL": "cuDevicePrimaryCtxRetain:46"}, 4, ("46", "exclusively")),
    "memory for a context": ({"FAIL": "cuDevicePrimaryCtxRetain:2"}, 5, ("context", "CUDA_ERROR_OUT_OF_MEMORY (2)")),
    "memory for the arena": ({"MEMORY": 4096}, 5, ("out of device memory", "1 MiB free for test", "0 of 0 MiB", "--ctx")),
    "another architecture": ({"FAIL": "cuModuleLoadData:209"}, 7, ("sm_90", "CUDA_ERROR_NO_BINARY_FOR_GPU (209)")),
    "invalid image": ({"FAIL": "cuModuleLoadData:200"}, 7, ("CUDA_ERROR_INVALID_IMAGE", "precompile.py")),
    "newer image": ({"FAIL": "cuModuleLoadData:222"}, 4, ("CUDA 12.8", "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "update")),
    "missing kernel": ({"MISSING": "add"}, 7, ("no CUDA kernel named 'add'", "CUDA_ERROR_NOT_FOUND (500)", "precompile.py")),
    "launch": ({"FAIL": "cuLaunchKernelEx:719@2"}, 4, ("launch 1 (add)", "CUDA_ERROR_LAUNCH_FAILED (719)", "dmesg")),
    "copy": ({"FAIL": "cuMemcpyAsync:1"}, 4, ("launch 3 (copy)", "CUDA_ERROR_INVALID_VALUE")),
    "device lost": ({"FAIL": "cuStreamSynchronize:700"}, 4, ("failed", "CUDA_ERROR_ILLEGAL_ADDRESS (700)", "dmesg")),
    "unknown status": ({"FAIL": "cuStreamSynchronize:7777"}, 4, ("unknown status (7777)",)),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failures_are_one_line(stub, name):
    settings, code, words = FAILURES[name]
    (error,) = stub.run(SESSION + "    chain.run(); dev.synchronize(); show(code=0, text='')", **settings)
    assert error["code"] == code and "\n" not in error["text"]
    assert all(word in error["text"] for word in words), error["text"]


def test_a_failed_launch_ends_the_chain(stub):
    stub.run(SESSION + "    chain.run()", FAIL="cuLaunchKernelEx:719@2")
    assert stub.count("cuLaunchKernelEx") == 2 and stub.count("cuMemcpyAsync") == 0


def test_a_failed_capture_is_ended(stub):
    (error,) = stub.run(SESSION + "    chain.capture()", FAIL="cuLaunchKernelEx:1")
    assert "launch 0 (add)" in error["text"] and stub.count("cuStreamEndCapture") == 1


def test_missing_function_means_an_old_driver(stub):
    (error,) = stub.run("driver.ARITY['cuNotThere'] = 1; driver.call('cuNotThere', 0)", DRIVER=11020)
    assert error["code"] == 4 and "too old" in error["text"] and "cuNotThere" in error["text"] and "11.2" in error["text"]


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


def test_the_stub_has_every_function_in_use(stub):
    (result,) = stub.run("show(missing=[name for name in driver.ARITY if not driver.address(name)])")
    assert result == {"missing": []}


# ---- wrong use ------------------------------------------------------------------------------------------


def test_wrong_number_of_parameters(stub):
    chain = "launch.Chain(native.library())"
    (error,) = stub.run(f"dev, images, loaded = session(folder); {chain}.add(images.kernel('add'), 1, (0, 0))")
    assert error["category"] == "internal" and "add" in error["text"]


def test_unknown_kernel(stub):
    (error,) = stub.run("dev, images, loaded = session(folder); images.kernel('ad')")
    assert error["code"] == 7 and "'ad'" in error["text"] and "like add" in error["text"]


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


# ---- uploads --------------------------------------------------------------------------------------------

UPLOAD = """
    from reflex.gguf.reader import open_model
    if "{kind}" == "any": upload.FILE_SYSTEMS = type("Any", (), {{"__contains__": lambda self, number: True}})()
    if "{kind}" == "none": upload.FILE_SYSTEMS = ()
    upload.SMALL, upload.RING_BYTES = 16384, 8192
    dev = device.begin().ready()
    file = open_model({path!r})
    job, places, at, marks = upload.Upload(file.shards), {{}}, 0, []
    for i, tensor in enumerate(reversed(file.tensors.values())):
        job.add(at, tensor.address, tensor.nbytes)
        places[tensor.name] = at
        at += (tensor.nbytes + 31) & -32
        if i % 5 == 4: marks.append(job.mark())
    base = dev.allocate(at, "weights")
    job.begin(dev, base)
    for mark in marks: job.wait(mark)
    job.wait()
    bytes_at = native.bytes_at
    same = all(bytes_at(base + places[t.name], t.nbytes) == bytes_at(t.address, t.nbytes) for t in file.tensors.values())
    job.finish()
    show(same=same, way=job.way, bytes=job.bytes, marks=len(marks), tensors=len(places))
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    tiny.write(next(iter(tiny.MODELS)), path)
    return path


WAYS = {  # name: (file systems, settings, way)
    "registered": ("any", {}, "registered"),
    "unknown file system": ("none", {}, "ring"),
    "registering refused": ("any", {"FAIL": "cuMemHostRegister_v2:801"}, "ring"),
    "registering refused later": ("any", {"FAIL": "cuMemHostRegister_v2:2@3"}, "ring"),
    "no pinned memory": ("none", {"FAIL": "cuMemHostAlloc:2"}, "pageable"),
}


@pytest.mark.parametrize("name", WAYS)
def test_upload(stub, model, name):
    kind, settings, way = WAYS[name]
    (result,) = stub.run(UPLOAD.format(path=str(model), kind=kind), **settings)
    assert result["same"] and result["way"] == way and result["marks"] > 1
    assert stub.count("cuStreamWaitEvent") == result["marks"] + 1
    assert not stub.matching("HANG") and not stub.matching("mixed")
    if way == "registered":
        assert stub.count("cuMemHostRegister_v2") == stub.count("cuMemHostUnregister") > 3
        assert all(line.endswith("8 r--s") for line in stub.matching("cuMemHostRegister_v2"))
        assert all(line.endswith("registered") for line in stub.matching("cuMemcpyHtoDAsync_v2"))
    if way == "ring":
        assert stub.count("cuMemHostAlloc") == stub.count("cuMemFreeHost") == 1


def test_a_process_that_lives_on_gets_its_pages_back(stub, model):
    code = """
    from time import sleep
    from reflex.gguf.reader import open_model
    upload.FILE_SYSTEMS, upload.SMALL, upload.PINNED_SECONDS = range(1 << 40), 16384, 0.05
    dev, file = device.begin().ready(), open_model({!r})
    job = upload.Upload(file.shards)
    tensor = next(iter(file.tensors.values()))
    job.add(0, tensor.address, tensor.nbytes)
    job.begin(dev, dev.allocate(tensor.nbytes, "weights"))
    job.wait()
    sleep(1)
    maps = [line.split()[1] for line in open("/proc/self/maps") if "tiny.gguf" in line]
    job.wait()
    show(maps=maps)
    """
    assert stub.run(code.format(str(model))) == [{"maps": ["r--p"]}]
    assert stub.count("cuMemHostRegister_v2") == stub.count("cuMemHostUnregister") > 0


def test_an_upload_that_was_ended_does_not_begin(stub, model):
    code = """
    from reflex.gguf.reader import open_model
    job = upload.Upload(open_model({!r}).shards)
    job.finish()
    job.begin(device.begin().ready(), 0)
    job.finish()
    """
    assert stub.run(code.format(str(model))) == [] and stub.count("cuStreamCreate") == 1


def test_a_failed_copy_reaches_who_waits(stub, model):
    for kind in ("any", "none"):
        (error,) = stub.run(UPLOAD.format(path=str(model), kind=kind), FAIL="cuMemcpyHtoDAsync_v2:719@4")
        assert error["code"] == 4 and "CUDA_ERROR_LAUNCH_FAILED" in error["text"]


def test_a_changed_file_is_refused(stub, model):
    code = """
    import os
    from reflex.gguf.reader import open_model
    file = open_model({0!r})
    os.utime({0!r}, (1, 1))
    upload.Upload(file.shards)
    """
    (error,) = stub.run(code.format(str(model)))
    assert error["code"] == 3 and "replaced or rewritten" in error["text"]
