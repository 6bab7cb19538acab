"""Pools, sizes and derived properties of boards."""

from firmwright.boards import load_board


def test_a_pool_leaves_room_for_stack_and_runtime_in_shared_ram() -> None:
    board = load_board("microbit")
    (pool,) = board.pools()
    assert pool.name == "sram"
    assert (
        pool.size_bytes == 16384 - board.limits.stack_bytes - board.limits.runtime_bytes
    )
    assert pool.section == ".noinit.sram"
    assert pool.access == "rw"


def test_the_host_has_one_pool_without_limit() -> None:
    board = load_board("host")
    assert [(pool.name, pool.size_bytes) for pool in board.pools()] == [("sram", None)]
    assert board.flash_bytes is None
    assert board.ram_bytes is None


def test_memory_sizes_sum_the_regions_of_a_kind() -> None:
    board = load_board("mps3-an547")
    assert board.flash_bytes == 512 * 1024
    assert board.ram_bytes == (512 + 2048 + 4096) * 1024
    assert (board.flash.name, board.ram.name) == ("itcm", "dtcm")


def test_a_board_overrides_single_keys_of_its_soc() -> None:
    board = load_board("microbit")
    assert (board.console.base, board.console.tx_pin) == (0x4000_2000, 24)
    assert (board.counter.driver, board.counter.scale) == ("nrf51_timer", (125, 2))


def test_constant_pools_are_the_program_flash_and_marked_regions() -> None:
    board = load_board("mps2-an386")
    assert [
        (p.name, p.size_bytes, p.access, p.section) for p in board.const_pools()
    ] == [
        ("code", 0x400000, "ro", ""),
        ("psram", 0x1000000, "ro", ".rodata.psram"),
    ]
    assert board.external is not None
    assert board.external.start == 0x2100_0000
    assert [pool.name for pool in board.pools()] == ["sram"]
    assert load_board("microbit").external is None
    assert load_board("host").const_pools() == ()


def test_a_pin_is_a_number_or_a_port_and_number() -> None:
    assert load_board("netduinoplus2").console.tx_pin == 9
    assert load_board("nucleo-h743zi").console.rx_pin == 3 * 16 + 9
    assert load_board("microbit").console.tx_pin == 24


def test_a_console_has_its_own_clock_or_a_bus_clock() -> None:
    netduino, nucleo = load_board("netduinoplus2"), load_board("nucleo-h743zi")
    assert (netduino.console_hz, netduino.console_raised_hz) == (16_000_000, 84_000_000)
    assert (nucleo.console_hz, nucleo.console_raised_hz) == (64_000_000, 64_000_000)
    assert load_board("hifive1-revb").console_raised_hz == 320_000_000


def test_the_default_flash_tool_comes_first() -> None:
    flashing = load_board("nrf52840-dk").flash_tools
    assert [name for name, _ in flashing.tools] == ["pyocd", "openocd", "jlink"]
    assert flashing.argument_for("jlink") == "nRF52840_xxAA"
    assert flashing.argument_for("uf2") is None
    assert load_board("host").flash_tools.tools == ()
