"""Matrix products (ops/linear.py) with weights in super-blocks of 256; see kernels/linear.py."""

from ...quant.lanes import Large
from ..export import export
from ..linear import formats, step_kernel

for _name, _record in formats(Large):
    export(step_kernel(_record, f"linear_q8_{_name}"))
