"""All boards of the project load; malformed files fail with the expected message."""

from pathlib import Path
from types import ModuleType

import pytest

from firmwright.base.errors import BoardError, BoardFileError, UsageError
from firmwright.base.resources import boards_dir
from firmwright.base.trust import TRUST_VARIABLE
from firmwright.boards import list_boards, list_chips, load, load_board
from firmwright.boards.new_board import copy_board
from firmwright.cli.main import main

INVALID = Path(__file__).parents[2] / "invalid" / "boards"
BOARDS = (
    "bluepill-f103",
    "disco-f746ng",
    "esp32-c3-devkitm-1",
    "esp32-c6-devkitc-1",
    "hifive1-revb",
    "host",
    "microbit",
    "mps2-an385",
    "mps2-an386",
    "mps2-an500",
    "mps2-an505",
    "mps2-an521",
    "mps3-an524",
    "mps3-an547",
    "mps3-an547-m52",
    "mps3-an547-m85",
    "netduinoplus2",
    "nrf52840-dk",
    "nucleo-h743zi",
    "nucleo-l4r5zi",
    "nucleo-u575zi-q",
    "qemu-cortex-r5f",
    "qemu-riscv32-virt",
    "qemu-riscv32-virt-imc",
    "qemu-riscv32-virt-v",
    "qemu-riscv32-virt-vf",
    "qemu-xtensa-lx106",
    "rpi-pico",
    "rpi-pico2",
    "stm32vldiscovery",
)


def put_board(directory: Path, name: str, text: str) -> None:
    (directory / name).mkdir()
    (directory / name / "board.toml").write_text(text, encoding="utf-8")


@pytest.mark.parametrize("file", sorted(INVALID.glob("*.toml")), ids=lambda f: f.stem)
def test_each_malformed_file_is_refused_with_its_message(
    file: Path, tmp_path: Path
) -> None:
    text = file.read_text(encoding="utf-8")
    expected = text.splitlines()[0].removeprefix("# error: ")
    put_board(tmp_path, file.stem, text)
    with pytest.raises(BoardError) as caught:
        load_board(file.stem, (tmp_path,))
    assert str(caught.value) == expected


MANY_ERRORS = """
name = "other"
description = "a board for which nothing was looked up"
soc = "stm32g474re"
validaton = "built"
clock_max_hz = "fast"

[run]
kind = "qemu"
program = "qemu-system-arm"

[console]
driver = "stm32f1_usart"
tx_pin = "PZ1"
function = 0

[clock]
driver = "stm32g4"
hz = 500_000_000

[[memory]]
name = "sram"
start = 0x2000_0000
size = 0
kind = "ram"

[[memory]]
name = "ccm"
start = 0x1000_0001
size = 0x1002
kind = "ram"
cache_line = 3

[[memory]]
name = "flash"
start = 0x0800_0000
size = 0x1_0000
kind = "rom"

[limits]
stack = 100
runtime = "little"

[flash]
openocd = "../x.cfg"
"""


def test_all_errors_of_a_file_are_reported_at_once(fw, tmp_path: Path) -> None:
    put_board(tmp_path, "many", MANY_ERRORS)
    said = fw("boards", "check", tmp_path / "many" / "board.toml")
    assert said.status == BoardError.exit_code
    first, *lines = said.err.splitlines()
    assert first == f"firmwright: many/board.toml: {len(lines)} errors:"
    paths = sorted(line.split(":")[1] for line in lines)
    assert paths == sorted(
        [
            "clock.hz",
            "clock_max_hz",
            "console.tx_pin",
            "flash.openocd",
            "limits.runtime",
            "limits.stack",
            "memory[0].size",
            "memory[1].cache_line",
            "memory[1].size",
            "memory[1].start",
            "memory[2].kind",
            "name",
            "run.machine",
            "validaton",
        ]
    )
    found = fw("boards", "check", tmp_path / "many" / "board.toml", "--json").json
    parts = found["error"]["errors"]
    assert len(parts) == len(lines)
    assert {"what", "where", "hint", "code"} == set(parts[0])


def test_an_empty_file_names_every_missing_key_once(tmp_path: Path) -> None:
    put_board(tmp_path, "empty", "")
    with pytest.raises(BoardFileError) as caught:
        load_board("empty", (tmp_path,))
    where = [error.where.partition(":")[2] for error in caught.value.errors]
    assert len(set(where)) == len(where)
    needed = {"name", "description", "core", "port", "toolchain", "cpu_flags"}
    assert needed | {"memory", "run.kind", "limits.stack", "validation"} == set(where)
    put_board(tmp_path, "port", 'name = "port"\nport = "cortex_m"\n')
    with pytest.raises(BoardFileError) as caught:
        load_board("port", (tmp_path,))
    found = {error.where.partition(":")[2] for error in caught.value.errors}
    assert {"console.driver", "counter.driver", "limits.stack", "memory"} < found
    driver = next(e for e in caught.value.errors if e.where.endswith("console.driver"))
    assert "rtt" in driver.hint


def test_the_project_has_its_boards() -> None:
    assert tuple(board.name for board in list_boards()) == BOARDS


def test_every_soc_file_is_used_by_a_board_or_describes_a_chip() -> None:
    soc_names = {
        line.split('"')[1]
        for file in boards_dir().glob("*/board.toml")
        for line in file.read_text(encoding="utf-8").splitlines()
        if line.startswith("soc = ")
    }
    files = {file.stem for file in (boards_dir() / "soc").glob("*.toml")}
    assert soc_names | {chip.name for chip in list_chips()} == files


def test_a_user_may_trust_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (INVALID / "emulator_is_a_script.toml").read_text(encoding="utf-8")
    put_board(tmp_path, "emulator_is_a_script", text)
    monkeypatch.setenv(TRUST_VARIABLE, "")
    boards = ["boards", "check", str(tmp_path / "emulator_is_a_script" / "board.toml")]
    assert main(boards) == BoardError.exit_code
    assert main([*boards, "--trust", "./other"]) == BoardError.exit_code
    assert main([*boards, "--trust", "./qemu-system-arm"]) == 0


def test_an_unknown_board_suggests_similar_names() -> None:
    with pytest.raises(BoardError) as caught:
        load_board("mps2-an3867")
    assert caught.value.what == "there is no board called 'mps2-an3867'."
    assert caught.value.hint.startswith("mps2-an386, ")


@pytest.mark.parametrize("name", ["", "..", "../boards/host", "soc"])
def test_a_name_that_is_not_a_board_folder_is_unknown(name: str) -> None:
    with pytest.raises(BoardError):
        load_board(name)


def test_a_custom_board_can_use_a_soc_of_the_project(tmp_path: Path) -> None:
    text = (boards_dir() / "mps2-an386" / "board.toml").read_text(encoding="utf-8")
    own = text.replace('"mps2-an386"', '"own"', 1).replace(
        "stack = 4096", "stack = 2048"
    )
    put_board(tmp_path, "own", own)
    board = load_board("own", (tmp_path,))
    assert (board.core, board.limits.stack_bytes) == ("cortex-m4", 2048)
    assert "own" in [b.name for b in list_boards((tmp_path,))]


def test_the_environment_names_further_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (boards_dir() / "host" / "board.toml").read_text(encoding="utf-8")
    put_board(tmp_path, "mine", text.replace('"host"', '"mine"', 1))
    monkeypatch.setenv("FIRMWRIGHT_BOARDS", str(tmp_path))
    assert load_board("mine").is_host


def test_an_error_in_a_soc_names_the_soc_file(tmp_path: Path) -> None:
    (tmp_path / "soc").mkdir()
    (tmp_path / "soc" / "chip.toml").write_text('core = "cortex-m4"\ncolor = "red"\n')
    put_board(tmp_path, "own", 'name = "own"\nsoc = "chip"\n')
    with pytest.raises(BoardError) as caught:
        load_board("own", (tmp_path,))
    assert isinstance(caught.value, BoardFileError)
    assert "soc/chip.toml:color" in [error.where for error in caught.value.errors]


class Point:
    """An installed entry point."""

    def __init__(self, value: object) -> None:
        self.name, self.value, self.loaded = "acme", "acme_boards", value

    def load(self) -> object:
        return self.loaded


def test_installed_packages_bring_boards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (boards_dir() / "host" / "board.toml").read_text(encoding="utf-8")
    put_board(tmp_path, "theirs", text.replace('"host"', '"theirs"', 1))
    module = ModuleType("acme_boards")
    module.__file__ = str(tmp_path / "__init__.py")
    for value in (module, tmp_path, str(tmp_path)):
        monkeypatch.setattr(load, "entry_points", lambda group, v=value: [Point(v)])
        assert load_board("theirs").is_host
    monkeypatch.setattr(load, "entry_points", lambda group: [Point(3)])
    with pytest.raises(BoardError, match="neither a module nor a path"):
        load_board("theirs")


def test_a_new_board_copies_the_text_of_another(tmp_path: Path) -> None:
    file = copy_board("desk", "nucleo-h743zi", tmp_path)
    board = load_board("desk", (tmp_path,))
    assert (board.core, board.validation, board.clock) == (
        "cortex-m7",
        "built",
        load_board("nucleo-h743zi").clock,
    )
    assert "# to the ST-LINK" in file.read_text(encoding="utf-8")
    with pytest.raises(UsageError, match="a board of that name exists"):
        copy_board("desk", "microbit", tmp_path)
    with pytest.raises(UsageError, match="is not a valid board name"):
        copy_board("../desk", "microbit", tmp_path)
    with pytest.raises(UsageError, match="is not a valid board name"):
        copy_board("soc", "microbit", tmp_path)


def test_an_emulated_board_takes_the_memory_of_a_chip() -> None:
    both = load_board("mps2-an386@nucleo-l4r5zi")
    board, chip = load_board("mps2-an386"), load_board("nucleo-l4r5zi")
    assert both.run == board.run
    assert both.flash.read_model == chip.flash.read_model
    assert [r.size_bytes for r in both.memory] == [r.size_bytes for r in chip.memory]
    assert all(r.start >= board.ram.start for r in both.memory if r.kind == "ram")
    assert both.ramfunc is not None
    with pytest.raises(BoardError, match="an emulated board with a cortex-m4"):
        load_board("mps2-an385@nucleo-l4r5zi")


def test_flash_is_slow_for_constants_behind_small_caches_and_serial_lines() -> None:
    boards = ("nucleo-l4r5zi", "rpi-pico", "nucleo-h743zi", "mps2-an386")
    speeds = [load_board(name).flash.read_bandwidth for name in boards]
    assert speeds == [pytest.approx(8 / 6), 4 / 256, None, None]
