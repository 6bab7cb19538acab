"""What would make a model fit a board that is too small for it.

The remedies are in the order in which they cost least: int8 instead of floats, options
of the compiler, a smaller input, and another board. Only those are named with which the
model then fits.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from firmwright.base.dtypes import FLOAT32, INT8
from firmwright.base.errors import DoesNotFitError, FirmwrightError
from firmwright.boards import Board, list_boards, load_board
from firmwright.flows.model.compilation import (
    PassObserver,
    compile_for,
    options_for,
)
from firmwright.flows.model.given_options import OptionValues
from firmwright.flows.model.model import Model
from firmwright.ir.core import PoolInfo
from firmwright.ir.graph.nodes import Function, Value
from firmwright.ir.module import IRModule
from firmwright.partitioning.per_target_passes import PassTimer
from firmwright.pipeline import Compilation, lower_program

log = logging.getLogger(__name__)

_BOARDS_MAX = 4
"""The number of boards that a remedy names."""
_ESTIMATE_PERCENT = 110
"""What an estimated need must leave free to be named."""
_SCALES = (3 / 4, 2 / 3, 1 / 2, 1 / 3, 1 / 4)
"""The sizes of a smaller image, relative to the present one."""
_SMALLEST_SIDE = 16


class RemedyKind(StrEnum):
    """What is changed."""

    QUANTIZE = "quantize"
    OPTION = "option"
    INPUT = "input"
    BOARD = "board"


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change after which the model fits.

    `text` is the option, or what to do. `workspace_bytes` is what the model then needs;
    it is an estimate unless the model was compiled with the option.
    """

    kind: RemedyKind
    text: str
    workspace_bytes: int
    is_estimate: bool

    def __str__(self) -> str:
        if self.kind is RemedyKind.BOARD:
            return self.text
        about = "about " if self.is_estimate else ""
        return f"{self.text}, with which it needs {about}{self.workspace_bytes:,} bytes"


def find_remedies(
    model: Model, given: OptionValues, need_bytes: int
) -> tuple[Remedy, ...]:
    """Return the changes with which `model` fits the board, the least costly first.

    `need_bytes` is the least workspace that is known to be needed.
    """
    options = options_for(model.module, given)
    board = load_board(options.board, options.board_dirs)
    limit_bytes = workspace_limit(board, options.ram_bytes)
    trials = _OptionTrials(model, given)
    found = [
        _quantized(model.module, need_bytes, limit_bytes, trials),
        _larger_budget(board, options.ram_bytes, need_bytes),
        trials.first_that_fits(),
        _smaller_input(model.module, need_bytes, limit_bytes),
        _other_boards(model.module, board, need_bytes),
    ]
    return tuple(remedy for remedy in found if remedy is not None)


def compile_or_advise(
    model: Model,
    given: OptionValues,
    *,
    watch: PassObserver | None = None,
    stopwatch: PassTimer | None = None,
) -> Compilation:
    """Compile; if memory is short, the error's hint names the remedies."""
    try:
        return compile_for(model, watch=watch, stopwatch=stopwatch, **given)
    except DoesNotFitError as error:
        if error.lowest_bytes:
            remedies = find_remedies(model, given, error.lowest_bytes)
            if remedies:
                error.hint = "; or ".join(map(str, remedies)) + "."
        raise


def workspace_limit(board: Board, budget: int | None) -> int:
    """Return the bytes of a board's pools, or the user's budget if it is less."""
    total = 0
    for pool in board.pools():
        if not pool.targets:
            total += pool.size_bytes or 0
    return total if budget is None else min(total, budget)


@dataclass(frozen=True, slots=True)
class _Trial:
    """Options to add, as the user writes them and as values of a compilation."""

    text: str
    options: OptionValues


_BY_ROWS = _Trial("--stream-input-rows", {"stream_input_rows": True})
_SMALL = _Trial("--optimize ram --recompute", {"optimize": "ram", "recompute": True})


@dataclass(frozen=True, slots=True)
class _Need:
    """The workspace of a program, or the least of all programs if none fits."""

    size_bytes: int
    fits: bool


@dataclass(slots=True)
class _OptionTrials:
    """Compilations with more options; each is run once."""

    model: Model
    given: OptionValues
    _known: dict[str, _Need | None] = field(default_factory=dict)

    def first_that_fits(self) -> Remedy | None:
        """Return the first options with which the program fits.

        The last ones include the others; if they are not enough, none is.
        """
        pools = list(_further_pools(self.given))
        savings = _savings(self.given)
        if savings and not self._fits(savings[-1]):
            savings = []
        for trial in (*pools, *savings):
            need = self._need(trial)
            if need is not None and need.fits:
                return Remedy(
                    RemedyKind.OPTION, trial.text, need.size_bytes, is_estimate=False
                )
        return None

    def need_by_rows(self) -> int | None:
        """Return what the program needs if its input is fed by rows."""
        if self.given.get("stream_input_rows"):
            return None
        need = self._need(_BY_ROWS)
        return need.size_bytes if need is not None else None

    def _fits(self, trial: _Trial) -> bool:
        need = self._need(trial)
        return need is not None and need.fits

    def _need(self, trial: _Trial) -> _Need | None:
        """Return the need with more options; None if they do not suit the model."""
        if trial.text not in self._known:
            self._known[trial.text] = self._compile(trial)
        return self._known[trial.text]

    def _compile(self, trial: _Trial) -> _Need | None:
        log.info("trying %s, as the workspace does not fit", trial.text)
        changed: OptionValues = {**self.given, **trial.options}
        options = options_for(self.model.module, changed)
        try:
            program = lower_program(self.model.module, options)
        except DoesNotFitError as error:
            size_bytes = error.lowest_bytes
            return _Need(size_bytes, fits=False) if size_bytes else None
        except FirmwrightError:
            return None
        return _Need(program.module.memory_plan.workspace_bytes, fits=True)


def _quantized(
    module: IRModule, need_bytes: int, limit_bytes: int, trials: _OptionTrials
) -> Remedy | None:
    """Estimate the workspace of the int8 model, alone or with the input by rows.

    Its tensors take a quarter.
    """
    entry = module.entry
    if not isinstance(entry, Function):
        return None
    values = _activations(entry)
    floats = [value for value in values if value.type.dtype == FLOAT32]
    if not floats or len(floats) < len(values) / 2:
        return None
    text = "quantize the model to int8 (firmwright quantize, or at its export)"
    estimate = need_bytes * INT8.size_bytes // FLOAT32.size_bytes
    if estimate * _ESTIMATE_PERCENT > 100 * limit_bytes:
        need_by_rows = trials.need_by_rows()
        if need_by_rows is None:
            return None
        estimate = need_by_rows * INT8.size_bytes // FLOAT32.size_bytes
        if estimate * _ESTIMATE_PERCENT > 100 * limit_bytes:
            return None
        text += f" and {_BY_ROWS.text}"
    return Remedy(RemedyKind.QUANTIZE, text, estimate, is_estimate=True)


def _activations(entry: Function) -> list[Value]:
    values = list(entry.params)
    for call in entry.body:
        values += call.outputs
    return values


def _larger_budget(board: Board, budget: int | None, need_bytes: int) -> Remedy | None:
    """Return the budget that is enough, if the user's is what is too small."""
    if budget is None or need_bytes > workspace_limit(board, None):
        return None
    return Remedy(
        RemedyKind.OPTION, f"--ram {need_bytes}", need_bytes, is_estimate=False
    )


def _further_pools(given: OptionValues) -> Iterator[_Trial]:
    """Yield the use of each of the board's pools that the user's list lacks."""
    pools = given.get("pools", ())
    if not pools:
        return
    own = {pool.name for pool in pools}
    board = load_board(given.get("board", "host"), given.get("board_dirs", ()))
    for pool in board.pools():
        if not pool.targets and pool.name not in own:
            added = (*pools, PoolInfo(pool.name))
            yield _Trial(f"--pool {pool.name}", {"pools": added})


def _savings(given: OptionValues) -> list[_Trial]:
    """Return changes beyond those that every compilation for limited pools tries.

    If there are two, a third one combines them.
    """
    trials: list[_Trial] = []
    if not given.get("stream_input_rows"):
        trials.append(_BY_ROWS)
    if not given.get("recompute"):
        trials.append(_SMALL)
    if len(trials) == 2:
        text = f"{_BY_ROWS.text} {_SMALL.text}"
        trials.append(_Trial(text, {**_BY_ROWS.options, **_SMALL.options}))
    return trials


def _smaller_input(
    module: IRModule, need_bytes: int, limit_bytes: int
) -> Remedy | None:
    """Estimate the workspace for smaller images: it follows the number of pixels."""
    entry = module.entry
    if not isinstance(entry, Function) or len(entry.params) != 1:
        return None
    shape = entry.params[0].type.shape
    if len(shape) != 4 or min(shape[1:3]) < 2 * _SMALLEST_SIDE:
        return None
    height, width = shape[1:3]
    for scale in _SCALES:
        rows, columns = round(height * scale), round(width * scale)
        estimate = need_bytes * rows * columns // (height * width)
        is_image = min(rows, columns) >= _SMALLEST_SIDE
        if is_image and estimate * _ESTIMATE_PERCENT <= 100 * limit_bytes:
            text = f"train with images of {rows} x {columns} pixels"
            return Remedy(RemedyKind.INPUT, text, estimate, is_estimate=True)
    return None


def _other_boards(module: IRModule, board: Board, need_bytes: int) -> Remedy | None:
    """Return the boards with the least RAM that have room for the model."""
    constants = sum(constant.size_bytes for constant in module.constants.values())
    fitting: list[tuple[int, str]] = []
    for other in list_boards():
        if other.is_host or other.name == board.name:
            continue
        has_room = workspace_limit(other, None) >= need_bytes
        if has_room and other.flash.size_bytes > constants * _ESTIMATE_PERCENT // 100:
            fitting.append((other.ram_bytes or 0, other.name))
    if not fitting:
        return None
    names = [name for _, name in sorted(fitting)[:_BOARDS_MAX]]
    text = f"a board with more memory: {', '.join(names)}"
    return Remedy(RemedyKind.BOARD, text, need_bytes, is_estimate=True)
