"""The PEP 517 backend: runs precompile.py, then writes the wheel itself. Called by pip and build, never at run time.

    --config-settings targets=native   this machine's best CPU level (needs only numba), its GPU where it has one (the default)
    --config-settings targets=all      every CPU level of this architecture and every GPU

The wheel is `py3-none-<platform>`: Python source plus mapped machine code, no extension module. `cache/` of the tree
becomes `reflex/cache/`; `reflex/kernels/` stays out because nothing compiles at run time. Own code instead of
setuptools: a build environment without it starts sooner, and the launchers need full control of the scripts folder.
"""

import base64
import hashlib
import importlib.util
import io
import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import bundle

ROOT = Path(__file__).resolve().parent.parent
HERE = Path(__file__).resolve().parent
SDIST = (
    "LICENSE",
    "Makefile",
    "README.md",
    "pyproject.toml",
    "precompile.py",
    "_build",
    "reflex",
    "tests",
    "bench",
    "docs",
    "examples",
)
STAMP = (2020, 1, 1, 0, 0, 0)  # fixed, so that the same tree gives the same wheel


def _settings():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def _targets(config_settings):
    targets = (config_settings or {}).get("targets", "native")
    if targets not in ("native", "all"):
        raise SystemExit(f"reflex build: targets={targets}; known: native, all")
    return targets


# ---- the kernel cache ------------------------------------------------------------------------------------


def _precompile():
    return _module("precompile", ROOT / "precompile.py")


def _module(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _wanted(module, targets):
    return module.all_targets() if targets == "all" else module.local_targets()


def _cache_is_current(targets):
    """True when cache/ already holds what is asked for, made from these sources; needs no compiler."""
    try:
        manifest = json.loads((ROOT / "cache" / "manifest.json").read_text())
    except (OSError, ValueError):
        return False
    module = _precompile()
    vars(module)["compiler"] = lambda: manifest["compiler"]
    vars(module)["cuda_compiler"] = lambda known: known["cuda_compiler"]
    return set(_wanted(module, targets)) <= {*manifest["host"], *manifest.get("cuda", {})} and not module.check()


def _compilers(targets):
    """What must be installed to fill cache/; the GPU's compilers, 140 MB, only where they are used."""
    module, needs = _precompile(), _settings()["tool"]["reflex"]
    return needs["compiler"] + (needs["cuda"] if set(_wanted(module, targets)) & set(module.levels.TARGETS) else [])


def _fill_cache(targets):
    if not _cache_is_current(targets):
        command = [sys.executable, str(ROOT / "precompile.py"), *(["--all"] if targets == "all" else [])]
        subprocess.run(command, check=True, cwd=ROOT)


# ---- metadata --------------------------------------------------------------------------------------------


def _stem(project):
    return f"{project['name'].replace('-', '_')}-{project['version']}"


def _metadata(project):
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {project['name']}",
        f"Version: {project['version']}",
        f"Summary: {project['description']}",
        f"Keywords: {','.join(project['keywords'])}",
        f"Requires-Python: {project['requires-python']}",
        f"License-Expression: {project['license']}",
        *(f"License-File: {name}" for name in project["license-files"]),
        *(f"Classifier: {name}" for name in project["classifiers"]),
        *(f"Requires-Dist: {need}" for need in project["dependencies"]),
    ]
    for extra, needs in project["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f'Requires-Dist: {need}; extra == "{extra}"' for need in needs]
    readme = ROOT / project["readme"]
    text = readme.read_text() if readme.exists() else project["description"]
    return "\n".join([*lines, "Description-Content-Type: text/markdown", "", text])


def _tag(targets):
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    if targets == "all" and platform.startswith("linux_"):
        # True of any glibc: its one program is static, and its code has no undefined symbol (the linker refuses them).
        platform = f"manylinux_2_17_{platform.removeprefix('linux_')}"
    return f"py3-none-{platform}"


def _dist_info(project, tag):
    """{file name: text} of the .dist-info folder, RECORD excepted."""
    wheel = f"Wheel-Version: 1.0\nGenerator: reflex-build\nRoot-Is-Purelib: true\nTag: {tag}\n"
    files = {"METADATA": _metadata(project), "WHEEL": wheel}
    return files | {f"licenses/{name}": (ROOT / name).read_text() for name in project["license-files"]}


# ---- archives --------------------------------------------------------------------------------------------


class _Wheel:
    """A zip file that keeps its own RECORD."""

    def __init__(self, path):
        self.archive = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self.record = []

    def add(self, name, data, executable=False):
        data = data.encode() if isinstance(data, str) else data
        info = zipfile.ZipInfo(name, STAMP)
        info.compress_type = zipfile.ZIP_DEFLATED
        info.external_attr = (0o100755 if executable else 0o100644) << 16
        self.archive.writestr(info, data, compresslevel=9)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        self.record.append(f"{name},sha256={digest},{len(data)}")

    def close(self, dist_info):
        name = f"{dist_info}/RECORD"
        text = "\n".join([*self.record, f"{name},,", ""])
        self.archive.writestr(zipfile.ZipInfo(name, STAMP), text, zipfile.ZIP_DEFLATED, 9)
        self.archive.close()


def _files(folder):
    """Source files below a folder (or the file itself), sorted, without what builds and tests leave behind."""
    paths = [folder] if folder.is_file() else sorted(folder.rglob("*"))
    kept = [p for p in paths if p.is_file() and p.suffix != ".pyc"]
    return [p for p in kept if not any(part.startswith(".") for part in p.relative_to(ROOT).parts)]


def _starter(program, source):
    """The program `reflex`, told where the folder of start.py will lie; an editable install has none."""
    if source is not None:
        return program
    elf = _module("elf", ROOT / "reflex" / "kernels" / "elf.py")
    python = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    home = f"lib/{python}/site-packages/reflex/cache/start-{sys.implementation.cache_tag}"
    return program[: -elf.FACTS] + elf.facts(python, f"{home}/python")


def _manifest():
    """The manifest of cache/ without what it says of single kernels, which only a build asks."""
    manifest = json.loads((ROOT / "cache" / "manifest.json").read_text())
    for files in ("host", "encode", "cuda"):
        for entry in manifest.get(files, {}).values():
            entry.pop("kernels", None)
    return json.dumps(manifest, indent=1)


def _write_wheel(directory, targets, source=None):
    """Write the wheel; `source` is the tree of an editable install. Returns the file name."""
    project, tag = _settings()["project"], _tag(targets)
    stem = _stem(project)
    wheel = _Wheel(Path(directory) / f"{stem}-{tag}.whl")
    if source is None:
        for path in _files(ROOT / "reflex"):
            if path.relative_to(ROOT).parts[:2] not in (("reflex", "kernels"), ("reflex", "cache")):
                wheel.add(str(path.relative_to(ROOT)), path.read_bytes())
        wheel.add("reflex/cache/manifest.json", _manifest())
        for path in sorted((ROOT / "cache").glob("*.bin")):
            wheel.add(f"reflex/cache/{path.name}", path.read_bytes())
        command = [sys.executable, "-IS", str(HERE / "bundle.py"), str(ROOT)]
        wheel.add(f"reflex/cache/{bundle.file_name()}", subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        start = f"start-{sys.implementation.cache_tag}"
        wheel.add(f"reflex/cache/{start}/encodings.py", (HERE / "start.py").read_bytes())
        wheel.add(f"reflex/cache/{start}/linecache.py", "def _register_code(*arguments):\n    pass\n")  # Python 3.13's -c asks
        wheel.add(f"reflex/cache/{start}/python._pth", ".\n")
    else:
        wheel.add(f"{project['name'].replace('-', '_')}.pth", f"{source}\n")
    launcher = (HERE / "launcher.py").read_text().replace("SOURCE = None", f"SOURCE = {str(source) if source else None!r}")
    starter = ROOT / "cache" / f"starter-{os.uname().machine}"
    start = _starter(starter.read_bytes(), source) if starter.exists() else (HERE / "launcher.sh").read_bytes()
    wheel.add(f"{stem}.data/scripts/reflex", start, executable=True)
    wheel.add(f"{stem}.data/scripts/reflex-python", launcher, executable=True)
    wheel.add(f"{stem}.data/scripts/reflex-sidecar", (HERE / "sidecar.py").read_bytes(), executable=True)
    for name, text in _dist_info(project, tag).items():
        wheel.add(f"{stem}.dist-info/{name}", text)
    wheel.close(f"{stem}.dist-info")
    return f"{stem}-{tag}.whl"


# ---- the hooks -------------------------------------------------------------------------------------------


def get_requires_for_build_wheel(config_settings=None):
    targets = _targets(config_settings)
    return [] if _cache_is_current(targets) else _compilers(targets)


def get_requires_for_build_editable(config_settings=None):
    return get_requires_for_build_wheel(config_settings)


def get_requires_for_build_sdist(config_settings=None):
    return []


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    project = _settings()["project"]
    folder = Path(metadata_directory) / f"{_stem(project)}.dist-info"
    for name, text in _dist_info(project, _tag(_targets(config_settings))).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder.name


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    targets = _targets(config_settings)
    _fill_cache(targets)
    return _write_wheel(wheel_directory, targets)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    _fill_cache(_targets(config_settings))
    return _write_wheel(wheel_directory, "native", source=ROOT)


def build_sdist(sdist_directory, config_settings=None):
    project = _settings()["project"]
    stem = _stem(project)
    with tarfile.open(Path(sdist_directory) / f"{stem}.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as archive:
        paths = [p for name in SDIST if (ROOT / name).exists() for p in _files(ROOT / name)]
        members = {str(p.relative_to(ROOT)): p.read_bytes() for p in paths} | {"PKG-INFO": _metadata(project).encode()}
        for name, data in members.items():
            info = tarfile.TarInfo(f"{stem}/{name}")
            info.size, info.mode = len(data), 0o755 if os.access(ROOT / name, os.X_OK) else 0o644
            archive.addfile(info, io.BytesIO(data))
    return f"{stem}.tar.gz"


if __name__ == "__main__":  # python _build/backend.py requirements NAME...: what to install to work in the source tree
    settings = _settings()
    lists = {**settings["project"]["optional-dependencies"], **settings["tool"]["reflex"]}
    print("\n".join([*settings["project"]["dependencies"], *(need for name in sys.argv[2:] for need in lists[name])]))
