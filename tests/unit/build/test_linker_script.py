"""The linker script says what the memory map says."""

import re
from collections.abc import Callable

from firmwright.boards import load_board
from firmwright.build.linker_script import format_board_header, format_linker_script


def test_the_script_of_the_board_with_four_regions(golden: Callable[..., None]) -> None:
    golden(format_linker_script(load_board("mps3-an547")), ".ld")


def test_the_script_has_each_region_with_its_bounds() -> None:
    script = format_linker_script(load_board("microbit"))
    assert "flash (rx) : ORIGIN = 0x00000000, LENGTH = 0x00040000" in script
    assert "sram (rwx) : ORIGIN = 0x20000000, LENGTH = 0x00004000" in script


def test_the_stack_is_the_first_section_in_ram() -> None:
    script = format_linker_script(load_board("mps2-an386"))
    in_ram = re.findall(
        r"^    (\.\S+)(?: \(NOLOAD\))? :(?:(?!\n    \}).)*\n    \} > sram",
        script,
        re.S | re.M,
    )
    assert in_ram[0] == ".stack"


def test_the_header_carries_the_boards_facts() -> None:
    header = format_board_header(load_board("mps3-an547"))
    assert '#define FWR_BOARD_NAME "mps3-an547"' in header
    assert "#define FWR_CONSOLE_BASE 0x59303000u" in header
    assert "#define FWR_COUNTER_SCALE_NUM 125u" in header
    assert "#define FWR_COUNTER_SCALE_DEN 4u" in header
    assert "FWR_CLOCK_RAISED_HZ" not in header


def test_the_header_of_a_board_with_a_raised_clock_has_its_settings() -> None:
    header = format_board_header(load_board("stm32vldiscovery"))
    assert "#define FWR_CLOCK_HZ 8000000u" in header
    assert "#define FWR_CLOCK_RAISED_HZ 24000000u" in header
    assert "#define FWR_CLOCK_PLL_MULTIPLIER 3u" in header


def test_the_word_that_tells_the_chip_is_read_on_real_boards_only() -> None:
    """An emulator faults where the chip has the register."""
    header = format_board_header(load_board("nucleo-l4r5zi"))
    assert "#define FWR_CHIP_ID 0xE0042000u" in header
    emulated = load_board("netduinoplus2")
    assert emulated.chip_id
    assert "FWR_CHIP_ID" not in format_board_header(emulated)


def test_a_fitted_stack_takes_its_bytes_from_the_link() -> None:
    assert ". += fwr_ld_stack_bytes;" in format_linker_script(
        load_board("stm32vldiscovery")
    )
    assert ". += 4096;" in format_linker_script(load_board("mps2-an385"))


def test_a_region_for_constants_has_a_linked_and_an_external_section() -> None:
    script = format_linker_script(load_board("mps2-an386"))
    assert ".rodata.psram :\n    {\n        *(.rodata.psram .rodata.psram.*)" in script
    assert (
        ".external.psram (INFO) :\n    {\n        *(.noinit.psram.external)" in script
    )
    assert script.index("*(.noinit.psram.external)") < script.index("*(.noinit.psram ")
    assert ".external" not in format_linker_script(load_board("microbit"))


def test_the_header_has_the_address_of_simulated_external_flash() -> None:
    header = format_board_header(load_board("mps2-an386"))
    assert "#define FWR_EXTERNAL_BASE 0x21000000u" in header
    assert "#define FWR_EXTERNAL_SIZE 0x01000000u" in header
    assert "FWR_EXTERNAL" not in format_board_header(load_board("microbit"))
