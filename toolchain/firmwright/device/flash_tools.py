"""Command lines of third-party flashing tools, and how to install the tools.

Commands are returned as lists of words and executed elsewhere. Their options follow each tool's
help text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

ToolCommand = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FlashJob:
    """The files, start address and length of one image to flash."""

    argument: str
    hex: Path
    bin: Path
    uf2: Path
    start: int
    size_bytes: int

    @property
    def read_back(self) -> Path:
        return self.bin.with_suffix(".read")

    @property
    def script(self) -> Path:
        """Return the command file for a tool that reads commands from a file."""
        return self.bin.with_suffix(".jlink")


@dataclass(frozen=True, slots=True)
class FlashTool:
    """How a tool programs, reads back and erases flash.

    A tool without `read` verifies when it programs with `verify`. `script` returns the text of
    `FlashJob.script`.
    """

    program: str
    install: str
    write: Callable[[FlashJob, bool], tuple[ToolCommand, ...]]
    erase: Callable[[FlashJob], tuple[ToolCommand, ...]]
    read: Callable[[FlashJob], tuple[ToolCommand, ...]] | None = None
    script: Callable[[FlashJob, bool], str] | None = None


# ---- pyOCD ---------------------------------------------------------------------------------------


def _pyocd_write(job: FlashJob, verify: bool) -> tuple[ToolCommand, ...]:
    return (("pyocd", "flash", "--target", job.argument, "--erase", "sector", str(job.hex)),)


def _pyocd_read(job: FlashJob) -> tuple[ToolCommand, ...]:
    save = f"savemem {job.start:#x} {job.size_bytes} {job.read_back}"
    return (("pyocd", "commander", "--target", job.argument, "--command", save),)


def _pyocd_erase(job: FlashJob) -> tuple[ToolCommand, ...]:
    return (("pyocd", "erase", "--target", job.argument, "--chip"),)


# ---- OpenOCD -------------------------------------------------------------------------------------


def _openocd(job: FlashJob, script: str) -> ToolCommand:
    files = [word for file in job.argument.split() for word in ("-f", file)]
    return ("openocd", *files, "-c", script)


def _openocd_write(job: FlashJob, verify: bool) -> tuple[ToolCommand, ...]:
    checked = " verify" if verify else ""
    return (_openocd(job, f"program {{{job.hex}}}{checked} reset exit"),)


def _openocd_erase(job: FlashJob) -> tuple[ToolCommand, ...]:
    return (_openocd(job, "init; reset halt; flash erase_sector 0 0 last; reset; exit"),)


# ---- J-Link --------------------------------------------------------------------------------------


def _jlink(job: FlashJob) -> tuple[ToolCommand, ...]:
    options = ("-device", job.argument, "-if", "SWD", "-speed", "4000", "-autoconnect", "1")
    quiet = ("-NoGui", "1", "-ExitOnError", "1")
    return (("JLinkExe", *options, *quiet, "-CommandFile", str(job.script)),)


def _jlink_script(job: FlashJob, verify: bool) -> str:
    checked = f"verifybin {job.bin}, {job.start:#x}\n" if verify else ""
    return f"halt\nloadfile {job.hex}\n{checked}reset\ngo\nexit\n"


# ---- st-flash ------------------------------------------------------------------------------------


def _stflash_write(job: FlashJob, verify: bool) -> tuple[ToolCommand, ...]:
    return (
        ("st-flash", *job.argument.split(), "--reset", "--format", "ihex", "write", str(job.hex)),
    )


def _stflash_read(job: FlashJob) -> tuple[ToolCommand, ...]:
    place = (str(job.read_back), f"{job.start:#x}", str(job.size_bytes))
    return (("st-flash", *job.argument.split(), "read", *place),)


def _stflash_erase(job: FlashJob) -> tuple[ToolCommand, ...]:
    return (("st-flash", *job.argument.split(), "erase"),)


# ---- esptool -------------------------------------------------------------------------------------


def _esptool_write(job: FlashJob, verify: bool) -> tuple[ToolCommand, ...]:
    words = ("esptool.py", "--chip", job.argument)
    write = (*words, "write_flash", "0x0", str(job.bin))
    return (write, (*words, "verify_flash", "0x0", str(job.bin))) if verify else (write,)


def _esptool_erase(job: FlashJob) -> tuple[ToolCommand, ...]:
    return (("esptool.py", "--chip", job.argument, "erase_flash"),)


# ---- picotool ------------------------------------------------------------------------------------


def _picotool_write(job: FlashJob, verify: bool) -> tuple[ToolCommand, ...]:
    checked = ("--verify",) if verify else ()
    return (("picotool", "load", *checked, "--execute", str(job.uf2), "--family", job.argument),)


def _picotool_erase(job: FlashJob) -> tuple[ToolCommand, ...]:
    return (("picotool", "erase", "--all"),)


TOOLS: Final[Mapping[str, FlashTool]] = MappingProxyType(
    {
        "pyocd": FlashTool(
            "pyocd", "pip install 'firmwright[flash]'", _pyocd_write, _pyocd_erase, _pyocd_read
        ),
        "openocd": FlashTool("openocd", "apt install openocd", _openocd_write, _openocd_erase),
        "jlink": FlashTool(
            "JLinkExe",
            "the J-Link software of SEGGER, from segger.com",
            lambda job, verify: _jlink(job),
            _jlink,
            script=_jlink_script,
        ),
        "st-flash": FlashTool(
            "st-flash", "apt install stlink-tools", _stflash_write, _stflash_erase, _stflash_read
        ),
        "esptool": FlashTool("esptool.py", "pip install esptool", _esptool_write, _esptool_erase),
        "picotool": FlashTool(
            "picotool",
            "apt install picotool, or Raspberry Pi's release of it",
            _picotool_write,
            _picotool_erase,
        ),
    }
)
"""The flash tools by the names used in a board's `[flash]` table."""

JLINK_ERASE: Final = "halt\nerase\nreset\nexit\n"
"""The script with which J-Link erases a whole chip."""
