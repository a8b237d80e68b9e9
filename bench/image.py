"""Runs the steps of deploy/Dockerfile where no container engine is, and weighs what they make: bench/results/image.json.

    debootstrap --variant=minbase trixie ROOTFS
    python bench/image.py ROOTFS [--bind PATH ...] [--keep FOLDER]

Needs root. A stage is a folder, RUN is chroot, COPY is cp, and `debian:13-slim` is ROOTFS without the documentation, manuals and
translations that the slim image leaves out too. --bind makes a file or folder of this machine visible to the steps (certificates,
settings of pip). At the end the image's own programs answer as its user: `reflex system1`, `reflex stdio` and the sidecar. Not run:
a container engine, so neither layers, entry points nor the NVIDIA runtime.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import record
from reflex import demo

DOCKERFILE = record.ROOT / "deploy" / "Dockerfile"
SLIM = ("usr/share/doc", "usr/share/man", "usr/share/info", "usr/share/locale", "usr/share/lintian", "usr/share/groff")
LEFT_BEHIND = ("var/lib/apt/lists", "var/cache/apt", "var/log")
LARGEST = 150_000_000  # bytes, the aim
USER = "65532:65532"
CHROOT = shutil.which("chroot") or "/usr/sbin/chroot"


def instructions(path):
    """(word, rest) of each instruction."""
    lines = [line for line in path.read_text().splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        word, _, rest = line.partition(" ")
        yield word, rest.strip()


def size(folder):
    """Bytes of the files below a folder, links counted once."""
    seen, total = set(), 0
    for place, _, names in os.walk(folder):
        for name in names:
            found = os.lstat(os.path.join(place, name))
            if (found.st_dev, found.st_ino) not in seen:
                seen.add((found.st_dev, found.st_ino))
                total += found.st_size
    return total


def packed(folder):
    """Bytes of a folder as an image travels: tar and gzip."""
    tar = subprocess.Popen(["tar", "-C", folder, "-c", "."], stdout=subprocess.PIPE)
    gzip = subprocess.run("gzip -6 | wc -c", shell=True, stdin=tar.stdout, capture_output=True, text=True, check=True)
    return int(gzip.stdout)


class Image:
    """The stages of a Dockerfile as folders below `work`."""

    def __init__(self, rootfs, work, binds):
        self.rootfs, self.work, self.binds = rootfs, Path(work), binds
        self.stages = {}
        self.steps = []  # of the last stage: (instruction, bytes after it)
        self.env = {}

    def run(self, path):
        for word, rest in instructions(path):
            begun = time.monotonic()
            getattr(self, f"_{word.lower()}", lambda rest: None)(rest)
            self.steps.append({"step": f"{word} {' '.join(rest.split())}"[:110], "bytes": size(self.here)})
            print(f"{time.monotonic() - begun:6.1f} s {self.steps[-1]['bytes'] / 1e6:8.1f} MB  {word} {rest[:90]}", flush=True)
        return self.here

    def _from(self, rest):
        base, _, name = rest.partition(" AS ")
        self.here = self.work / f"stage-{len(self.stages)}"
        subprocess.run(["cp", "-a", self.stages.get(base, self.rootfs), self.here], check=True)
        if base not in self.stages:
            slimmed(self.here)
        self.stages[name or "last"] = self.here
        self.steps = []

    def _copy(self, rest):
        words = rest.split()
        start = record.ROOT
        if words[0].startswith("--from="):
            start = self.stages[words.pop(0)[7:]]
        *sources, target = words
        place = self.here / target.lstrip("/")
        if len(sources) > 1 or target.endswith("/"):
            place.mkdir(parents=True, exist_ok=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        for source in sources:
            whole = ["-T"] if not place.is_dir() else []
            subprocess.run(["cp", "-a", *whole, start / source.lstrip("/"), place], check=True)

    def _env(self, rest):
        self.env |= dict(pair.split("=", 1) for pair in rest.split())

    def _run(self, rest):
        chroot(self.here, ["/bin/sh", "-c", rest], self.binds)


def slimmed(folder):
    """What makes a minimal Debian a slim one, packages that come later included."""
    rules = "".join(f"path-exclude /{name}/*\n" for name in SLIM) + "path-include /usr/share/doc/*/copyright\n"
    (folder / "etc/dpkg/dpkg.cfg.d/slim").write_text(rules)
    for name in SLIM:
        for path in sorted((folder / name).rglob("*"), reverse=True):
            if not path.is_dir() and path.name != "copyright":
                path.unlink()
    for name in LEFT_BEHIND:
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir(parents=True)


class Mounted:
    """`binds`, {place in the folder: path here}, in a folder; /proc too."""

    def __init__(self, folder, binds):
        self.folder, self.binds, self.done = folder, binds, []

    def __enter__(self):
        for target, source in {"/proc": "/proc", **self.binds}.items():
            place = self.folder / target.lstrip("/")
            new = not place.exists()
            if new and os.path.isdir(source):
                place.mkdir(parents=True)
            elif new:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.touch()
            subprocess.run(["mount", "--bind", source, place], check=True)
            self.done.append((place, new))

    def __exit__(self, *_):
        for place, new in reversed(self.done):
            subprocess.run(["umount", place], check=True)
            if new:
                place.rmdir() if place.is_dir() else place.unlink()


def chroot(folder, words, binds, user=None, **options):
    """Run a command in a folder; its stdout."""
    with Mounted(folder, binds):
        inside = [CHROOT, *([f"--userspec={user}"] if user else []), str(folder), *words]
        done = subprocess.run(inside, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    if done.returncode:
        raise SystemExit(f"exit code {done.returncode}: {words}\n{done.stdout.decode()[-3000:]}")
    return done.stdout.decode()


def trial(folder, env):
    """The image's programs, as its user, on the demo model: what they answer."""
    binds = {"/models/model.gguf": demo.path()}
    clean = {**{name: value.replace("$PATH", "/usr/bin:/bin") for name, value in env.items()}, "REFLEX_T0": ""}
    engine = ["/models/model.gguf", "--backend", "cpu"]
    call = [*engine[:1], "The capital of France is", "--candidate", " Paris", "--candidate", " London", "--json", *engine[1:]]
    best = json.loads(chroot(folder, ["reflex", "system1", *call], binds, USER, env=clean).splitlines()[0])["best_text"]
    listed = chroot(folder, ["python", "-c", "import sys, os; print(*sorted(os.listdir(sys.path[-1])))"], binds, USER, env=clean)
    with Mounted(folder, binds):
        words = [CHROOT, f"--userspec={USER}", str(folder), "reflex-sidecar", *engine, "--port", "0"]
        sidecar = subprocess.Popen(words, env=clean, stderr=subprocess.PIPE, text=True)
        try:
            url = sidecar.stderr.readline().split()[-1]
            said = json.dumps({"prompt": "The capital of France is", "labels": [" Paris", " London"]}).encode()
            asked = urllib.request.Request(f"{url}/v1/classify", said, {"content-type": "application/json"})
            answer = json.load(urllib.request.urlopen(asked, timeout=60))
        finally:
            sidecar.terminate()
            sidecar.wait(30)
    return {"system1": best, "sidecar": answer, "packages": listed.split()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rootfs", help="made by debootstrap, of the Debian that the Dockerfile names")
    parser.add_argument("--bind", action="append", default=[], help="a path that the steps see too")
    parser.add_argument("--keep", help="the folder in which to leave the stages")
    options = parser.parse_args()
    binds = {path: path for path in options.bind}
    with tempfile.TemporaryDirectory() as work:
        image = Image(options.rootfs, options.keep or work, binds)
        made = image.run(DOCKERFILE)
        answers = trial(made, image.env)
        base = Path(options.keep or work) / "base"
        subprocess.run(["cp", "-a", options.rootfs, base], check=True)
        slimmed(base)
        wheel = size(made / "opt/reflex")
        body = {
            "bytes": size(made), "packed_bytes": packed(made), "base_bytes": size(base), "base_packed_bytes": packed(base),
            "reflex_bytes": wheel, "steps": image.steps, "aim_bytes": LARGEST, "answers": answers,
            "not_run": "a container engine: layers, CMD, USER and the NVIDIA runtime are as the Dockerfile says, not as tried",
        }  # fmt: skip
    record.write("image", "the container image, step by step in folders", body)
    print(f"{body['bytes'] / 1e6:.1f} MB, packed {body['packed_bytes'] / 1e6:.1f}; system1 says {answers['system1']!r}")
    return 0 if body["bytes"] < LARGEST else 1


if __name__ == "__main__":
    sys.exit(main())
