"""The tools that doctor finds, and its advice for missing or broken ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

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


def test_without_apt_the_compiler_of_pypi_is_offered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on macOS and Windows: no command needs apt, and zig builds every board."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "300")
    found = by_name()
    for name in ("gcc", "arm-none-eabi-gcc", "riscv64-unknown-elf-gcc"):
        assert found[name].install == "pip install 'firmwright[zig]', or gcc"
    commands = install_commands(tuple(found.values()))
    assert [line for line in commands if "zig" in line] == list(commands)
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "apt install" not in said
    assert "QEMU, from qemu.org (qemu-system-arm)" in said


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
