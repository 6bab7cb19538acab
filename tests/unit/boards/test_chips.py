"""The files of chips: each is a usable board, and its figures agree with each other."""

import re
from pathlib import Path

import pytest

from firmwright.base.errors import BoardError, UsageError
from firmwright.base.resources import boards_dir
from firmwright.boards import list_boards, list_chips, load_board, load_chip
from firmwright.boards.new_board import RTT_BYTES, board_of_chip
from firmwright.build.linker_script import format_board_header, format_linker_script
from firmwright.build.project_files import project_files
from firmwright.flows.board.port_check import check_port
from tests.emulators import tool_family

CHIPS = {chip.name: chip for chip in list_chips()}
BUILT = [name for name, chip in CHIPS.items() if not chip.export_only]
FAMILIES = (
    *("f0", "f1", "f3", "f4", "f7", "g0", "g4", "h5", "h7"),
    *("l0", "l4", "l5", "u5", "wb", "wl"),
)
ALWAYS = ("stm32f030r8", "stm32g474re", "samd21g18")
"""One chip with little RAM, one with two regions, one without a clock driver."""


def test_the_families_are_there() -> None:
    families = {re.sub(r"(?<=stm32[fghluw][0-9bl]).*", "", name) for name in CHIPS}
    for family in FAMILIES:
        assert f"stm32{family}" in families
    assert len(CHIPS) >= 45


@pytest.mark.parametrize("name", sorted(CHIPS))
def test_the_memory_of_a_chip_is_plausible_and_gives_a_linker_script(name: str) -> None:
    chip = CHIPS[name]
    assert name == load_chip(name.upper()).name
    assert chip.description
    for region in chip.memory:
        assert region.start % 1024 == 0
        assert region.size_bytes % 1024 == 0
    assert 8 * 1024 <= chip.ram.size_bytes <= chip.ram_bytes
    assert chip.flash_bytes >= 64 * 1024
    pools = chip.pools()
    assert sum(pool.size_bytes or 0 for pool in pools) > chip.ram_bytes * 0.8
    script = format_linker_script(chip)
    for region in chip.memory:
        assert f"{region.start:#010x}" in script.lower()
    assert f"FWR_CLOCK_HZ {chip.clock_hz}u" in format_board_header(chip)


@pytest.mark.parametrize("name", sorted(CHIPS))
def test_the_clocks_of_a_chip_agree_with_its_wait_states(name: str) -> None:
    chip = CHIPS[name]
    assert chip.clock_hz <= chip.clock_max_hz
    assert chip.clock_hz <= chip.modeled_hz <= chip.clock_max_hz
    limits = chip.flash.wait_state_limits
    if limits:
        assert limits[-1][0] == chip.clock_max_hz
        assert limits[0][1] == 0
        assert chip.at_clock(limits[0][0]).flash.wait_states == 0
        with pytest.raises(BoardError, match="has no wait states for"):
            chip.at_clock(chip.clock_max_hz + 1)
    settings = dict(chip.clock.settings) if chip.clock is not None else {}
    if "FLASH_WAITS" in settings:
        cycles = (settings["FLASH_WAITS"] + 1) * settings.get("AHB_DIVIDER", 1)
        assert chip.flash.wait_states == cycles - 1


def test_wait_states_follow_the_clock_of_the_board(tmp_path: Path) -> None:
    file = board_of_chip("own", "stm32g474re", tmp_path)
    board = load_board("own", (tmp_path,))
    assert (board.run_hz, board.modeled_hz) == (170_000_000, 170_000_000)
    assert board.flash.wait_states == 4
    text = file.read_text(encoding="utf-8")
    file.write_text(text + "\n[clock]\nhz = 48_000_000\n", encoding="utf-8")
    slow = load_board("own", (tmp_path,))
    assert (slow.modeled_hz, slow.flash.wait_states) == (48_000_000, 1)
    assert slow.at_clock(20_000_000).flash.wait_states == 0
    assert slow.at_clock(20_000_000).modeled_hz == 20_000_000


def test_without_a_clock_driver_times_are_modeled_at_the_highest_clock() -> None:
    chip = CHIPS["stm32l073rz"]
    assert chip.clock is None
    assert (chip.run_hz, chip.modeled_hz) == (2_097_000, 32_000_000)
    assert chip.flash.wait_states == 1


@pytest.mark.parametrize("name", sorted(CHIPS))
def test_a_new_board_of_a_chip_is_valid_with_each_console(
    name: str, tmp_path: Path
) -> None:
    chip = CHIPS[name]
    board_of_chip("own", name, tmp_path)
    own = load_board("own", (tmp_path,))
    assert own.memory == chip.memory
    assert own.clock == chip.clock
    expected = "rtt" if chip.port == "cortex_m" else chip.console.driver
    assert own.console.driver == expected
    if chip.limits.runtime_bytes < RTT_BYTES and expected == "rtt":
        assert own.limits.runtime_bytes == chip.limits.runtime_bytes + RTT_BYTES
    board_of_chip("none", name, tmp_path, console="none")
    assert load_board("none", (tmp_path,)).console.driver == "none"
    if chip.console.driver == "none":
        with pytest.raises(UsageError, match="no driver for the console 'uart'"):
            board_of_chip("uart", name, tmp_path, console="uart")
    else:
        board_of_chip("uart", name, tmp_path, console="uart")
        assert load_board("uart", (tmp_path,)).console == chip.console


def test_the_name_of_a_chip_is_the_name_of_a_board(tmp_path: Path) -> None:
    assert load_board("stm32g474re") == CHIPS["stm32g474re"]
    both = load_board("mps2-an386@stm32g474re")
    assert both.flash.wait_state_limits == CHIPS["stm32g474re"].flash.wait_state_limits
    assert load_board("STM32G474RET6") == CHIPS["stm32g474re"]
    for name, near in (
        ("mps2_an386", "mps2-an386"),
        ("nrf52840-dkk", "nrf52840-dk"),
        ("stm32g474", "stm32g474re"),
        ("stm32g477re", "stm32g474re"),
    ):
        with pytest.raises(BoardError, match="there is no board called") as caught:
            load_board(name)
        assert caught.value.hint.startswith(near)
        assert "--boards-dir" in caught.value.hint
    board_of_chip("stm32g474re", "stm32l476rg", tmp_path)
    assert load_board("stm32g474re", (tmp_path,)).modeled_hz == 80_000_000


def test_order_numbers_name_a_chip_and_unknown_ones_similar_chips() -> None:
    assert load_chip("STM32G474RET6").name == "stm32g474re"
    assert load_chip("nRF52840_xxAA").name == "nrf52840"
    assert load_chip("ESP32-C3").name == "esp32c3"
    assert load_chip("FE310-G002").name == "fe310_g002"
    with pytest.raises(BoardError) as caught:
        load_chip("stm32g473re")
    assert caught.value.what == "there is no chip called 'stm32g473re'."
    assert "stm32g474re" in caught.value.hint
    with pytest.raises(BoardError):
        load_chip("mps2_an386")


def test_a_chip_says_what_its_boards_have_shown() -> None:
    ranks = ("built", "emulated", "hardware")
    for board in list_boards():
        text = (boards_dir() / board.name / "board.toml").read_text(encoding="utf-8")
        soc = re.search(r'^soc = "(.*)"', text, re.MULTILINE)
        if soc is not None and soc[1] in CHIPS:
            shown = CHIPS[soc[1]].validation
            assert ranks.index(shown) >= ranks.index(board.validation)


@pytest.mark.parametrize("name", [n for n, chip in CHIPS.items() if chip.export_only])
def test_a_chip_without_firmware_is_refused_with_its_reason(
    name: str, tmp_path: Path
) -> None:
    board_of_chip("own", name, tmp_path)
    with pytest.raises(BoardError) as caught:
        project_files(load_board("own", (tmp_path,)))
    assert CHIPS[name].export_only in caught.value.what
    assert "firmwright export" in caught.value.hint
    assert check_port(load_board("own", (tmp_path,)), (tmp_path,)).export_only


def marked(name: str) -> object:
    tool = tool_family(CHIPS[name])
    deep = () if name in ALWAYS else (pytest.mark.deep,)
    return pytest.param(name, marks=[pytest.mark.qemu(tool), *deep])


@pytest.mark.parametrize("name", [marked(name) for name in BUILT])
def test_firmware_for_a_new_board_of_the_chip_builds(
    fw, name: str, tmp_path: Path, digits_path: Path, deep: bool
) -> None:
    """Build the model with the default console, and with --deep check the others."""
    fw("boards", "new", "own", "--chip", name, "-o", tmp_path)
    where = ("--board", "own", "--boards-dir", tmp_path)
    built = fw("build", digits_path, *where, "--json").json
    assert built["flash_bytes"] <= CHIPS[name].flash.size_bytes
    others = ("none", "uart") if CHIPS[name].console.driver != "none" else ("none",)
    for console in others if deep else ():
        options = ("--chip", name, "--console", console, "-o", tmp_path)
        fw("boards", "new", f"own-{console}", *options)
        file = tmp_path / f"own-{console}" / "board.toml"
        checked = fw("boards", "check", file, "--json").json
        assert 1_000 < checked["port"]["flash_bytes"] < 8_000


@pytest.mark.qemu
def test_time_is_modeled_at_the_clock_of_a_chip_without_a_board_file(
    fw, digits_path: Path
) -> None:
    """The chip has no clock driver, and QEMU runs its code on another machine."""
    options = ("--board", "stm32l073rz", "--count-instructions", "--json")
    found = fw("profile", digits_path, *options).json
    assert found["clock_hz"] == CHIPS["stm32l073rz"].clock_max_hz
