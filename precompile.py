"""Fill cache/ with ahead-of-time compiled kernels: Numba functions in, one flat blob per CPU level out.

    python precompile.py                      this machine's best level
    python precompile.py --only x86-64-v3     chosen levels, comma separated
    python precompile.py --all                every level of this machine's architecture
    python precompile.py --check              verify cache/ against the sources and the manifest

Incremental: an object is recompiled only when its kernel file, anything it imports from reflex/, or the compiler
changed. Reproducible: the same sources and compiler give the same bytes. Needs numba; nothing else at run time does.
"""

import argparse
import ast
import hashlib
import json
import os
import platform
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from reflex import native  # noqa: E402
from reflex.kernels.elf import executable  # noqa: E402
from reflex.kernels.linker import PAGE, link  # noqa: E402
from reflex.kernels.target import TARGETS, environment  # noqa: E402

CACHE = ROOT / "cache"
OBJECTS = ROOT / "build" / "objects"
HOST = ROOT / "reflex" / "kernels" / "host"


def stems():
    return sorted(p.stem for p in HOST.glob("*.py") if p.stem != "__init__")


# ---- what an object depends on --------------------------------------------------------------------------


def _module_file(name):
    path = ROOT.joinpath(*name.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.exists():
            return candidate
    return None


def _imports(path):
    """Names of reflex modules that a source file imports; a package counts as all its modules."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            prefix = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*prefix, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{a.name}" for a in node.names)


def sources(path, seen=None):
    """The source files that can change what `path` compiles to, itself included.

    A package counts with all its modules, because kernels enumerate folders (one kernel per block format).
    """
    seen = set() if seen is None else seen
    if path in seen:
        return seen
    seen.add(path)
    for name in _imports(path):
        file = _module_file(name) if name.startswith("reflex") else None
        if file is None:
            continue
        sources(file, seen)
        if file.name == "__init__.py" and file.parent.name not in ("reflex", "kernels", "host"):
            for sibling in sorted(file.parent.glob("*.py")):
                sources(sibling, seen)
    return seen


def compiler():
    return f"numba {version('numba')} llvmlite {version('llvmlite')}"


def fingerprint(stem, level):
    digest = hashlib.sha256(f"{compiler()} {TARGETS[level]}".encode())
    files = sources(HOST / f"{stem}.py") | {ROOT / "reflex/kernels/compile.py", ROOT / "reflex/kernels/export.py"}
    for file in sorted(files):
        digest.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:24]


# ---- objects ---------------------------------------------------------------------------------------------


def _object_paths(stem, level):
    base = OBJECTS / level / f"{stem}-{fingerprint(stem, level)}"
    return base.with_suffix(".o"), base.with_suffix(".json")


def _worker(names):
    """Compile the named kernel files for the level of this process's environment."""
    from reflex.kernels.compile import compile_stem

    level = os.environ["REFLEX_LEVEL"]
    for stem in names:
        started = time.perf_counter()
        data, arities, tables = compile_stem(stem)
        object_path, facts_path = _object_paths(stem, level)
        object_path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(object_path, data)
        facts = {"entries": arities, "tables": {k: v.hex() for k, v in tables.items()}}
        write_atomically(facts_path, json.dumps(facts).encode())
        print(f"  {level} {stem}: {len(arities)} kernels, {len(data)} bytes, {time.perf_counter() - started:.1f} s", flush=True)


def compile_objects(levels, jobs):
    """Bring every object of `levels` up to date with up to `jobs` compiler processes."""
    batches = []
    for level in levels:
        stale = [s for s in stems() if not all(p.exists() for p in _object_paths(s, level))]
        stale.sort(key=lambda s: -(HOST / f"{s}.py").stat().st_size)
        groups = min(len(stale), max(1, jobs // len(levels)))
        batches += [(level, stale[i::groups]) for i in range(groups)]
    running = []
    failed = False
    while (batches or running) and not failed:
        while batches and len(running) < jobs:
            level, names = batches.pop(0)
            command = [sys.executable, str(ROOT / "precompile.py"), "--worker", *names]
            running.append(subprocess.Popen(command, env={**os.environ, **environment(TARGETS[level])}))
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


def build_starter(levels):
    """Link the program that starts Python, for the lowest of `levels`; returns its manifest entry, None where it is not made."""
    level = list(levels)[-1]
    name = f"starter-{TARGETS[level].machine}"
    if TARGETS[level].machine != "x86_64":
        return None
    code, offsets = link([("starter", _object_paths("starter", level)[0].read_bytes())], {})
    data = executable(code, offsets["starter"])
    write_atomically(CACHE / name, data)
    return {"file": name, "level": level, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def write_atomically(path, data):
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    os.replace(temporary, path)


def sources_digest():
    """One hash over everything the host kernels are made from."""
    digest = hashlib.sha256()
    for stem in stems():
        digest.update(fingerprint(stem, next(iter(TARGETS))).encode())
    return digest.hexdigest()


def build(levels, jobs):
    started = time.perf_counter()
    CACHE.mkdir(exist_ok=True)
    compile_objects(levels, jobs)
    manifest = {"schema_version": 1, "compiler": compiler(), "sources": sources_digest(), "host": {}}
    for level in levels:
        data, symbols = build_blob(level)
        name = f"host-{level}.bin"
        if not (CACHE / name).exists() or (CACHE / name).read_bytes() != data:
            write_atomically(CACHE / name, data)
        manifest["host"][level] = {
            "file": name,
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
            "flags": sorted(dict(native.MACHINE_LEVELS[TARGETS[level].machine])[level]),
            "kernels": symbols,
        }
        print(f"{name}: {len(symbols)} symbols, {len(data)} bytes")
    manifest["starter"] = build_starter(levels)
    for old in CACHE.glob("host-*.bin"):
        if old.name not in {entry["file"] for entry in manifest["host"].values()}:
            old.unlink()
    write_atomically(CACHE / "manifest.json", (json.dumps(manifest, indent=1, sort_keys=True) + "\n").encode())
    print(f"precompile: {', '.join(levels)} in {time.perf_counter() - started:.1f} s")


def check():
    """Problems of cache/ as text lines; empty when every blob is whole and current."""
    try:
        manifest = json.loads((CACHE / "manifest.json").read_text())
    except (OSError, ValueError) as error:
        return [f"cache/manifest.json: {error}"]
    problems = []
    if manifest["sources"] != sources_digest():
        problems.append("cache is older than the kernel sources: run python precompile.py")
    starter = manifest.get("starter")
    for level, entry in [*manifest["host"].items(), *([(starter["level"], starter)] if starter else [])]:
        path = CACHE / entry["file"]
        if not path.exists():
            problems.append(f"{path.name} is missing: run python precompile.py --only {level}")
        elif hashlib.sha256(path.read_bytes()).hexdigest() != entry["sha256"]:
            problems.append(f"{path.name} does not match the manifest: run python precompile.py --only {level}")
    return problems


def local_levels():
    """Every level of this machine's architecture, best first."""
    return [t.level for t in TARGETS.values() if t.machine == platform.machine()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", help="levels, comma separated: " + ", ".join(TARGETS))
    parser.add_argument("--all", action="store_true", help="every level of this architecture")
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
    levels = arguments.only.split(",") if arguments.only else local_levels() if arguments.all else native.usable_levels()[:1]
    unknown = [level for level in levels if level not in TARGETS]
    if unknown or not levels:
        parser.error(f"unknown level {unknown}; known: {', '.join(TARGETS)}")
    build(levels, arguments.jobs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
