"""Fill cache/ with ahead-of-time compiled kernels: Numba functions in, one flat file per CPU level and GPU architecture out.

    python precompile.py                            what this machine runs best: a CPU level, and its GPU where it has one
    python precompile.py --only sm_90,x86-64-v3     chosen targets, comma separated
    python precompile.py --all                      every CPU level of this machine's architecture, every GPU
    python precompile.py --check                    verify cache/ against the sources and the manifest

Incremental: an object is recompiled only when its kernel file, anything it imports from reflex/, or the compiler
changed. Reproducible: the same sources and compiler give the same bytes. Needs numba, and numba-cuda with ptxas for GPUs
(pyproject.toml, tool.reflex), but no GPU; nothing else at run time needs them.
"""

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from reflex import native  # noqa: E402
from reflex.kernels.cuda import images, levels, ptxas  # noqa: E402
from reflex.kernels.elf import executable  # noqa: E402
from reflex.kernels.linker import PAGE, link  # noqa: E402
from reflex.kernels.sources import sources, write_atomically  # noqa: E402
from reflex.kernels.target import TARGETS, environment  # noqa: E402

CACHE = ROOT / "cache"
OBJECTS = ROOT / "build" / "objects"
HOST = ROOT / "reflex" / "kernels" / "host"
CUDA = "cuda"  # the level of a worker that makes PTX


def stems():
    return sorted(p.stem for p in HOST.glob("*.py") if p.stem != "__init__")


# ---- host objects ---------------------------------------------------------------------------------------


def compiler():
    return f"numba {version('numba')} llvmlite {version('llvmlite')}"


def fingerprint(stem, level):
    digest = hashlib.sha256(f"{compiler()} {TARGETS[level]}".encode())
    files = sources(HOST / f"{stem}.py") | {ROOT / "reflex/kernels/compile.py", ROOT / "reflex/kernels/export.py"}
    for file in sorted(files):
        digest.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:24]


def _object_paths(stem, level):
    base = OBJECTS / level / f"{stem}-{fingerprint(stem, level)}"
    return base.with_suffix(".o"), base.with_suffix(".json")


def _worker(names):
    """Compile the named kernel files for the level of this process's environment, or for GPUs."""
    level = os.environ["REFLEX_LEVEL"]
    for stem in names:
        started = time.perf_counter()
        count, size = _cuda_text(stem) if level == CUDA else _host_object(stem, level)
        print(f"  {level} {stem}: {count} kernels, {size} bytes, {time.perf_counter() - started:.1f} s", flush=True)


def _host_object(stem, level):
    from reflex.kernels.compile import compile_stem

    object_path, facts_path = _object_paths(stem, level)  # named before the sources are read again
    data, arities, tables = compile_stem(stem)
    object_path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(object_path, data)
    facts = {"entries": arities, "tables": {k: v.hex() for k, v in tables.items()}}
    write_atomically(facts_path, json.dumps(facts).encode())
    return len(arities), len(data)


def _cuda_text(stem):
    from reflex.kernels.cuda.compile import facts_of

    objects = images.Objects(OBJECTS, ptxas.compiler())  # named before the sources are read again
    facts = facts_of(stem)
    objects.write_text(stem, facts)
    return len(facts), sum(len(body) for *_, body in facts)


def host_batches(chosen, jobs):
    """(level, kernel files) that one compiler process each brings up to date."""
    for level in chosen:
        stale = [s for s in stems() if not all(p.exists() for p in _object_paths(s, level))]
        stale.sort(key=lambda s: -(HOST / f"{s}.py").stat().st_size)
        groups = min(len(stale), max(1, jobs // len(chosen)))
        yield from ((level, stale[i::groups]) for i in range(groups))


def cuda_batches(objects, jobs):
    """The same for GPUs: small groups, since a file with a kernel per block format takes as long as ten others."""
    stale = objects.stale()
    groups = min(len(stale), 3 * jobs)
    return [(CUDA, stale[i::groups]) for i in range(groups)]


def run_batches(batches, jobs):
    """Run up to `jobs` compiler processes at a time."""
    batches, running, failed = list(batches), [], False
    while (batches or running) and not failed:
        while batches and len(running) < jobs:
            level, names = batches.pop(0)
            command = [sys.executable, str(ROOT / "precompile.py"), "--worker", *names]
            settings = {"REFLEX_LEVEL": CUDA} if level == CUDA else environment(TARGETS[level])
            running.append(subprocess.Popen(command, env={**os.environ, **settings}))
        for process in list(running):
            if process.poll() is not None:
                running.remove(process)
                failed |= process.returncode != 0
        time.sleep(0.02)
    for process in running:
        process.wait()
        failed |= process.returncode != 0
    if failed:
        raise SystemExit("precompile: a kernel file did not compile")


# ---- blobs -----------------------------------------------------------------------------------------------


def build_blob(level):
    """Link all objects of a level; returns (file bytes, {name: [offset, arity]})."""
    objects, tables, arities = [], {}, {}
    for stem in stems():
        object_path, facts_path = _object_paths(stem, level)
        facts = json.loads(facts_path.read_text())
        if facts["entries"]:
            objects.append((stem, object_path.read_bytes()))
        arities.update(facts["entries"])
        tables.update({k: bytes.fromhex(v) for k, v in facts["tables"].items()})
    code, offsets = link(objects, tables)
    symbols = {name: [offsets[name], arities.get(name, -1)] for name in sorted(offsets)}
    listing = "".join(f"{name} {at} {arity}\n" for name, (at, arity) in symbols.items())
    start = (len(listing) + 128 + PAGE - 1) // PAGE * PAGE
    facts = f"{native.MAGIC.decode()} {level} {start} {len(code)} "
    body = f"{listing}\n".encode().ljust(start - len(facts) - 17, b"\0") + code  # the first line ends in 16 digits and a newline
    return f"{facts}{native.checksum_of(body)}\n".encode() + body, symbols


def build_starter(chosen):
    """Link the program that starts Python, for the lowest of the levels; returns its manifest entry, None where it is not made."""
    level = list(chosen)[-1]
    name = f"starter-{TARGETS[level].machine}"
    if TARGETS[level].machine != "x86_64":
        return None
    code, offsets = link([("starter", _object_paths("starter", level)[0].read_bytes())], {})
    data = executable(code, offsets["starter"])
    write_atomically(CACHE / name, data)
    return {"file": name, "level": level, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def sources_digest():
    """One hash over everything the host kernels are made from."""
    digest = hashlib.sha256()
    for stem in stems():
        digest.update(fingerprint(stem, next(iter(TARGETS))).encode())
    return digest.hexdigest()


def build_host(chosen):
    """Write the blob of every level; returns the manifest's entries."""
    entries = {}
    for level in chosen:
        data, symbols = build_blob(level)
        entries[level] = _write(f"host-{level}.bin", data) | {
            "flags": sorted(dict(native.MACHINE_LEVELS[TARGETS[level].machine])[level]),
            "kernels": symbols,
        }
        print(f"host-{level}.bin: {len(symbols)} symbols, {len(data)} bytes")
    return entries


def build_cuda(objects, targets, jobs):
    """Write the file of every target; returns the manifest's entries. Kernels that use memory for registers fail."""
    images.assemble_all(objects, targets, jobs)
    faults = list(objects.faults(targets))
    if faults:
        raise SystemExit("\n".join(f"precompile: {fault}" for fault in faults))
    entries = {}
    for target in targets:
        data, kernels = images.image_file(objects, target)
        entries[target] = _write(f"cuda-{target}.bin", data) | {"kernels": kernels}
        print(f"cuda-{target}.bin: {len(kernels)} kernels, {len(data)} bytes")
    return entries


def _write(name, data):
    """Put a file into cache/, unless it is there; returns what the manifest says of it."""
    if not (CACHE / name).exists() or (CACHE / name).read_bytes() != data:
        write_atomically(CACHE / name, data)
    return {"file": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def build(targets, jobs):
    started = time.perf_counter()
    CACHE.mkdir(exist_ok=True)
    host, gpus = [t for t in targets if t in TARGETS], [t for t in targets if t in levels.TARGETS]
    objects = images.Objects(OBJECTS, ptxas.compiler()) if gpus else None
    run_batches([*(cuda_batches(objects, jobs) if gpus else ()), *host_batches(host, jobs)], jobs)
    manifest = {"schema_version": 1, "compiler": compiler(), "sources": sources_digest(), "host": build_host(host)}
    if gpus:
        manifest["cuda_compiler"] = ptxas.compiler()
        manifest["cuda_sources"] = images.sources_digest(ptxas.compiler())
        manifest["cuda"] = build_cuda(objects, gpus, jobs)
    manifest["starter"] = build_starter(host) if host else None
    kept = {entry["file"] for part in ("host", "cuda") for entry in manifest.get(part, {}).values()}
    for old in [*CACHE.glob("host-*.bin"), *CACHE.glob("cuda-*.bin")]:
        if old.name not in kept:
            old.unlink()
    write_atomically(CACHE / "manifest.json", (json.dumps(manifest, indent=1, sort_keys=True) + "\n").encode())
    print(f"precompile: {', '.join(targets)} in {time.perf_counter() - started:.1f} s")


def check():
    """Problems of cache/ as text lines; empty when every file is whole and current."""
    try:
        manifest = json.loads((CACHE / "manifest.json").read_text())
    except (OSError, ValueError) as error:
        return [f"cache/manifest.json: {error}"]
    problems = []
    stale = manifest["sources"] != sources_digest()
    if manifest.get("cuda"):
        stale |= manifest["cuda_sources"] != images.sources_digest(cuda_compiler(manifest))
    if stale:
        problems.append("cache is older than the kernel sources: run python precompile.py")
    starter = manifest.get("starter")
    entries = [*manifest["host"].items(), *manifest.get("cuda", {}).items()]
    for level, entry in [*entries, *([(starter["level"], starter)] if starter else [])]:
        path = CACHE / entry["file"]
        if not path.exists():
            problems.append(f"{path.name} is missing: run python precompile.py --only {level}")
        elif hashlib.sha256(path.read_bytes()).hexdigest() != entry["sha256"]:
            problems.append(f"{path.name} does not match the manifest: run python precompile.py --only {level}")
    return problems


def cuda_compiler(manifest):
    """The installed compiler of CUDA kernels, or what made the cache where there is none."""
    try:
        return ptxas.compiler()
    except PackageNotFoundError:
        return manifest["cuda_compiler"]


# ---- targets ---------------------------------------------------------------------------------------------


def local_levels():
    """Every CPU level of this machine's architecture, best first."""
    return [t.level for t in TARGETS.values() if t.machine == platform.machine()]


def all_targets():
    return [*local_levels(), *levels.TARGETS]


def local_targets():
    """What this machine runs best: a CPU level, and the target of each of its GPUs."""
    return [*native.usable_levels()[:1], *local_gpus()]


def local_gpus():
    """Targets of the GPUs here; none where there is no driver or it does not start, since the build needs no GPU."""
    from reflex.backends import choice
    from reflex.backends.cuda import device, driver, module
    from reflex.errors import ReflexError

    if not choice.gpu_shown():
        return []
    try:
        driver.load()
        driver.call("cuInit", 0)
        handles = [driver.word("cuDeviceGet", i) for i in range(driver.word("cuDeviceGetCount"))]
        found = [tuple(driver.word("cuDeviceGetAttribute", n, h) for n in (device.MAJOR, device.MINOR)) for h in handles]
    except ReflexError as error:
        print(f"precompile: no kernels for a GPU: {error}")
        return []
    best = [module.candidates(levels.TARGETS, capability)[:1] for capability in found]
    return sorted({target for names in best for target in names})


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", help="targets, comma separated: " + ", ".join([*TARGETS, *levels.TARGETS]))
    parser.add_argument("--all", action="store_true", help="every CPU level of this architecture and every GPU")
    parser.add_argument("--check", action="store_true", help="verify cache/; exit 1 with one line per problem")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return _worker(arguments.worker)
    if arguments.check:
        problems = check()
        print("\n".join(problems) or "cache is complete and current")
        return 1 if problems else 0
    targets = arguments.only.split(",") if arguments.only else all_targets() if arguments.all else local_targets()
    unknown = [target for target in targets if target not in TARGETS and target not in levels.TARGETS]
    if unknown or not targets:
        parser.error(f"unknown target {unknown}; known: {', '.join([*TARGETS, *levels.TARGETS])}")
    build(targets, arguments.jobs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
