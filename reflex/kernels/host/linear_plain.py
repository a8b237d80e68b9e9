"""Matrix products (ops/linear.py) with weights in floating-point numbers; see kernels/linear.py."""

from ...quant.lanes import Plain
from ..export import export
from ..linear import formats, step_kernel

for _name, _record in formats(Plain):
    export(step_kernel(_record, f"linear_f32_{_name}"))
