"""Options that reduce the workspace of a program that does not fit."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from firmwright.base.errors import DoesNotFitError, FirmwrightError
from firmwright.boards import load_board
from firmwright.flows.model.compilation import PassObserver, compile_for
from firmwright.flows.model.given_options import OptionValues
from firmwright.flows.model.model import Model
from firmwright.ir.core import PoolInfo
from firmwright.partitioning.per_target_passes import PassTimer
from firmwright.pipeline import Compilation

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Change:
    """Options to add, as the user writes them and as values of a compilation."""

    text: str
    options: OptionValues


def compile_or_advise(
    model: Model,
    options: OptionValues,
    *,
    watch: PassObserver | None = None,
    stopwatch: PassTimer | None = None,
) -> Compilation:
    """Compile; if memory is short, the error's hint has the options that help."""
    try:
        return compile_for(model, watch=watch, stopwatch=stopwatch, **options)
    except DoesNotFitError as error:
        if error.lowest_bytes:
            rest = error.hint
            if options.get("ram_bytes"):
                rest = f"--ram {error.lowest_bytes}."
            error.hint = _advice(model, options, error.lowest_bytes) + rest
        raise


def _advice(model: Model, options: OptionValues, lowest_bytes: int) -> str:
    """Return the first change with which the program fits, else the one saving most.

    The last of `_savings` includes the others. If it is not enough, they are not tried,
    because each trial compiles the model.
    """
    trials = list(_further_pools(options))
    savings = _savings(options)
    known: dict[str, int | None] = {}
    for change in savings[-1:]:
        known[change.text] = _bytes_beyond(model, options, change)
    if not any(known.values()):
        trials += savings
    for change in trials:
        if change.text not in known:
            known[change.text] = _bytes_beyond(model, options, change)
        if known[change.text] == 0:
            return f"{change.text}, with which it fits; or "
    needs: list[tuple[int, str]] = []
    for text, size in known.items():
        if size and size < lowest_bytes:
            needs.append((size, text))
    if not needs:
        return ""
    size, text = min(needs)
    return f"{text}, which needs {size:,} bytes; or "


def _bytes_beyond(model: Model, options: OptionValues, change: _Change) -> int | None:
    """Return the program's bytes, 0 if it fits, None if a change is not allowed."""
    log.info("trying %s, as the workspace does not fit", change.text)
    try:
        changed: OptionValues = {**options, **change.options}
        compile_for(model, **changed)
    except DoesNotFitError as error:
        return error.lowest_bytes or None
    except FirmwrightError:
        return None
    return 0


def _further_pools(options: OptionValues) -> Iterator[_Change]:
    """Yield the use of each of the board's pools that the user's list lacks."""
    pools = options.get("pools", ())
    if not pools:
        return
    own = {pool.name for pool in pools}
    board = load_board(options.get("board", "host"), options.get("board_dirs", ()))
    for pool in board.pools():
        if not pool.targets and pool.name not in own:
            added = (*pools, PoolInfo(pool.name))
            yield _Change(f"--pool {pool.name}", {"pools": added})


def _savings(options: OptionValues) -> list[_Change]:
    """Return changes beyond those that every compilation for limited pools tries.

    If there are two, a third one combines them.
    """
    changes: list[_Change] = []
    if not options.get("stream_input_rows"):
        changes.append(_Change("--stream-input-rows", {"stream_input_rows": True}))
    if not options.get("recompute"):
        small: OptionValues = {"optimize": "ram", "recompute": True}
        changes.append(_Change("--optimize ram --recompute", small))
    if len(changes) == 2:
        rows, small_workspace = changes
        text = f"{rows.text} {small_workspace.text}"
        changes.append(_Change(text, {**rows.options, **small_workspace.options}))
    return changes
