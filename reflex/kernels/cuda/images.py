"""Files of kernels for one target: from kernel files to cache/cuda-<target>.bin. Needs no numba where all PTX is at hand.

Two kinds of objects are kept below build/objects, named by what they are made from: PTX of a kernel file for all targets
(cuda/*.json) and one image per kernel, or per file for kernels that belong together, and target. backends/cuda/module.py reads
the files; a model loads the images that it launches kernels of, so what few models need together lies apart.
"""

import ast
import hashlib
import json
import lzma
from array import array
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ... import native
from ..sources import ROOT, sources, write_atomically
from .levels import TEXT, module
from .ptxas import statistics, to_cubin

HERE = Path(__file__).parent
MAGIC = "RFXCUDA3"
PAGE, ALIGNMENT = 4096, 64
UNIT, LEAST = 16, 96  # bytes that pieces of images are multiples of, and of the least that an image shares with others
PACKING = [{"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": 1 << 20, "lc": 4, "pb": 0}]  # of PTX: text, at most a megabyte
TEXT_MAKERS, IMAGE_MAKERS = ("compile", "export", "levels"), ("levels", "ptxas")  # what objects depend on besides their sources


def stems():
    """Kernel files: those that import `kernel` to declare some."""
    return [path.stem for path in sorted(HERE.glob("*.py")) if _declares_kernels(path)]


def _declares_kernels(path):
    return any(
        isinstance(node, ast.ImportFrom) and node.module == "export" and "kernel" in {alias.name for alias in node.names}
        for node in ast.parse(path.read_text()).body
    )


def _digest(makers, *parts):
    digest = hashlib.sha256()
    for file in sorted(makers):
        digest.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes())
    for part in parts:
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()


def _files(names):
    return {HERE / f"{name}.py" for name in names}


def fingerprint(stem, compiler):
    return _digest(sources(HERE / f"{stem}.py") | _files(TEXT_MAKERS), compiler)[:24]


def files():
    """Every source file that the CUDA kernels are made from."""
    return _files((*TEXT_MAKERS, *IMAGE_MAKERS, "images")).union(*(sources(HERE / f"{stem}.py") for stem in stems()))


def sources_digest(compiler):
    """One hash over everything the CUDA kernels are made from."""
    return _digest(_files((*IMAGE_MAKERS, "images")), *(fingerprint(stem, compiler) for stem in stems()))


class Image:
    """Kernels that are loaded together on one target. `kernels`: [name, threads, letters, PTX body] of each."""

    def __init__(self, stem, name, target, kernels, path):
        self.stem = stem
        self.name = name
        self.target = target
        self.kernels = kernels
        self.path = path

    def assemble(self):
        """Make the image and its statistics, unless they are there. For PTX ptxas only checks the text."""
        if self.path.exists() and self.path.with_suffix(".json").exists():
            return
        text = module([body for *_, body in self.kernels], self.target)
        data, report = to_cubin(text, "sm_80" if self.target == TEXT else self.target)
        if self.target == TEXT:  # read where no cubin fits, and compiled for longer than unpacked
            data = lzma.compress(text.encode() + b"\0", check=lzma.CHECK_NONE, filters=PACKING)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, data)
        write_atomically(self.path.with_suffix(".json"), json.dumps(statistics(report)).encode())

    def statistics(self):
        return json.loads(self.path.with_suffix(".json").read_text())


class Objects:
    """The objects of the present sources below a folder."""

    def __init__(self, folder, compiler):
        self.folder = Path(folder)
        self.prints = {stem: fingerprint(stem, compiler) for stem in stems()}
        self.makers = _digest(_files(IMAGE_MAKERS), compiler)

    def text(self, stem):
        return self.folder / "cuda" / f"{stem}-{self.prints[stem]}.json"

    def stale(self):
        """Kernel files whose PTX is not there, the longest first."""
        missing = [stem for stem in self.prints if not self.text(stem).exists()]
        return sorted(missing, key=lambda stem: -(HERE / f"{stem}.py").stat().st_size)

    def write_text(self, stem, facts):
        self.text(stem).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.text(stem), json.dumps(facts).encode())

    def images(self, target):
        """The Images of a target, in the order of the kernel files."""
        level = 80 if target == TEXT else int(target.removeprefix("sm_"))
        made = self.makers + str(PACKING) * (target == TEXT)
        for stem in self.prints:
            groups = {}
            for name, alone, threads, letters, since, before, body in json.loads(self.text(stem).read_text()):
                if since <= level < before:
                    groups.setdefault(name if alone else stem, []).append([name, threads, letters, body])
            for image, kernels in groups.items():
                own = _digest((), made, *(body for *_, body in kernels))[:24]
                yield Image(stem, image, target, kernels, self.folder / target / f"{image}-{own}.cubin")

    def faults(self, targets):
        """One line per kernel and architecture that keeps registers in memory."""
        for image in (image for target in targets if target != TEXT for image in self.images(target)):
            for name, found in sorted(image.statistics().items()):
                if found["stack"] or found["spills"]:
                    yield (
                        f"{name} ({image.stem}.py) on {image.target}: {found['stack']} bytes of stack, {found['spills']} bytes of "
                        f"spills, {found['registers']} registers"
                    )


def assemble_all(objects, targets, jobs):
    """Bring the images of `targets` up to date, several at a time."""
    with ThreadPoolExecutor(jobs) as pool:
        for target in targets:
            for _ in pool.map(Image.assemble, objects.images(target)):
                pass


def _chained(images):
    """(image, bytes) in an order where each comes behind the one that it shares most words with, for its size: wheels are
    compressed by looking back 32 KB."""
    left = [(image, data, frozenset(memoryview(data[: len(data) & -8]).cast("q"))) for image, data in images]
    latest = left[0][2]
    while left:
        best = max(range(len(left)), key=lambda i: len(latest & left[i][2]) / len(left[i][2]) ** 0.5)
        image, data, latest = left.pop(best)
        yield image, data


def _shared(data):
    """(bytes without runs that were there before, [place in them of each unit]): kernels of one file have much in common, and
    tables of block formats, farther apart than what compresses a wheel looks back."""
    known, kept, places, size = {}, [], [], len(data) // UNIT
    at, least = 0, LEAST // UNIT
    units = [data[UNIT * i : UNIT * (i + 1)] for i in range(size)]
    while at < size:
        run = data[UNIT * at : UNIT * at + LEAST]
        before = known.setdefault(run, at) if len(run) == LEAST else at
        count = least
        if at - before < least:  # new, or one value again and again, which would be a piece for each
            places.append(len(kept))
            kept.append(units[at])
            at += 1
            continue
        while at + count < size and before + count < at and units[before + count] == units[at + count]:
            count += 1
        places += places[before : before + count]
        at += count
    return b"".join(kept), places


def _pieces(places):
    """[first place, units] of runs of places that follow each other."""
    found = []
    for place in places:
        if found and sum(found[-1]) == place:
            found[-1][1] += 1
        else:
            found.append([place, 1])
    return found


def image_file(objects, target):
    """(bytes of cuda-<target>.bin, {kernel: facts for the manifest})."""
    images = list(_chained([(image, image.path.read_bytes()) for image in objects.images(target)]))
    padded = [data + bytes(-len(data) % ALIGNMENT) for _, data in images]
    kept, places = _shared(b"".join(padded)) if target != TEXT else (b"".join(padded), range(sum(map(len, padded)) // UNIT))
    rows, tables, at, first = [], [], len(kept), 0
    for (image, data), whole in zip(images, padded, strict=True):
        found, pieces = image.statistics(), _pieces(places[first // UNIT : (first + len(whole)) // UNIT])
        first += len(whole)
        alone = len(pieces) == 1
        where, size, count = (UNIT * pieces[0][0], len(data), 0) if alone else (at, len(whole), len(pieces))
        checksum = native.checksum_of(data if alone else whole)
        for name, threads, letters, _ in image.kernels:
            facts = {"threads": threads, "registers": found[name]["registers"], "shared": found[name]["shared"]}
            rows.append((name, where, size, count, checksum, facts, letters or "-"))
        if not alone:
            tables.append(pieces)
            at += 8 * len(pieces)
    rows.sort()
    start = 0
    while True:  # offsets in the listing decide its length, and the other way round
        lines = [
            f"{n} {start + a} {s} {p} {c} {f['threads']} {f['registers']} {f['shared']} {letters}\n"
            for n, a, s, p, c, f, letters in rows
        ]
        listing = f"{''.join(lines)}\n".encode()
        line = f"{MAGIC} {target} {start} {at} {native.checksum_of(listing)}\n".encode()
        if len(line) + len(listing) <= start:
            break
        start = (len(line) + len(listing) + PAGE - 1) // PAGE * PAGE
    table = array("I", (word for pieces in tables for place, count in pieces for word in (start // UNIT + place, count)))
    data = (line + listing).ljust(start, b"\0") + kept + table.tobytes()
    return data, {name: facts for name, *_, facts, _ in rows}
