"""What a report says, as frozen values: no drawing, no words for people but names and findings.

In: whoever measures fills them (`flows/build_report.py`). Out: `as_json`, the plain object that
`report --json` prints, that the page carries, and that a later report is compared with. Sizes and
offsets are bytes. Times number the calls of the model's run, in order; live ranges are half open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from firmwright.compilation_summary import PlannedBuffer


@dataclass(frozen=True, slots=True)
class PoolUsage:
    """Memory that is planned; `limit_bytes` is None where nobody set one."""

    name: str
    used_bytes: int
    limit_bytes: int | None


@dataclass(frozen=True, slots=True)
class OperatorReport:
    """One operator: where it comes from, what it costs, what of the flash is its own.

    `count` is in the report's unit. Code that n operators share counts as an n-th for each.
    """

    index: int
    name: str
    kind: str
    span: str
    schedule: str
    macs: int
    count: int
    predicted: int
    modelled_cycles: int | None
    code_bytes: int
    constant_bytes: int

    @property
    def flash_bytes(self) -> int:
        return self.code_bytes + self.constant_bytes


@dataclass(frozen=True, slots=True)
class ImageSection:
    """A part of the image: `kind` is text, rodata, data, bss, noinit or stack."""

    name: str
    kind: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class MemoryRegionUsage:
    """A memory of the board and how much of it the image takes."""

    name: str
    used_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StackReport:
    """Worst paths that the compiler and linker show, and the deepest use seen; None: not marked."""

    model_bytes: int
    firmware_bytes: int
    seen_bytes: int | None
    reserve_bytes: int
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WorkspaceTradeoff:
    """A program with less memory: what it takes, as predicted; operators [a, b) go by rows."""

    workspace_bytes: int
    instructions: int
    segments: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class TargetOption:
    """A target that may run some operators, and what that costs; None where it is not known.

    `note` says what the count is if not measured, or why there is none.
    """

    operators: str
    target: str
    count: int | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class PartitionDecision:
    """What a search took for some operators, and what else there was."""

    taken: TargetOption
    others: tuple[TargetOption, ...]


@dataclass(frozen=True, slots=True)
class ProgramOption:
    """A whole program, by how its operators were given to targets."""

    how: str
    count: int | None
    workspace_bytes: int
    flash_bytes: int | None
    taken: bool
    note: str = ""


@dataclass(frozen=True, slots=True)
class PartitionSearch:
    """A search for who runs what: the parts it took, and whole programs beside each other."""

    unit: str
    method: str
    parts: tuple[PartitionDecision, ...]
    programs: tuple[ProgramOption, ...]


@dataclass(frozen=True, slots=True)
class ReportFinding:
    """Something worth a look, and what to try."""

    what: str
    hint: str


@dataclass(frozen=True, slots=True)
class BuildReport:
    """One build of one model for one board, measured. `total` and counts are in `unit`.

    `library_floats` tells that the image multiplies or adds floats by calls of a library.
    """

    model: str
    board: str
    core: str
    target: str
    numerics: str
    optimize: str
    compiler: str
    tool_version: str
    model_id: str
    unit: str
    total: int
    resolution: int
    workspace_bytes: int
    lower_bound_bytes: int
    constants_bytes: int
    flash_bytes: int
    ram_bytes: int
    model_flash_bytes: int
    model_ram_bytes: int
    stack: StackReport
    pools: tuple[PoolUsage, ...]
    buffers: tuple[PlannedBuffer, ...]
    operator_by_time: tuple[int, ...]
    operators: tuple[OperatorReport, ...]
    sections: tuple[ImageSection, ...]
    regions: tuple[MemoryRegionUsage, ...]
    library_floats: bool = False
    tradeoffs: tuple[WorkspaceTradeoff, ...] = ()
    findings: tuple[ReportFinding, ...] = ()
    search: PartitionSearch | None = None

    @property
    def macs(self) -> int:
        return sum(operator.macs for operator in self.operators)

    def kind_at(self, time: int) -> str:
        """What kind of operator runs at a time; "" where none does."""
        found = [op.kind for op in self.operators if op.index == self.operator_by_time[time]]
        return found[0] if found else ""

    def as_json(self) -> Mapping[str, Any]:
        """The whole of it as plain values."""
        return asdict(self)


def occupied_bytes(buffers: tuple[PlannedBuffer, ...], time: int) -> int:
    """Bytes that hold something at a time; where buffers overlap they count once."""
    total = 0
    for pool in sorted({buffer.pool for buffer in buffers}):
        reached = 0
        alive = [b for b in buffers if b.pool == pool and b.lives_at(time)]
        for buffer in sorted(alive, key=lambda b: (b.offset, b.end)):
            total += max(0, buffer.end - max(buffer.offset, reached))
            reached = max(reached, buffer.end)
    return total


def occupied_bytes_by_time(report: BuildReport) -> tuple[int, ...]:
    """`occupied_bytes` at every time of a run."""
    return tuple(
        occupied_bytes(report.buffers, time) for time in range(len(report.operator_by_time))
    )


def peak_time(report: BuildReport) -> int:
    """The first time at which most is occupied; 0 of a run without any step."""
    used = occupied_bytes_by_time(report)
    return used.index(max(used)) if used else 0
