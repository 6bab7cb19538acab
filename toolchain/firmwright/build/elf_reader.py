"""A reader of sections and symbols of little-endian ELF files (System V ABI, ch. 4)."""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from firmwright.artifacts import SectionKind, SectionSize, SymbolSize
from firmwright.base.c_identifiers import without_abi_hash
from firmwright.base.errors import ToolFailedError

_SHN_UNDEF: Final = 0
_SHT_SYMTAB: Final = 2
_SHT_NOBITS: Final = 8
_SHF_WRITE: Final = 1
_SHF_ALLOC: Final = 2
_SHF_EXECINSTR: Final = 4
_SHF_TLS: Final = 0x400
_EXTERNAL: Final = ".external."
"""The prefix of sections, not allocated, with constants outside of the image."""
_STB_GLOBAL: Final = 1
_STT_OBJECT: Final = 1
_STT_FUNC: Final = 2


@dataclass(frozen=True, slots=True)
class _ElfLayout:
    """The records of a class of ELF; `wide` is the class of 64 bits."""

    header: struct.Struct
    section: struct.Struct
    symbol: struct.Struct
    wide: bool


_ELF32: Final = _ElfLayout(
    struct.Struct("<16sHHIIIIIHHHHHH"),
    struct.Struct("<10I"),
    struct.Struct("<IIIBBH"),
    False,
)
_ELF64: Final = _ElfLayout(
    struct.Struct("<16sHHIQQQIHHHHHH"),
    struct.Struct("<IIQQQQIIQQ"),
    struct.Struct("<IBBHQQ"),
    True,
)


@dataclass(frozen=True, slots=True)
class _ElfSection:
    """A section header; `address` is in memory, `offset` in the file."""

    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int


def read_sections_and_symbols(
    path: Path,
) -> tuple[tuple[SectionSize, ...], tuple[SymbolSize, ...]]:
    """Return the allocated sections in file order and the sized symbols by address."""
    data, layout = _open(path)
    sections = _read_sections(data, layout)
    counted = filter(_is_counted, sections)
    sized = tuple(SectionSize(s.name, s.address, s.size, _kind(s)) for s in counted)
    return sized, _read_symbols(data, layout, sections)


def external_definitions(data: bytes) -> list[str]:
    """Return the global symbols that an object defines; [] if it is not ELF.

    Weak symbols are left out.
    """
    if data[:4] != b"\x7fELF" or data[5:6] != b"\x01":
        return []
    layout = _ELF64 if data[4] == 2 else _ELF32
    names: list[str] = []
    for symbol in _raw_symbols(data, layout, _read_sections(data, layout)):
        if symbol.binding == _STB_GLOBAL and symbol.section != _SHN_UNDEF:
            names.append(symbol.name)
    return names


def is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def read_contents(
    path: Path, *, only_code: bool = False
) -> tuple[tuple[int, bytes], ...]:
    """Return address and bytes of each section that is never written, or of code."""
    data, layout = _open(path)
    contents: list[tuple[int, bytes]] = []
    for section in _read_sections(data, layout):
        if not _is_counted(section) or section.type == _SHT_NOBITS:
            continue
        if only_code:
            is_wanted = bool(section.flags & _SHF_EXECINSTR)
        else:
            is_wanted = not section.flags & _SHF_WRITE
        if is_wanted:
            end = section.offset + section.size
            contents.append((section.address, data[section.offset : end]))
    return tuple(contents)


@dataclass(frozen=True, slots=True)
class ThumbCode:
    """Instructions without data between them; `offset` is that in the file."""

    address: int
    offset: int
    data: bytes


def read_thumb_code(path: Path) -> tuple[ThumbCode, ...]:
    """Return the Thumb code of all functions.

    Mapping symbols separate code and data (ELF for the Arm Architecture, 5.5.5).
    """
    data, layout = _open(path)
    sections = _read_sections(data, layout)
    marks: dict[int, bool] = {}
    functions: list[_ElfSymbol] = []
    for symbol in _raw_symbols(data, layout, sections):
        if symbol.name.startswith(("$t", "$d", "$a")):
            marks[symbol.value] = symbol.name.startswith("$t")
        elif symbol.type == _STT_FUNC and symbol.section < len(sections):
            functions.append(symbol)
    borders = sorted(marks)
    found: dict[int, ThumbCode] = {}
    for function in functions:
        section = sections[function.section]
        start = function.value & ~1
        end = start + function.size
        inner = borders[bisect_right(borders, start) : bisect_left(borders, end)]
        for first, last in pairwise([start, *inner, end]):
            mark = bisect_right(borders, first) - 1
            if first < last and mark >= 0 and marks[borders[mark]]:
                at = first - section.address + section.offset
                found[first] = ThumbCode(first, at, data[at : at + last - first])
    return tuple(found.values())


def _open(path: Path) -> tuple[bytes, _ElfLayout]:
    """Return a file's bytes and layout; ToolFailedError if it is no such ELF."""
    data = path.read_bytes()
    # After the magic number: the class, of 32 or 64 bits, and the byte order.
    has_class = data[4:5] in (b"\x01", b"\x02")
    if data[:4] != b"\x7fELF" or not has_class or data[5:6] != b"\x01":
        what = "the linker's output is not a little-endian ELF."
        raise ToolFailedError(what, where=str(path))
    return data, _ELF64 if data[4] == 2 else _ELF32


def _read_sections(data: bytes, layout: _ElfLayout) -> list[_ElfSection]:
    # Of the ELF header: e_shoff, e_shnum, e_shstrndx.
    header = layout.header.unpack_from(data)
    table, count, names_index = header[6], header[12], header[13]
    rows: list[tuple[int, ...]] = []
    for index in range(count):
        place = table + index * layout.section.size
        rows.append(layout.section.unpack_from(data, place))
    # Of a section header: sh_name, type, flags, addr, offset, size, link.
    names = rows[names_index][4]
    return [_ElfSection(_text(data, names + row[0]), *row[1:7]) for row in rows]


def _is_counted(section: _ElfSection) -> bool:
    """Return whether a section takes memory; thread-local zeros are in .bss."""
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
    """Return the functions and objects with a size, in sections that count."""
    symbols: list[SymbolSize] = []
    for symbol in _raw_symbols(data, layout, sections):
        is_sized = symbol.type in (_STT_OBJECT, _STT_FUNC) and symbol.size > 0
        # Reserved indices, such as that of absolute symbols, are above all sections.
        if not is_sized or symbol.section >= len(sections):
            continue
        home = sections[symbol.section]
        if _is_counted(home):
            name = without_abi_hash(symbol.name)
            symbols.append(
                SymbolSize(name, symbol.value, symbol.size, home.name, _kind(home))
            )
    return tuple(sorted(symbols, key=lambda symbol: (symbol.address, symbol.name)))


@dataclass(frozen=True, slots=True)
class _ElfSymbol:
    """A symbol; `section` is the index of its section, and `value` its address."""

    name: str
    binding: int
    type: int
    section: int
    value: int
    size: int


def _raw_symbols(
    data: bytes, layout: _ElfLayout, sections: list[_ElfSection]
) -> Iterator[_ElfSymbol]:
    for table in sections:
        if table.type != _SHT_SYMTAB:
            continue
        names = sections[table.link].offset
        for at in range(table.offset, table.offset + table.size, layout.symbol.size):
            fields = layout.symbol.unpack_from(data, at)
            if layout.wide:
                name, info, _, section, value, size = fields
            else:
                name, value, size, info, _, section = fields
            text = _text(data, names + name)
            yield _ElfSymbol(text, info >> 4, info & 0xF, section, value, size)


def _text(data: bytes, start: int) -> str:
    """Return the string at an offset, which ends before a zero byte."""
    return data[start : data.index(b"\0", start)].decode("ascii", "replace")
