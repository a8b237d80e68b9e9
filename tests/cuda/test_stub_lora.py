"""Adapters on the cuda backend over the stub driver: their tensors arrive on the device as they are, and nothing else is taken."""

import adapters
import pytest
import tiny

ARRIVED = """
    import reflex
    sizes = []
    for lora in ([], [({adapter!r}, 0.5)]):
        model = reflex.load({path!r}, backend="cuda", context=256, lora=lora)
        gpu, same = model._session.plan.gpu, []
        gpu.starting.ready().attach()
        gpu.upload.wait()
        for tensor in model.file.tensors.values():
            there = native.bytes_at(gpu.base + gpu.layout.place(tensor.address), tensor.nbytes)
            same.append(there == native.bytes_at(tensor.address, tensor.nbytes))
        model.logits([5, 6, 7])
        sizes.append((all(same), len(same), gpu.layout.size, model._session.plan.device_bytes))
        model.close()
    show(sizes=sizes)
"""


@pytest.mark.usefixtures("sm_90")
def test_adapters_arrive_and_take_no_more_than_they_are(stub, tmp_path):
    path = tiny.write("llama", tmp_path / "tiny.gguf")
    names = list(adapters.matrices(path))
    adapters.write(tmp_path / "a", path, names, kind="F16")
    (result,) = stub.run(ARRIVED.format(path=str(path), adapter=str(tmp_path / "a")))
    (plain, count, layout, held), (with_it, more, larger, total) = result["sizes"]
    assert plain and with_it and more == count + 2 * len(names) + 1  # the embedding's second half, transposed
    size = (tmp_path / "a").stat().st_size
    assert larger - layout <= size + 3 * 4096  # pages of a file, and of the transposed half
    assert total - held <= size + 512 * 1024  # activations of the further steps
