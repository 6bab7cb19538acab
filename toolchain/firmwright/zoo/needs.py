"""The needs of the catalog's models on any board, from figures of boards like it.

The catalog has figures of a few boards. A board with the same kind of core runs the
same kernels, so RAM and flash differ by little; its own memory decides what fits.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from firmwright.base.errors import UsageError
from firmwright.boards import Board, load_board
from firmwright.flows.predict.memory_prediction import flash_for_model
from firmwright.partitioning.target_resolution import board_target
from firmwright.targets.registry import target_features
from firmwright.targets.run_time import RunTime, run_time
from firmwright.zoo.catalog import BoardFigures, ZooModel

_HARD_FLOATS = "-mfloat-abi=hard"


@dataclass(frozen=True, slots=True)
class ModelNeed:
    """A model with the figures of the reference board.

    `fits` is None if the figures do not decide it: the program of the reference board
    is too large for this board, and `fit` may find a smaller one.
    """

    model: ZooModel
    figures: BoardFigures
    fits: bool | None
    time: RunTime | None


def reference_board(board: Board, models: Sequence[ZooModel]) -> Board:
    """Return the board whose figures are those of `board`: itself, or one like it.

    Raise UsageError if no board of the catalog has this kind of core.
    """
    names = dict.fromkeys(name for model in models for name in model.figures)
    if board.name in names:
        return board
    known = [] if board.is_host else [load_board(name) for name in names]
    alike = [reference for reference in known if _runs_same_kernels(reference, board)]
    if alike:
        return min(alike, key=lambda reference: _unlikeness(reference, board))
    what = f"the catalog has no figures for the core of {board.name} ({board.core})."
    hint = f"firmwright fit FILE --board {board.name}, with one of the models."
    raise UsageError(what, where="--board", hint=hint)


def _runs_same_kernels(reference: Board, board: Board) -> bool:
    features = target_features(board_target(reference))
    has_same_fpu = (_HARD_FLOATS in reference.cpu_flags) == (
        _HARD_FLOATS in board.cpu_flags
    )
    return has_same_fpu and features == target_features(board_target(board))


def _unlikeness(reference: Board, board: Board) -> tuple[bool, bool, int]:
    """Return how much the choice of kernels differs, and prefer more memory.

    Slow flash makes other kernels the faster ones.
    """
    has_same_flash = bool(reference.flash.wait_states) == bool(board.flash.wait_states)
    return reference.core != board.core, not has_same_flash, -(reference.ram_bytes or 0)


def needs_on(
    board: Board, reference: Board, models: Sequence[ZooModel]
) -> tuple[ModelNeed, ...]:
    """Return the needs of the models with figures of `reference` on `board`."""
    needs: list[ModelNeed] = []
    for model in models:
        figures = model.figures.get(reference.name)
        if figures is None:
            continue
        is_own = board.name == reference.name
        fits = figures.fits if is_own else _fits(board, figures)
        time = run_time_of(figures, board) if is_own else None
        needs.append(ModelNeed(model, figures, fits, time))
    return tuple(needs)


def run_time_of(figures: BoardFigures, board: Board) -> RunTime | None:
    return None if figures.cycles is None else run_time(figures.cycles, board)


def _fits(board: Board, figures: BoardFigures) -> bool | None:
    """Return whether the program of the reference board fits another board."""
    pools = sum(pool.size_bytes or 0 for pool in board.pools() if not pool.targets)
    flash_bytes = flash_for_model(board)
    if figures.workspace_bytes is None or figures.flash_bytes is None:
        return None
    if flash_bytes is not None and figures.flash_bytes > flash_bytes:
        return False
    if not figures.fits:
        return None
    return True if figures.workspace_bytes <= pools else None
