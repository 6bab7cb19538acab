"""Modeled cycles against published ones: the points of benchmarks/silicon.csv."""

import csv
import gzip
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from firmwright.base.resources import benchmarks_dir
from firmwright.targets.core_timing import CoreTiming, core_timings
from firmwright.targets.cycle_model import Executed, modeled_cycles
from firmwright.targets.disassembly import Instruction, InstructionKind


@dataclass(frozen=True, slots=True)
class SiliconPoint:
    """Code with published cycles on a chip, and its events counted in QEMU.

    `counts` names the file of its most frequent instructions, `flash` the flash for the
    plugin.
    """

    code: str
    counts: str
    core: str
    chip: str
    clock_mhz: int
    flash: str
    instructions: int
    fetch_stalls: int
    data_stalls: int
    unaligned: int
    published_cycles: int
    settings: str
    source: str

    def modeled_cycles(self, timing: CoreTiming) -> float:
        """Return the cycles; rare instructions have the average of the others.

        The file has only frequent instructions.
        """
        path = list(_read_path(benchmarks_dir() / "silicon" / self.counts))
        executed = sum(step.count for step in path)
        rate = modeled_cycles(timing, path) / executed
        stalls = self.fetch_stalls + self.data_stalls
        return rate * self.instructions + stalls + timing.unaligned * self.unaligned


@dataclass(frozen=True, slots=True)
class SiliconError:
    """A point's modeled cycles; `error` is their difference to the published ones."""

    point: SiliconPoint
    modeled: int

    @property
    def error(self) -> float:
        return self.modeled / self.point.published_cycles - 1


def read_silicon_points() -> tuple[SiliconPoint, ...]:
    with (benchmarks_dir() / "silicon.csv").open(encoding="utf-8", newline="") as text:
        return tuple(_point(row) for row in csv.DictReader(text))


def measure_silicon_errors() -> tuple[SiliconError, ...]:
    errors: list[SiliconError] = []
    for point in read_silicon_points():
        cycles = point.modeled_cycles(core_timings()[point.core])
        errors.append(SiliconError(point, round(cycles)))
    return tuple(errors)


def _point(row: Mapping[str, str]) -> SiliconPoint:
    numbers = {key: int(value) for key, value in row.items() if value.isdecimal()}
    return SiliconPoint(**{**row, **numbers})  # type: ignore[arg-type]  # by the file's columns


def _read_path(file: Path) -> Iterator[Executed]:
    lines = gzip.decompress(file.read_bytes()).decode().splitlines()
    for row in csv.DictReader(lines):
        # Columns that only scoreboards need are missing in the older files.
        sets = ("writes", "reads", "address_registers", "base", "early", "late")
        registers = (frozenset((row.get(name) or "").split()) for name in sets)
        writes, reads, address, base, early, late = registers
        instruction = Instruction(
            int(row["size_bytes"]),
            cast(InstructionKind, row["kind"]),
            int(row["words"]),
            writes,
            reads,
            address,
            base,
            early,
            late,
            variant=row.get("variant") or "",
            target=int(row.get("target") or 0),
        )
        numbers = int(row["count"]), int(row["taken"])
        yield Executed(int(row["address"]), instruction, *numbers)
