"""Tensors changed in memory on the cuda backend: all of them arrive on the device (of the stub driver), beside the model's own."""

import pytest
import tiny

CHANGED = """
    import reflex
    from reflex.quant.types import by_id
    upload.FILE_SYSTEMS = type("Any", (), {{"__contains__": lambda self, number: {registered}}})()
    model = reflex.load({path!r}, backend="cuda")
    changed = model.with_types({{"ffn_(up|down)": "Q4_0"}})
    bytes_at, same = native.bytes_at, []
    for one in (model, changed):
        gpu = one.session().core.plan.gpu
        gpu.starting.ready().attach()
        gpu.upload.wait()
        for tensor in one.file.tensors.values():
            there = bytes_at(gpu.base + gpu.layout.place(tensor.address), tensor.nbytes)
            same.append(there == bytes_at(tensor.address, tensor.nbytes))
    kinds = sorted({{by_id(t.type).name for t in changed.file.tensors.values()}})
    model.close()
    changed.close()
    show(same=all(same), kinds=kinds, count=len(same), backend=changed._options["backend"])
"""


@pytest.mark.parametrize("registered", [True, False])
@pytest.mark.usefixtures("sm_90")
def test_changed_tensors_arrive(stub, tmp_path, registered):
    tiny.write("llama", tmp_path / "tiny.gguf")
    (result,) = stub.run(CHANGED.format(path=str(tmp_path / "tiny.gguf"), registered=registered))
    assert result["same"] and result["kinds"] == ["F32", "Q4_0"] and result["backend"] == "cuda" and result["count"] > 40
