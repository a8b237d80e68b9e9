"""What each way of starting the installed command costs, interleaved: python bench/launch.py [RUNS], with the venv's Python.

`starter` is the program that pip installs on x86-64, `shell` the script other machines get, `site` the fallback that
imports site, `direct` no launcher at all, `script` the starter without the folder that Python starts from, `modules` that without
the bundle of compiled modules as well. All run `smoke`.
"""

import os
import random
import shutil
import statistics
import sys
import sysconfig
import time
from pathlib import Path

BIN = Path(sys.executable).parent
SHELL = Path(__file__).resolve().parent.parent / "_build" / "launcher.sh"
CACHE = Path(sysconfig.get_path("purelib")) / "reflex" / "cache"
BUNDLE = CACHE / f"cold-{sys.implementation.cache_tag}.bin"
PTH = CACHE / f"start-{sys.implementation.cache_tag}" / "python._pth"
HIDDEN = {"script": [PTH], "modules": [PTH, BUNDLE]}


def commands():
    """{name: words}; the shell launcher is put beside the others for the time of the run."""
    shell = BIN / "reflex-shell"
    shutil.copy(SHELL, shell)
    shell.chmod(0o755)
    python = [str(BIN / "python"), "-IS", str(BIN / "reflex-python")]
    starter, site = str(BIN / "reflex"), str(BIN / "reflex-python")
    ways = {"starter": [starter], "shell": [str(shell)], "site": [site], "direct": python}
    return ways | {"script": [starter], "modules": [starter]}


def once(name, words):
    """Milliseconds from spawn to exit of one run."""
    hidden = HIDDEN.get(name, [])
    for path in hidden:
        path.rename(path.with_suffix(".off"))
    try:
        started = time.perf_counter()
        pid = os.posix_spawn(words[0], [*words, "smoke", "--count", "8"], os.environ)
        if os.waitpid(pid, 0)[1]:
            sys.exit(f"{name} failed")
        return (time.perf_counter() - started) * 1e3
    finally:
        for path in hidden:
            path.with_suffix(".off").rename(path)


def main():
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    words = commands()
    times = {name: [] for name in words}
    saved = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    try:
        for _ in range(runs + 3):
            for name in random.sample(list(words), len(words)):
                times[name].append(once(name, words[name]))
    finally:
        (BIN / "reflex-shell").unlink()
        os.dup2(saved, 1)
    for name, values in times.items():
        print(f"{name:<8} median {statistics.median(values[3:]):6.2f} ms, least {min(values[3:]):6.2f} ms of {runs}")


if __name__ == "__main__":
    main()
