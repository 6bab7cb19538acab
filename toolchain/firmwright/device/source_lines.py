"""Source locations of addresses in an ELF file from addr2line; empty if unknown."""

import logging
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from firmwright.base.c_identifiers import without_abi_hash

log = logging.getLogger(__name__)
TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A source line; an address inside inlined functions has several, innermost first."""

    function: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.function} ({self.file}:{self.line})"


def find_source_lines(
    elf: Path, addresses: Iterable[int], *, toolchain: str = ""
) -> tuple[tuple[SourceLocation, ...], ...]:
    """Return the locations of each address; `toolchain` is the prefix of the GNU tools."""
    arguments = [f"{address:#x}" for address in addresses]
    tool = f"{toolchain}-addr2line" if toolchain else "addr2line"
    try:
        done = subprocess.run(
            [tool, "-a", "-f", "-i", "-e", str(elf), *arguments],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        log.info("%s cannot find the source line: %s", tool, error)
        return tuple(() for _ in arguments)
    return _read(done.stdout, len(arguments))


def _read(text: str, count: int) -> tuple[tuple[SourceLocation, ...], ...]:
    groups: list[list[SourceLocation]] = []
    function = ""
    for line in text.splitlines():
        if line.startswith("0x"):
            groups.append([])
            function = ""
        elif not function:
            function = without_abi_hash(line)
        else:
            file, _, number = line.split(" (discriminator")[0].rpartition(":")
            if number.isdigit() and function != "??" and groups:
                groups[-1].append(SourceLocation(function, file.removeprefix("./"), int(number)))
            function = ""
    groups += [[] for _ in range(count - len(groups))]
    return tuple(tuple(group) for group in groups)
