"""Collect an importance matrix: how much each column of a model's matrices matters on a text, for `reflex quantize --imatrix`.

The text is cut into windows side by side, and the squares of what every matrix is multiplied with are summed up; the file is
llama.cpp's. Special tokens that the text spells out are text. Ctrl-C writes what the windows so far give and exits with 130.
"""

from . import front, measuring

PARAMETERS = (
    ("MODEL", "text", None, "A .gguf file (the first shard of a split one), best one with little loss; or demo."),
    ("TEXT", "text", None, "The text: a file, - for stdin, or demo for one that comes with Reflex."),
    ("-o", "text", "imatrix.gguf", "The file to write: .gguf, or the older format where it ends in .dat."),
    ("--window", "int", 0, "Tokens seen together; 0 takes 512, or the context where that is less."),
    ("--chunks", "int", 0, "Use the first so many windows of the text; 0 takes all."),
    ("--process-output", "switch", False, "Collect for the output matrix too."),
    ("--backend", ("cpu", "reference"), "cpu", "What computes."),
    ("--threads", "int", 0, "Threads of the CPU backend; 0 takes the cores this process may use."),
    *front.SHOWN,
)


def run(out, model, text, o, window, chunks, process_output, engine):
    """Exit code 0 after the file is in its place, 130 after Ctrl-C."""
    from ..output_file import check_place

    out.mark("imports")
    content = measuring.read_text(text)
    opened = measuring.opened(model, engine, out)
    check_place(o, [shard.path for shard in opened.file.shards] + [text])
    from ..lab.importance import Collecting, experts_without_rows

    collecting = Collecting(opened.session().core, content, window, chunks, process_output, [text])
    for name in collecting.unseen()[:1]:
        count = len(collecting.unseen())
        out.warn(f"nothing is collected for {count} matrices, whose columns no step has as they are: {name!a} for one")
    code = measuring.finish(collecting, "windows")
    found = collecting.result()
    out.mark("text")
    if found is None:
        return code
    found.save(o)
    out.settle(opened.file)
    idle = experts_without_rows(found)
    for name, count in list(idle.items())[:1]:
        out.warn(f"{len(idle)} stacks have experts that no token went to, {name!a} {count} of them: give more text")
    facts = {"command": "imatrix", "model": opened.path, "backend": opened.backend, "file": o, "window": found.chunk_size}
    facts |= {"begin": collecting.windows.spelled, "chunks": found.chunks, "tokens": found.chunks * found.chunk_size}
    facts |= {"matrices": len(found.sums), "unseen": collecting.unseen(), "idle_experts": idle, "complete": not code}
    if out.json:
        out.record("result", facts)
    else:
        part = "" if facts["complete"] else f", interrupted after {found.chunks} of {len(collecting)} windows"
        out.text(f"{o}: {len(found.sums)} matrices, {found.chunks} windows of {found.chunk_size} tokens{part}\n")
    return code
