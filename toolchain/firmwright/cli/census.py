"""`firmwright census`: compile and verify every model in a folder."""

import argparse
import os
from collections.abc import Mapping, Sequence

from firmwright.base.errors import (
    DoesNotFitError,
    FirmwrightError,
    InternalError,
    MismatchError,
    ModelError,
    ReferenceRefusalError,
    ToolFailedError,
    UnsupportedError,
    UnsupportedItem,
)
from firmwright.boards import load_board
from firmwright.cli import arguments
from firmwright.cli.model_argument import fixed_shapes
from firmwright.cli.text_table import Cell, format_table
from firmwright.cli.verb import Outcome
from firmwright.flows.executors import open_executor
from firmwright.flows.model.model import find_model_files, write_file
from firmwright.flows.verify.census import CensusTask, take_census
from firmwright.report.census_page import (
    LIMIT,
    STATUS_LABELS,
    CensusEntry,
    CensusStatus,
    CensusTotals,
    count_statuses,
    render_census,
    sum_entries,
)


def run(args: argparse.Namespace) -> Outcome:
    options = arguments.compile_options(args)
    boards = tuple(args.fit)
    for name in boards:
        load_board(name, options.get("board_dirs", ()))  # an unknown one ends it now
    shapes = fixed_shapes(args, "census").shapes
    tasks: list[CensusTask] = []
    for path in find_model_files(args.folder, "**/*"):
        task = CensusTask(
            name=path.relative_to(args.folder).as_posix(),
            path=str(path),
            size_bytes=path.stat().st_size,
            options=options,
            shapes=shapes,
            samples=args.samples,
            with_profile=args.profile,
            timeout_s=args.timeout,
            content=path.read_bytes() if args.scheduler else None,
            fit_boards=boards,
        )
        tasks.append(task)
    with open_executor(args.jobs or os.cpu_count() or 1, args.scheduler) as executor:
        entries = take_census(tasks, executor)
    board = options.get("board", "host")
    if args.output:
        write_file(args.output, render_census(entries, args.folder, board).encode())
    data = {
        "folder": args.folder,
        "board": board,
        "counts": count_statuses(entries),
        "totals": sum_entries(entries),
        "models": entries,
        "html": args.output,
    }
    error = _find_error(entries, args.folder)
    if error is None and args.strict:
        error = _find_unverified(entries, args.folder)
    return Outcome(data, format_summary(entries), error)


def _find_error(entries: Sequence[CensusEntry], folder: str) -> FirmwrightError | None:
    """Return an error if a model has wrong values, else one if it ended in a defect."""
    differing = _files_with(entries, CensusStatus.DIFFERS)
    if differing:
        what = f"{len(differing)} models differ from their references"
        what += f", first {differing[0]}."
        hint = (
            "verify --find-first-divergence names the first differing operator of a "
            "model."
        )
        return MismatchError(what, where=folder, hint=hint)
    defects = _files_with(entries, CensusStatus.DEFECT)
    if defects:
        what = f"{len(defects)} models ended in a defect of Firmwright"
        return InternalError(f"{what}, first {defects[0]}.", where=folder)
    return None


_UNVERIFIED: Mapping[CensusStatus, type[FirmwrightError]] = {
    CensusStatus.FAILED: ToolFailedError,
    CensusStatus.REFUSED: ReferenceRefusalError,
    CensusStatus.TOO_LARGE: DoesNotFitError,
    CensusStatus.UNREADABLE: ModelError,
}
"""The errors of models that are not compared, in the order of their precedence."""


def _find_unverified(
    entries: Sequence[CensusEntry], folder: str
) -> FirmwrightError | None:
    """Return an error if a model was not verified, with the code of its first cause."""
    for status, error_class in _UNVERIFIED.items():
        files = _files_with(entries, status)
        if files:
            what = f"{len(files)} of {len(entries)} models: {STATUS_LABELS[status]}"
            return error_class(f"{what}, first {files[0]}.", where=folder)
    items: list[UnsupportedItem] = []
    for entry in entries:
        if entry.status is CensusStatus.UNSUPPORTED:
            items.append(UnsupportedItem("MODEL", entry.file, entry.reason))
    if not items:
        return None
    verb = "is" if len(items) == 1 else "are"
    what = f"{len(items)} of {len(entries)} models {verb} not supported"
    what += f", first {items[0].where}."
    return UnsupportedError(items, where=folder, what=what)


def _files_with(entries: Sequence[CensusEntry], status: CensusStatus) -> list[str]:
    return [entry.file for entry in entries if entry.status == status]


def format_summary(entries: Sequence[CensusEntry]) -> str:
    totals = sum_entries(entries)
    head = ["model", "result", "operators", "MACs", "workspace"]
    head += ["flash", "count", "per MAC", "default loops", "largest"] if totals else []
    rows: list[Sequence[Cell]] = []
    for entry in entries:
        label = STATUS_LABELS[entry.status]
        row: list[Cell] = [entry.file, label, entry.operators, entry.macs]
        row.append(entry.workspace_bytes)
        if totals:
            share = entry.default_loops
            row += [entry.model_flash_bytes, entry.count, entry.count_per_mac]
            row += [None if share is None else f"{100 * share:.1f} %", entry.slowest]
        rows.append(row)
    counts: list[str] = []
    for status, number in count_statuses(entries).items():
        counts.append(f"{number} {STATUS_LABELS[status]}")
    reasons: list[str] = []
    for entry in entries:
        if not entry.passed:
            reasons.append(f"{entry.file}: {entry.reason}")
    parts = [
        format_table(head, rows, drop=("operators", "workspace", "flash")),
        _format_fits(entries),
        "\n".join(reasons),
        f"{len(entries)} models: {', '.join(counts)}.",
        format_totals(totals) if totals else "",
    ]
    return "\n\n".join(filter(None, parts))


def _format_fits(entries: Sequence[CensusEntry]) -> str:
    """Format the needs on further boards; "" if none were asked for."""
    rows: list[Sequence[Cell]] = []
    for entry in entries:
        for fit in entry.fits:
            row: list[Cell] = [entry.file, fit.board, "yes" if fit.fits else "no"]
            row += [fit.workspace_bytes, fit.flash_bytes, fit.instructions]
            rows.append([*row, fit.milliseconds or None])
    head = ["model", "board", "fits", "RAM", "flash", "instructions", "modeled ms"]
    return format_table(head, rows, drop=("instructions",)) if rows else ""


def format_totals(totals: CensusTotals) -> str:
    per_mac = f", {totals.count / totals.macs:.2f} for each MAC" if totals.macs else ""
    return (
        f"{totals.count:,} {totals.unit} in all{per_mac}; "
        f"{100 * totals.default_loops:.1f} % in default loops. {totals.above_limit} of "
        f"{totals.models} models have more than {100 * LIMIT:.0f} % in them."
    )
