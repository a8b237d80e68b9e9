"""What `inspect` says a GPU needs is what the cuda backend takes from the (stub) driver."""

import pytest
import tiny

TAKEN = """
    import reflex
    from reflex import fits
    model = reflex.load({path!r}, backend="cuda")
    plan = model._session.plan
    model.logits([5, 6, 7])
    model.logits([5, 6, 7] * 170)
    model.system1("the quick", [" brown", " a fox"])
    model.generate("the", max_tokens=2)
    fits.MULTIPROCESSORS = plan.multiprocessors
    found = fits.on_cuda(model.file, plan.program)
    missing = 4 * sum(plan.program.states) * (plan.places - len(plan.place_addresses))
    show(taken=plan.device_bytes + missing, pages=len(plan.page_addresses), found=found)
    model.close()
"""


@pytest.mark.parametrize("name", ["llama", "olmoe", "deepseek2", "qwen35", "gemma3n"])
@pytest.mark.usefixtures("sm_90")
def test_what_a_device_gives_is_what_was_said(stub, tmp_path, name):
    path = tiny.write(name, tmp_path / "tiny.gguf")
    (result,) = stub.run(TAKEN.format(path=str(path)))
    found = result["found"]
    said = found["weights_bytes"] + found["fixed_bytes"] + result["pages"] * found["page_bytes"]
    assert 0 <= result["taken"] - said < 1 << 17  # questions about single tokens, what drawing and its graph keep
