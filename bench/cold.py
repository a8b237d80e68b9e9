"""From process start to the first result, phase by phase, next to any other engine's command.

    python bench/cold.py demo "The capital of France is" --candidate " Paris" --candidate " London" \\
        --against 'llama-completion=llama-completion -m MODEL -p PROMPT -n 1 -t 1 --no-warmup -no-cnv'

One round runs every engine once, in turn, so that a change of the machine's mood meets all of them; the ratio is taken
within the round. `MODEL` and `PROMPT` inside a command stand for the first two arguments. A child runs alone on the
processors of --cpus. The page cache is warm after the rounds thrown away first. The first result is the first byte on
stdout: for `reflex system1` the whole scored answer, for a text generator usually its first token.
"""

import argparse
import os
import shlex
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import record, spawn
from reflex import demo

REFLEX = Path(sys.executable).parent / "reflex"


class Engine:
    """One command and the times of its runs."""

    def __init__(self, name, words):
        self.name, self.words, self.runs = name, words, []

    def as_dict(self):
        body = {
            "name": self.name,
            "command": record.command(self.words),
            "first_ms": record.summary([run.first for run in self.runs]),
            "exit_ms": record.summary([run.exit for run in self.runs]),
            "peak_mib": record.summary([run.peak / 2**20 for run in self.runs], 1),
            "answer": record.bare(self.runs[-1].stdout.decode(errors="replace").strip().splitlines()[0][:400]),
        }
        reports = [run.phases() for run in self.runs]
        if all(reports):
            body["phases_ms"] = durations(reports)
        return body


def durations(reports):
    """{phase: summary of its own milliseconds} from reports of {phase: milliseconds since exec at its end}."""
    spent = {name: [] for name in reports[0]}
    for report in reports:
        before = 0.0
        for name, end in report.items():
            spent[name].append(end - before)
            before = end
    return {name: record.summary(values) for name, values in spent.items()}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("prompt")
    parser.add_argument("--candidate", action="append", default=[], metavar="TEXT")
    parser.add_argument("--reflex", default=str(REFLEX), help="the reflex command to measure")
    parser.add_argument("--against", action="append", default=[], metavar="NAME=CMD", help="another engine; repeatable")
    parser.add_argument("--cpus", default="0", help="processors a child may use, like 0 or 0,1; empty: all")
    parser.add_argument("-n", type=int, default=21, help="rounds")
    parser.add_argument("--warmups", type=int, default=3, help="rounds thrown away first")
    parser.add_argument("--urgent", action="store_true", help="highest nice level for all engines: on a busy machine, as root")
    parser.add_argument("--what", default="", help="results file bench/results/cold-WHAT.json; default: its title")
    return parser.parse_args()


def engines(options, path):
    """The engines of the command line, Reflex first."""
    words = [*shlex.split(options.reflex), "system1", path, options.prompt]
    for text in options.candidate:
        words += ["--candidate", text]
    yield Engine("reflex", [*words, "--json", "--timings"])
    for given in options.against:
        name, equals, line = given.partition("=")
        if not equals:
            sys.exit(f"--against {given!r}: expected NAME=CMD")
        known = {"MODEL": path, "PROMPT": options.prompt}
        yield Engine(name, [known.get(word, word) for word in shlex.split(line)])


def show(found):
    print(f"{'engine':<26}{'first result ms':>16}{'min':>9}{'exit':>9}{'peak MiB':>10}{'times reflex':>14}")
    for engine in found["engines"]:
        ratio = found["ratios"].get(engine["name"])
        line = f"{engine['name']:<26}{engine['first_ms']['median']:16.1f}{engine['first_ms']['min']:9.1f}"
        line += f"{engine['exit_ms']['median']:9.1f}{engine['peak_mib']['median']:10.1f}"
        print(line + (f"{ratio['median']:14.2f}" if ratio else ""))
    before = 0.0
    for name, spent in found["engines"][0].get("phases_ms", {}).items():
        before += spent["median"]
        print(f"    {name:<12}{spent['median']:8.2f}{before:9.2f}")


def main():
    options = arguments()
    path = demo.resolve(options.model)
    cpus = {int(cpu) for cpu in options.cpus.split(",") if cpu}
    if options.urgent:
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    everyone = list(engines(options, path))
    for round_number in range(-options.warmups, options.n):
        for engine in everyone:
            run = spawn.run(engine.words, cpus)
            if round_number >= 0:
                engine.runs.append(run)
    first = {engine.name: [run.first for run in engine.runs] for engine in everyone}
    model = record.model(path)
    report = {
        "model": model,
        "prompt": options.prompt,
        "cpus": sorted(cpus) or "all",
        "urgent": options.urgent,
        "page_cache": "warm",
        "engines": [engine.as_dict() for engine in everyone],
        "ratios": {name: record.ratios(first["reflex"], times) for name, times in first.items() if name != "reflex"},
    }
    show(report)
    record.write(f"cold-{options.what or record.slug(model['title'])}", "process start to first result", report)


if __name__ == "__main__":
    main()
