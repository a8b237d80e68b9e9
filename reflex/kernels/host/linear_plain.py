"""Matrix products (ops/linear.py) with weights in floating-point numbers, and in any format by way of float32 rows."""

from ...quant.lanes import Plain
from ..export import export
from ..linear import decoded_kernel, formats, step_kernel

for _name, _record in formats(Plain):
    export(step_kernel(_record, f"linear_f32_{_name}"))
    if _name == "F32":
        export(decoded_kernel(_record, "linear_decoded"))
