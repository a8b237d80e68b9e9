"""What a start reads of the kernel file: the images of the kernels that it launches, each once, and nothing for other block
formats, sizes of heads or mixtures. Counted, not timed, over the stub driver. Needs the sm_90 kernels in cache/.
"""

import json

import pytest
import tiny
from stub import fake

from reflex.quant.types import TYPES

RUN = """
import json, sys
from reflex.open import open_model
from reflex.sample import Sampling
from reflex.backends.cuda.module import Images
read, address = [], Images.address
Images.address = lambda images, kernel: read.append((kernel.at, kernel.size)) or address(images, kernel)
_, _, session = open_model({path!r}, "cuda", 512)
plan = session.plan
plan.evaluate([1] * 6, 0, list(range(6)), [0] * 6, [0] * 6, [5])
plan.argmax(0)
{more}
kernels = map(plan.image.kernel, plan.image.names())
modules = [name for name in sys.modules if name.startswith("reflex.backends.cuda.expert")]
print(json.dumps([read, [(k.name, k.at) for k in kernels], modules]))
plan.close()
"""
FOLLOW = "list(plan.follow(1, 6, Sampling(), 1, [1], (5,), 4))"
WIDE = {"width": 256, "heads": 4, "kv_heads": 2, "head_dim": 64, "feed_forward": 512}
# model, block format, its sizes, most KB that a prompt of six tokens reads, and four tokens more
STARTS = [
    ("llama-smollm", "Q4_K", WIDE, 155, 300),
    ("llama-smollm", "Q8_0", WIDE, 165, 300),
    ("llama-smollm", "IQ2_XXS", WIDE, 180, 190),
    ("qwen3moe", "Q4_K", {**WIDE, "experts": (8, 2, 256)}, 470, 480),
]


@pytest.mark.parametrize(("name", "kind", "sizes", "prompt", "decode"), STARTS, ids=[f"{row[0]}-{row[1]}" for row in STARTS])
def test_a_start_reads_what_it_launches(library, tmp_path, name, kind, sizes, prompt, decode):
    path, log = tmp_path / "tiny.gguf", tmp_path / "calls.log"
    tiny.write(name, path, kind, **sizes)
    for more, most in (("", prompt), (FOLLOW, decode)):
        log.unlink(missing_ok=True)
        done = fake.python(RUN.format(path=str(path), more=more), fake.environment(library, log))
        assert done.returncode == 0, done.stderr
        read, listed, modules = json.loads(done.stdout)
        assert bool(modules) is ("experts" in sizes), "code for mixtures of experts is imported with one"
        lines = [line.split() for line in log.read_text().splitlines()]
        calls = [line[0] for line in lines]
        launched = {line[1] for line in lines if line[0] == "cuLaunchKernelEx"}
        holding = {}
        for kernel, at in listed:
            holding.setdefault(at, set()).add(kernel)
        assert len(read) == len({at for at, _ in read}) == calls.count("cuModuleLoadData")
        assert calls.count("cuModuleGetFunction") == len(launched)
        assert all(holding[at] & launched for at, _ in read)
        own = {"F32", kind}
        others = [block.name for block in TYPES.values() if block.name not in own]
        loaded = [kernel for at, _ in read for kernel in holding[at]]
        assert not [kernel for kernel in loaded if kernel.endswith(tuple(f"_{other}" for other in others))]
        assert sum(size for _, size in read) <= most << 10
