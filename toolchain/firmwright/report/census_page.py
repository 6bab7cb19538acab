"""The result of a census of models, and its HTML page."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from firmwright.report.page_template import render_report_template

Status = Literal["equal", "tolerance", "differs", "unsupported", "refused", "failed"]
STATUS_LABELS = {
    "equal": "bit-exact",
    "tolerance": "within the tolerance",
    "differs": "differs from its reference",
    "unsupported": "not supported",
    "refused": "refused by its reference",
    "failed": "failed",
}
PASSED = ("equal", "tolerance")


@dataclass(frozen=True, slots=True)
class CensusEntry:
    """One model of a census; figures are None if the model did not get that far.

    `reason` explains every status except `equal` and `tolerance`. `default_loops` is the share of
    `count` (in `unit`) in operators without a schedule for this core.
    """

    file: str
    size_bytes: int
    status: Status = "failed"
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

    @property
    def passed(self) -> bool:
        return self.status in PASSED


def count_statuses(entries: Sequence[CensusEntry]) -> dict[str, int]:
    """Return the number of models with each status that occurs, best status first."""
    counts = Counter(entry.status for entry in entries)
    return {status: counts[status] for status in get_args(Status) if counts[status]}


def render_census(entries: Sequence[CensusEntry], folder: str, board: str) -> str:
    return render_report_template(
        "census.html.j2",
        entries=entries,
        folder=folder,
        board=board,
        counts=count_statuses(entries),
        labels=STATUS_LABELS,
        is_profiled=any(entry.count is not None for entry in entries),
    )
