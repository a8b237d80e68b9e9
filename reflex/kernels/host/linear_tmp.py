from ...quant import lanes_tmp as L
from ..export import export
from ..linear import step_kernel
for _n in ("Q4_0","Q4_1","Q5_0","Q5_1","Q8_0","Q4_K","Q5_K","Q6_K"):
    export(step_kernel(getattr(L,_n), "linear_q8_"+_n))
for _n in ("F32","F16","BF16"):
    export(step_kernel(getattr(L,_n), "linear_f32_"+_n))
