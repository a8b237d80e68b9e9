"""The instructions of ptx.py and loads from shared memory by address (that of ptx.smem_addr), for block formats whose bytes lie
there already (quant/stream.py)."""

from . import ptx
from .asm import i32, op, u32

globals().update({name: value for name, value in vars(ptx).items() if not name.startswith("_")})
at8 = op("at8", "ld.shared.u8 $0, [$1];", [u32], [i32], **ptx.FIXED)
at16 = op("at16", "ld.shared.u16 $0, [$1];", [u32], [i32], **ptx.FIXED)
at32 = op("at32", "ld.shared.u32 $0, [$1];", [u32], [i32], **ptx.FIXED)
at64 = op("at64", f"ld.shared.v2.u32 {ptx.V2}, [$2];", [u32] * 2, [i32], **ptx.FIXED)
dp2a = op("dp2a", "dp2a.lo.u32.u32 $0, $1, $2, $3;", [i32], [u32, u32, i32])  # halves of $1 times the low bytes of $2
look = op("look", "ld.shared.u32 $0, [$1];", [u32], [i32])  # of what does not change any more
at128 = op("at128", f"ld.shared.v4.u32 {ptx.V4}, [$4];", [u32] * 4, [i32], **ptx.FIXED)
_ZEROS = " ".join(f"mov.b32 ${i}, 0;" for i in range(4))
at128_if = op(  # (address, wanted): zeros if not, which cost lanes nothing
    "at128_if", f"{{ .reg .pred p; setp.ne.u32 p, $5, 0; {_ZEROS} @p ld.shared.v4.u32 {ptx.V4}, [$4]; }}",
    [u32] * 4, [i32, u32], **ptx.FIXED,
)  # fmt: skip

# ---- bits: A row-major, B column-major, as mma_s8 ------------------------------------------------------
_B1 = "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc"


def _both(row, first, second):
    """The same by bits that differ, which is all that sm_75 counts: half of what either has less those."""
    return (
        f"{_B1} {{p,q}}, {{{row}}}, {{z}}, {{z,z}}; {_B1} {{p,q}}, {{z}}, {{$6}}, {{p,q}}; "
        f"{_B1} {{r,s}}, {{{row}}}, {{$6}}, {{z,z}}; "
        f"sub.s32 p, p, r; sub.s32 q, q, s; shr.s32 p, p, 1; shr.s32 q, q, 1; add.s32 ${first}, p, ${first + 7}; "
        f"add.s32 ${second}, q, ${second + 7};"
    )


_BITS = {
    75: f"{{ .reg .b32 p,q,r,s,z; mov.b32 z, 0; {_both('$4', 0, 1)} {_both('$5', 2, 3)} }}",
    80: "mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.and.popc {$0,$1,$2,$3}, {$4,$5}, {$6}, {$7,$8,$9,$10};",
}
mma_b1 = op("mma_b1", _BITS, [i32] * 4, [u32] * 3 + [i32] * 4, effects=True)  # m16n8k128: how many bits both have
