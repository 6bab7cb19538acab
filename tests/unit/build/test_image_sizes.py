"""Regions and overflows, from section lists and the linker's words."""

from pathlib import Path

import pytest

from firmwright.artifacts import ImageSizes, SectionSize, SymbolSize
from firmwright.base.errors import RegionOverflow, ToolFailedError
from firmwright.build.image_sizes import (
    LinkedRegion,
    find_overflows,
    make_does_not_fit_error,
    read_sizes,
)

REGIONS = (
    LinkedRegion("code", 0, 4096, "flash"),
    LinkedRegion("sram", 0x2000_0000, 1024, "ram"),
    LinkedRegion("more", 0x3000_0000, 2048, "ram"),
)
LINKER = """
ld: build/release/firmware.elf section `.rodata' will not fit in region `code'
ld: region `code' overflowed by 904 bytes
ld: region `sram' overflowed by 76 bytes
collect2: error: ld returned 1 exit status
"""


def image() -> ImageSizes:
    sections = (
        SectionSize(".text", 0, 3000, "text"),
        SectionSize(".rodata", 3000, 1900, "rodata"),
        SectionSize(".data", 0x2000_0400, 100, "data"),
        SectionSize(".stack", 0x2000_0000, 1000, "stack"),
        SectionSize(".noinit.more", 0x3000_0000, 500, "noinit"),
    )
    symbols = (
        SymbolSize("weights", 3000, 1800, ".rodata", "rodata"),
        SymbolSize("main", 0, 2000, ".text", "text"),
        SymbolSize("table", 0x2000_0400, 100, ".data", "data"),
        SymbolSize("pool", 0x3000_0000, 500, ".noinit.more", "noinit"),
    )
    return ImageSizes(sections, symbols, ())


def test_flash_counts_initial_values_and_ram_counts_the_stack() -> None:
    assert image().flash_bytes == 3000 + 1900 + 100
    assert image().ram_bytes == 100 + 1000 + 500


def test_the_largest_symbols_come_first() -> None:
    assert [s.name for s in image().largest("text", "rodata", count=2)] == [
        "main",
        "weights",
    ]


def test_the_linkers_complaint_gives_bytes_needed_per_region() -> None:
    assert find_overflows(LINKER, REGIONS) == (
        RegionOverflow("code", 5000, 4096),
        RegionOverflow("sram", 1100, 1024),
    )


def test_other_linker_messages_are_not_overflows() -> None:
    assert find_overflows("undefined reference to `main'", REGIONS) == ()


def test_the_error_names_missing_bytes_and_largest_contributors() -> None:
    error = make_does_not_fit_error(
        find_overflows(LINKER, REGIONS), image(), REGIONS, board="tiny"
    )
    assert error.what == (
        "the firmware does not fit: code needs 5000 bytes and has 4096 (904 too few; largest: "
        "main 2000, weights 1800, table 100); sram needs 1100 bytes and has 1024 (76 too few; "
        "largest: table 100, the stack 1000)."
    )
    assert [r.name for r in error.regions] == ["code", "sram"]
    assert ("the stack", 1000) in error.peak


def test_a_program_in_another_format_has_no_sizes(tmp_path: Path) -> None:
    program = tmp_path / "firmware.elf"
    program.write_bytes(bytes.fromhex("cffaedfe") + bytes(60))  # as on macOS
    assert not read_sizes(program, ()).sections
    with pytest.raises(ToolFailedError, match="not a little-endian ELF"):
        read_sizes(program, REGIONS)
