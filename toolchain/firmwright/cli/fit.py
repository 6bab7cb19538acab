"""`firmwright fit`: tell whether a model fits a board, and how fast it runs there."""

import argparse
from collections.abc import Sequence

from firmwright.boards import Board, list_boards, list_chips, load_board
from firmwright.cli import arguments
from firmwright.cli.board_state import describe_validation
from firmwright.cli.text_table import Cell, format_pairs, format_table
from firmwright.cli.verb import Outcome
from firmwright.flows.model.given_options import OptionValues
from firmwright.flows.predict.fit import Fit, MemoryNeed, RamSize, fit_boards, fit_model
from firmwright.flows.predict.remedies import Remedy
from firmwright.targets.run_time import RunTime

_KIBIBYTE = 1024


def run(args: argparse.Namespace) -> Outcome:
    model, given = arguments.prepare_compilation(args)
    if not args.all_boards and not args.all_chips:
        fit = fit_model(model, given, args.clock)
        warnings = _capped_pools(given)
        return Outcome(fit_to_json(fit), format_fit(fit), warnings=warnings)
    folders = tuple(args.board_dirs or ())
    boards: list[Board] = []
    if args.all_boards:
        boards += [board for board in list_boards(folders) if not board.is_host]
    if args.all_chips:
        boards += list_chips(folders)
    fits = fit_boards(model, given, boards, args.clock)
    states = [describe_validation(board) for board in boards]
    rows: list[dict[str, object]] = []
    for fit, board in zip(fits, boards, strict=True):
        rows.append({**fit_to_json(fit), "validation": board.validation})
    return Outcome({"model": model.name, "boards": rows}, format_fits(fits, states))


def _capped_pools(given: OptionValues) -> tuple[str, ...]:
    """Return a warning for each pool for which the user gave more than there is."""
    board = load_board(given.get("board", "host"), given.get("board_dirs", ()))
    own = {pool.name: pool.size_bytes for pool in board.pools()}
    warnings: list[str] = []
    for pool in given.get("pools", ()):
        size_bytes = own.get(pool.name)
        if size_bytes is not None and (pool.size_bytes or 0) > size_bytes:
            warnings.append(
                f"--pool {pool.name}={pool.size_bytes}: {board.name} has "
                f"{size_bytes:,} bytes in this pool, which are used."
            )
    return tuple(warnings)


def fit_to_json(fit: Fit) -> dict[str, object]:
    workspace, flash = fit.workspace, fit.flash
    return {
        "model": fit.model,
        "board": fit.board,
        "chip": fit.chip,
        "fits": fit.fits,
        "problem": fit.problem or None,
        "workspace_bytes": workspace.need_bytes if workspace else None,
        "workspace_limit_bytes": workspace.have_bytes if workspace else None,
        "flash_bytes": flash.need_bytes if flash else None,
        "flash_limit_bytes": flash.have_bytes if flash else None,
        "stack_bytes": fit.stack_bytes,
        "instructions": fit.instructions,
        "milliseconds": time_to_json(fit.time),
        "milliseconds_as_built": time_to_json(fit.time_as_built),
        "pools": dict(fit.pools),
        "other_ram": [
            {"ram_bytes": size.ram_bytes, "fits": size.fits} for size in fit.other_ram
        ],
        "slow_memory": [
            {
                "pool": traffic.pool,
                "read_bytes": traffic.read_bytes,
                "written_bytes": traffic.written_bytes,
            }
            for traffic in fit.slow_memory
        ],
        "remedies": [_remedy_to_json(remedy) for remedy in fit.remedies],
    }


def time_to_json(time: RunTime | None) -> dict[str, object] | None:
    """Return the object for the time of a run; `most` is null if it has no bound."""
    if time is None:
        return None
    return {
        "least": time.least_ms,
        "most": time.most_ms,
        "clock_hz": time.clock_hz,
        "cycles": time.cycles,
        "chip": time.chip,
        "range": time.origin,
    }


def _remedy_to_json(remedy: Remedy) -> dict[str, object]:
    return {
        "kind": remedy.kind,
        "text": remedy.text,
        "workspace_bytes": remedy.workspace_bytes,
        "is_estimate": remedy.is_estimate,
    }


def format_fit(fit: Fit) -> str:
    place = fit.board if fit.chip == fit.board else f"{fit.board} ({fit.chip})"
    rows: list[tuple[str, Cell]] = [
        ("model", fit.model),
        ("board", place),
        ("fits", _verdict(fit)),
        *figures(fit),
    ]
    if fit.other_ram:
        rows.append(("with less RAM", _format_sizes(fit.other_ram)))
    for traffic in fit.slow_memory:
        moved = f"{traffic.read_bytes:,} bytes read, {traffic.written_bytes:,} written"
        rows.append((f"slow pool {traffic.pool}", f"{moved} in a run"))
    parts = [format_pairs(rows)]
    if fit.remedies:
        lines = [f"  {remedy}" for remedy in fit.remedies]
        parts.append("\n".join(["With one of these it fits:", *lines]))
    return "\n\n".join(parts)


def figures(fit: Fit) -> list[tuple[str, Cell]]:
    """Return RAM, flash, stack and time as rows of a summary."""
    rows: list[tuple[str, Cell]] = []
    if fit.workspace is not None:
        need = _format_need(fit.workspace)
        if len(fit.pools) > 1:
            pools = [f"{name} {size_bytes:,}" for name, size_bytes in fit.pools]
            need += f" ({', '.join(pools)})"
        rows.append(("RAM", need))
    return rows + predicted_figures(fit)


def predicted_figures(fit: Fit) -> list[tuple[str, Cell]]:
    """Return flash, stack and time as rows of a summary."""
    rows: list[tuple[str, Cell]] = []
    if fit.flash is not None:
        rows.append(("flash", f"about {_format_need(fit.flash)}"))
    if fit.stack_bytes is not None:
        rows.append(("stack", f"about {fit.stack_bytes:,} bytes"))
    if fit.time is not None:
        rows += [("time", str(fit.time)), ("", fit.time.reason)]
        if fit.time_as_built is not None:
            rows.append(("", describe_time_as_built(fit.time_as_built, fit.time)))
    elif fit.instructions is not None:
        rows.append(("time", "not known: the pipeline of this core is not modeled"))
    if fit.instructions is not None:
        rows.append(("instructions", f"about {fit.instructions:,} in a run"))
    return rows


def describe_time_as_built(built: RunTime, modeled: RunTime) -> str:
    """Say what a run takes in an image whose start-up leaves the clock as it is."""
    return (
        f"an image of firmwright build stays at {built.clock_hz / 1e6:g} MHz: "
        f"{built.milliseconds} ms; {modeled.clock_hz / 1e6:g} MHz needs your own "
        "start-up code"
    )


def _format_need(need: MemoryNeed) -> str:
    text = f"{need.need_bytes:,} bytes"
    return text if need.have_bytes is None else f"{text} of {need.have_bytes:,}"


def _verdict(fit: Fit) -> str:
    if fit.fits:
        return "yes"
    missing: list[str] = []
    for memory, need in (("RAM", fit.workspace), ("flash", fit.flash)):
        if need is not None and not need.fits:
            missing.append(f"{-(need.spare_bytes or 0):,} bytes of {memory}")
    short = f", {' and '.join(missing)} are missing" if missing else ""
    return f"no{short}: {fit.problem}"


def _format_sizes(sizes: Sequence[RamSize]) -> str:
    """Format `fits 64 KB, 32 KB, not 16 KB`."""
    fitting = [_kilobytes(size) for size in sizes if size.fits]
    failing = [_kilobytes(size) for size in sizes if not size.fits]
    parts: list[str] = []
    if fitting:
        parts.append(f"fits {', '.join(fitting)}")
    if failing:
        parts.append(f"not {', '.join(failing)}")
    return ", ".join(parts)


def _kilobytes(size: RamSize) -> str:
    return f"{size.ram_bytes // _KIBIBYTE} KB"


def format_fits(fits: Sequence[Fit], states: Sequence[str]) -> str:
    rows: list[list[Cell]] = []
    for fit, state in zip(fits, states, strict=True):
        ram = fit.workspace.need_bytes if fit.workspace else None
        flash = fit.flash.need_bytes if fit.flash else None
        time = clock = None
        if fit.time is not None:
            time, clock = fit.time.milliseconds, f"{fit.time.clock_hz / 1e6:g}"
        verdict = "yes" if fit.fits else "no"
        figures = (verdict, ram, flash, fit.stack_bytes, time, clock)
        rows.append([fit.board, *figures, state])
    head = ["board", "fits", "RAM", "flash", "stack", "modeled ms", "MHz", "tested"]
    return format_table(head, rows, drop=("tested", "stack", "MHz", "flash"))
