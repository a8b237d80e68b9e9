"""Matrix products whose codes are had from tables in registers or from bits by few instructions; see kernels/linear.py.

A second kernel beside the first, for processors that permute bytes (AVX-512 VBMI, BITALG and GFNI; native.Library.variant).
"""

from ...quant.lanes import Large
from ..export import export
from ..linear import formats, step_kernel
from ..points import PERMUTED
from ..target import current

FEATURES = "+avx512vbmi,+avx512bitalg,+gfni"

for _name, _record in formats(Large):
    if _record.combed and current().vnni:
        export(step_kernel(_record, f"linear_q8_{_name}_permuted", PERMUTED))
