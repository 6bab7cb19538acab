"""Options that reduce the workspace of a program that does not fit."""

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from firmwright.base.errors import DoesNotFitError, FirmwrightError
from firmwright.boards import load_board
from firmwright.flows.compilation import compile_for
from firmwright.flows.model import Model
from firmwright.ir.core import PoolInfo
from firmwright.pipeline import Compilation

log = logging.getLogger(__name__)


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
    """Return the first change with which the program fits, else the one that saves most."""
    least = lowest_bytes, ""
    for text, change in _changes(options):
        log.info("trying %s, as the workspace does not fit", text)
        try:
            compile_for(model, **{**options, **change})
            return f"{text}, with which it fits; or "
        except DoesNotFitError as error:
            least = min(least, (error.lowest_bytes or lowest_bytes, text))
        except FirmwrightError:
            continue  # this model does not allow it
    return f"{least[1]}, which needs {least[0]:,} bytes; or " if least[1] else ""


def _changes(options: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield changes beyond those that every compilation for limited pools tries."""
    pools: tuple[PoolInfo, ...] = options.get("pools", ())
    board = load_board(options.get("board", "host"), options.get("board_dirs", ()))
    for pool in board.pools() if pools else ():
        if not pool.targets and pool.name not in {own.name for own in pools}:
            yield f"--pool {pool.name}", {"pools": (*pools, PoolInfo(pool.name))}
    small: Mapping[str, Any] = {"optimize": "ram", "recompute": True}
    rows: Mapping[str, Any] = {"stream_input_rows": True}
    if not options.get("stream_input_rows"):
        yield "--stream-input-rows", rows
    if not options.get("recompute"):
        yield "--optimize ram --recompute", small
        yield "--stream-input-rows --optimize ram --recompute", {**small, **rows}
