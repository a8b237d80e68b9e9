"""Every benchmark that README quotes, one after the other; then the picture and README's numbers. This is `make bench`.

    python bench/run.py                                   the demo model against the installed xllamacpp
    python bench/run.py demo b.gguf --peer .../bin --urgent

`--peer` is the folder of a llama.cpp build (llama-completion, llama-bench); without it they are left out. `--urgent` raises the
priority of everything that is timed, for a machine that is not idle; it needs root. Refuses nothing and hides nothing:
what a part prints and writes is what it measured.
"""

import argparse
import shlex
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import record
from bench.warm import wheel

PROMPT, CANDIDATES = "The capital of France is", (" Paris", " London")
COMMAND_LINE = "llama-completion -m MODEL -p PROMPT -n 1 -t 1 --temp 0 --no-warmup -no-cnv --no-display-prompt"
TUNED = "-fit off -c 256 -nr"  # no dry run, a small cache, weights as they are: found by hand, fastest for one short prompt


def part(name, *words):
    """Run one benchmark file; its failure ends the run."""
    command = [sys.executable, str(record.ROOT / "bench" / f"{name}.py"), *words]
    print(f"\n== bench/{name}.py {record.command(words)}", file=sys.stderr)
    if subprocess.run(command).returncode:
        sys.exit(f"bench/{name}.py failed")


def peers(folder):
    """The `--against` words of the engines that are here."""
    found = {}
    if folder:
        found["llama-completion"] = f"{folder}/{COMMAND_LINE}"
        found["llama-completion, tuned"] = f"{folder}/{COMMAND_LINE} {TUNED}"
    if wheel():
        script = record.ROOT / "bench" / "peers" / "xllamacpp_cold.py"
        found["xllamacpp, only ctypes"] = shlex.join([sys.executable, "-IS", str(script), wheel(), "MODEL", "PROMPT", *CANDIDATES])
    return [word for name, line in found.items() for word in ("--against", f"{name}={line}")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["demo"])
    parser.add_argument("--peer", default="", metavar="FOLDER", help="where llama-completion lies")
    parser.add_argument("--urgent", action="store_true")
    parser.add_argument("-n", default="", help="rounds of the cold and warm benchmarks; by default their own")
    options = parser.parse_args()
    rounds = ["-n", options.n] if options.n else []
    candidates = [word for text in CANDIDATES for word in ("--candidate", text)]
    against = [] if wheel() else ["--only", "reflex"]
    against += ["--native", f"{options.peer}/llama-bench"] if options.peer else []
    against += ["--realtime"] if options.urgent else []
    for model in options.models:
        part("cold", model, PROMPT, *candidates, *peers(options.peer), *rounds, *(["--urgent"] if options.urgent else []))
    for model in options.models:
        part("warm", model, *rounds, *against)
    part("memory", *options.models)
    part("picture")
    part("decision_picture")
    part("readme")


if __name__ == "__main__":
    main()
