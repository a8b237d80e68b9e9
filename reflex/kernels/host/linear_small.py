"""Matrix products (ops/linear.py) with weights in blocks of 32 to 128; see kernels/linear.py."""

from ...quant.lanes import Small, Wide
from ..export import export
from ..linear import formats, step_kernel

for _name, _record in formats((Small, Wide)):
    export(step_kernel(_record, f"linear_q8_{_name}"))
