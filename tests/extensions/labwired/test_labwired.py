"""Firmware on simulated chips of LabWired, and boards that are not connected."""

import sys
import tomllib
from importlib import resources
from pathlib import Path

import pytest

from firmwright.artifacts import PreloadedMemory
from firmwright.base.errors import DeviceError, UsageError
from firmwright.boards import Board, list_chips, load_board
from firmwright.cli.main import main
from firmwright.device import transport_selection
from firmwright.device.serial_port import SerialPortInfo
from firmwright.device.transport_selection import open_transport

CHIPS = [chip for chip in list_chips() if chip.emulator is not None]
ALWAYS = ("rp2040", "nrf52840")
"""The chips that are simulated without --deep, too.

The first is simulated as it is; the second has instructions and a peripheral that
LabWired lacks.
"""
PACED = "esp32s3"
"""The chip whose simulated UART takes the time of the rate."""


@pytest.fixture(autouse=True)
def no_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_selection, "usb_ports", lambda: ())


@pytest.fixture
def pico() -> Board:
    return load_board("rpi-pico")


def marked(chip: Board) -> object:
    deep = () if chip.name in ALWAYS else (pytest.mark.deep,)
    return pytest.param(chip, id=chip.name, marks=[pytest.mark.qemu, *deep])


@pytest.mark.parametrize("chip", [marked(chip) for chip in CHIPS])
def test_firmware_on_a_simulated_chip_is_bit_exact(
    chip: Board, digits_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("labwired", reason="needs LabWired (pip install labwired)")
    words = ["verify", str(digits_path), "--board", chip.name, "--samples", "2"]
    rate = ["--baud", "921600"] if chip.name == PACED else []
    assert main([*words, *rate]) == 0
    said = capsys.readouterr()
    assert "bit-exact: all 20 values" in said.out
    assert f"{chip.name} is not connected: LabWired's " in said.err


def test_a_connected_board_is_preferred(
    pico: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = SerialPortInfo("/dev/absent7", pico.flash_tools.usb[0], "1", "a probe")
    monkeypatch.setattr(transport_selection, "usb_ports", lambda: (port,))
    with pytest.raises(DeviceError, match="/dev/absent7"):
        open_transport(pico, Path("firmware.elf"))


def test_without_labwired_the_error_names_both_ways(
    pico: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "labwired", None)
    with pytest.raises(DeviceError) as caught:
        open_transport(pico, Path("firmware.elf"))
    assert caught.value.what == "no such board is connected."
    assert "--port" in caught.value.hint
    assert "pip install 'firmwright[labwired]'" in caught.value.hint


def test_files_beside_the_image_are_refused(pico: Board, tmp_path: Path) -> None:
    pytest.importorskip("labwired", reason="needs LabWired (pip install labwired)")
    loads = [PreloadedMemory(tmp_path / "constants.bin", 0x1010_0000)]
    with pytest.raises(UsageError, match="loads no file besides the image"):
        open_transport(pico, Path("firmware.elf"), loads=loads)


def test_peripherals_are_added_to_chips_that_there_are() -> None:
    labwired = pytest.importorskip(
        "labwired", reason="needs LabWired (pip install labwired)"
    )
    added = tomllib.loads(
        resources.files("firmwright.extensions.labwired")
        .joinpath("missing_peripherals.toml")
        .read_text(encoding="utf-8")
    )
    used = {chip.emulator.chip for chip in CHIPS if chip.emulator is not None}
    assert set(added) <= used
    configs = Path(labwired.__file__).parent / "configs" / "chips"
    for chip in added:
        assert (configs / f"{chip}.yaml").is_file()


@pytest.mark.parametrize(
    ("board", "port", "found"),
    [
        ("rpi-pico", "labwired://../chips", "is not the name of a chip"),
        ("rpi-pico", "labwired://stm32f999", "LabWired has no such chip"),
        ("nucleo-h743zi", "labwired://", "LabWired has no chip of this board"),
    ],
)
def test_a_wrong_chip_is_a_usage_error(board: str, port: str, found: str) -> None:
    pytest.importorskip("labwired", reason="needs LabWired (pip install labwired)")
    with pytest.raises(UsageError, match=found):
        open_transport(load_board(board), Path("firmware.elf"), port=port)


def test_a_simulated_chip_gives_no_evidence(
    digits_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("labwired", reason="needs LabWired (pip install labwired)")
    record = tmp_path / "record.json"
    words = ["verify", str(digits_path), "--board", "rpi-pico", "--samples", "1"]
    assert main([*words, "--evidence", str(record)]) == 2
    assert "the evidence of a board needs the board" in capsys.readouterr().err
    assert not record.exists()
