"""Loading the compiled code: every way a blob can be wrong is one typed error that names the repair."""

import json
import shutil
from pathlib import Path

import pytest

from reflex import native
from reflex.errors import KernelCacheError


@pytest.fixture
def blob(tmp_path):
    """A copy of this machine's blob and its level."""
    level = native.library().level
    return shutil.copy(f"{native.cache_folder()}/host-{level}.bin", tmp_path / "blob"), level


def refused(path, level):
    with pytest.raises(KernelCacheError) as caught:
        native.load(str(path), level)
    assert "precompile.py" in caught.value.remedy
    return str(caught.value)


def test_whole_blob_loads(blob):
    path, level = blob
    library = native.load(str(path), level)
    assert library.names() == native.library().names()


def test_any_flipped_byte_is_found(blob):
    path, level = blob
    data = path.read_bytes()
    first_line = data.index(b"\n") + 1
    for at in (0, 7, 9, first_line - 3, first_line + 5, first_line + 900, 4096 * 2, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        refused(path, level)


def test_cut_at_any_place(blob):
    path, level = blob
    data = path.read_bytes()
    for size in (0, 1, 8, 20, 100, 5000, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:size])
        refused(path, level)


def test_missing_or_for_another_cpu(blob, tmp_path):
    path, level = blob
    assert "cannot be opened" in refused(tmp_path / "absent", level)
    assert "another CPU" in refused(path, "x86-64-v9")


def test_missing_kernel_and_missing_folder(monkeypatch, tmp_path):
    with pytest.raises(KernelCacheError, match="no kernel named 'absent'"):
        _ = native.library().absent
    monkeypatch.setattr(native, "_library", [])
    monkeypatch.setattr(native, "cache_folder", lambda: str(tmp_path))
    with pytest.raises(KernelCacheError, match="kernel cache is missing"):
        native.library()
    monkeypatch.setattr(native, "machine", lambda: "x86_64")
    monkeypatch.setattr(native, "cpu_flags", frozenset)
    with pytest.raises(KernelCacheError, match="no kernels exist for this CPU"):
        native.library()


def test_what_an_architecture_has_need_not_be_listed(monkeypatch):
    """Emulators and some containers list no features of the processor."""
    monkeypatch.setattr(native, "cpu_flags", frozenset)
    monkeypatch.setattr(native, "machine", lambda: "aarch64")
    assert native.usable_levels() == ["aarch64"]
    monkeypatch.setattr(native, "machine", lambda: "riscv64")
    assert native.usable_levels() == []


def test_manifest_describes_the_blobs():
    manifest = json.loads(Path(f"{native.cache_folder()}/manifest.json").read_text())
    for level, entry in [*manifest["host"].items(), *manifest["encode"].items()]:
        library = native.load(f"{native.cache_folder()}/{entry['file']}", level)
        assert sorted(library.names()) == sorted(entry["kernels"])
        assert set(entry["flags"]) == dict(native.MACHINE_LEVELS[native.machine()])[level]


def test_processor_features_are_those_that_the_kernel_lists():
    named = {flag for levels in native.MACHINE_LEVELS.values() for _, flags in levels for flag in flags}
    named |= {flag for flags in native.WAYS.values() for flag in flags}
    assert native.cpu_flags() & named == native.described_flags() & named


@pytest.mark.parametrize(
    ("flags", "kernels"),
    [
        ((), ("", "", "", "")),
        (("avx512vbmi",), ("", "", "", "")),
        (("avx512vbmi", "gfni"), ("", "", "", "")),
        (("avx512vbmi", "avx512_bitalg", "gfni"), ("_permuted", "_permuted", "_permuted", "")),
        (("avx512_fp16", "avx512vbmi", "avx512_bitalg", "gfni"), ("_gathered", "_permuted", "_gathered", "")),
    ],
)
def test_second_kernels_are_for_processors_that_have_all_they_need(monkeypatch, flags, kernels):
    path = Path(f"{native.cache_folder()}/host-x86-64-v4.bin")
    if not path.exists() or "x86-64-v4" not in native.usable_levels():
        pytest.skip("no kernels for x86-64-v4 here")
    library = native.load(str(path), "x86-64-v4")
    monkeypatch.setattr(native, "cpu_flags", lambda: frozenset(flags))
    names = [f"linear_q8_{name}" for name in ("IQ1_S", "IQ2_XXS", "IQ3_S", "Q1_0")]
    assert [library.variant(name) for name in names] == [name + kernel for name, kernel in zip(names, kernels, strict=True)]
