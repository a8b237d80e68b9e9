"""linear_row_<TYPE>: see linear_row.py; of the formats that are not `tiled` (quant/fragment.py), in an image of their own."""

from .export import kernel as kernel  # for images.py, which looks for files that declare some
from .linear_row import FORMATS, declare

for _format in FORMATS.values():
    if not _format.record.tiled:
        declare(_format.block.name, [_format], __name__)
