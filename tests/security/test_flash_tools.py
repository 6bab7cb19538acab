"""Flash tools and debuggers read no configuration or script near the model."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from firmwright.artifacts import Image
from firmwright.base.errors import ToolFailedError
from firmwright.boards import load_board
from firmwright.flows.board.flashing import flash, plan_flashing
from firmwright.flows.board.gdb_session import debug_commands
from tests.runtime.stm32_image import stm32_image


@pytest.fixture
def image(tmp_path: Path) -> Image:
    return stm32_image(tmp_path)


@pytest.mark.skipif(shutil.which("openocd") is None, reason="openocd is not installed")
def test_openocd_reads_no_script_of_the_current_folder(
    image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a probe, it ends with an error after it has read its scripts."""
    marker, here = tmp_path / "marker", tmp_path / "here"
    names = load_board("nucleo-h743zi").flash_tools.argument_for("openocd") or ""
    for name in ("openocd.cfg", *names.split()):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(f"close [open {{{marker}}} w]\n")
    monkeypatch.chdir(here)
    with pytest.raises(ToolFailedError, match="openocd could not flash the board"):
        flash(plan_flashing(load_board("nucleo-h743zi"), image, "openocd"))
    assert not marker.exists()


def test_flash_tools_run_in_an_empty_folder(
    image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyocd, esptool and J-Link would read files of the current folder."""
    tool = tmp_path / "bin" / "pyocd"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\nls -A; exit 1\n")
    tool.chmod(0o755)
    (tmp_path / "pyocd_user.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    with pytest.raises(
        ToolFailedError, match="pyocd could not flash the board"
    ) as caught:
        flash(plan_flashing(load_board("nrf52840-dk"), image, "pyocd"))
    assert "pyocd_user.py" not in str(caught.value)


@pytest.mark.skipif(
    shutil.which("gdb-multiarch") is None, reason="GDB is not installed"
)
def test_the_debugger_executes_no_gdbinit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    # The setting that makes GDB accept every .gdbinit file.
    (tmp_path / ".gdbinit").write_text(
        "set auto-load safe-path /\nshell touch marker\n"
    )
    words = debug_commands(
        load_board("mps2-an386"), Path("fw.elf"), "/nowhere", None
    ).gdb
    subprocess.run(
        [*words, "-batch"], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    assert not (tmp_path / "marker").exists()
