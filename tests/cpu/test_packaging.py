"""The wheel, the sdist and the launcher, as pip installs them into a fresh venv."""

import base64
import csv
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tarfile
import traceback
import zipfile
from pathlib import Path

import pytest
import tiny

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def backend():
    spec = importlib.util.spec_from_file_location("reflex_build_backend", ROOT / "_build" / "backend.py")
    sys.path.append(str(ROOT / "_build"))  # as pip does for a backend-path
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not module._cache_is_current("native"):
        pytest.skip("cache/ is not current: run python precompile.py")
    return module


def install(folder, wheel):
    """A venv with only `wheel` in it; returns its bin folder."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)], check=True)
    return folder / "bin"


@pytest.fixture(scope="module")
def wheel(backend, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    return folder / backend.build_wheel(folder)


@pytest.fixture(scope="module")
def bin_folder(wheel, tmp_path_factory):
    """A venv's bin with both launchers: `reflex` as this machine gets it, `reflex-sh` as machines without a starter do."""
    folder = install(tmp_path_factory.mktemp("venv"), wheel)
    shutil.copy(ROOT / "_build" / "launcher.sh", folder / "reflex-sh")
    (folder / "reflex-sh").chmod(0o755)
    return folder


@pytest.fixture(params=["reflex", "reflex-sh"])
def start(request):
    return request.param


def launcher_check(*command, **options):
    """What `doctor` says about how it was started: ok means without site."""
    done = subprocess.run([*map(str, command), "doctor", "--json"], capture_output=True, text=True, timeout=300, **options)
    assert done.returncode in (0, 1), done.stderr
    return next(check["status"] for check in json.loads(done.stdout)["checks"] if check["name"] == "launcher")


def test_wheel_holds_code_and_cache_but_no_kernels(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "reflex/cache/manifest.json" in names
    assert any(name.startswith("reflex/cache/host-") for name in names)
    assert not any(name.startswith("reflex/kernels/") or name.endswith(".pyc") for name in names)
    assert wheel.name.startswith("reflex_gguf-") and "-py3-none-linux_" in wheel.name
    assert wheel.stat().st_size < 11_000_000  # where cache/ holds every target, kernels for GPUs are most of it


def test_wheel_record_is_right(wheel):
    archive = zipfile.ZipFile(wheel)
    record = next(name for name in archive.namelist() if name.endswith("/RECORD"))
    rows = {row[0]: row[1:] for row in csv.reader(archive.read(record).decode().splitlines())}
    assert set(rows) == set(archive.namelist())
    for name, (digest, size) in rows.items():
        if name != record:
            data = archive.read(name)
            assert digest == "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            assert int(size) == len(data)


def test_wheel_is_reproducible(backend, wheel, tmp_path):
    assert (tmp_path / backend.build_wheel(tmp_path)).read_bytes() == wheel.read_bytes()


def test_sdist_is_enough_to_build_from(backend, tmp_path):
    path = tmp_path / backend.build_sdist(tmp_path)
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "pyproject.toml",
        "precompile.py",
        "PKG-INFO",
        "_build/backend.py",
        "_build/launcher.sh",
        "reflex/kernels/linker.py",
    } <= names
    assert not any(name.startswith(("cache/", "build/", ".")) or name.endswith(".pyc") for name in names)


def test_launcher_starts_without_site(bin_folder, start):
    assert launcher_check(bin_folder / start) == "ok"


def test_launcher_through_path_symlink_and_relative_path(bin_folder, start, tmp_path):
    assert launcher_check(start, env={**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}"}) == "ok"
    link = tmp_path / "rx"
    link.symlink_to(bin_folder / start)
    assert launcher_check(link) == "ok"
    assert launcher_check(f"./{start}", cwd=bin_folder) == "ok"


def test_bare_help_and_version_need_typer_only(bin_folder, wheel):
    done = subprocess.run([bin_folder / "reflex", "--version"], capture_output=True, text=True)
    assert done.returncode == 8 and "typer" in done.stderr  # this venv has no dependencies: one line says so
    assert len(done.stderr.splitlines()) == 1


def test_shell_launcher_as_an_argument_of_sh(bin_folder):
    assert launcher_check("sh", "reflex-sh", cwd=bin_folder) == "ok"


def test_launcher_without_an_interpreter_beside_it_uses_the_recorded_one(bin_folder, start, tmp_path):
    for name in (start, "reflex-python"):
        shutil.copy(bin_folder / name, tmp_path / name)
    assert launcher_check(tmp_path / start) == "warn"  # it works, and doctor says that it is slower


def test_launcher_beside_a_foreign_interpreter_uses_the_recorded_one(bin_folder, start, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "other"], check=True)
    for name in (start, "reflex-python"):
        shutil.copy(bin_folder / name, tmp_path / "other" / "bin" / name)
    assert launcher_check(tmp_path / "other" / "bin" / start) == "warn"


def test_launcher_where_nothing_can_be_started_exits_127(bin_folder, start, tmp_path):
    shutil.copy(bin_folder / start, tmp_path / start)
    assert subprocess.run([tmp_path / start, "doctor"], capture_output=True).returncode == 127


def test_launcher_in_a_deep_folder(wheel, bin_folder, start, tmp_path):
    deep = tmp_path.joinpath(*["a" * 200] * 10)
    deep.mkdir(parents=True)
    for name in (start, "reflex-python"):
        shutil.copy(bin_folder / name, deep / name)
    (deep / "python").symlink_to(bin_folder / "python")
    done = subprocess.run([deep / start, "smoke"], capture_output=True)
    assert done.returncode == 0, done.stderr


def test_bundle_stands_in_for_the_modules_and_is_optional(wheel, tmp_path):
    bin_folder = install(tmp_path / "venv", wheel)
    package = next(tmp_path.glob("venv/lib/python3*/site-packages/reflex"))
    bundle = next(package.glob("cache/cold-*.bin"))

    def smoke():
        return subprocess.run([bin_folder / "reflex", "generate", "nothing.gguf", "x"], capture_output=True, text=True).stderr

    expected = smoke()
    assert expected.startswith("reflex: model_file: ")
    hidden = [package / "open.py", package / "demo.py"]
    for path in hidden:
        path.rename(path.with_suffix(".hidden"))
        shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)
    assert smoke() == expected, "the bundle was not used"
    bundle.write_bytes(b"\0\0\0\0" + bundle.read_bytes()[4:])  # as if another Python had written it
    assert smoke().startswith("reflex: internal: ModuleNotFoundError")
    for path in hidden:
        path.with_suffix(".hidden").rename(path)
    assert smoke() == expected
    bundle.unlink()
    assert smoke() == expected


@pytest.mark.parametrize("command", ["system1", "generate"])
def test_bundle_and_modules_answer_alike(bin_folder, tmp_path, command):
    tiny.write("llama-smollm", tmp_path / "tiny.gguf")
    more = ["--candidate", " fox", "--candidate", " dog"] if command == "system1" else ["--max-tokens", "5"]
    argv = [command, tmp_path / "tiny.gguf", "The quick", *more, "--json"]
    bundled = subprocess.run([bin_folder / "reflex", *argv], capture_output=True)
    traced = subprocess.run([bin_folder / "reflex", *argv, "--trace"], capture_output=True)  # --trace imports the modules
    assert bundled.returncode == 0, bundled.stderr
    assert bundled.stdout == traced.stdout


def test_bundled_modules_are_what_the_modules_are(backend, tmp_path):
    """Imported through the bundle in a process of its own, every module once and with the usual attributes."""
    path = tmp_path / "cold.bin"
    path.write_bytes(backend.bundle.build(ROOT))
    code = """
import marshal, os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
code, (groups, alone) = marshal.loads(os.read(file, 16384)[4:])
index = {name: package for _, _, names in groups for name, package in names}
index |= {line.split()[0]: line.endswith("1") for line in alone.decode().splitlines()[1:]}
bundle = {"__name__": "reflex.bundle"}
exec(code, bundle)
count = {}
def counted(code, facts):
    count[facts["__name__"]] = count.get(facts["__name__"], 0) + 1
    exec(code, facts)
bundle["exec"] = counted
bundle["install"]((groups, alone), file, sys.argv[2])
for name in sys.argv[3:] or index:
    __import__(name)
for name in [name for name in index if name in sys.modules]:
    module = sys.modules[name]
    spec = module.__spec__
    assert count[name] == 1, name
    assert (spec.name, spec.origin, spec.parent) == (name, module.__file__, module.__package__), name
    assert os.path.exists(module.__file__) and index[name] == hasattr(module, "__path__"), name
    parent, _, leaf = name.rpartition(".")
    held = getattr(sys.modules[parent], leaf) if parent else module  # a package may give the name to a function of it
    assert held is module or not isinstance(held, type(sys)), name
print(len(count))
"""
    names = list(backend.bundle.modules(ROOT))
    assert len(names) > 40
    for first in ([], *([name] for name in names)):  # all in turn, then each as the first of its process
        done = subprocess.run([sys.executable, "-IS", "-c", code, path, ROOT, *first], capture_output=True, text=True)
        assert done.returncode == 0, (first, done.stderr)
        assert first or int(done.stdout) == len(names)


def test_bundled_code_has_no_lines_but_tracebacks(backend):
    made = backend.bundle._code(ROOT, ROOT / "reflex" / "settings.py")
    plain = compile((ROOT / "reflex" / "settings.py").read_text(), "plain", "exec")
    assert {line for *_, line in made.co_lines()} == {None}
    assert len(list(made.co_positions())) == len(made.co_code) // 2
    assert len(made.co_linetable) < len(plain.co_linetable) / 2
    inner = backend.bundle._without_lines(compile("def f():\n    return 1 // 0\n", "inner", "exec"))
    names = {}
    exec(inner, names)
    with pytest.raises(ZeroDivisionError) as caught:
        names["f"]()
    assert "in f" in "".join(traceback.format_exception(caught.value))


def test_doctor_sees_sources_edited_after_the_installation(wheel, tmp_path):
    bin_folder = install(tmp_path / "venv", wheel)

    def status():
        done = subprocess.run([bin_folder / "reflex", "doctor", "--json"], capture_output=True, text=True)
        return done.returncode, next(c["status"] for c in json.loads(done.stdout)["checks"] if c["name"] == "bundle")

    assert status() == (0, "ok")
    path = next(tmp_path.glob("venv/lib/python3*/site-packages/reflex/score.py"))
    path.write_text(path.read_text() + "\n# edited\n")
    assert status() == (1, "fail")


@pytest.mark.parametrize("count", [0, 1, 2, 400])
def test_launcher_passes_arguments_and_environment_on(bin_folder, start, tmp_path, count):
    (tmp_path / "python").write_text('#!/bin/sh\nprintf \'%s\\n\' "$@"; echo "$MARK"\n')
    (tmp_path / "python").chmod(0o755)
    shutil.copy(bin_folder / start, tmp_path / start)
    arguments = ["", "a b", "*", "é\\ $HOME", "-", "--x=\t"] * count
    done = subprocess.run([tmp_path / start, *arguments], capture_output=True, text=True, env={**os.environ, "MARK": "here"})
    assert done.stdout.split("\n") == ["-IS", str(tmp_path / "reflex-python"), *arguments, "here", ""]


def test_editable_install_runs_the_tree(backend, tmp_path):
    path = tmp_path / backend.build_editable(tmp_path)
    assert launcher_check(install(tmp_path / "a venv", path) / "reflex") == "ok"
    assert not any(name.startswith("reflex/") for name in zipfile.ZipFile(path).namelist())
