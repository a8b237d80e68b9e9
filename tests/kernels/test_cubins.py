"""CUDA kernels ahead of time: the same bytes in any company, every target whole, no registers in memory."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
import precompile  # noqa: E402
from reflex.backends.cuda import attention, experts, products  # noqa: E402
from reflex.backends.cuda.module import open_images  # noqa: E402
from reflex.errors import KernelCacheError  # noqa: E402
from reflex.kernels.cuda import images, levels  # noqa: E402
from reflex.native import bytes_at  # noqa: E402

GREEDY = """
from numba import cuda
from numba.types import float32
from reflex.kernels.cuda.export import kernel

@kernel("FFi", threads=1024, blocks=2)
def greedy(x, y, steps):
    t = cuda.threadIdx.x
    values = cuda.local.array(64, float32)
    for i in range(64):
        values[i] = x[i * 1024 + t]
    for step in range(steps):
        for i in range(64):
            values[i] = values[i] * values[(i + 17) % 64] + x[step * 65536 + i * 1024 + t]
    for i in range(64):
        y[i * 1024 + t] = values[i]
"""
TEXTS = """
import hashlib, sys
from reflex.kernels.cuda.compile import facts_of
for stem in sys.argv[1:]:
    print(stem, hashlib.sha256(repr(facts_of(stem)).encode()).hexdigest())
"""


def texts(*stems, seed):
    """{kernel file: hash of its PTX}, compiled in this order in one process."""
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    done = subprocess.run([sys.executable, "-c", TEXTS, *stems], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-500:]
    return dict(line.split() for line in done.stdout.splitlines())


@pytest.fixture
def compilers():
    pytest.importorskip("numba_cuda")
    return precompile.ptxas.compiler()


@pytest.fixture
def manifest():
    """What cache/ says of its CUDA files, where it holds all of them."""
    known = json.loads((precompile.CACHE / "manifest.json").read_text())
    if set(known.get("cuda", {})) != set(levels.TARGETS):
        pytest.skip("cache/ does not hold every target: run python precompile.py --all")
    return known


def test_same_text_in_any_company(compilers):
    alone = texts("softcap", seed=1)
    together = texts("rmsnorm", "head_rmsnorm", "softcap", seed=2)
    again = texts("softcap", "head_rmsnorm", "rmsnorm", seed=3)
    assert together == again
    assert together["softcap"] == alone["softcap"]


def test_a_kernel_file_depends_on_the_instructions_and_the_formats_it_uses(compilers):
    files = {p.relative_to(ROOT).as_posix() for p in precompile.sources(images.HERE / "linear_plain.py")}
    assert {"reflex/kernels/cuda/ptx.py", "reflex/kernels/cuda/asm.py", "reflex/quant/types.py"} <= files
    assert sum(name.startswith("reflex/quant/") for name in files) > 25
    assert not any(name.startswith(("reflex/gguf/", "reflex/cli/", "reflex/kernels/host/")) for name in files)
    assert images.fingerprint("add", compilers) != images.fingerprint("add", "another compiler")


def test_registers_in_memory_fail_the_build(compilers, tmp_path, monkeypatch):
    path = tmp_path / "greedy.py"
    path.write_text(GREEDY)
    monkeypatch.syspath_prepend(tmp_path)
    from reflex.kernels.cuda import compile as compiler
    from reflex.kernels.cuda import export

    monkeypatch.setattr(export, "KERNELS", {})
    import greedy  # noqa: F401

    kernel = export.KERNELS["greedy"]
    monkeypatch.setattr(precompile, "CACHE", tmp_path)
    objects = images.Objects(tmp_path, compilers)
    objects.prints = {"greedy": "0"}
    objects.write_text("greedy", [[kernel.name, kernel.alone, kernel.threads, kernel.signature, 75, 1000, compiler.to_ptx(kernel)]])
    with pytest.raises(SystemExit, match=r"greedy \(greedy.py\) on sm_80: \d+ bytes of stack, \d+ bytes of spills"):
        precompile.build_cuda(objects, ["sm_80"], 1)


def test_every_kernel_is_in_every_file_that_should_hold_it(manifest, compilers):
    objects = images.Objects(precompile.OBJECTS, compilers)
    for target in levels.TARGETS:
        wanted = {name for image in objects.images(target) for name, *_ in image.kernels}
        assert set(manifest["cuda"][target]["kernels"]) == wanted
    assert set(manifest["cuda"]["sm_75"]["kernels"]) & set(manifest["cuda"]["sm_120"]["kernels"])


@pytest.mark.parametrize(("target", "limit"), [("sm_80", 99 << 10), ("sm_75", 64 << 10)])
def test_kernels_fit_the_shared_memory_of_a_block(manifest, target, limit):
    """Devices of 8.6 and 8.9 run the cubins of 8.0 and give a block 99 KB, where 8.0 gives 163; those of 7.5 give 64."""
    found = open_images(str(precompile.CACHE / manifest["cuda"][target]["file"]))
    assert found.block_shared_bytes == limit
    rows = min(attention.SHARED_BYTES, limit - attention.STATIC_BYTES)
    downs = min(experts.SHARED_BYTES, limit - experts.STATIC_BYTES)
    tiles = [size for size in map(attention.tile_bytes, (64, 128, 256)) if size <= limit]
    dynamic = {
        r"attention_(row|tree)_\w+": rows, r"attention_tile_\d+": max(tiles), r"expert_down_\w+": downs,
        r"expert_tiles_\d+": experts.TILE_BYTES, r"linear_tiles_\w+": products.TOKEN_TILE_BYTES,
        r"linear_rows_(8|16)_\w+": found.multiprocessor_shared_bytes // 2,
    }  # fmt: skip
    for name, facts in manifest["cuda"][target]["kernels"].items():
        asked = next((most for pattern, most in dynamic.items() if re.fullmatch(pattern, name)), 0)
        assert facts["shared"] + asked <= limit, name
        assert facts["threads"] <= 1024
    found.close()


def test_an_image_is_what_is_launched_together(manifest):
    """Kernels of one block format, size of heads or activation are images by themselves."""
    for entry in manifest["cuda"].values():
        found = open_images(str(precompile.CACHE / entry["file"]))
        places = {}
        for name in found.names():
            places.setdefault(found.kernel(name).at, []).append(name)
        together = [names for names in places.values() if len(names) > 1]
        variants = [name for names in together for name in names if re.search(r"_([A-Z0-9_]+|\d+|any)$", name)]
        assert together and not variants
        found.close()


def test_files_are_read_as_they_were_written(manifest):
    for target, entry in manifest["cuda"].items():
        found = open_images(str(precompile.CACHE / entry["file"]))
        assert found.target == target
        assert sorted(found.names()) == sorted(entry["kernels"])
        for name, facts in entry["kernels"].items():
            kernel = found.kernel(name)
            image = bytes(found.text(kernel)) if found.is_ptx else bytes_at(found.address(kernel), kernel.size)
            assert kernel.at % (8 if kernel.pieces else images.ALIGNMENT) == 0
            assert name.encode() in image
            assert (kernel.threads, kernel.registers, kernel.shared) == (facts["threads"], facts["registers"], facts["shared"])
            assert kernel.threads * kernel.registers <= 65536
            assert image[:4] == (b"\x7fELF" if target != levels.TEXT else b".ver")
        found.close()


def test_text_for_other_devices_is_old_enough(manifest):
    found = open_images(str(precompile.CACHE / "cuda-ptx.bin"))
    for kernel in {found.kernel(name).at: found.kernel(name) for name in found.names()}.values():
        text = bytes(found.text(kernel))
        assert text.startswith(b".version 7.4\n.target sm_80\n.address_size 64\n")
        assert text.endswith((b"}\0", b"}\n\0")) and text.count(b"\0") == 1
        assert b"//" not in text
    found.close()


def test_all_files_together_stay_small(manifest):
    assert sum(entry["bytes"] for entry in manifest["cuda"].values()) < 40 << 20


@pytest.mark.parametrize(("text", "complaint"), [("frobnicate;", "ptxas"), ("ld.global.nc.L9::no_allocate.u32 $0, [$1];", "ptxas")])
def test_ptxas_complaints_are_passed_on(compilers, text, complaint):
    body = f".visible .entry k()\n{{\n{text}\nret;\n}}\n"
    with pytest.raises(RuntimeError, match=complaint):
        precompile.images.to_cubin(levels.module([body], "sm_80"), "sm_80")


def test_what_bodies_share_is_there_once():
    table = ".global .align 16 .b8 table_0123[4] = {1, 2, 3, 4};\n"
    bodies = [f"{table}.visible .entry {name}()\n{{\nret;\n}}\n" for name in ("a", "b")]
    assert levels.module(bodies, "sm_90").count("table_0123") == 1
    assert re.search(r"\.target sm_90$", levels.module(bodies, "sm_120"), re.M)


class Objects:
    """Images of made-up bytes, a kernel in each."""

    def __init__(self, folder, contents):
        self.contents = []
        for name, data in contents.items():
            (folder / name).write_bytes(data)
            self.contents.append(images.Image(name, name, "sm_90", [[name, 32, "F", ""]], folder / name))
            (folder / f"{name}.json").write_text(json.dumps({name: {"registers": 9, "shared": 0}}))

    def images(self, target):
        return self.contents


@pytest.mark.parametrize("target", ["sm_90", levels.TEXT])
def test_what_images_share_is_there_once(tmp_path, target):
    random = Random(3)
    table, code, zeros = random.randbytes(4096), random.randbytes(1008), bytes(4000)
    contents = {"one": table + code, "two": code + table + zeros + random.randbytes(77), "own": random.randbytes(300)}
    contents["bare"] = zeros
    data, _ = images.image_file(Objects(tmp_path, contents), target)
    file = tmp_path / "all.bin"
    file.write_bytes(data)
    found = open_images(str(file))
    again = len(table) + len(code) + 2 * len(zeros) - 1000 if target == "sm_90" else -1000
    assert len(data) < images.PAGE + sum(map(len, contents.values())) - again
    for name, wanted in contents.items():
        kernel = found.kernel(name)
        assert bytes_at(found.address(kernel), kernel.size).rstrip(b"\0") == wanted.rstrip(b"\0")
    found.close()


@pytest.mark.parametrize("word", [0, 1, 2])
def test_damaged_pieces_are_found(tmp_path, word):
    random = Random(4)
    table = random.randbytes(1024)
    contents = {"a": table + random.randbytes(640), "b": random.randbytes(640) + table}
    data, _ = images.image_file(Objects(tmp_path, contents), "sm_90")
    for value in (0, 1, 0x7FFFFFFF, 0xFFFFFFFF):
        damaged = bytearray(data)
        damaged[len(data) - 16 + 4 * word : len(data) - 12 + 4 * word] = value.to_bytes(4, "little")
        (tmp_path / "all.bin").write_bytes(damaged)
        found = open_images(str(tmp_path / "all.bin"))
        kernel = next(k for k in map(found.kernel, found.names()) if k.pieces)
        with pytest.raises(KernelCacheError, match="corrupt"):
            found.address(kernel)
        found.close()


def test_like_images_lie_beside_each_other():
    words = {name: bytes([number]) * 8 for number, name in enumerate("abcd")}
    made = [(text, b"".join(words[c] for c in text) + b"end") for text in ("ab", "cd", "abb", "cdd", "dc")]
    assert [name for name, _ in images._chained(made)] == ["ab", "abb", "cd", "cdd", "dc"]
    assert sorted(images._chained(made)) == sorted(made)
