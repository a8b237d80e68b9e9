"""The `memory` of pure Python: accessors over a bytes object, addresses being offsets into it. For tests and debugging.

It is also the definition of what every kind of memory offers to `unpack`. Integers are whole numbers; f16, bf16, f32,
f64 and i64 give the float32 nearest to what is stored. Only `float32`, `half_of_bits` and `float_of_bits` make a float
from an integer, so that no expression can widen to double precision unnoticed.
"""


class Memory:
    """Little-endian accessors over `data`. Refuses nothing: an offset outside raises IndexError or struct.error."""

    def __init__(self, data):
        import struct

        import numpy

        self.data = bytes(data)
        self.float32 = numpy.float32
        self._unpack = struct.unpack_from
        self._pack = struct.pack

    def u8(self, address):
        return self.data[address]

    def i8(self, address):
        return self._unpack("<b", self.data, address)[0]

    def u16(self, address):
        return self._unpack("<H", self.data, address)[0]

    def i16(self, address):
        return self._unpack("<h", self.data, address)[0]

    def u32(self, address):
        return self._unpack("<I", self.data, address)[0]

    def i32(self, address):
        return self._unpack("<i", self.data, address)[0]

    def i64(self, address):
        return self.float32(self._unpack("<q", self.data, address)[0])

    def f16(self, address):
        return self.float32(self._unpack("<e", self.data, address)[0])

    def bf16(self, address):
        return self.float_of_bits(self.u16(address) << 16)

    def f32(self, address):
        return self.float_of_bits(self.u32(address))

    def f64(self, address):
        return self.float32(self._unpack("<d", self.data, address)[0])

    def float_of_bits(self, bits):
        """The float32 with this bit pattern."""
        return self.float32(self._unpack("<f", self._pack("<I", bits))[0])

    def half_of_bits(self, bits):
        """The half float with this bit pattern, as float32."""
        return self.float32(self._unpack("<e", self._pack("<H", bits))[0])

    def table(self, data):
        """Function index -> signed byte `index` of `data`."""
        return memoryview(data).cast("b").__getitem__

    def function(self, plain):
        """Make a function callable from `element`; compilers put their decorator here."""
        return plain
