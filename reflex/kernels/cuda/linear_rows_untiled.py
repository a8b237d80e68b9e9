"""linear_rows_32_<TYPE>: see linear_rows.py; of the formats that are not `tiled` (quant/fragment.py), for any number of tokens up
to 32, in an image of their own."""

from .export import kernel
from .linear_rows import FORMATS, SIGNATURE, THREADS, UNTILED, made

BLOCKS = {75: 1, 80: 2}  # per multiprocessor; before sm_80 products take more registers

for _format in FORMATS.values():
    if not _format.record.tiled:
        _name = f"linear_rows_{UNTILED}_{_format.block.name}"
        kernel(SIGNATURE, threads=THREADS, blocks=BLOCKS, name=_name)(made(_format, UNTILED, 1, __name__))
