"""The SCons tool in a user's build: it compiles, builds, and sees what is unchanged."""

import subprocess
import sys
from pathlib import Path

import pytest

import firmwright.sconstools

TOOLPATH = Path(firmwright.sconstools.__path__[0])

USERS_BUILD = f"""
env = Environment(tools=["fw_model"], toolpath=[{str(TOOLPATH)!r}])
planner = ARGUMENTS.get("planner", "search")
sources = env.FirmwrightModel("out", "digits.tflite", board="host", planner=planner)
env.FirmwrightFirmware("out", sources)
"""


def scons(folder: Path, *words: str) -> tuple[int, str]:
    command = [sys.executable, "-I", "-m", "SCons", "-Q", *words]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.host_c
def test_a_build_generates_sources_and_firmware_once(
    digits_path: Path, tmp_path: Path
) -> None:
    (tmp_path / "digits.tflite").write_bytes(digits_path.read_bytes())
    (tmp_path / "SConstruct").write_text(USERS_BUILD)
    status, output = scons(tmp_path)
    assert status == 0, output
    assert (tmp_path / "out" / "model" / "digits.c").is_file()
    assert (tmp_path / "out" / "build" / "release" / "firmware.elf").is_file()
    assert scons(tmp_path)[1].strip() == "scons: `.' is up to date."
    assert "firmwright compile" in scons(tmp_path, "planner=greedy_by_size")[1]


def test_a_broken_model_stops_the_build_with_its_error(tmp_path: Path) -> None:
    (tmp_path / "digits.tflite").write_bytes(b"no model")
    (tmp_path / "SConstruct").write_text(USERS_BUILD)
    status, output = scons(tmp_path)
    assert status == 2
    assert "firmwright: digits.tflite" in output
    assert "Traceback" not in output
