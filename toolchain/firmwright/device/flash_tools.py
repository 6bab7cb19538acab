"""Command lines of third-party flashing tools, and how to install the tools."""

import shlex
from collections.abc import Iterator, Mapping
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
    """How to install a tool, and templates of its commands to program, erase and read back flash.

    Each line of a template is one command. `{job.NAME}` stands for an attribute of the FlashJob,
    ARGUMENT for the words of `FlashJob.argument`, each preceded by `option`. VERIFY stands for
    `verify` if verification is requested, else for nothing. `script` is a template of
    `FlashJob.script`.
    """

    install: str
    write: str
    erase: str
    read: str = ""
    verify: str = ""
    option: str = ""
    script: str = ""

    @property
    def program(self) -> str:
        return self.write.split()[0]

    def write_commands(self, job: FlashJob, verify: bool) -> tuple[ToolCommand, ...]:
        """Return the commands that program flash and, with `verify`, verify it or read it back."""
        write = self.write.replace("VERIFY", self.verify if verify else "")
        return _fill(f"{write}\n{self.read if verify else ''}", self.option, job)

    def erase_commands(self, job: FlashJob) -> tuple[ToolCommand, ...]:
        return _fill(self.erase, self.option, job)

    def script_text(self, job: FlashJob, verify: bool) -> str:
        return self.script.replace("VERIFY", self.verify if verify else "").format(job=job)


def _fill(template: str, option: str, job: FlashJob) -> tuple[ToolCommand, ...]:
    return tuple(tuple(_words(line, option, job)) for line in template.splitlines() if line)


def _words(line: str, option: str, job: FlashJob) -> Iterator[str]:
    for word in shlex.split(line):
        if word == "ARGUMENT":
            for value in job.argument.split():
                yield from (option, value) if option else (value,)
        else:
            yield word.format(job=job)


_JLINK: Final = (
    "JLinkExe ARGUMENT -if SWD -speed 4000 -autoconnect 1 -NoGui 1 -ExitOnError 1 "
    "-CommandFile {job.script}"
)
TOOLS: Final[Mapping[str, FlashTool]] = MappingProxyType(
    {
        "pyocd": FlashTool(
            install="pip install 'firmwright[flash]'",
            option="--target",
            write="pyocd flash ARGUMENT --erase sector {job.hex}",
            read="pyocd commander ARGUMENT "
            "--command 'savemem {job.start:#x} {job.size_bytes} {job.read_back}'",
            erase="pyocd erase ARGUMENT --chip",
        ),
        "openocd": FlashTool(
            install="apt install openocd",
            option="-f",
            write="openocd ARGUMENT -c 'program {{{job.hex}}}VERIFY reset exit'",
            verify=" verify",
            erase="openocd ARGUMENT "
            "-c 'init; reset halt; flash erase_sector 0 0 last; reset; exit'",
        ),
        "jlink": FlashTool(
            install="the J-Link software of SEGGER, from segger.com",
            option="-device",
            write=_JLINK,
            erase=_JLINK,
            script="halt\nloadfile {job.hex}\nVERIFYreset\ngo\nexit\n",
            verify="verifybin {job.bin}, {job.start:#x}\n",
        ),
        "st-flash": FlashTool(
            install="apt install stlink-tools",
            write="st-flash ARGUMENT --reset --format ihex write {job.hex}",
            read="st-flash ARGUMENT read {job.read_back} {job.start:#x} {job.size_bytes}",
            erase="st-flash ARGUMENT erase",
        ),
        "esptool": FlashTool(
            install="pip install esptool",
            option="--chip",
            write="esptool.py ARGUMENT write_flash 0x0 {job.bin}\nVERIFY",
            verify="esptool.py ARGUMENT verify_flash 0x0 {job.bin}",
            erase="esptool.py ARGUMENT erase_flash",
        ),
        "picotool": FlashTool(
            install="pico-sdk-tools, from github.com/raspberrypi",
            option="--family",
            write="picotool load VERIFY --execute {job.uf2} ARGUMENT",
            verify="--verify",
            erase="picotool erase --all",
        ),
    }
)
"""The flash tools by the names used in a board's `[flash]` table."""

JLINK_ERASE: Final = "halt\nerase\nreset\nexit\n"
"""The script with which J-Link erases a whole chip."""
