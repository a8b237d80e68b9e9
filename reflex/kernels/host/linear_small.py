"""Matrix products (ops/linear.py) with weights in blocks of 32; see kernels/linear.py."""

from ...quant.lanes import Small
from ..export import export
from ..linear import formats, step_kernel

for _name, _record in formats(Small):
    export(step_kernel(_record, f"linear_q8_{_name}"))
