"""Verbs about boards: create, check, flash, erase, debug, monitor."""

import contextlib
import re
import shutil
import socket
import threading
import time
from importlib import metadata
from pathlib import Path

import pytest


@pytest.mark.qemu
def test_new_board_is_created_checked_built_and_flashed(
    fw, tmp_path: Path, digits_path: Path
):
    made = fw(
        "boards", "new", "mine", "--from", "nucleo-h743zi", "-o", tmp_path, "--json"
    ).json
    file = Path(made["file"])
    text = file.read_text()
    text += """
[[memory]]
name = "code"
start = 0x0800_0000
size = 0x0001_0000
kind = "flash"

[[memory]]
name = "sram"
start = 0x2000_0000
size = 0x0000_4000
kind = "ram"
pool = "sram"
"""
    file.write_text(text)
    checked = fw("boards", "check", file, "--json").json
    assert (checked["flash_bytes"], checked["ram_bytes"]) == (65536, 16384)
    assert checked["pools"] == [{"name": "sram", "size_bytes": 16384 - 4096 - 1536}]
    said = fw("boards", "check", file)
    assert "only built" in said.out
    assert "400,000,000 Hz from 64,000,000 Hz" in said.out
    assert "wait states unknown" in said.out
    listed = fw("boards", "--boards-dir", tmp_path, "--json").json["boards"]
    assert "mine" in {board["name"] for board in listed}
    where = ("--board", "mine", "--boards-dir", tmp_path)
    built = fw("build", digits_path, *where, "--json").json
    assert built["regions"][0]["size_bytes"] == 65536
    found = fw("flash", digits_path, *where, "--dry-run", "--json").json
    assert found["runner"] == "openocd"
    assert found["commands"][0][:3] == ["openocd", "-f", "interface/stlink.cfg"]
    assert found["size_bytes"] == built["flash_bytes"]
    said = fw("flash", digits_path, *where, "--runner", "uf2")
    assert said.status == 2
    assert "does not configure 'uf2'" in said.err
    assert fw("flash", digits_path).status == 2


def test_the_emulator_of_a_board_has_a_version(fw, monkeypatch: pytest.MonkeyPatch):
    def read_version(package: str) -> str:
        if package == "labwired":
            return "0.25.0"
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setattr(metadata, "version", read_version)
    listed = {entry["name"]: entry for entry in fw("boards", "--json").json["boards"]}
    pico, built = listed["rpi-pico"], listed["nucleo-h743zi"]
    assert (pico["emulator"], pico["emulator_version"]) == ("labwired", "0.25.0")
    assert (built["emulator"], built["emulator_version"]) == (None, None)
    of_qemu = listed["mps2-an386"]
    assert of_qemu["emulator"] == "qemu"
    if shutil.which("qemu-system-arm"):
        assert re.fullmatch(r"\d+\.\d+[\w.]*", of_qemu["emulator_version"])


def test_a_new_board_of_a_chip_is_checked_and_listed(fw, tmp_path: Path):
    listed = fw("boards", "--chips", "--json").json["chips"]
    (chip,) = [entry for entry in listed if entry["name"] == "imxrt1060"]
    assert chip["clock_max_hz"] == 600_000_000
    assert "FlexSPI" in chip["export_only"]
    assert "export only" in fw("boards", "--chips").out
    made = fw("boards", "new", "own", "--chip", "MIMXRT1062", "-o", tmp_path)
    assert made.status == 2
    assert "imxrt1060" in made.err
    made = fw("boards", "new", "own", "--chip", "imxrt1060", "-o", tmp_path)
    assert f"firmwright boards check {tmp_path}" in made.out
    file = tmp_path / "own" / "board.toml"
    checked = fw("boards", "check", file, "--json").json
    assert checked["modeled_hz"] == 600_000_000
    assert checked["wait_states"] is None
    assert "no firmware can be built: the boot ROM" in fw("boards", "check", file).out
    both = fw("boards", "new", "x", "--chip", "rp2040", "--from", "rpi-pico")
    assert both.status == 2


def test_check_refuses_an_invalid_board_file(fw, tmp_path: Path):
    fw("boards", "new", "mine", "--from", "microbit", "-o", tmp_path)
    file = tmp_path / "mine" / "board.toml"
    file.write_text(file.read_text().replace("[counter]", "[conter]"))
    said = fw("boards", "check", file)
    assert said.status == 2
    assert said.err.startswith(
        "firmwright: mine/board.toml:conter: unknown key. Try: write counter"
    )


@pytest.mark.qemu
def test_check_compiles_the_port(fw, tmp_path: Path):
    fw("boards", "new", "mine", "--from", "mps2-an386", "-o", tmp_path)
    file = tmp_path / "mine" / "board.toml"
    assert "compiles and links: 4," in fw("boards", "check", file).out
    checked = fw("boards", "check", file, "--json").json
    assert 4_000 < checked["port"]["flash_bytes"] < 6_000
    wrong = file.read_text().replace(
        'soc = "mps2_an386"', 'soc = "mps2_an386"\ncpu_flags = ["-mfpu=x"]'
    )
    file.write_text(wrong)
    said = fw("boards", "check", file)
    assert said.status == 2
    assert (
        "mine: the start-up code and drivers do not compile for this board" in said.err
    )


def test_check_says_what_kind_of_file_it_wants(fw, tmp_path: Path):
    for path, words in (
        ("nothere.toml", "there is no such file"),
        (Path(__file__), "a board's file is called board.toml"),
    ):
        said = fw("boards", "check", path)
        assert said.status == 2
        assert words in said.err
    (tmp_path / "soc").mkdir()
    chip = tmp_path / "soc" / "mine.toml"
    chip.write_text('description = "x"\ncore = "cortex-m4"\n')
    said = fw("boards", "check", chip)
    assert "soc/mine.toml:port: this key is missing" in said.err


@pytest.mark.parametrize(
    "words",
    [
        ("boards", "new"),
        ("boards", "new", "x"),
        ("boards", "list", "x"),
        ("boards", "check", "/nowhere/board.toml"),
        ("boards", "check", "README.md"),
    ],
)
def test_invalid_boards_arguments_are_usage_errors(fw, words: tuple[str, ...]):
    assert fw(*words).status == 2


def test_erase_and_debug_print_their_commands(fw):
    found = fw("erase", "--board", "nucleo-l4r5zi", "--dry-run", "--json").json
    assert found["commands"] == [["st-flash", "erase"]]
    assert fw("erase", "--board", "mps2-an386").status == 2
    assert fw("debug", "model.tflite").status == 2


def test_monitor_shows_output_and_escapes_binary_data(fw):
    """The simulated board repeats output that is lost before the port is open."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def talk() -> None:
            with contextlib.suppress(OSError), server.accept()[0] as line:
                while True:
                    line.sendall(b"hello\r\n\x00\xff")
                    time.sleep(0.05)

        thread = threading.Thread(target=talk, daemon=True)
        thread.start()
        url = f"socket://127.0.0.1:{server.getsockname()[1]}"
        said = fw("monitor", "--port", url, "--seconds", "1", "--json").json
        thread.join(5)
    assert "hello\n\\x00\\xff" in said["text"]
    assert said["bytes"] >= 9
    assert fw("monitor").status == 2
