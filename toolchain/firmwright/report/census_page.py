"""The result of a census of models, and its HTML page."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from firmwright.report.page_template import render_report_template


class CensusStatus(StrEnum):
    """The result of one model; `DEFECT` is an internal error of Firmwright."""

    EQUAL = "equal"
    TOLERANCE = "tolerance"
    DIFFERS = "differs"
    UNREADABLE = "unreadable"
    UNSUPPORTED = "unsupported"
    REFUSED = "refused"
    TOO_LARGE = "too-large"
    FAILED = "failed"
    DEFECT = "defect"


STATUS_LABELS = {
    CensusStatus.EQUAL: "bit-exact",
    CensusStatus.TOLERANCE: "within the tolerance",
    CensusStatus.DIFFERS: "differs from its reference",
    CensusStatus.UNREADABLE: "unreadable",
    CensusStatus.UNSUPPORTED: "not supported",
    CensusStatus.REFUSED: "refused by its reference",
    CensusStatus.TOO_LARGE: "does not fit the board",
    CensusStatus.FAILED: "failed",
    CensusStatus.DEFECT: "ended in a defect of Firmwright",
}
PASSED = (CensusStatus.EQUAL, CensusStatus.TOLERANCE)
"""The statuses of models whose firmware computes what the reference does."""


@dataclass(frozen=True, slots=True)
class CensusFit:
    """What a model needs on a board, as `fit` predicts it, in bytes; None if not known.

    If the model does not fit, `workspace_bytes` is the least that any program needs,
    and `flash_bytes` has only the constants.
    """

    board: str
    fits: bool
    workspace_bytes: int | None = None
    flash_bytes: int | None = None
    stack_bytes: int | None = None
    instructions: int | None = None
    cycles: int | None = None
    milliseconds: str = ""


@dataclass(frozen=True, slots=True)
class CensusEntry:
    """One model of a census; figures are None if the model did not get that far.

    `reason` explains every status except `equal` and `tolerance`. `default_loops` is
    the share of `count` (in `unit`) in operators without a schedule for this core;
    `slowest_default` is the largest of them by kind. `fits` are the needs on further
    boards.
    """

    file: str
    size_bytes: int
    status: CensusStatus = CensusStatus.FAILED
    reason: str = ""
    reference: str = ""
    operators: int | None = None
    macs: int | None = None
    max_abs_error: int | float | None = None
    workspace_bytes: int | None = None
    model_flash_bytes: int | None = None
    unit: str = ""
    count: int | None = None
    default_loops: float | None = None
    slowest_default: str = ""
    slowest_default_share: float | None = None
    fits: tuple[CensusFit, ...] = ()

    @property
    def passed(self) -> bool:
        return self.status in PASSED

    @property
    def count_per_mac(self) -> float | None:
        if not self.count or not self.macs:
            return None
        return round(self.count / self.macs, 2)

    @property
    def slowest(self) -> str:
        """Return the kind and the share of the slowest operators in default loops."""
        share = self.slowest_default_share
        return f"{self.slowest_default} {100 * share:.1f} %" if share else ""


@dataclass(frozen=True, slots=True)
class CensusTotals:
    """The sums over all profiled models; `default_loops` is a share of `count`."""

    models: int
    unit: str
    count: int
    macs: int
    default_loops: float
    above_limit: int


LIMIT = 0.05
"""Models with a larger share of default loops count in `CensusTotals.above_limit`."""


def sum_entries(entries: Sequence[CensusEntry]) -> CensusTotals | None:
    """Return the totals of the profiled models, or None if there are none."""
    profiled = [entry for entry in entries if entry.count]
    if not profiled:
        return None
    total = 0
    macs = 0
    in_default_loops = 0.0
    above_limit = 0
    for entry in profiled:
        count, share = entry.count or 0, entry.default_loops or 0.0
        total += count
        macs += entry.macs or 0
        in_default_loops += count * share
        above_limit += share > LIMIT
    return CensusTotals(
        models=len(profiled),
        unit=profiled[0].unit,
        count=total,
        macs=macs,
        default_loops=round(in_default_loops / total, 4),
        above_limit=above_limit,
    )


def count_statuses(entries: Sequence[CensusEntry]) -> dict[CensusStatus, int]:
    """Return the number of models with each status that occurs, best status first."""
    counts = Counter(entry.status for entry in entries)
    found: dict[CensusStatus, int] = {}
    for status in CensusStatus:
        if counts[status]:
            found[status] = counts[status]
    return found


def render_census(entries: Sequence[CensusEntry], folder: str, board: str) -> str:
    return render_report_template(
        "census.html.j2",
        entries=entries,
        folder=folder,
        board=board,
        counts=count_statuses(entries),
        labels=STATUS_LABELS,
        totals=sum_entries(entries),
        limit=LIMIT,
    )
