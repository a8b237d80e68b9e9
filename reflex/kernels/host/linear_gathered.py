"""Matrix products of linear_large.py whose codes are points of a table, read with gather instructions; see kernels/linear.py.

A second kernel beside the first, for processors that gather fast (native.Library.variant).
"""

from ...quant.lanes import Large
from ..export import export
from ..linear import formats, step_kernel
from ..points import GATHERED
from ..target import current

for _name, _record in formats(Large):
    if _record.gathers and current().vnni:
        export(step_kernel(_record, f"linear_q8_{_name}_gathered", GATHERED))
