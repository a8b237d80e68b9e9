"""What GGUF's numbers mean: value types, and the codes with which the native header walk reports a fault.

The walk (compiled at build time) and the reader (run time) share these, so neither repeats a number.
"""

MAGIC = b"GGUF"
VERSIONS = (2, 3)  # 2 and 3 lay out little-endian files identically

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
TYPE_NAMES = ("u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64")
ITEM_CODES = ("B", "b", "H", "h", "I", "i", "f", "B", None, None, "Q", "q", "d")  # memoryview formats
INTEGERS = frozenset((U8, I8, U16, I16, U32, I32, U64, I64))
FLOATS = frozenset((F32, F64))

# Results of the walk.
SHORT, BAD_TYPE, DEPTH, TOO_LONG, RANK, TENSOR_TYPE, RAGGED_ROW, TOO_LARGE = -1, -2, -3, -4, -5, -6, -7, -8
FIELDS = (
    "length of a key",
    "key",
    "type",
    "value",
    "length of a string",
    "string",
    "array header",
    "array elements",
    "length of a tensor name",
    "tensor name",
    "dimensions",
)
KEY_LENGTH, KEY, TYPE, VALUE, LENGTH, TEXT, ARRAY_HEAD, ITEMS, NAME_LENGTH, NAME, DIMS = range(11)

# Memory of the walk: int64[16] of results and scratch, then int64[8] per record.
RESULTS_BYTES, RECORD_BYTES = 128, 64
TYPE_ROWS = 64  # rows of the block size table


def type_name(value_type):
    return TYPE_NAMES[value_type] if 0 <= value_type < len(TYPE_NAMES) else f"type {value_type}"
