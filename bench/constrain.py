"""What a constraint costs before and between tokens: processor time of a fresh process, from the schema to the first mask.

    python bench/constrain.py MODEL [-n ROUNDS]

Phases: `imports` of the package, `compile` of the schema to a grammar, `bind` to the vocabulary (the bytes of all its tokens),
`first mask`, then `string mask`, the first inside a bounded string, where every token must be walked and every state made, and
`next mask`, the same one character later. Only the processor time of the thread counts, so a busy machine does not matter.
Writes bench/results/constrain-TITLE.json.
"""

import argparse
import json
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "email": {"type": "string", "format": "email"},
        "tags": {"type": "array", "items": {"enum": ["news", "sport", "other"]}, "maxItems": 3},
        "score": {"type": "number", "minimum": 0, "maximum": 1},
        "comment": {"type": "string"},
        "ok": {"type": "boolean"},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


def once(path):
    """{phase: milliseconds} of this process, and how many tokens there are."""
    from reflex.open import open_model

    _, _, session = open_model(path, "cpu", 512, 1)
    session.encode("hello")
    text, marks = json.dumps(SCHEMA), [time.thread_time_ns()]

    def mark(value=None):
        marks.append(time.thread_time_ns())
        return value

    from reflex.constrain import grammar_of, guide, schema  # noqa: F401

    mark()
    grammar = mark(grammar_of(json_schema=text))
    constraint = mark(grammar.bind(session))
    walk = constraint.begin(session, 200)
    mark(constraint.mask(walk.state, 199))
    state = walk.state
    for count, data in enumerate((b'{"name":"A', b"n")):
        for byte in data:
            state = constraint.states.step(state, byte)
        if count:
            marks[-1] = time.thread_time_ns()
        else:
            mark()
        mark(constraint.mask(state, 150))
    names = ("imports", "compile", "bind", "first mask", "", "string mask", "next mask")
    spans = [(b - a) / 1e6 for a, b in pairwise(marks)]
    return dict(zip(names, spans, strict=True)), constraint.words.count


def main():
    from bench import record
    from reflex import demo

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("-n", type=int, default=9)
    options = parser.parse_args()
    path = demo.path() if options.model == "demo" else options.model
    runs = []
    for _ in range(options.n + 1):  # the first one writes bytecode
        done = subprocess.run([sys.executable, __file__, "--once", str(path)], capture_output=True, text=True, check=True)
        runs.append(json.loads(done.stdout))
    found = {name: record.summary([run[0][name] for run in runs[1:]]) for name in runs[0][0] if name}
    facts = record.model(str(path))
    body = {"model": facts, "tokens": runs[0][1], "milliseconds": found}
    record.write(f"constrain-{record.slug(facts['title'])}", "processor time of a constraint, by phase", body)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--once"]:
        print(json.dumps(once(sys.argv[2])))
    else:
        main()
