"""Show what is in a model file: header, tensors, types, sizes, tokenizer, what will run where and the memory it needs.

Reads the header only; never touches the weights or a device.
"""

from .front import SHOWN

PARAMETERS = (("MODEL", "text", None, "A .gguf file, or demo."), *SHOWN)


def run(out, model):
    """Exit code 0 after printing the description."""
    from ..demo import resolve
    from ..inspect import describe, render

    out.mark("imports")
    description = describe(resolve(model))
    out.mark("header")
    if out.json:
        out.record("result", description)
    else:
        out.text(render(description))
    return 0
