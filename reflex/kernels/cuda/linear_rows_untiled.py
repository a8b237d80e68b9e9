"""linear_rows_16_<TYPE>: see linear_rows.py; of the formats that are not `tiled` (quant/fragment.py), in an image of their own."""

from .export import kernel
from .linear_row import FORMATS
from .linear_rows import SIGNATURE, THREADS, made

for _format in FORMATS.values():
    if not _format.record.tiled:
        kernel(SIGNATURE, threads=THREADS, blocks=2, name=f"linear_rows_16_{_format.block.name}")(made(_format, 16, 1, __name__))
