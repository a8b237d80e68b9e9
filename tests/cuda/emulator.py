"""Tiny lockstep CUDA emulator: runs the SAME Python kernels on numpy, one generator per thread.

The kernel's source is rewritten so that each collective call (`P.shfl_xor(...)`, `cuda.syncthreads()`,
`P.mma_f16(...)`, spin loads ...) becomes `yield`; a scheduler advances the threads warp by warp,
checks that all lanes of a warp stand at the same collective, computes it, and sends results back.
Needs only numpy (no numba): bounds are checked, cp.async data arrive only at wait_group,
divergent collectives and missing arrivals are errors."""
import ast, inspect, textwrap, types as pytypes
import random
from fractions import Fraction
import numpy as np

RNG = random.Random(0)


class EmuError(Exception):
    pass


def int32(v): return ((int(v) + 0x80000000) & 0xFFFFFFFF) - 0x80000000
def uint32(v): return int(v) & 0xFFFFFFFF
def int64(v): return int(v)
float32 = np.float32


class Ptr:
    """flat, bounds-checked view of a numpy array (global, shared or local memory)"""
    def __init__(self, a):
        self.a = a.reshape(-1)
        assert self.a.base is not None or a.ndim == 1
        self.int = a.dtype.kind in "iu"
        self.mask = (1 << (8 * a.dtype.itemsize)) - 1
        self.signed = a.dtype.kind == "i"

    def _i(self, i, n=1):
        i = int(i)
        if i < 0 or i + n > self.a.size:
            raise EmuError(f"out of bounds: [{i}:{i+n}] of {self.a.size}")
        return i

    def __getitem__(self, i):
        v = self.a[self._i(i)]
        return int(v) if self.int else v

    def __setitem__(self, i, v):
        i = self._i(i)
        if self.int:
            v = int(v) & self.mask
            if self.signed and v >> (8 * self.a.dtype.itemsize - 1):
                v -= self.mask + 1
        self.a[i] = v

    def words(self, i, n):
        """n 32-bit words starting at element i"""
        k = 4 * n // self.a.dtype.itemsize
        i = self._i(i, k)
        if (i * self.a.dtype.itemsize) % (4 * n):
            raise EmuError(f"misaligned {4*n}-byte access at element {i}")
        return self.a[i:i + k].view(np.uint32)


_f = lambda w: np.uint32(uint32(w)).view(np.float32)
_u = lambda f: int(np.float32(f).view(np.uint32))
_h = lambda w: np.array([uint32(w)], np.uint32).view(np.float16)
_b = lambda w: np.array([uint32(w)], np.uint32).view(np.int8).astype(int)


class Ops:
    """per-thread ops, same names as ptx.py"""
    def ldg128(s, p, i): return tuple(int(x) for x in p.words(i, 4))
    ldg128_stream = ld128 = lds128 = ldg128
    def ldg64(s, p, i): return tuple(int(x) for x in p.words(i, 2))
    def ldg32(s, p, i): return int(p.words(i, 1)[0])
    def ldgf(s, p, i): return p[i]
    def ldgf4(s, p, i): return tuple(p.words(i, 4).view(np.float32))
    ldf4 = ldgf4
    def st128(s, p, i, a, b, c, d): p.words(i, 4)[:] = [uint32(x) for x in (a, b, c, d)]
    sts128 = st128
    def stf4(s, p, i, *v): p.words(i, 4)[:] = np.array(v, np.float32).view(np.uint32)
    def stf2(s, p, i, *v): p.words(i, 2)[:] = np.array(v, np.float32).view(np.uint32)
    def dp4a(s, a, b, c): return int32(int((_b(a) * _b(b)).sum()) + c)
    def prmt(s, a, b, sel):
        by = [(uint32(a) >> (8 * k)) & 255 for k in range(4)] + [(uint32(b) >> (8 * k)) & 255 for k in range(4)]
        return sum(by[(sel >> (4 * k)) & 7] << (8 * k) for k in range(4))
    def fma2(s, a, b, c):
        return int((_h(a).astype(np.float32) * _h(b).astype(np.float32) + _h(c).astype(np.float32)).astype(np.float16).view(np.uint32)[0])
    def h2f_lo(s, w): return np.float32(_h(w)[0])
    def h2f_hi(s, w): return np.float32(_h(w)[1])
    def f2h2(s, a, b): return int(np.array([a, b], np.float32).astype(np.float16).view(np.uint32)[0])
    f2h2_75 = f2h2
    def ex2(s, x): return np.exp2(np.float32(x))
    def rsqrt(s, x): return np.float32(1) / np.sqrt(np.float32(x))
    def rcp(s, x): return np.float32(1) / np.float32(x)
    def tanh(s, x): return np.tanh(np.float32(x))
    def f2i_rn(s, x): return int(np.rint(x))
    def bits2f(s, w): return _f(w)
    def fmaf(s, a, b, c): return np.float32(np.longdouble(a) * np.longdouble(b) + np.longdouble(c))
    def fmad(s, a, b, c): return float(Fraction(a) * Fraction(b) + Fraction(c)) if all(map(np.isfinite, (a, b, c))) else a * b + c
    def d2i_rn(s, x): return int(np.rint(x))
    def f2bits(s, f): return _u(f)
    def globaltimer(s): return 0
    def address(s, p, i): return p.a.ctypes.data + int(i) * p.a.dtype.itemsize
    def pdl_wait(s): pass
    def pdl_launch(s): pass
    def cp_async16(s, d, di, g, gi): CUR.pend.append((d.words(di, 4), g.words(gi, 4)))
    def cp_async_commit(s): CUR.groups.append(CUR.pend); CUR.pend = []
    def cp_async_wait(s, n):
        while len(CUR.groups) > n:
            for d, g in CUR.groups.pop(0):
                d[:] = g
    # atomics: executed at once; the *spin* load is a scheduling point (see COLL)
    def red_release_add(s, p, i, v): p[i] = p[i] + v
    def atom_acqrel_add(s, p, i, v): o = p[i]; p[i] = o + v; return o
    def atom_acqrel_inc(s, p, i, v): o = p[i]; p[i] = 0 if o >= v else o + 1; return o


def _xor(vals): return [vals[l ^ vals_m][0] for l, (_, vals_m) in enumerate(vals)]


def _mma(vals, k, cvt):
    r = 4 if k == 16 else 2
    n = 6 if k == 16 else 3
    W = np.array([[uint32(x) for x in v[:n]] for v in vals], np.uint32)
    H = W.view(np.float16).reshape(32, n, 2).astype(np.float32)
    A = np.zeros((16, k), np.float32); B = np.zeros((k, 8), np.float32)
    for l in range(32):
        g, t = l >> 2, l & 3
        for q in range(r):
            A[g + 8 * (q & 1), 2 * t + 8 * (q >> 1):][:2] = H[l, q]
        for q in range(n - r):
            B[2 * t + 8 * q:2 * t + 8 * q + 2, g] = H[l, r + q]
    D = A @ B
    out = []
    for l in range(32):
        g, t = l >> 2, l & 3
        c = vals[l][n:]
        out.append((D[g, 2*t] + c[0], D[g, 2*t+1] + c[1], D[g+8, 2*t] + c[2], D[g+8, 2*t+1] + c[3]))
    return out


def _ldmatrix(vals, m, trans=False):
    out = [[0] * m for _ in range(32)]
    for q in range(m):
        M = np.stack([vals[q * 8 + r][0].words(vals[q * 8 + r][1], 4).view(np.uint16) for r in range(8)])
        if trans: M = np.ascontiguousarray(M.T)
        w = M.view(np.uint32)
        for l in range(32):
            out[l][q] = int(w[l >> 2, l & 3])
    return [tuple(o) for o in out]


WARP = {                               # name -> f(list of 32 arg tuples) -> 32 results
    "shfl_xor": _xor, "shfl_xor_i": _xor,
    "shfl_idx": lambda v: [v[i & 31][0] for _, i in v],
    "redux_add": lambda v: [int32(sum(a for a, in v))] * 32,
    "ldmatrix_x4": lambda v: _ldmatrix(v, 4), "ldmatrix_x2": lambda v: _ldmatrix(v, 2),
    "ldmatrix_x4t": lambda v: _ldmatrix(v, 4, True),
    "mma_f16": lambda v: _mma(v, 16, None), "mma_f16_k8": lambda v: _mma(v, 8, None),
    "syncwarp": lambda v: [None] * 32,
}
BLOCK = {"syncthreads": lambda v: [None] * len(v), "syncthreads_or": lambda v: [int(any(a for a, in v))] * len(v),
         "syncthreads_and": lambda v: [int(all(a for a, in v))] * len(v), "syncthreads_count": lambda v: [sum(bool(a) for a, in v)] * len(v)}
SPIN = {"ld_acquire": lambda p, i: p[i]}
COLL = set(WARP) | set(BLOCK) | set(SPIN)


def _load(address, code):
    """what lies at an address of one of the launch's arrays"""
    size = np.dtype(code).itemsize
    for a in ARRAYS:
        i = address - a.ctypes.data
        if 0 <= i and i + size <= a.nbytes: return a.reshape(-1).view(np.uint8)[i:i + size].view(code)[0]
    raise EmuError(f"out of bounds: {size} bytes at address {address}")


ARRAYS = []                            # of the running launch
MEMORY = {                             # twins of the accessors in kernels/cuda/memory.py
    **{k: (lambda address, code=c: int(_load(address, code))) for k, c in
       dict(u8="u1", i8="i1", u16="<u2", i16="<i2", u32="<u4", i32="<i4").items()},
    **{k: (lambda address, code=c: np.float32(_load(address, code))) for k, c in dict(f16="<f2", f32="<f4", f64="<f8", i64="<i8").items()},
    "float32": np.float32, "float_of_bits": _f, "half_of_bits": lambda bits: np.float32(np.uint16(bits).view(np.float16)),
}


def _accessor(intrinsic):
    """twin of an accessor (by its name) or of a table (by its data)"""
    data = getattr(intrinsic, "data", None)
    return MEMORY.get(intrinsic._name, intrinsic) if data is None else memoryview(data).cast("b").__getitem__


class _Rewrite(ast.NodeTransformer):
    def visit_Call(self, n):
        self.generic_visit(n)
        f = n.func
        if isinstance(f, ast.Attribute) and f.attr in COLL:
            return ast.copy_location(ast.Yield(ast.Tuple([ast.Constant(f.attr), ast.Tuple(n.args, ast.Load())], ast.Load())), n)
        if isinstance(f, ast.Name) and f.id in self.devs:
            return ast.copy_location(ast.YieldFrom(n), n)
        return n


def _gen(fn, env):
    tree = ast.parse(textwrap.dedent(inspect.getsource(fn)))
    d = tree.body[0]; d.decorator_list = []
    ns = dict(fn.__globals__)
    if fn.__closure__:
        ns.update(zip(fn.__code__.co_freevars, (c.cell_contents for c in fn.__closure__)))
    used = set(fn.__code__.co_names) | set(fn.__code__.co_freevars)
    rw = _Rewrite(); rw.devs = {k for k in used if hasattr(ns.get(k), "py_func")}
    ns.update({k: _accessor(ns[k]) for k in used if type(ns.get(k)).__name__ == "_Intrinsic"})
    rw.visit(tree)
    d.body.append(ast.parse("if 0: yield").body[0])       # always a generator
    ast.fix_missing_locations(tree)
    for k in rw.devs: ns[k] = _gen(ns[k].py_func, env)
    ns.update({k: v for k, v in env.items() if k not in rw.devs and k not in fn.__code__.co_freevars})
    exec(compile(tree, f"<emu {fn.__name__}>", "exec"), ns)
    return ns[d.name]


class _Dim:
    def __init__(s, x=1, y=1, z=1): s.x, s.y, s.z = x, y, z


class _Thread:
    pass


CUR = None


class _Cuda:
    """what the kernel sees as `cuda`"""
    @property
    def threadIdx(s): return CUR.tid
    @property
    def blockIdx(s): return CUR.bid
    @property
    def blockDim(s): return CUR.bdim
    @property
    def gridDim(s): return CUR.gdim
    class local:
        @staticmethod
        def array(n, dt): return Ptr(np.full(n, np.nan if dt is float32 else 0x7BADBAD, np.float32 if dt is float32 else np.int32 if dt is int32 else np.int64 if dt is int64 else np.uint32))
    class shared:
        @staticmethod
        def array(n, dt, alignment=None):
            k = CUR.nsh; CUR.nsh += 1
            if k not in CUR.block.sh:
                CUR.block.sh[k] = Ptr(np.full(n or CUR.block.dyn // 4, np.nan if dt is float32 else 0x7BADBAD, np.float32 if dt is float32 else np.uint32))
            return CUR.block.sh[k]
    def grid(s, n): return CUR.bid.x * CUR.bdim.x + CUR.tid.x
    def gridsize(s, n): return CUR.bdim.x * CUR.gdim.x


class _Block:
    def __init__(self, fn, bid, bdim, gdim, args, dyn):
        self.sh, self.dyn, self.th = {}, dyn, []
        for t in range(bdim.x):
            th = _Thread(); th.tid, th.bid, th.bdim, th.gdim, th.block = _Dim(t, 0, 0), bid, bdim, gdim, self
            th.nsh, th.pend, th.groups, th.val, th.done, th.op = 0, [], [], None, False, None
            global CUR
            CUR = th
            th.g = fn(*args)
            self.th.append(th)

    def _warp(self, lanes):
        """run one warp ahead as far as it can go (to a block barrier, a spin load or its end)"""
        global CUR
        moved = False
        while True:
            for th in lanes:
                if th.done or th.op: continue
                CUR = th; moved = True
                try:
                    th.op = th.g.send(th.val); th.val = None
                except StopIteration:
                    th.done = True
                except Exception as e:
                    raise EmuError(f"block {th.bid.x},{th.bid.y} thread {th.tid.x}: {type(e).__name__}: {e}") from e
            live = [t for t in lanes if not t.done]
            spin = [t for t in live if t.op[0] in SPIN]
            if spin:                                   # let the other warps run before it looks again
                for t in spin: t.val = SPIN[t.op[0]](*t.op[1]); t.op = None
                return True
            ops = {t.op[0] for t in live}
            if not ops or ops <= set(BLOCK): return moved
            if ops & set(BLOCK) or len(ops) > 1 or len(live) != 32:
                raise EmuError(f"divergent warp collective: {sorted(ops)}, {len(live)} live lanes")
            res = WARP[ops.pop()]([t.op[1] for t in live])
            for t, v in zip(live, res): t.val = v; t.op = None
            moved = True

    def step(self):
        """run every warp ahead, in random order, then release the block barrier; True while alive"""
        ws = [self.th[w:w + 32] for w in range(0, len(self.th), 32)]
        RNG.shuffle(ws)
        moved = False
        for w in ws: moved |= self._warp(w)
        live = [t for t in self.th if not t.done]
        if live and all(t.op and t.op[0] in BLOCK for t in live):
            ops = {t.op[0] for t in live}
            if len(ops) > 1: raise EmuError(f"threads at different barriers: {ops}")
            res = BLOCK[ops.pop()]([t.op[1] for t in live])
            for t, v in zip(live, res): t.val = v; t.op = None
            moved = True
        if live and not moved:
            raise EmuError(f"deadlock: {[(t.tid.x, t.op and t.op[0]) for t in live][:8]}")
        return bool(live)


def launch(fn, grid, block, args, dyn=0, cooperative=False):
    gx, gy = (grid, 1) if isinstance(grid, int) else grid
    env = dict(cuda=_Cuda(), ptx=Ops(), int32=int32, uint32=uint32, int64=int64, float32=float32, float64=float,
               min=min, max=max, abs=abs)
    g = _gen(fn, env)
    a = [Ptr(x) if isinstance(x, np.ndarray) else x for x in args]
    ARRAYS[:] = [x for x in args if isinstance(x, np.ndarray)]
    mk = lambda x, y: _Block(g, _Dim(x, y, 0), _Dim(block), _Dim(gx, gy), a, dyn)
    old = np.seterr(over="ignore")
    if cooperative:
        bl = [mk(x, y) for y in range(gy) for x in range(gx)]
        while bl: bl = [b for b in bl if b.step()]
    else:
        for y in range(gy):
            for x in range(gx):
                b = mk(x, y)
                while b.step(): pass
    np.seterr(**old)
