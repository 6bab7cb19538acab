"""The tools that doctor finds, and its advice for missing or broken ones."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from firmwright.cli import doctor
from firmwright.cli.doctor import ToolStatus, check_tools, install_commands
from firmwright.cli.main import main


def by_name() -> dict[str, ToolStatus]:
    return {found.name: found for found in check_tools()}


def script(folder: Path, name: str, text: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


@pytest.mark.host_c
def test_installed_tools_have_a_version() -> None:
    found = by_name()
    assert found["numpy"].usable
    assert found["gcc"].usable
    assert found["gcc"].version.count(".") == 2


def test_missing_tools_have_one_install_command_per_manager(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script(tmp_path, "apt", "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = by_name()
    assert not found["gcc"].version
    apt = next(
        line
        for line in install_commands(tuple(found.values()))
        if line.startswith("apt")
    )
    words = apt.split()
    assert {"gcc", "gcc-arm-none-eabi", "qemu-system-arm", "openocd"} <= set(words)
    assert len(words) == len(set(words))
    assert "picotool" not in words, (
        "Debian 12 has no such package, and apt would install nothing"
    )
    assert "pico-sdk-tools" in found["picotool"].install


EMULATORS = "(qemu-system-arm, qemu-system-riscv32, qemu-system-xtensa)"
WINGET = "winget install SoftwareFreedomConservancy.QEMU, and its folder in PATH"


@pytest.mark.parametrize(
    ("system", "c_compiler", "emulator", "quote"),
    [
        ("Linux", "pip install 'firmwright[zig]', or gcc", "QEMU, from qemu.org", "'"),
        ("Darwin", "xcode-select --install", "brew install qemu", "'"),
        ("Windows", "pip install 'firmwright[zig]', or gcc", WINGET, '"'),
    ],
)
def test_without_apt_the_compiler_of_pypi_is_offered(
    system: str,
    c_compiler: str,
    emulator: str,
    quote: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each system has its own commands; cmd.exe knows no single quotes."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setattr(doctor.platform, "system", lambda: system)
    monkeypatch.setattr(doctor, "zig_command", lambda: ())
    found = by_name()
    assert found["gcc"].install == c_compiler
    for name in ("arm-none-eabi-gcc", "riscv64-unknown-elf-gcc"):
        assert found[name].install == "pip install 'firmwright[zig]', or gcc"
    (command,) = install_commands(tuple(found.values()))
    assert f" -m pip install {quote}firmwright[" in command
    assert command.startswith(sys.executable)
    assert "zig" in command
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "apt install" not in said
    assert f"  {emulator} {EMULATORS}" in said


def test_installed_zig_is_not_offered_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(doctor, "zig_command", lambda: ("zig",))
    monkeypatch.setattr(doctor, "_run", lambda *_words: "0.17.1\n")
    found = by_name()
    assert found["zig"].usable
    assert found["gcc"].install == "not needed with --toolchain zig"
    assert "zig" not in " ".join(install_commands(tuple(found.values())))


@pytest.mark.parametrize("has_sudo", [True, False])
def test_a_user_who_is_not_root_needs_sudo(
    has_sudo: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script(tmp_path, "apt", "exit 0")
    if has_sudo:
        script(tmp_path, "sudo", "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(doctor.os, "geteuid", lambda: 1000)
    commands = " && ".join(install_commands(check_tools()))
    assert commands.startswith("sudo apt install ") == has_sudo
    assert ("apt install" in commands) == has_sudo


def test_pip_is_that_of_the_running_python(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Another one in PATH would install for another Python."""
    script(tmp_path, "pip", "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = ToolStatus("", "zig", "", "pip install ziglang")
    assert install_commands([missing]) == (f"{sys.executable} -m pip install ziglang",)
    monkeypatch.setattr(doctor.sys, "executable", str(tmp_path / "python"))
    assert install_commands([missing]) == ("pip install ziglang",)
    monkeypatch.setattr(doctor, "find_spec", lambda _name: None)
    (command,) = install_commands([missing])
    assert command == f"uv pip install --python {tmp_path / 'python'} ziglang"


def test_compiler_without_library_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script(
        tmp_path,
        "arm-none-eabi-gcc",
        '[ "$1" = --version ] && { echo "arm-none-eabi-gcc (15:12.2.rel1-1) 12.2.1"; exit 0; }\n'
        'echo "<stdin>:1:10: fatal error: math.h: No such file or directory" >&2; exit 1',
    )
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    found = by_name()["arm-none-eabi-gcc"]
    assert (found.version, found.usable) == ("12.2.1", False)
    assert (
        found.problem
        == "does not compile: <stdin>:1:10: fatal error: math.h: No such file or directory"
    )
    monkeypatch.setenv("COLUMNS", "300")
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "12.2.1: does not compile" in said
    assert "gcc-arm-none-eabi libnewlib-arm-none-eabi" in said


def test_program_without_version_output_counts_as_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script(tmp_path, "openocd", "exit 3")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin")
    assert by_name()["openocd"].version == "of unknown version"


def test_the_versions_that_were_tried_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["doctor"])
    said = capsys.readouterr().out
    for system, python, emulator in (("12", "3.11", "7.2"), ("13", "3.13", "10.0")):
        (line,) = (line for line in said.splitlines() if f"Debian {system}:" in line)
        assert f"Python {python}, " in line
        assert f"QEMU {emulator}, " in line
