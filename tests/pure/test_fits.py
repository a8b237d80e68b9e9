"""What fits where: longest contexts, at the edges; what is said of models that are larger than anything."""

import pytest
import tiny

from reflex import fits
from reflex.arch import load_spec
from reflex.gguf.reader import open_model
from reflex.inspect import size
from reflex.program import build


@pytest.mark.parametrize(
    ("room", "each", "tokens", "most", "found"),
    [(100, 10, 1, 1000, 10), (109, 10, 1, 1000, 10), (9, 10, 256, 1000, 0), (20, 10, 256, 1000, 512), (50, 10, 256, 1000, 1000),
     (-5, 10, 1, 1000, 0), (0, 0, 1, 1000, 1000), (-1, 0, 1, 1000, 0)],
)  # fmt: skip
def test_the_longest_context(room, each, tokens, most, found):
    assert fits.longest(room, each, tokens, most) == found


@pytest.fixture
def opened(tmp_path):
    file = open_model(str(tiny.write("llama", tmp_path / "m.gguf")))
    yield file, build(load_spec(file))
    file.close()


def test_weights_larger_than_the_machine(opened, monkeypatch):
    file, program = opened
    monkeypatch.setattr(fits, "machine", lambda: (64 << 30, 40 << 30))
    small, large = fits.on_cpu(file, program, 1 << 20), fits.on_cpu(file, program, 65 << 30)
    assert small["weights_fit"] and small["context"] == program.context_length
    assert not large["weights_fit"] and large["context"] == 0
    text = fits.lines({"cpu": large, "cuda": fits.on_cuda(file, program)}, size)[0]
    assert "too large, this machine has 64.0 GiB, 40.0 GiB of it free" in text


def test_kernels_that_are_not_there_or_damaged(opened, monkeypatch, tmp_path):
    monkeypatch.setattr(fits, "cache_folder", lambda: str(tmp_path))
    assert fits.on_cuda(*opened)["fixed_bytes"] > 0
    (tmp_path / "cuda-sm_90.bin").write_bytes(b"no kernels in here")
    found = fits.on_cuda(*opened)
    assert not found["supported"] and "CUDA kernel" in found["reason"]


def test_a_gpu_that_is_too_small(opened, monkeypatch):
    file, program = opened
    monkeypatch.setattr(fits, "GPUS", (1, 2, 3))
    whole = fits.on_cuda(file, program)
    monkeypatch.setattr(fits, "DRIVER_BYTES", (2 << 30) - whole["weights_bytes"] - whole["fixed_bytes"] - whole["page_bytes"])
    found = fits.on_cuda(file, program)
    assert found["context"] == {"1 GiB": 0, "2 GiB": 256, "3 GiB": program.context_length}
    text = fits.lines({"cpu": fits.on_cpu(file, program, 1), "cuda": found}, size)[1]
    assert text.endswith(f"256 tokens in 2 GiB, {program.context_length} tokens in 3 GiB")
    monkeypatch.setattr(fits, "DRIVER_BYTES", 4 << 30)
    assert fits.lines({"cpu": fits.on_cpu(file, program, 1), "cuda": fits.on_cuda(file, program)}, size)[1].endswith("up to 3 GiB")
