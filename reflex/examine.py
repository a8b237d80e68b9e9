"""What `reflex doctor` knows: checks of the machine and of the installation, each with what was found and what to do.

A check never raises: what it cannot find out it reports. Called by the doctor command only; nothing here is on a cold path.
"""

import hashlib
import importlib.util
import json
import os
import platform
import sys
import sysconfig
from dataclasses import asdict, dataclass
from pathlib import Path

from . import bundle, demo, native
from .backends import choice
from .backends.cuda import device, driver, module, trial
from .errors import KernelCacheError, ReflexError

ASLEEP = 50  # milliseconds of cuInit: 10 where a process keeps the device awake, 100 where none does (H200)
PACKAGE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Check:
    name: str
    status: str  # ok, warn or fail
    found: str
    remedy: str | None = None

    def as_dict(self):
        return asdict(self)


def examine():
    """Every check, in the order in which a person should care."""
    installed = [*_cpu(), *_cache(), *_cuda_cache(), *_device(), *_bundle()]
    return [*installed, *_python(), *_pth_files(), *_huge_pages(), *_threads(), *_demo()]


def _read(path):
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def _cpu():
    levels = native.usable_levels()
    if not levels:
        yield Check("cpu", "fail", f"{native.machine()}: no kernels are built for this CPU", "use --backend reference")
    elif levels[0] != native.MACHINE_LEVELS[native.machine()][0][0]:
        yield Check("cpu", "ok", f"{levels[0]}; wider vectors exist on newer CPUs")
    else:
        yield Check("cpu", "ok", levels[0])


def _cache():
    """The manifest, every blob it lists, the blob this machine would use, and whether it is current in a source tree."""
    folder = Path(native.cache_folder())
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        entries = [(entry["file"], entry["sha256"]) for kind in ("host", "encode") for entry in manifest[kind].values()]
    except (OSError, ValueError, KeyError) as error:
        yield Check("cache", "fail", f"{folder}/manifest.json: {error}", native.REPAIR)
        return
    for name, digest in entries:
        try:
            whole = hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
        except OSError as error:
            yield Check("cache", "fail", f"{name}: {error.strerror}", native.REPAIR)
            continue
        yield Check("cache", "ok", f"{name} whole") if whole else Check("cache", "fail", f"{name} is damaged", native.REPAIR)
    best = native.usable_levels()[:1]
    if best and best[0] not in manifest["host"]:
        yield Check("cache", "warn", f"no blob for {best[0]}, the best level here", f"run: python precompile.py --only {best[0]}")
    try:
        native.library()
    except ReflexError as error:
        yield Check("cache", "fail", str(error))
    yield from _sources(manifest)


def _cuda_cache():
    """Every file of CUDA kernels and every image in it."""
    known = module.targets(native.cache_folder())
    for target, path in sorted(known.items()):
        try:
            images = module.open_images(path)
            images.verify()
            images.close()
        except KernelCacheError as error:
            yield Check("cache", "fail", f"{error}")
        else:
            yield Check("cache", "ok", f"{target} whole")


def _device():
    """The CUDA device that would be used: a kernel runs on it. None is no fault where nothing promises one."""
    try:
        facts, marks = trial.finish(trial.begin())
    except ReflexError as error:
        absent = error.message in driver.ABSENT and not choice.gpu_shown()
        if absent:
            yield Check("device", "ok", f"none ({error.message}): the CPU computes")
        elif module.targets(native.cache_folder()):
            yield Check("device", "fail", str(error))
        else:
            yield Check("device", "warn", "this installation has no CUDA kernels: the CPU computes", str(error.remedy))
        return
    if facts["target"] == module.PTX:
        advice = "use a build with kernels for this device: they start a quarter of a second sooner"
        yield Check("device", "warn", f"{device.describe(facts)}, compiled by the driver at every start", advice)
    else:
        yield Check("device", "ok", device.describe(facts))
    times = dict(marks)
    start, context = ((times[b] - times[a]) / 1e6 for a, b in (("driver", "cuInit"), ("cuInit", "context")))
    found = f"driver {start:.0f} ms, context {context:.0f} ms"
    if start > ASLEEP:
        yield Check("device start", "warn", f"{found}: the device sleeps between processes", "nvidia-smi -pm 1 (as root)")
    else:
        yield Check("device start", "ok", found)


def _sources(manifest):
    """In a source tree: are the kernels newer than the cache? The recorded compiler stands in for an absent one."""
    script = PACKAGE.parent / "precompile.py"
    if not script.exists():
        return
    spec = importlib.util.spec_from_file_location("precompile", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    vars(module)["compiler"] = lambda: manifest["compiler"]
    if module.sources_digest() == manifest["sources"]:
        yield Check("cache", "ok", "current with the kernel sources")
    else:
        yield Check("cache", "warn", "older than the kernel sources", "run: python precompile.py")


def _bundle():
    """The compiled modules that the launcher loads instead of the sources; a source tree has none."""
    path = PACKAGE / "cache" / f"cold-{sys.implementation.cache_tag}.bin"
    if not (PACKAGE / "cache").is_dir():
        return
    remedy = "install again with this Python: pip install --force-reinstall --no-deps reflex-gguf"
    try:
        changed = bundle.outdated(path, PACKAGE.parent)
    except OSError:
        changed = None
    except (ValueError, EOFError, TypeError) as error:
        yield Check("bundle", "fail", f"{path.name}: {error}", remedy)
        return
    if changed is None:
        yield Check("bundle", "warn", "none for this Python version: 2 ms later", remedy)
    elif changed:
        yield Check("bundle", "fail", f"sources edited after the installation: {', '.join(changed)}", remedy)
    else:
        yield Check("bundle", "ok", "current with the sources")


def _python():
    version = platform.python_version()
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        yield Check("python", "warn", f"{version} is not tested", "use Python 3.11, 3.12 or 3.13")
    elif sys.base_prefix != "/usr" and "--enable-optimizations" not in (sysconfig.get_config_var("CONFIG_ARGS") or ""):
        advice = "a distribution's build starts 1-2 ms sooner"  # which is optimised though its CONFIG_ARGS may not say so
        yield Check("python", "warn", f"{version}, built without profile-guided optimisation", advice)
    else:
        yield Check("python", "ok", version)
    if sys.flags.no_site:
        yield Check("launcher", "ok", "starts Python without site")
    else:
        advice = "install into a venv and run its bin/reflex"
        yield Check("launcher", "warn", "Python imported site: 1-2 ms later, more with .pth files", advice)


def _pth_files():
    """Files that make every Python start with `site` run code; the launcher avoids them, other programs do not."""
    folders = {str(PACKAGE.parent), *(folder for folder in sys.path if folder.endswith("-packages"))}
    for folder in sorted(folders):
        for path in sorted(Path(folder).glob("*.pth")):
            if any(line.startswith(("import ", "import\t")) for line in _read(path).splitlines()):
                yield Check("pth", "warn", f"{path} runs code at every Python start", "keep Reflex in a venv of its own")


def _huge_pages():
    text = _read("/sys/kernel/mm/transparent_hugepage/enabled")
    mode = text[text.find("[") + 1 : text.find("]")] if "[" in text else "unknown"
    if mode in ("always", "madvise"):
        yield Check("huge pages", "ok", mode)
    else:
        advice = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (as root)"
        yield Check("huge pages", "warn", f"{mode}: token tables cost 4-14 ms more on a large vocabulary", advice)


def _threads():
    cores = len(os.sched_getaffinity(0))
    quota = _read("/sys/fs/cgroup/cpu.max").split()
    limit = int(quota[0]) / int(quota[1]) if len(quota) == 2 and quota[0].isdigit() else cores
    load = os.getloadavg()[0]
    if limit < cores:
        yield Check("threads", "warn", f"{cores} cores, but a quota of {limit:.1f}", f"use --threads {max(1, int(limit))}")
    elif load > cores:
        yield Check("threads", "warn", f"{cores} cores with a load of {load:.1f}", "times measured now are not this machine's")
    else:
        yield Check("threads", "ok", f"{cores} cores")


def _demo():
    try:
        yield Check("demo", "ok", demo.path())
    except ReflexError as error:
        yield Check("demo", "warn", error.message, error.remedy)
