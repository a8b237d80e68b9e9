"""Q8_0: the largest size becomes 127."""

IMPORTANCE = None


def encoder(v, weighted):
    from numpy import float32 as f

    top = f(127)

    @v.function
    def encode(x, w, out, room):
        largest = v.floats(0)
        for i in range(32):
            largest = v.most(largest, v.size(v.load(x, i)))
        scale = largest / top
        inverse = v.select(scale != 0, 1 / scale, 0)
        v.put_half(out, 34, scale)
        for i in range(0, 32, 4):
            word = v.ints(v.rounded(v.load(x, i) * inverse)) & 255
            for k in range(1, 4):
                word |= (v.ints(v.rounded(v.load(x, i + k) * inverse)) & 255) << (8 * k)
            v.put_four(out + 2 + i, 34, word)

    return encode
