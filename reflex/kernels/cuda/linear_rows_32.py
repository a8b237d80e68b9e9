"""linear_rows_32_<TYPE>: see linear_rows.py; an image of their own, loaded by prompts of such a length."""

from .export import kernel
from .linear_rows import SIGNATURE, THREADS, TILED, made

for _format in TILED:
    kernel(SIGNATURE, threads=THREADS, name=f"linear_rows_32_{_format.block.name}")(made(_format, 32, 2, __name__))
