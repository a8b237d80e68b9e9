"""Ways of bringing a file into device memory, on one folder after another: what each gives, and where pinning is safe.

    python bench/upload.py [FOLDER ...] [--megabytes 400]

Every way runs in a process of its own with a time limit, because pinning pages of a file that the driver does not like never
returns. The file is written just before, so it comes from memory, not from a disk. Needs a GPU; writes no results file.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter_ns

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
LIMIT = 60  # seconds for one way
WAYS = {  # name: names of upload.py changed for it
    "registered 8 MB": {"FILE_SYSTEMS": "any", "SMALL": 8 << 20, "LARGE": 8 << 20},
    "registered 16 MB": {"FILE_SYSTEMS": "any", "SMALL": 16 << 20, "LARGE": 16 << 20},
    "registered 32 MB": {"FILE_SYSTEMS": "any", "SMALL": 32 << 20, "LARGE": 32 << 20},
    "registered 64 MB": {"FILE_SYSTEMS": "any", "SMALL": 64 << 20, "LARGE": 64 << 20},
    "mapped, registered 16 MB": {"FILE_SYSTEMS": "any", "SMALL": 16 << 20, "LARGE": 16 << 20, "mapped": True},
    "mapped, registered 32 MB": {"FILE_SYSTEMS": "any", "SMALL": 32 << 20, "LARGE": 32 << 20, "mapped": True},
    "mapped, registered 64 MB": {"FILE_SYSTEMS": "any", "SMALL": 64 << 20, "LARGE": 64 << 20, "mapped": True},
    "registered 16 MB, 2 threads": {"FILE_SYSTEMS": "any", "SMALL": 16 << 20, "LARGE": 16 << 20, "PINNING_THREADS": 2},
    "registered 32 MB, 2 threads": {"FILE_SYSTEMS": "any", "SMALL": 32 << 20, "LARGE": 32 << 20, "PINNING_THREADS": 2},
    "registered 32 MB, 3 threads": {"FILE_SYSTEMS": "any", "SMALL": 32 << 20, "LARGE": 32 << 20, "PINNING_THREADS": 3},
    "ring 2 threads": {"FILE_SYSTEMS": "none", "RING_THREADS": 2},
    "ring 4 threads": {"FILE_SYSTEMS": "none", "RING_THREADS": 4},
    "ring 8 threads": {"FILE_SYSTEMS": "none", "RING_THREADS": 8},
    "ring 4 threads, 2 MB": {"FILE_SYSTEMS": "none", "RING_THREADS": 4, "RING_BYTES": 2 << 20},
    "ring 4 threads, 8 MB": {"FILE_SYSTEMS": "none", "RING_THREADS": 4, "RING_BYTES": 8 << 20},
    "pageable": {"FILE_SYSTEMS": "none", "RING_BYTES": 4 << 20, "RING_BUFFERS": 1 << 30},  # a ring that no memory can hold
}


class Every:
    def __contains__(self, number):
        return True


class Whole:
    """A file as upload.py sees a shard of a model."""

    def __init__(self, path):
        from reflex import native

        status = os.stat(path)
        self.path, self.size = str(path), status.st_size
        self.stamp = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
        with open(path, "rb") as file:
            self.mapping = native.map_descriptor(file.fileno(), self.size, self.path)


def one(path, name):
    """Upload a file one way; prints a JSON object."""
    from reflex.backends.cuda import device, upload

    for key, value in WAYS[name].items():
        setattr(upload, key, {"any": Every(), "none": ()}.get(value, value) if key == "FILE_SYSTEMS" else value)
    gpu = device.start()
    whole = Whole(path)
    base = gpu.allocate(whole.size, "the file")
    job = upload.Upload([whole])
    file_system = job.shards[0].file_system()
    job.add(0, whole.mapping.address, whole.size)
    if WAYS[name].get("mapped"):
        job.populate()
        job._mapping.acquire()
    started = perf_counter_ns()
    job.begin(gpu, base)
    job.wait()
    gpu.synchronize()
    seconds = (perf_counter_ns() - started) / 1e9
    facts = {"way": job.way, "milliseconds": seconds * 1e3, "GB/s": whole.size / seconds / 1e9, "system": hex(file_system)}
    print(json.dumps(facts | {"ended": perf_counter_ns()}), flush=True)
    os._exit(0)  # as the command line ends: nothing is unpinned


def show(folder, megabytes):
    """One line per way for a folder."""
    path = Path(folder) / "reflex-upload.bin"
    block = os.urandom(1 << 20)
    try:
        with open(path, "wb") as file:
            for _ in range(megabytes):
                file.write(block)
        for name in WAYS:
            command = [sys.executable, __file__, "--one", name, str(path)]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
            except subprocess.TimeoutExpired:
                print(f"{folder:<16}{name:<26} did not return in {LIMIT} s", flush=True)
                continue
            if done.returncode:
                print(f"{folder:<16}{name:<26} {done.stderr.strip().splitlines()[-1]}", flush=True)
                continue
            found = json.loads(done.stdout)
            leaving = (perf_counter_ns() - found["ended"]) / 1e6
            figures = f"{found['milliseconds']:8.1f} ms {found['GB/s']:6.1f} GB/s, process gone after {leaving:5.1f} ms"
            print(f"{folder:<16}{name:<26}{figures}   {found['way']}, file system {found['system']}", flush=True)
    except OSError as error:
        print(f"{folder:<16}cannot be used: {error}", flush=True)
    finally:
        path.unlink(missing_ok=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folders", nargs="*", default=[str(ROOT), "/tmp", "/dev/shm"])
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        return one(arguments.folders[0], arguments.one)
    for folder in arguments.folders:
        show(folder, arguments.megabytes)
    return None


if __name__ == "__main__":
    main()
