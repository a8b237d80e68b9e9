"""The instructions of ptx.py, but for the read-only loads of block formats' records (`ldg*_if`), which read what lies in shared
memory already: the address is that of ptx.smem_addr, as int64, the index counts bytes.
"""

from . import ptx
from .asm import memop

globals().update({name: value for name, value in vars(ptx).items() if not name.startswith("_")})
_SKIP = "{{ .reg .pred p; setp.ne.u32 p, ${0}, 0; @p ld.shared.{1} {2}, [${3}]; }}"  # (address, index, wanted)
u32 = ptx.u32
ldg16_if = memop("lds16_if", _SKIP.format(2, "u16", "$0", 1), [u32], "g", [u32], **ptx.FIXED)
ldg32_if = memop("lds32_if", _SKIP.format(2, "u32", "$0", 1), [u32], "g", [u32], **ptx.FIXED)
ldg64_if = memop("lds64_if", _SKIP.format(3, "v2.u32", ptx.V2, 2), [u32] * 2, "g", [u32], **ptx.FIXED)
ldg128_if = memop("lds128_if", _SKIP.format(5, "v4.u32", ptx.V4, 4), [u32] * 4, "g", [u32], **ptx.FIXED)
