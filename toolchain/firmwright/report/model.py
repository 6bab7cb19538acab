"""The data of a report as frozen values.

Sizes and offsets are in bytes. A time is the number of a call in a run; live ranges are
half open.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from firmwright.artifacts import ImageRegionUsage, SectionSize
from firmwright.compilation_summary import (
    MemoryTradeoff,
    PlannedBuffer,
    RejectedOperator,
)
from firmwright.report.checked_outputs import CheckedOutputs
from firmwright.report.evaluation import Evaluation
from firmwright.report.network import Network
from firmwright.report.pareto_front import ParetoProgram
from firmwright.targets.run_time import RunTime, format_ms


@dataclass(frozen=True, slots=True)
class PoolUsage:
    """A planned pool; `limit_bytes` is None without a limit."""

    name: str
    used_bytes: int
    limit_bytes: int | None


@dataclass(frozen=True, slots=True)
class OperatorReport:
    """An operator's cost in the report's unit, and its flash.

    Each of n operators that share code has 1/n of it.
    """

    index: int
    name: str
    kind: str
    span: str
    schedule: str
    macs: int
    count: int
    predicted: int
    modeled_cycles: int | None
    code_bytes: int
    constant_bytes: int

    @property
    def label(self) -> str:
        return f"{self.kind} {self.index}"

    @property
    def flash_bytes(self) -> int:
        return self.code_bytes + self.constant_bytes


@dataclass(frozen=True, slots=True)
class StackReport:
    """The worst-case stack paths, and the measured maximum if available."""

    model_bytes: int
    firmware_bytes: int
    seen_bytes: int | None
    reserve_bytes: int
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReportFinding:
    """A possible problem and a suggested remedy."""

    what: str
    hint: str


@dataclass(frozen=True, slots=True)
class ParallelRun:
    """The modeled length of a run on several devices, in sequence, and of transfers."""

    makespan: int
    sequential: int
    transfers: int
    unit: str = "instructions"

    def __str__(self) -> str:
        part = f"modeled, {self.makespan / max(1, self.sequential):.2f} of the sum"
        return f"{part}; transfers {self.transfers:,}" if self.transfers else part


@dataclass(frozen=True, slots=True)
class BuildReport:
    """The results of building one model for one board.

    `total` and all counts are in `unit`. `library_floats` is true if library functions
    compute floats. `search` is the result of a partition search, as in the JSON of
    `partition`. `estimates` are devices with the cycles of their calls and the source
    of these, `modeled_cycles` those of the run with time and range. `time` is None if
    other devices take part: `parallel` has the length of such a run. `axis` is a
    bounded axis with its sizes, of which the largest is measured.
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
    sections: tuple[SectionSize, ...]
    regions: tuple[ImageRegionUsage, ...]
    library_floats: bool = False
    rejections: tuple[RejectedOperator, ...] = ()
    tradeoffs: tuple[MemoryTradeoff, ...] = ()
    findings: tuple[ReportFinding, ...] = ()
    search: Mapping[str, object] | None = None
    evaluation: Evaluation | None = None
    parallel: ParallelRun | None = None
    estimates: tuple[tuple[str, int, str], ...] = ()
    modeled_cycles: str = ""
    axis: str = ""
    clock_hz: int = 0
    time: RunTime | None = None
    network: Network | None = None
    verification: CheckedOutputs | None = None
    front: tuple[ParetoProgram, ...] = ()

    @property
    def parallel_note(self) -> str:
        """Describe the run on several devices, with its time if the clock is known."""
        if self.parallel is None or not self.clock_hz:
            return str(self.parallel or "")
        ms = format_ms(1e3 * self.parallel.makespan / self.clock_hz)
        return f"{ms} ms at {self.clock_hz / 1e6:g} MHz, {self.parallel}"

    @property
    def macs(self) -> int:
        return sum(operator.macs for operator in self.operators)

    def call_at(self, time: int) -> str:
        """Return the operator at a time, as in "conv2d 2", or "" for another access."""
        index = self.operator_by_time[time]
        for operator in self.operators:
            if operator.index == index:
                return operator.label
        return ""

    def as_json(self) -> Mapping[str, object]:
        """Return plain values, without the C of kernels."""
        data = asdict(self)
        if data["network"] is not None:
            del data["network"]["sources"]
        return data


def occupied_bytes(buffers: tuple[PlannedBuffer, ...], time: int) -> int:
    """Return the live bytes at `time`; overlapping buffers count once.

    This is a sweep over the offsets of each pool: of each buffer, the bytes above all
    earlier ones are added.
    """
    total = 0
    for pool in {buffer.pool for buffer in buffers}:
        reached = 0
        alive: list[PlannedBuffer] = []
        for buffer in buffers:
            if buffer.pool == pool and buffer.lives_at(time):
                alive.append(buffer)
        for buffer in sorted(alive, key=lambda buffer: (buffer.offset, buffer.end)):
            total += max(0, buffer.end - max(buffer.offset, reached))
            reached = max(reached, buffer.end)
    return total


def occupied_bytes_by_time(report: BuildReport) -> tuple[int, ...]:
    """Return the live bytes at each time of a run."""
    times = range(len(report.operator_by_time))
    return tuple(occupied_bytes(report.buffers, time) for time in times)


def peak_time(report: BuildReport) -> int:
    """Return the first time with the maximum of live bytes; 0 for an empty run."""
    occupied = occupied_bytes_by_time(report)
    return occupied.index(max(occupied)) if occupied else 0
