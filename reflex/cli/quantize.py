"""Write a copy of a model with its matrices in other block formats, by one of llama.cpp's recipes.

FILE appears whole or not at all, one file even where the model is split. Metadata are kept. --type takes a recipe, which gives some
tensors better types than others; --override decides for the tensors whose names its expression is found in.
"""

from .front import SHOWN

PARAMETERS = (
    ("MODEL", "text", None, "A .gguf file (the first shard of a split one), or demo."),
    ("FILE", "text", None, "The file to write."),
    ("--type", "text", "", "The recipe; docs/quantization.md has them all."),
    ("--imatrix", "text", "", "Importance matrix of the model: a file of llama.cpp's, .gguf or .dat."),
    ("--override", "texts", (), "REGEX=TYPE: the type of tensors in whose names REGEX is found; the first one decides."),
    ("--output-type", "text", "", "Type of the matrix that makes logits."),
    ("--token-embedding-type", "text", "", "Type of the token embedding."),
    ("--pure", "switch", False, "The recipe's main type for every matrix."),
    ("--threads", "int", 0, "Threads; 0 takes the cores this process may use."),
    ("--dry-run", "switch", False, "Show what would become of each tensor; write nothing."),
    *SHOWN,
)


def run(out, model, file, type, imatrix, override, output_type, token_embedding_type, pure, threads, dry_run):
    """Exit code 0 after the file is in its place."""
    from ..demo import resolve
    from ..gguf.reader import open_model
    from ..lab import imatrix as matrices
    from ..tools import quantize

    out.mark("imports")
    importance = matrices.read(imatrix) if imatrix else None
    source = open_model(resolve(model))
    out.mark("header")
    pieces = quantize.plan(source, type, override, output_type, token_embedding_type, pure, importance)
    for warning in quantize.warnings(pieces, importance):
        out.warn(warning)
    if not dry_run:
        quantize.write(source, file, type, pieces, threads, quantize.Meter(out.note))
        out.settle(source)
        out.mark("written")
    if out.json:
        facts = {"command": "quantize", "model": model, "file": None if dry_run else file}
        out.record("result", facts | quantize.report(type, pieces))
    else:
        out.text(quantize.render(pieces, every=dry_run))
    source.close()
    return 0
