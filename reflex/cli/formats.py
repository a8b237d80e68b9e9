"""List the block formats of ggml: sizes, and which kernels multiply by them where they lie.

cpu: "vector" and "float32" have kernels of their own, "decoded" is unpacked row by row. cuda: "dot" is for one row, "tensor
cores" for more.
"""

from .front import SHOWN

PARAMETERS = SHOWN


def run(out):
    """Exit code 0 after printing the table."""
    from ..tables import formats, render

    rows = formats()
    if out.json:
        out.record("result", {"command": "formats", "formats": rows})
    else:
        out.text(render(rows, ("name", "id", "elements", "bytes", "bits_per_weight", "cpu", "cuda")))
    return 0
