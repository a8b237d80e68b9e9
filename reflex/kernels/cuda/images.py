"""Files of kernels for one target: from kernel files to cache/cuda-<target>.bin. Needs no numba where all PTX is at hand.

Per kernel file two kinds of objects are kept below build/objects, named by what they are made from: PTX for all targets
(cuda/*.json) and one cubin per architecture. A file holds one image per kernel file; backends/cuda/module.py reads it.
"""

import ast
import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ... import native
from ..sources import ROOT, sources, write_atomically
from .levels import TEXT, module
from .ptxas import statistics, to_cubin

HERE = Path(__file__).parent
MAGIC = "RFXCUDA1"
PAGE, ALIGNMENT = 4096, 64
MAKERS = ("compile", "export", "images", "levels", "ptxas")  # what every object depends on besides its own imports


def stems():
    """Kernel files: those that import `kernel` to declare some."""
    return [path.stem for path in sorted(HERE.glob("*.py")) if _declares_kernels(path)]


def _declares_kernels(path):
    return any(
        isinstance(node, ast.ImportFrom) and node.module == "export" and "kernel" in {alias.name for alias in node.names}
        for node in ast.parse(path.read_text()).body
    )


def fingerprint(stem, compiler):
    digest = hashlib.sha256(compiler.encode())
    for file in sorted(sources(HERE / f"{stem}.py") | {HERE / f"{name}.py" for name in MAKERS}):
        digest.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:24]


def sources_digest(compiler):
    """One hash over everything the CUDA kernels are made from."""
    return hashlib.sha256("".join(fingerprint(stem, compiler) for stem in stems()).encode()).hexdigest()


class Objects:
    """The objects of the present sources below a folder."""

    def __init__(self, folder, compiler):
        self.folder = Path(folder)
        self.prints = {stem: fingerprint(stem, compiler) for stem in stems()}

    def text(self, stem):
        return self.folder / "cuda" / f"{stem}-{self.prints[stem]}.json"

    def cubin(self, stem, target):
        return self.folder / target / f"{stem}-{self.prints[stem]}.cubin"

    def stale(self):
        """Kernel files whose PTX is not there, the longest first."""
        missing = [stem for stem in self.prints if not self.text(stem).exists()]
        return sorted(missing, key=lambda stem: -(HERE / f"{stem}.py").stat().st_size)

    def write_text(self, stem, facts):
        self.text(stem).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.text(stem), json.dumps(facts).encode())

    def kernels(self, stem, target):
        """[name, threads, letters, PTX body] of the kernels that a file gives for a target."""
        level = 80 if target == TEXT else int(target.removeprefix("sm_"))
        known = json.loads(self.text(stem).read_text())
        return [[name, threads, letters, body] for name, threads, letters, since, before, body in known if since <= level < before]

    def assemble(self, stem, target):
        """Make one image and its statistics, unless they are there. For PTX ptxas only checks the text."""
        path = self.cubin(stem, target)
        if path.exists() and path.with_suffix(".json").exists():
            return
        bodies = [body for *_, body in self.kernels(stem, target)]
        image, found = b"", {}
        if bodies:
            text = module(bodies, target)
            image, report = to_cubin(text, "sm_80" if target == TEXT else target)
            found = statistics(report)
            image = text.encode() + b"\0" if target == TEXT else image
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, image)
        write_atomically(path.with_suffix(".json"), json.dumps(found).encode())

    def statistics(self, stem, target):
        return json.loads(self.cubin(stem, target).with_suffix(".json").read_text())

    def faults(self, targets):
        """One line per kernel and architecture that keeps registers in memory."""
        for target in (t for t in targets if t != TEXT):
            for stem in self.prints:
                for name, found in sorted(self.statistics(stem, target).items()):
                    if found["stack"] or found["spills"]:
                        yield (
                            f"{name} ({stem}.py) on {target}: {found['stack']} bytes of stack, {found['spills']} bytes of spills, "
                            f"{found['registers']} registers"
                        )


def assemble_all(objects, targets, jobs):
    """Bring the images of `targets` up to date, several at a time."""
    with ThreadPoolExecutor(jobs) as pool:
        for _ in pool.map(lambda pair: objects.assemble(*pair), [(stem, target) for stem in objects.prints for target in targets]):
            pass


def image_file(objects, target):
    """(bytes of cuda-<target>.bin, {kernel: facts for the manifest})."""
    rows, images, at = [], [], 0
    for stem in objects.prints:
        image = objects.cubin(stem, target).read_bytes()
        found = objects.statistics(stem, target)
        for name, threads, letters, _ in objects.kernels(stem, target):
            facts = {"threads": threads, "registers": found[name]["registers"], "shared": found[name]["shared"]}
            rows.append((name, at, len(image), native.checksum_of(image), facts, letters or "-"))
        images.append(image + bytes(-len(image) % ALIGNMENT))
        at += len(images[-1])
    rows.sort()
    start = 0
    while True:  # offsets in the listing decide its length, and the other way round
        lines = [f"{n} {start + a} {s} {c} {f['threads']} {f['registers']} {f['shared']} {p}\n" for n, a, s, c, f, p in rows]
        listing = f"{''.join(lines)}\n".encode()
        first = f"{MAGIC} {target} {start} {at} {native.checksum_of(listing)}\n".encode()
        if len(first) + len(listing) <= start:
            break
        start = (len(first) + len(listing) + PAGE - 1) // PAGE * PAGE
    return (first + listing).ljust(start, b"\0") + b"".join(images), {name: facts for name, _, _, _, facts, _ in rows}


