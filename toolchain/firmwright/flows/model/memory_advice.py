"""Options that reduce the workspace of a program that does not fit."""

import logging
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from firmwright.base.errors import DoesNotFitError, FirmwrightError
from firmwright.boards import load_board
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model
from firmwright.ir.core import PoolInfo
from firmwright.pipeline import Compilation

log = logging.getLogger(__name__)

_Change: TypeAlias = tuple[str, Mapping[str, Any]]
"""Options to add, as text and as values."""


def compile_or_advise(model: Model, options: Mapping[str, Any], **watchers: Any) -> Compilation:
    """Compile; if memory is short, the error's hint has the options that help this model."""
    try:
        return compile_for(model, **options, **watchers)
    except DoesNotFitError as error:
        if error.lowest_bytes:
            rest = f"--ram {error.lowest_bytes}." if options.get("ram_bytes") else error.hint
            error.hint = _advice(model, options, error.lowest_bytes) + rest
        raise


def _advice(model: Model, options: Mapping[str, Any], lowest_bytes: int) -> str:
    """Return the first change with which the program fits, else the one that saves most.

    The last of `_savings` includes the others. If it is not enough, they are not tried, because
    each trial compiles the model.
    """
    trials, savings = [*_further_pools(options)], _savings(options)
    known = {text: _bytes_beyond(model, options, text, change) for text, change in savings[-1:]}
    if not any(known.values()):
        trials += savings
    for text, change in trials:
        if text not in known:
            known[text] = _bytes_beyond(model, options, text, change)
        if known[text] == 0:
            return f"{text}, with which it fits; or "
    needs = [(size, text) for text, size in known.items() if size and size < lowest_bytes]
    if not needs:
        return ""
    size, text = min(needs)
    return f"{text}, which needs {size:,} bytes; or "


def _bytes_beyond(
    model: Model, options: Mapping[str, Any], text: str, change: Mapping[str, Any]
) -> int | None:
    """Return the bytes that the program needs, 0 if it fits, None if a change is not allowed."""
    log.info("trying %s, as the workspace does not fit", text)
    try:
        compile_for(model, **{**options, **change})
    except DoesNotFitError as error:
        return error.lowest_bytes or None
    except FirmwrightError:
        return None
    return 0


def _further_pools(options: Mapping[str, Any]) -> Iterator[_Change]:
    pools: tuple[PoolInfo, ...] = options.get("pools", ())
    board = load_board(options.get("board", "host"), options.get("board_dirs", ()))
    for pool in board.pools() if pools else ():
        if not pool.targets and pool.name not in {own.name for own in pools}:
            yield f"--pool {pool.name}", {"pools": (*pools, PoolInfo(pool.name))}


def _savings(options: Mapping[str, Any]) -> list[_Change]:
    """Return changes beyond those that every compilation for limited pools tries."""
    rows = "--stream-input-rows", {"stream_input_rows": True}
    small = "--optimize ram --recompute", {"optimize": "ram", "recompute": True}
    both = f"{rows[0]} {small[0]}", rows[1] | small[1]
    if options.get("recompute"):
        return [] if options.get("stream_input_rows") else [rows]
    return [small] if options.get("stream_input_rows") else [rows, small, both]
