"""The `format` words of JSON schema that can be enforced, as regular expressions: each allows a part of what the standard does."""

DAY = r"(0[1-9]|1\d|2[0-8])"
DATE = rf"\d{{3}}[1-9]-((0[13578]|1[02])-({DAY}|29|3[01])|(0[469]|11)-({DAY}|29|30)|02-{DAY})"
TIME = r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)"
BYTE = r"(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
HEX = "[0-9a-f]"
LABEL = r"[a-z]([a-z0-9]{0,20}[a-z0-9])?"
FORMATS = {
    "date": DATE,
    "time": TIME,
    "date-time": f"{DATE}T{TIME}",
    "uuid": f"{HEX}{{8}}-{HEX}{{4}}-{HEX}{{4}}-{HEX}{{4}}-{HEX}{{12}}",
    "ipv4": rf"({BYTE}\.){{3}}{BYTE}",
    "ipv6": f"({HEX}{{1,4}}:){{7}}{HEX}{{1,4}}",
    "hostname": rf"{LABEL}(\.{LABEL}){{0,4}}",
    "email": rf"[A-Za-z0-9]+([._+-][A-Za-z0-9]+){{0,4}}@{LABEL}(\.{LABEL}){{1,3}}",
    "uri": rf"https?://{LABEL}(\.{LABEL}){{0,4}}(/[A-Za-z0-9._~-]*){{0,8}}",
}
