"""Addresses of an image as places in its source, by the toolchain's addr2line.

In: an ELF file with debugging information and addresses. Out: for each the functions it lies in,
innermost first, or nothing: a crash is told as far as it is known, so a tool that is missing or
that knows nothing is no error here.
"""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)
TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A line of a function; where functions are inlined an address lies in several."""

    function: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.function} ({self.file}:{self.line})"


def find_source_lines(
    elf: Path, addresses: Iterable[int], *, toolchain: str = ""
) -> tuple[tuple[SourceLocation, ...], ...]:
    """The places of each address; `toolchain` is the prefix of its tools."""
    wanted = [f"{address:#x}" for address in addresses]
    tool = f"{toolchain}-addr2line" if toolchain else "addr2line"
    try:
        done = subprocess.run(
            [tool, "-a", "-f", "-i", "-e", str(elf), *wanted],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        log.info("%s cannot say where it was: %s", tool, error)
        return tuple(() for _ in wanted)
    return _read(done.stdout, len(wanted))


def _read(text: str, count: int) -> tuple[tuple[SourceLocation, ...], ...]:
    """Groups that an address begins, of pairs of lines: a function, and its file and line."""
    groups: list[list[SourceLocation]] = []
    function = ""
    for line in text.splitlines():
        if line.startswith("0x"):
            groups.append([])
            function = ""
        elif not function:
            function = line
        else:
            file, _, number = line.split(" (discriminator")[0].rpartition(":")
            if number.isdigit() and function != "??" and groups:
                groups[-1].append(SourceLocation(function, file.removeprefix("./"), int(number)))
            function = ""
    groups += [[] for _ in range(count - len(groups))]
    return tuple(tuple(group) for group in groups)
