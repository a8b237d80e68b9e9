"""What a person reads when the driver is not there, refuses or fails: every status has a name and a remedy."""

import json

import pytest
from scenario import PRELUDE, SESSION
from stub import fake


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


def test_the_stub_has_every_function_in_use(stub):
    (result,) = stub.run("show(missing=[name for name in driver.ARITY if not driver.address(name)])")
    assert result == {"missing": []}
