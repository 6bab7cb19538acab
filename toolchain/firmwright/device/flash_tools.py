"""Command lines of third-party flashing tools, and how to install the tools."""

import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
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
    """How to install a tool, and templates of its commands for flash.

    Each line of a template is one command. `{job.NAME}` stands for an attribute of the
    FlashJob, ARGUMENT for the words of `FlashJob.argument`, each preceded by `option`.
    VERIFY stands for `verify` if verification is requested, else for nothing. `script`
    is a template of `FlashJob.script`. `proof`, `verify_proof` and `erase_proof` are
    regular expressions of lines that the tool prints after success.
    """

    install: str
    write: str
    erase: str
    proof: str
    erase_proof: str
    verify_proof: str = ""
    read: str = ""
    verify: str = ""
    option: str = ""
    script: str = ""

    @property
    def program(self) -> str:
        return self.write.split()[0]

    def write_commands(self, job: FlashJob, verify: bool) -> tuple[ToolCommand, ...]:
        """Return the commands that program flash and, if wanted, verify or read it."""
        write = self.write.replace("VERIFY", self.verify if verify else "")
        read = self.read if verify else ""
        return _fill(f"{write}\n{read}", self.option, job)

    def proofs(self, verify: bool) -> tuple[str, ...]:
        """Return the regular expressions for the output of `write_commands`."""
        if verify and self.verify:
            return (self.proof, self.verify_proof)
        return (self.proof,)

    def erase_commands(self, job: FlashJob) -> tuple[ToolCommand, ...]:
        return _fill(self.erase, self.option, job)

    def script_text(self, job: FlashJob, verify: bool) -> str:
        script = self.script.replace("VERIFY", self.verify if verify else "")
        return script.format(job=job)


def _fill(template: str, option: str, job: FlashJob) -> tuple[ToolCommand, ...]:
    lines = [line for line in template.splitlines() if line]
    return tuple(tuple(_words(line, option, job)) for line in lines)


def _words(line: str, option: str, job: FlashJob) -> Iterator[str]:
    for word in shlex.split(line):
        if word == "ARGUMENT":
            for value in job.argument.split():
                yield from (option, value) if option else (value,)
        else:
            yield word.format(job=job)


_TABLE_FILE: Final = Path(__file__).with_suffix(".toml")
_TABLES: Final = tomllib.loads(_TABLE_FILE.read_text(encoding="utf-8"))
TOOLS: Final[Mapping[str, FlashTool]] = {
    name: FlashTool(**table) for name, table in _TABLES.items()
}
"""The flash tools by the names used in a board's `[flash]` table."""

JLINK_ERASE: Final = "halt\nerase\nreset\nexit\n"
"""The script with which J-Link erases a whole chip."""
