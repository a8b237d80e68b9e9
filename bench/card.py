"""Every record of a GPU in one call: benches one after the other, each with its own limit, and a table of what came of them.

    python bench/card.py --mount --model model.gguf --reflex $(which reflex) --llama FOLDER_OF_A_BUILD --out OUT

Builds nothing: cache/ must hold the device's kernels. Files of shapes are made in --folder when they are first needed (8 GB, 18 GB
more for `experts`, 48 GB more for a while of `lazy`); --mount puts a tmpfs there, which is in memory sooner than a disk takes them.
A part that would not end within --seconds is not begun, and the table says so. Without --llama nothing is measured of llama.cpp,
without --model no real model is compared; `energy` needs nvidia-ml-py. After every part --out gets card.txt, what was printed and
the table so far, and records.tar.gz, the files of bench/results that were written. Exit code 1: a part failed, or found something
wrong. A copy of a tree says its commit by REFLEX_COMMIT.
"""

import argparse
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import record

SHAPES = {"0.6B": "qwen3-0.6b", "4B": "qwen3-4b", "8B": "qwen3-8b", "0.8B-hybrid": "qwen35-0.8b"}
BIG, LITTLE, LARGEST = "qwen3moe-30b-a3b", "qwen3moe-tiny", "kolibri1-78b"
RUNS = "3"  # processes of each kind of cold start
TAIL = 12  # lines of what a part printed, in the table's output
LAUNCHER = """#!{python} -IS
import sys
sys.path.append({root!r})
from reflex.cli.front import main
main()
"""


class Part(NamedTuple):
    """One line of the table. Its commands run side by side: several only where none is timed."""

    name: str
    seconds: int  # that it takes
    more: int  # with llama.cpp
    limit: int
    files: tuple  # shapes
    commands: object  # function from the options to [(bench, words ...)]


def given(option, *values):
    """`--option value` for every value that there is."""
    return [word for value in values if value for word in (option, value)]


def of_shapes(options, *names):
    return given("--shape", *(f"{name}={options.file(shape)}" for name, shape in SHAPES.items() if name in (names or SHAPES)))


def device(options):
    words = [*given("--model", *options.model), *of_shapes(options), "--state", "--runs", RUNS]
    return [["device", *words, *given("--reflex", options.reflex), *given("--llama", options.llama)]]


def experts(options):
    words = options.file(BIG), "--check", options.file(LITTLE), "--runs", "2"
    return [["experts_device", *words, *given("--reflex", options.reflex), *given("--llama", options.llama)]]


def lazy(options):
    words = options.file(BIG), LARGEST, "--folder", options.folder, "--runs", RUNS
    return [["lazy_device", *words, *given("--reflex", options.reflex)]]


def rows(options):
    return [["rows_device", *of_shapes(options, "0.6B", "4B", "8B")]]


def energy(options):
    return [["energy_device", *of_shapes(options), *given("--reflex", options.reflex)]]


def seeds(options):
    return [["families_device", "--seed", seed] for seed in "01"]


FILES = tuple(SHAPES.values())
PARTS = (
    Part("device", 195, 75, 330, FILES, device),
    Part("experts", 25, 50, 120, (BIG, LITTLE), experts),
    Part("formats", 12, 0, 40, (), lambda options: [["formats_device"]]),
    Part("families", 45, 0, 90, (), seeds),
    Part("bits", 40, 0, 85, (), lambda options: [["bits_device"]]),
    Part("rows", 12, 0, 40, FILES[:3], rows),
    Part("lazy", 90, 0, 150, (BIG,), lazy),
    Part("energy", 60, 0, 100, FILES, energy),
)


class Options(argparse.Namespace):
    """What was asked for."""

    def file(self, shape):
        return str(Path(self.folder) / f"{shape}.gguf")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ", ".join(part.name for part in PARTS)
    parser.add_argument("--only", default="", help=f"parts, comma separated: {names}")
    parser.add_argument("--skip", default="", help="parts, comma separated")
    parser.add_argument("--folder", default="/mnt/ram", help="where files of shapes are made")
    parser.add_argument("--mount", action="store_true", help="mount a tmpfs of 100 GB at --folder")
    parser.add_argument("--model", action="append", default=[], help="a real model to compare")
    parser.add_argument("--reflex", default="", help="the installed reflex command; a script that starts this tree by default")
    parser.add_argument("--llama", default="", help="a folder with llama.cpp's programs, built with CUDA for this card")
    parser.add_argument("--out", default=".", help="where records.tar.gz and card.txt are written")
    parser.add_argument("--seconds", type=float, default=570, help="that all parts may take together")
    options = parser.parse_args(namespace=Options())
    for name in filter(None, [*options.only.split(","), *options.skip.split(",")]):
        if name not in [part.name for part in PARTS]:
            parser.error(f"no part named {name}; there are {names}")
    return options


def launcher(folder):
    """A command that starts this tree as an installed one starts: without `site`."""
    path = Path(folder) / "reflex"
    path.write_text(LAUNCHER.format(python=sys.executable, root=str(record.ROOT)))
    path.chmod(0o755)
    return str(path)


def make(part, options, until, log):
    """The part's files that are not there yet; whether all are."""
    jobs = [["shapes", shape, options.file(shape)] for shape in part.files if not Path(options.file(shape)).exists()]
    return all(together([job], until, log) == "ok" for job in jobs)


def together(commands, until, log):
    """Run benches side by side until a moment; what came of them."""
    begun = [
        subprocess.Popen(
            [sys.executable, f"bench/{bench}.py", *words],  # as a person calls it: records keep the words
            cwd=record.ROOT,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that what it started ends with it
        )
        for bench, *words in commands
    ]
    late = False
    for process in begun:
        try:
            process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            late = True
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    codes = [process.returncode for process in begun if process.returncode]
    return "CUT SHORT" if late else f"exit code {codes[0]}" if codes else "ok"


def left_out(part, options, left):
    """Why a part is not begun; nothing where it is."""
    if part.name in options.skip.split(",") or (options.only and part.name not in options.only.split(",")):
        return "not asked for"
    if part.name == "energy" and not find_spec("pynvml"):
        return "left out: nvidia-ml-py is not there"
    takes = part.seconds + (part.more if options.llama else 0)
    return f"left out: takes {takes} s, {left:.0f} s are left" if takes > left else ""


class Card:
    """The table and the files of --out, which grow with every part."""

    def __init__(self, options):
        self.options, self.began, self.lines, self.texts = options, time.time(), [], []
        self.out = Path(options.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.until = time.monotonic() + options.seconds

    def run(self, part):
        started = time.monotonic()
        why = left_out(part, self.options, self.until - started)
        if not why:
            with tempfile.TemporaryFile() as log:
                until = min(self.until, started + part.limit)
                why = together(part.commands(self.options), until, log) if make(part, self.options, until, log) else "no files"
                log.seek(0)
                self.texts.append((part.name, log.read().decode(errors="replace")))
            print(f"---- {part.name}: {why}\n" + "\n".join(self.texts[-1][1].splitlines()[-TAIL:]), flush=True)
        self.lines.append(f"{part.name:<10} {time.monotonic() - started:6.1f} s  {why}")
        self.keep()
        return why

    def keep(self):
        """Everything so far into --out."""
        written = [path for path in sorted(record.RESULTS.glob("*.json")) if path.stat().st_mtime >= self.began]
        with tarfile.open(self.out / "records.tar.gz", "w:gz") as archive:
            for path in written:
                archive.add(path, path.name)
        table = [*self.lines, f"records: {' '.join(path.stem for path in written) or 'none'}"]
        parts = [f"==== {name}\n{text}" for name, text in self.texts]
        (self.out / "card.txt").write_text("\n".join([*table, "", *parts]))
        return table


def main():
    options = arguments()
    if options.mount and not os.path.ismount(options.folder):
        Path(options.folder).mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100g,huge=always", "tmpfs", options.folder], check=True)
    card = Card(options)
    with tempfile.TemporaryDirectory() as folder:
        options.reflex = options.reflex or launcher(folder)
        found = [card.run(part) for part in PARTS]
    print("\n".join(card.keep()))
    return 0 if all(why == "ok" or why.startswith(("left out", "not asked")) for why in found) else 1


if __name__ == "__main__":
    sys.exit(main())
