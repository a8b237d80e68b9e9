"""Which file of kernels a device gets, and that a damaged one is never loaded."""

import pytest
from stub import fake

from reflex.kernels.cuda import levels


@pytest.mark.parametrize(
    ("capability", "target"),
    [("7.5", "sm_75"), ("8.0", "sm_80"), ("8.6", "sm_80"), ("8.7", "sm_80"), ("8.9", "sm_80"), ("9.0", "sm_90"), ("10.0", "sm_100"),
     ("10.3", "sm_100"), ("12.0", "sm_120"), ("12.1", "sm_120"), ("11.0", "ptx"), ("13.0", "ptx")],
)  # fmt: skip
def test_file_for_a_capability(stub, capability, target):
    for name in levels.TARGETS:
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


def test_text_needs_a_python_that_unpacks_it(stub):
    (stub.folder / "cuda-sm_90.bin").unlink()
    fake.kernel_file(stub.folder, "ptx", image=b"// PTX\n\0")
    code = "dev, images, loaded = session(folder); kernel = images.kernel('add'); loaded.handle(kernel); "
    code += "show(text=bytes(images.text(kernel)).decode())"
    (found,) = stub.run(code)
    assert found == {"text": "// PTX\n\0"}
    (error,) = stub.run(f"import sys; sys.modules['lzma'] = None; {code}")
    assert error["code"] == 4 and "lzma" in error["expected"]


def test_unknown_kernel(stub):
    (error,) = stub.run("dev, images, loaded = session(folder); images.kernel('ad')")
    assert error["code"] == 7 and "'ad'" in error["text"] and "like add" in error["text"]
