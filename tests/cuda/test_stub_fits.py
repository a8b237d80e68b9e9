"""What `inspect` says a GPU needs is what the cuda backend takes from the (stub) driver."""

import pytest
import tiny

TAKEN = """
    import reflex
    from reflex.fits import on_cuda
    model = reflex.load({path!r}, backend="cuda")
    plan = model._session.plan
    model.logits([5, 6, 7])
    found = on_cuda(model.file, plan.program)
    show(taken=plan.device_bytes, pages=len(plan.page_addresses), found=found)
    model.close()
"""


@pytest.mark.parametrize("name", ["llama", "olmoe"])
@pytest.mark.usefixtures("sm_90")
def test_what_a_device_gives_is_what_was_said(stub, tmp_path, name):
    path = tiny.write(name, tmp_path / "tiny.gguf")
    (result,) = stub.run(TAKEN.format(path=str(path)))
    found = result["found"]
    said = found["weights_bytes"] + found["fixed_bytes"] + result["pages"] * found["page_bytes"]
    assert result["pages"] == 1 and 0 <= result["taken"] - said < found["driver_bytes"] / 64  # buffers of a batch size
