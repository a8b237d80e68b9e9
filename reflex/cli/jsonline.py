"""JSON text of plain values on one line, because importing `json` costs 6 ms of a cold start.

Strings keep non-ASCII characters; lone surrogates and undecodable bytes become \\uXXXX escapes, so that the line is
always valid UTF-8 and `json.loads` gives the same string back. A float that JSON cannot say (nan, inf) becomes null.
Refuses any other type (TypeError). Used by the CLI's output.
"""

_ESCAPES = {code: f"\\u{code:04x}" for code in range(0x20)} | {0x22: '\\"', 0x5C: "\\\\", 0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t"}


def _string(text):
    text = text.translate(_ESCAPES)
    try:
        text.encode()
    except UnicodeEncodeError:
        text = "".join(f"\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in text)
    return f'"{text}"'


def encode(value):
    """`value` (dict, list, tuple, str, bytes, int, float, bool, None) as JSON text without line breaks."""
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, int):
        return repr(int(value))
    if isinstance(value, float):
        return repr(float(value)) if value - value == 0 else "null"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join([encode(item) for item in value])}]"
    if isinstance(value, dict):
        return f"{{{', '.join([f'{_string(key)}: {encode(item)}' for key, item in value.items()])}}}"
    if isinstance(value, (bytes, bytearray)):
        return _string(value.decode("utf-8", "surrogateescape"))
    raise TypeError(f"no JSON for {type(value).__name__}")
