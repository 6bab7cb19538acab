"""Which port a board is on."""

from dataclasses import replace
from pathlib import Path

import pytest

from firmwright.base.errors import DeviceError, UsageError
from firmwright.boards import load_chip
from firmwright.device.serial_port import SerialPortInfo, find_serial_port
from firmwright.device.transport_selection import open_transport

ONE = SerialPortInfo("/dev/ttyACM0", "0483:374b", "066BFF", "STM32 STLink")
TWO = SerialPortInfo("/dev/ttyACM1", "0483:374b", "066C00", "STM32 STLink")
OTHER = SerialPortInfo("/dev/ttyUSB0", "10c4:ea60", "", "CP2102")


def test_the_only_matching_port_is_selected() -> None:
    assert find_serial_port("b", ("0483:374b",), (OTHER, ONE)) == "/dev/ttyACM0"


def test_of_two_matching_ports_the_caller_chooses_or_both_are_listed() -> None:
    assert (
        find_serial_port("b", ("0483:374b",), (ONE, OTHER, TWO), lambda ports: ports[1])
        == TWO.name
    )
    with pytest.raises(UsageError) as caught:
        find_serial_port("b", ("0483:374b",), (ONE, OTHER, TWO))
    assert caught.value.what == (
        "2 ports match this board: /dev/ttyACM0 (0483:374b 066BFF, STM32 STLink); "
        "/dev/ttyACM1 (0483:374b 066C00, STM32 STLink)."
    )


def test_a_missing_board_and_one_without_ids_are_errors() -> None:
    with pytest.raises(DeviceError) as caught:
        find_serial_port("b", ("1366:1015",), (OTHER,))
    assert caught.value.what == (
        "no port has USB id 1366:1015; available ports: /dev/ttyUSB0 (10c4:ea60, CP2102)."
    )
    with pytest.raises(UsageError, match="none was given"):
        find_serial_port("b", (), (OTHER,))


@pytest.mark.parametrize(
    ("driver", "hint"),
    [("rtt", "--port rtt://localhost:3333"), ("none", "another driver")],
)
def test_a_board_without_a_uart_says_how_its_firmware_is_reached(
    driver: str, hint: str
) -> None:
    chip = load_chip("stm32g474re")
    board = replace(chip, console=replace(chip.console, driver=driver))
    with pytest.raises(UsageError) as caught:
        open_transport(board, Path("firmware.elf"))
    assert hint in caught.value.hint
