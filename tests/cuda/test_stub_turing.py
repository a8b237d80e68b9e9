"""A card of compute capability 7.5, over the stub driver: rows that its shared memory does not hold run by other kernels, heads
that it does not hold are one line before anything is launched."""

import process
import pytest
import tiny

RUN = """
    import reflex
    model = reflex.load({path!r}, backend="cuda")
    show(count=len(model.generate([5, 6, 7], max_tokens=3).token_ids), names=sorted(model._session.plan.image._kernels))
    model.close()
"""


@pytest.fixture
def turing(stub):
    if not (process.ROOT / "cache" / "cuda-sm_75.bin").exists():
        pytest.skip("no sm_75 kernels in cache/: python precompile.py --only sm_75")
    return lambda path: stub.run(RUN.format(path=str(path)), CAPABILITY="7.5")[0]


def test_long_rows(turing, tmp_path):
    path = tiny.write("llama", tmp_path / "m.gguf", "Q8_0", width=64, layers=1, feed_forward=11264)
    found = turing(path)
    assert found["count"] == 3 and "linear_rows_8_Q8_0" in found["names"]


def test_heads(turing, stub, tmp_path):
    found = turing(tiny.write("llama", tmp_path / "m.gguf", "F16", head_dim=384))
    assert found["category"] == "unsupported"
    assert "the kernels for sm_75 cannot hold attention with 384 dimensions" in found["text"]
    assert stub.calls and not [line for line in stub.calls if line.startswith("cuLaunch")]
