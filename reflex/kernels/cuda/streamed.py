"""The instructions of ptx.py and loads from shared memory by address (that of ptx.smem_addr), for block formats whose bytes lie
there already (quant/stream.py)."""

from . import ptx
from .asm import i32, op, u32

globals().update({name: value for name, value in vars(ptx).items() if not name.startswith("_")})
at8 = op("at8", "ld.shared.u8 $0, [$1];", [u32], [i32], **ptx.FIXED)
at16 = op("at16", "ld.shared.u16 $0, [$1];", [u32], [i32], **ptx.FIXED)
at32 = op("at32", "ld.shared.u32 $0, [$1];", [u32], [i32], **ptx.FIXED)
at64 = op("at64", f"ld.shared.v2.u32 {ptx.V2}, [$2];", [u32] * 2, [i32], **ptx.FIXED)
at128 = op("at128", f"ld.shared.v4.u32 {ptx.V4}, [$4];", [u32] * 4, [i32], **ptx.FIXED)
