"""Which tensor hurts: one tensor or group at a time gets another type, in memory, and the changes are ranked by what they do.

Measured is the KL divergence from the unmodified model on a text. Several types with commas: each tensor gets the first whose
blocks divide its rows. Ctrl-C prints what is known and exits with 130.
"""

from ..quant.types import TRIAL
from . import front, measuring

PARAMETERS = (
    ("MODEL", "text", None, "A .gguf file, or demo."),
    ("--type", "text", TRIAL, "The type to try, or several with commas."),
    ("--by", ("kind", "layer", "tensor"), "kind", "What is changed at once: the tensors of a name, of a layer, or one."),
    ("--tensors", "texts", (), "Only tensors of this name or regular expression; may be given several times."),
    ("--imatrix", "text", "", "Importance matrix of the model: a file of llama.cpp's, .gguf or .dat."),
    ("--text", "text", "demo", "The text: a file, - for stdin, or demo for one that comes with Reflex."),
    *measuring.WINDOWS,
    ("--tokens", "int", 512, "Use the first so many tokens of the text; 0 takes all."),
    measuring.PICTURE,
    *front.ENGINE,
    *front.SHOWN,
)


def run(out, model, type, by, tensors, imatrix, text, method, window, stride, tokens, picture, engine):
    """Exit code 0 after printing the ranking, 130 after Ctrl-C."""
    measuring.checked_picture(picture)
    from ..lab.sensitivity import Scan

    out.mark("imports")
    importance = None
    if imatrix:
        from ..lab.imatrix import read

        importance = read(imatrix).entries
    content = measuring.read_text(text)
    opened = measuring.opened(model, engine, out)
    scan = Scan(opened, content, type, tensors or None, by, importance, method, window, stride, tokens)
    code = measuring.finish(scan, "groups")
    found = scan.result()
    out.mark("scan")
    if out.json:
        out.record("result", found.to_dict())
    else:
        out.text(shown(found, len(scan)))
    measuring.draw(found, picture, out)
    return code


def shown(found, groups):
    """The result as lines of text."""
    from ..tables import render

    pm = measuring.pm
    rows = [
        {
            found.by: row.name, "tensors": row.tensors, "from": " ".join(row.types_before), "to": " ".join(row.types_after),
            "MB": f"{(row.bytes_after - row.bytes_before) / 1e6:+.2f}", "relative error": f"{row.error:.4f}",
            "KL": pm(row.kl, row.kl_error, ".5f"), "same top %": f"{100 * row.same_top:.1f}",
            "perplexity ratio": f"{row.ratio:.4f}",
        }
        for row in found.rows
    ]  # fmt: skip
    lines = render(rows, [*rows[0]]) if rows else ""
    if found.perplexity is not None:
        lines += f"unmodified: perplexity {found.perplexity:.4f} on {found.scored} tokens; {measuring.in_windows(found)}\n"
    if found.unfit:
        lines += f"{len(found.unfit)} tensors were left out, as {found.tried} does not divide their rows: give a second type\n"
    if found.unchanged:
        lines += f"{len(found.unchanged)} tensors were left out: they have the type\n"
    return lines if found.complete else lines + f"interrupted after {len(found.rows)} of {groups}\n"
