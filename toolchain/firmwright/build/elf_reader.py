"""A reader of sections and symbols of little-endian ELF files (System V ABI, chapter 4)."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from firmwright.artifacts import SectionKind, SectionSize, SymbolSize
from firmwright.base.c_identifiers import without_abi_hash
from firmwright.base.errors import ToolFailedError

_SHT_SYMTAB: Final = 2
_SHT_NOBITS: Final = 8
_SHF_WRITE: Final = 1
_SHF_ALLOC: Final = 2
_SHF_EXECINSTR: Final = 4
_SHF_TLS: Final = 0x400
_EXTERNAL: Final = ".external."
_STB_GLOBAL: Final = 1
_STT_OBJECT: Final = 1
_STT_FUNC: Final = 2


@dataclass(frozen=True, slots=True)
class _ElfLayout:
    header: struct.Struct
    section: struct.Struct
    symbol: struct.Struct
    wide: bool


_ELF32: Final = _ElfLayout(
    struct.Struct("<16sHHIIIIIHHHHHH"), struct.Struct("<10I"), struct.Struct("<IIIBBH"), False
)
_ELF64: Final = _ElfLayout(
    struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ"), True
)


@dataclass(frozen=True, slots=True)
class _ElfSection:
    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int


def read_sections_and_symbols(path: Path) -> tuple[tuple[SectionSize, ...], tuple[SymbolSize, ...]]:
    """Return the allocated sections in file order and their sized symbols in order of address."""
    data, layout = _open(path)
    sections = _read_sections(data, layout)
    counted = filter(_is_counted, sections)
    sized = tuple(SectionSize(s.name, s.address, s.size, _kind(s)) for s in counted)
    return sized, _read_symbols(data, layout, sections)


def external_definitions(data: bytes) -> list[str]:
    """Return the global symbols that an object defines, without weak ones; [] if it is not ELF."""
    if data[:4] != b"\x7fELF" or data[5:6] != b"\x01":
        return []
    layout = _ELF64 if data[4] == 2 else _ELF32
    symbols = _raw_symbols(data, layout, _read_sections(data, layout))
    return [name for name, info, index, *_ in symbols if info >> 4 == _STB_GLOBAL and index]


def is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def read_contents(path: Path, *, only_code: bool = False) -> tuple[tuple[int, bytes], ...]:
    """Return the address and bytes of each section that is never written, or of code."""
    data, layout = _open(path)
    mask, flags = (_SHF_EXECINSTR, _SHF_EXECINSTR) if only_code else (_SHF_WRITE, 0)
    return tuple(
        (s.address, data[s.offset : s.offset + s.size])
        for s in _read_sections(data, layout)
        if _is_counted(s) and s.flags & mask == flags and s.type != _SHT_NOBITS
    )


def _open(path: Path) -> tuple[bytes, _ElfLayout]:
    data = path.read_bytes()
    if data[:4] != b"\x7fELF" or data[4:5] not in (b"\x01", b"\x02") or data[5:6] != b"\x01":
        raise ToolFailedError("the linker's output is not a little-endian ELF.", where=str(path))
    return data, _ELF64 if data[4] == 2 else _ELF32


def _read_sections(data: bytes, layout: _ElfLayout) -> list[_ElfSection]:
    header = layout.header.unpack_from(data)
    table, count, names_index = header[6], header[12], header[13]
    raw = [layout.section.unpack_from(data, table + i * layout.section.size) for i in range(count)]
    names = raw[names_index][4]
    return [_ElfSection(_text(data, names + row[0]), *row[1:7]) for row in raw]


def _is_counted(section: _ElfSection) -> bool:
    """Return whether a section counts toward memory use; thread-local zeros are in .bss."""
    if section.name.startswith(_EXTERNAL):
        return bool(section.size)
    thread_zeros = section.flags & _SHF_TLS and section.type == _SHT_NOBITS
    return bool(section.flags & _SHF_ALLOC and section.size and not thread_zeros)


def _kind(section: _ElfSection) -> SectionKind:
    if section.name.startswith(_EXTERNAL):
        return "external"
    if section.type == _SHT_NOBITS:
        if section.name == ".stack":
            return "stack"
        return "noinit" if section.name.startswith(".noinit") else "bss"
    if section.flags & _SHF_EXECINSTR:
        return "text"
    return "data" if section.flags & _SHF_WRITE else "rodata"


def _read_symbols(
    data: bytes, layout: _ElfLayout, sections: list[_ElfSection]
) -> tuple[SymbolSize, ...]:
    symbols = []
    for name, info, index, value, size in _raw_symbols(data, layout, sections):
        if info & 0xF not in (_STT_OBJECT, _STT_FUNC) or not size or index >= len(sections):
            continue
        home = sections[index]
        if _is_counted(home):
            symbol = without_abi_hash(name)
            symbols.append(SymbolSize(symbol, value, size, home.name, _kind(home)))
    return tuple(sorted(symbols, key=lambda s: (s.address, s.name)))


def _raw_symbols(
    data: bytes, layout: _ElfLayout, sections: list[_ElfSection]
) -> Iterator[tuple[str, int, int, int, int]]:
    """Yield name, info, section index, value and size of each symbol."""
    for table in (s for s in sections if s.type == _SHT_SYMTAB):
        names = sections[table.link].offset
        for at in range(table.offset, table.offset + table.size, layout.symbol.size):
            fields = layout.symbol.unpack_from(data, at)
            if layout.wide:
                name, info, _, index, value, size = fields
            else:
                name, value, size, info, _, index = fields
            yield _text(data, names + name), info, index, value, size


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode("ascii", "replace")
