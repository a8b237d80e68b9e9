"""Uploads over the stub driver: every way gives the same bytes, pins are given back, errors reach who waits."""

import pytest
import tiny

UPLOAD = """
    from reflex.gguf.reader import open_model
    upload.PINNING_THREADS = int("{kind}"[3:]) if "{kind}"[3:].isdigit() else 1
    if "{kind}"[:3] == "any": upload.FILE_SYSTEMS = type("Any", (), {{"__contains__": lambda self, number: True}})()
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
    tiny.write("llama", path)
    return path


WAYS = {  # name: (file systems, settings, way)
    "registered": ("any", {}, "registered"),
    "registered by three": ("any3", {}, "registered"),
    "registering refused to three": ("any3", {"FAIL": "cuMemHostRegister_v2:2@3"}, "ring"),
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
    from time import monotonic, sleep
    from reflex.gguf.reader import open_model
    upload.FILE_SYSTEMS, upload.SMALL, upload.PINNED_SECONDS = range(1 << 40), 16384, 0.05
    dev, file = device.begin().ready(), open_model({!r})
    job = upload.Upload(file.shards)
    tensor = next(iter(file.tensors.values()))
    job.add(0, tensor.address, tensor.nbytes)
    job.begin(dev, dev.allocate(tensor.nbytes, "weights"))
    job.wait()
    def seen(): return [line.split()[1] for line in open("/proc/self/maps") if "tiny.gguf" in line]
    end = monotonic() + 200
    while (maps := seen()) != ["r--p"] and monotonic() < end: sleep(0.01)
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
    for kind in ("any", "any3", "none"):
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


def test_pages_are_not_mapped_behind_a_failed_upload(stub, model):
    code = """
    from _thread import allocate_lock
    from reflex.gguf.reader import open_model
    dev, file = device.begin().ready(), open_model({!r})
    job, going = upload.Upload(file.shards), allocate_lock()
    for tensor in file.tensors.values(): job.add(0, tensor.address, tensor.nbytes)
    going.acquire()
    mapping = job._map_pages
    def later():
        with going: mapping()
    job._map_pages = later
    job.populate()
    job.begin(dev, dev.allocate(1 << 20, "weights"))
    while job._problem is None: pass
    going.release()
    job.finish()
    show(mapped=[shard.mapping for shard in job.shards])
    """
    assert stub.run(code.format(str(model)), FAIL="cuMemcpyHtoDAsync_v2:719") == [{"mapped": [None]}]
