"""A static linker for what LLVM emits here: ELF64 objects to one flat, position-independent, read-execute blob.

Text, constants and named byte tables are laid out one after the other; only PC-relative relocations are known.
Anything else - an undefined symbol, writable data, an absolute address - is refused, which is the proof that the
blob needs neither libm, nor the Python C API, nor a dynamic linker. Formats: System V gABI, x86-64 and AArch64 psABI.
"""

import struct

SHT_PROGBITS, SHT_SYMTAB, SHT_RELA, SHT_NOBITS = 1, 2, 4, 8
SHF_WRITE, SHF_ALLOC, SHF_EXEC = 1, 2, 4
EM_X86_64, EM_AARCH64 = 62, 183
PAGE = 4096


class LinkError(Exception):
    pass


class Object:
    """One relocatable object file, parsed."""

    def __init__(self, name, data):
        self.name = name
        self.data = data
        if data[:6] != b"\x7fELF\x02\x01":
            raise LinkError(f"{name}: not a little-endian ELF64 object")
        self.machine = struct.unpack_from("<H", data, 18)[0]
        offset = struct.unpack_from("<Q", data, 40)[0]
        size, count, names = struct.unpack_from("<HHH", data, 58)
        self.sections = [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * size) for i in range(count)]
        self.section_names = [self._string(self.sections[names], s[0]) for s in self.sections]
        table = next((s for s in self.sections if s[1] == SHT_SYMTAB), None)
        self.symbols = []
        if table is not None:
            strings = self.sections[table[6]]
            for i in range(table[5] // 24):
                name_at, info, _, section, value, _ = struct.unpack_from("<IBBHQQ", data, table[4] + 24 * i)
                self.symbols.append((self._string(strings, name_at), info >> 4, section, value))

    def _string(self, section, at):
        start = section[4] + at
        return self.data[start : self.data.index(b"\0", start)].decode()

    def wanted(self, executable):
        """Indices of the loadable sections that are code (or constants)."""
        for i, s in enumerate(self.sections):
            if not s[2] & SHF_ALLOC or s[1] not in (SHT_PROGBITS, SHT_NOBITS) or not s[5]:
                continue
            if self.section_names[i].startswith((".eh_frame", ".note")) or bool(s[2] & SHF_EXEC) != executable:
                continue
            if s[2] & SHF_WRITE:
                raise LinkError(f"{self.name}: writable section {self.section_names[i]} of {s[5]} bytes")
            yield i

    def relocations(self):
        """(patched section, offset, type, symbol index, addend) of every relocation."""
        for s in self.sections:
            if s[1] == SHT_RELA:
                for i in range(s[5] // 24):
                    offset, info, addend = struct.unpack_from("<QQq", self.data, s[4] + 24 * i)
                    yield s[7], offset, info & 0xFFFFFFFF, info >> 32, addend


def _patch_x86(blob, at, kind, target):
    if kind not in (2, 4):  # R_X86_64_PC32, R_X86_64_PLT32
        raise LinkError(f"relocation type {kind}")
    struct.pack_into("<i", blob, at, target - at)


_AARCH64_LOW12 = {277: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4}  # ADD and LDST8/16/32/64/128: scale of the offset


def _patch_aarch64(blob, at, kind, target):
    if kind == 261:  # R_AARCH64_PREL32
        struct.pack_into("<i", blob, at, target - at)
        return
    word = struct.unpack_from("<I", blob, at)[0]
    if kind in (282, 283):  # JUMP26, CALL26
        word = (word & 0xFC000000) | ((target - at) >> 2 & 0x3FFFFFF)
    elif kind == 275:  # ADR_PREL_PG_HI21
        pages = (target >> 12) - (at >> 12)
        word = (word & 0x9F00001F) | (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5
    elif kind in _AARCH64_LOW12:
        word = (word & 0xFFC003FF) | ((target & 0xFFF) >> _AARCH64_LOW12[kind]) << 10
    else:
        raise LinkError(f"relocation type {kind}")
    struct.pack_into("<I", blob, at, word)


_PATCH = {EM_X86_64: _patch_x86, EM_AARCH64: _patch_aarch64}


def _append(blob, data, alignment):
    blob += b"\0" * (-len(blob) % max(1, alignment))
    at = len(blob)
    blob += data
    return at


def link(objects, tables):
    """objects: [(name, bytes)]; tables: {name: bytes}. Returns (blob, {symbol: offset})."""
    parsed = [Object(name, data) for name, data in objects]
    blob = bytearray()
    base = {}
    for executable in (True, False):
        for o in parsed:
            for i in o.wanted(executable):
                s = o.sections[i]
                data = o.data[s[4] : s[4] + s[5]] if s[1] == SHT_PROGBITS else bytes(s[5])
                base[o.name, i] = _append(blob, data, s[8])
    symbols = {}
    for o in parsed:
        for name, binding, section, value in o.symbols:
            if binding == 1 and (o.name, section) in base:
                if name in symbols:
                    raise LinkError(f"{o.name}: symbol {name} is defined twice")
                symbols[name] = base[o.name, section] + value
    for name in sorted(tables):
        symbols[name] = _append(blob, tables[name], 64)
    for o in parsed:
        for section, offset, kind, index, addend in o.relocations():
            if (o.name, section) not in base:
                continue
            name, _, home, value = o.symbols[index]
            if (o.name, home) in base:
                target = base[o.name, home] + value
            elif name in symbols:
                target = symbols[name]
            else:
                raise LinkError(f"{o.name}: undefined symbol {name}")
            at = base[o.name, section] + offset
            try:
                _PATCH[o.machine](blob, at, kind, target + addend)
            except LinkError as error:
                raise LinkError(f"{o.name}: {error} against {name or o.section_names[home]}") from None
    return bytes(blob), symbols
