from .lanes import Group, Large, Plain, Small, scales_and_minimums

# q4_0: bytes 0-1 half scale, 2-17 codes
def _nibbles(offset):
    def codes(v, p):
        q = v.load(v.at(p, offset), v.bytes16)
        return v.join(v.low_nibbles(q), v.high_nibbles(q))
    return codes

Q4_0 = Small(18, _nibbles(2), bias=8)
Q4_1 = Small(20, _nibbles(4), minimum_at=2)

def _five(bits_at, nibbles_at):
    def codes(v, p):
        q = v.load(v.at(p, nibbles_at), v.bytes16)
        high = v.bit_bytes(v.load(v.at(p, bits_at), v.int32), 16)
        return v.b.or_(v.join(v.low_nibbles(q), v.high_nibbles(q)), high)
    return codes

Q5_0 = Small(22, _five(2, 6), bias=16)
Q5_1 = Small(24, _five(4, 8), minimum_at=2)
Q8_0 = Small(34, lambda v, p: v.load(v.at(p, 2), v.bytes32), signed=True)

def _q4_k(v, p):
    scales, minimums = scales_and_minimums(v, v.at(p, 4))
    d, m = v.splat(v.half(p)), v.splat(v.b.fneg(v.half(v.at(p, 2))))
    def codes(i):
        q = v.load(v.at(p, 16 + 32 * (i // 2)), v.bytes32)
        return v.high_nibbles(q) if i % 2 else v.low_nibbles(q)
    return Group([v.b.fmul(scales, d)], [v.b.fmul(minimums, m)], codes)
Q4_K = Large(144, _q4_k)

def _q5_k(v, p):
    scales, minimums = scales_and_minimums(v, v.at(p, 4))
    d, m = v.splat(v.half(p)), v.splat(v.b.fneg(v.half(v.at(p, 2))))
    high = v.load(v.at(p, 16), v.bytes32)
    def codes(i):
        q = v.load(v.at(p, 48 + 32 * (i // 2)), v.bytes32)
        low = v.high_nibbles(q) if i % 2 else v.low_nibbles(q)
        return v.b.or_(low, v.shifted_bits(high, i, 1, 4))
    return Group([v.b.fmul(scales, d)], [v.b.fmul(minimums, m)], codes)
Q5_K = Large(176, _q5_k)

def _q6_k(v, p):
    d = v.half(v.at(p, 208))
    sixteen = v.b.fmul(v.signed_floats(v.load(v.at(p, 192), v.bytes16)), v.splat(d, 16))
    low, high = v.pick(sixteen, range(0, 16, 2)), v.pick(sixteen, range(1, 16, 2))
    top = [v.load(v.at(p, 128 + 32 * half), v.bytes32) for half in (0, 1)]
    def codes(i):
        half, part = divmod(i, 4)
        q = v.load(v.at(p, 64 * half + 32 * (part % 2)), v.bytes32)
        four = v.high_nibbles(q) if part >= 2 else v.low_nibbles(q)
        return v.b.or_(four, v.shifted_bits(top[half], 2 * part, 2, 4))
    bias = v.const(low.type, -32.0)
    return Group([low, high], [v.b.fmul(low, bias), v.b.fmul(high, bias)], codes)
Q6_K = Large(210, _q6_k)

F32 = Plain(4, lambda v, p: v.load(p, v.float8), lambda v, p: v.load(p, v.float1))
F16 = Plain(2, lambda v, p: v.halves(p, 2), lambda v, p: v.half(p))
BF16 = Plain(2, lambda v, p: v.bfloats(p), lambda v, p: v.bfloat(p))
