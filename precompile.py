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
from subprocess import PIPE
from threading import Thread

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from reflex import native, stale  # noqa: E402
from reflex.kernels.cuda import images, levels, ptxas  # noqa: E402
from reflex.kernels.elf import executable  # noqa: E402
from reflex.kernels.linker import PAGE, link  # noqa: E402
from reflex.kernels.sources import sources, write_atomically  # noqa: E402
from reflex.kernels.target import TARGETS, environment  # noqa: E402

CACHE = ROOT / "cache"
OBJECTS = ROOT / "build" / "objects"
HOST = ROOT / "reflex" / "kernels" / "host"
CUDA = "cuda"  # the level of a worker that makes PTX
BLOBS = ("host", "encode")  # files of a level: <blob>-<level>.bin. What no model needs to run lies apart: no cold start reads it


def stems():
    return sorted(p.stem for p in HOST.glob("*.py") if p.stem != "__init__")


def blob_of(stem):
    """The blob that a kernel file goes into: the one that its name begins with."""
    return next((blob for blob in BLOBS if stem.startswith(f"{blob}_")), BLOBS[0])


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


def _worker():
    """Compile kernel files for the level of this process's environment, or for GPUs: a name per line in, a line of facts out."""
    from reflex.kernels import memo

    level = os.environ["REFLEX_LEVEL"]
    memo.install(level == CUDA)
    for line in sys.stdin:
        stem, started = line.strip(), time.perf_counter()
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


def host_tasks(chosen):
    """(level, kernel file) of every object that is to be made, the longest of a level first."""
    for level in chosen:
        stale = [s for s in stems() if not all(p.exists() for p in _object_paths(s, level))]
        yield from ((level, stem) for stem in sorted(stale, key=lambda s: -_size(HOST / f"{s}.py")))


def cuda_tasks(objects):
    """The same for GPUs."""
    return [(CUDA, stem) for stem in sorted(objects.stale(), key=lambda s: -_size(images.HERE / f"{s}.py"))]


def _size(file):
    """Bytes of a kernel file and all it imports: what is long takes long to compile."""
    return sum(source.stat().st_size for source in sources(file))


class Compiler:
    """A process that compiles kernel files for one level, one after another."""

    def __init__(self, level):
        self.level = level
        settings = {"REFLEX_LEVEL": CUDA} if level == CUDA else environment(TARGETS[level])
        command = [sys.executable, str(ROOT / "precompile.py"), "--worker"]
        self.process = subprocess.Popen(command, env={**os.environ, **settings}, stdin=PIPE, stdout=PIPE, text=True)

    def compile(self, stem):
        """Whether it worked; what the process says of it is printed."""
        try:
            self.process.stdin.write(f"{stem}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return False
        for line in self.process.stdout:
            print(line, end="", flush=True)
            if line.startswith(f"  {self.level} {stem}: "):
                return True
        return False

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def compile_all(tasks, jobs):
    """Keep `jobs` compilers busy: each takes the next file when it has done one."""
    waiting, failed = list(tasks), []

    def work():
        compiler = None
        while waiting and not failed:
            try:
                level, stem = waiting.pop(0)
            except IndexError:
                break
            if compiler is None or compiler.level != level:
                if compiler:
                    compiler.close()
                compiler = Compiler(level)
            if not compiler.compile(stem):
                failed.append(f"{stem} for {level}")
        if compiler:
            compiler.close()

    threads = [Thread(target=work) for _ in range(min(jobs, len(waiting)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise SystemExit(f"precompile: does not compile: {', '.join(failed)}")


# ---- blobs -----------------------------------------------------------------------------------------------


def build_blob(level, blob):
    """Link the objects of a blob for a level; returns (file bytes, {name: [offset, arity]})."""
    objects, tables, arities = [], {}, {}
    for stem in (stem for stem in stems() if blob_of(stem) == blob):
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


def write_sources(kind, files):
    """The list of what the kernels of a kind are made from (reflex/stale.py)."""
    names = sorted(file.relative_to(ROOT).as_posix() for file in files)
    lines = [stale.line(ROOT, name) for name in names if name.startswith("reflex/kernels/")]
    write_atomically(CACHE / stale.NAMES[kind], "".join(lines).encode())


def build_host(chosen, blob):
    """Write a blob for every level; returns the manifest's entries."""
    entries = {}
    for level in chosen:
        data, symbols = build_blob(level, blob)
        entries[level] = _write(f"{blob}-{level}.bin", data) | {
            "flags": sorted(dict(native.MACHINE_LEVELS[TARGETS[level].machine])[level]),
            "kernels": symbols,
        }
        print(f"{blob}-{level}.bin: {len(symbols)} symbols, {len(data)} bytes")
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
    before = {(level, stem): fingerprint(stem, level) for level in host for stem in stems()}
    manifest = {"schema_version": 1, "compiler": compiler(), "sources": sources_digest()}
    if gpus:
        manifest |= {"cuda_compiler": ptxas.compiler(), "cuda_sources": images.sources_digest(ptxas.compiler())}
    compile_all([*(cuda_tasks(objects) if gpus else ()), *host_tasks(host)], jobs)
    _refuse_edits(before, objects)
    manifest |= {blob: build_host(host, blob) for blob in BLOBS} | {"starter": build_starter(host) if host else None}
    if gpus:
        manifest["cuda"] = build_cuda(objects, gpus, jobs)
        _refuse_edits(before, objects)
    kept = {entry["file"] for part in (*BLOBS, CUDA) for entry in manifest.get(part, {}).values()}
    for old in [path for part in (*BLOBS, CUDA) for path in CACHE.glob(f"{part}-*.bin")]:
        if old.name not in kept:
            old.unlink()
    write_sources("host", set().union(*(sources(HOST / f"{stem}.py") for stem in stems())))
    if gpus:
        write_sources(CUDA, images.files())
    write_atomically(CACHE / "manifest.json", (json.dumps(manifest, indent=1, sort_keys=True) + "\n").encode())
    print(f"precompile: {', '.join(targets)} in {time.perf_counter() - started:.1f} s")


def _refuse_edits(before, objects):
    """End here if a source is not what it was when the build began: objects would be missing, or of two versions."""
    edited = {stem for (level, stem), known in before.items() if fingerprint(stem, level) != known}
    if objects:
        edited |= {stem for stem, known in objects.prints.items() if images.fingerprint(stem, ptxas.compiler()) != known}
    if edited:
        raise SystemExit(f"precompile: sources of {', '.join(sorted(edited))} were edited during the build: run it again")


def check():
    """Problems of cache/ as text lines; empty when every file is whole and current."""
    try:
        manifest = json.loads((CACHE / "manifest.json").read_text())
    except (OSError, ValueError) as error:
        return [f"cache/manifest.json: {error}"]
    problems = []
    old = manifest["sources"] != sources_digest() or not (CACHE / stale.NAMES["host"]).exists()
    if manifest.get("cuda"):
        old |= manifest["cuda_sources"] != images.sources_digest(cuda_compiler(manifest))
        old |= not (CACHE / stale.NAMES[CUDA]).exists()
    if old:
        problems.append("cache is older than the kernel sources: run python precompile.py")
    starter = manifest.get("starter")
    entries = [item for part in (*BLOBS, CUDA) for item in manifest.get(part, {}).items()]
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
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return _worker()
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
