"""Taps of a model on the cuda backend over the stub driver: what is asked of the driver, and what the errors name."""

import pytest
import tiny

TRACED = """
    import reflex
    import reflex.lab
    model = reflex.load({path!r}, backend="cuda")
    ids = list(range(5, 26))
    trace = model.trace(ids, ["embedding", "layers.*.residual_out", "layers.1.heads", "final_norm", "logits"], rows=[3, 20])
    show(shapes={{name: list(array.shape) for name, array in trace.items()}}, backend=trace.backend)
    patched = model.patch(ids, {{"layers.0.residual_out": 0.0}}, rows=-1)["logits"]
    show(patched=list(patched.shape), logits=list(model.logits(ids).shape), best=len(model.session(ids).top(2)))
    for ask in (lambda: model.trace(ids, "layers.0.attention"), lambda: model.trace(ids, "layers.0.attention_out"),
                lambda: model.lens(ids), lambda: model.patched({{"layers.0.residual_out": 0.0}}),
                lambda: reflex.lab.importance(model, "word " * 2000)):
        try:
            ask()
        except ReflexError as error:
            show(**error.as_dict())
    model.close()
"""


@pytest.mark.usefixtures("sm_90")
def test_what_lies_between_launches_is_copied_and_the_rest_is_named(stub, tmp_path):
    tiny.write("llama-smollm", tmp_path / "tiny.gguf")
    traced, patched, *refused = stub.run(TRACED.format(path=str(tmp_path / "tiny.gguf")))
    width, layers = traced["shapes"]["embedding"][1], len(traced["shapes"]) - 4
    assert traced["backend"] == "cuda" and layers > 2
    assert all(shape[0] == 2 for shape in traced["shapes"].values())
    assert traced["shapes"]["layers.2.residual_out"] == traced["shapes"]["final_norm"] == [2, width]
    assert patched["patched"] == [1, *patched["logits"]] and patched["best"] == 2
    assert [error["category"] for error in refused] == ["unsupported"] * 5
    for error in refused:
        assert "cpu" in error["expected"] and error["found"] == "cuda", error
    assert stub.count("cuMemAlloc_v2") == stub.count("cuMemFree_v2")
    assert stub.count("cuMemHostRegister_v2") == stub.count("cuMemHostUnregister")
