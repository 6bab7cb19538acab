"""What would make a model fit a board that is too small for it.

The remedies are in the order in which they cost least: int8 instead of floats, options
of the compiler, a smaller input, and another board. Only those are named with which the
model then fits.
"""

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from firmwright.base.dtypes import FLOAT32, INT8
from firmwright.base.errors import DoesNotFitError, FirmwrightError
from firmwright.boards import Board, list_boards, list_chips, load_board
from firmwright.flows.model.compilation import (
    PassObserver,
    compile_for,
    options_for,
)
from firmwright.flows.model.given_options import OptionValues
from firmwright.flows.model.model import Model
from firmwright.flows.predict.memory_prediction import (
    flash_for_model,
    predict_flash_bytes,
)
from firmwright.ir.core import PoolInfo
from firmwright.ir.graph.nodes import Function, Value
from firmwright.ir.module import IRModule
from firmwright.partitioning.per_target_passes import PassTimer
from firmwright.pipeline import Compilation, lower_program
from firmwright.pipeline.interface_bound import interface_bytes

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


class Certainty(StrEnum):
    """How well the workspace with a remedy is known, in the words before its bytes."""

    COMPILED = ""
    ABOUT = "about "
    AT_MOST = "at most about "
    AT_LEAST = "at least "


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change after which the model fits.

    `text` is the option, or what to do. `workspace_bytes` is what the model then needs;
    it is an estimate unless the model was compiled with the option.
    """

    kind: RemedyKind
    text: str
    workspace_bytes: int
    certainty: Certainty = Certainty.COMPILED

    @property
    def is_estimate(self) -> bool:
        return self.certainty is not Certainty.COMPILED

    def __str__(self) -> str:
        if self.kind is RemedyKind.BOARD:
            return self.text
        need = f"{self.certainty}{self.workspace_bytes:,} bytes"
        return f"{self.text}, with which it needs {need}"


def find_remedies(
    model: Model, given: OptionValues, need_bytes: int
) -> tuple[Remedy, ...]:
    """Return the changes with which `model` fits the board, the least costly first.

    `need_bytes` is the least workspace that is known to be needed; nothing is known to
    help if it is 0.
    """
    if not need_bytes:
        return ()
    options = options_for(model.module, given)
    board = load_board(options.board, options.board_dirs)
    all_bytes = workspace_limit(board, None)
    room = _Room(workspace_limit(board, options.ram_bytes), flash_for_model(board))
    # If the board has room, the user's budget is what is too small.
    is_budget = options.ram_bytes is not None and need_bytes <= all_bytes
    trials = _OptionTrials(model, given)
    found = [
        _quantized(model.module, need_bytes, room, trials),
        trials.larger_budget(need_bytes, all_bytes) if is_budget else None,
        trials.first_that_fits(),
        _smaller_input(model.module, need_bytes, room),
        None if is_budget else _other_boards(model.module, board, need_bytes),
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
class _Room:
    """The workspace and the flash that a board has for a model; None is no limit."""

    workspace_bytes: int
    flash_bytes: int | None

    def holds_estimate(self, workspace_bytes: int, flash_bytes: int) -> bool:
        """Return whether estimates fit, with a margin for their errors."""
        if workspace_bytes * _ESTIMATE_PERCENT > 100 * self.workspace_bytes:
            return False
        if self.flash_bytes is None:
            return True
        return flash_bytes * _ESTIMATE_PERCENT <= 100 * self.flash_bytes


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
                return Remedy(RemedyKind.OPTION, trial.text, need.size_bytes)
        return None

    def larger_budget(self, need_bytes: int, most_bytes: int) -> Remedy | None:
        """Return the least budget that is enough, at most `most_bytes`.

        `need_bytes` may be what the inputs alone need; the search then finds the least.
        """
        trial = _Trial(f"--ram {need_bytes}", {"ram_bytes": need_bytes})
        need = self._need(trial)
        if need is None or need.size_bytes > most_bytes:
            return None
        size_bytes = need.size_bytes
        text = f"--ram {size_bytes}"
        return Remedy(RemedyKind.OPTION, text, size_bytes)

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
            program = lower_program(
                self.model.module, options, resized=self.model.resized
            )
        except DoesNotFitError as error:
            size_bytes = error.lowest_bytes
            return _Need(size_bytes, fits=False) if size_bytes else None
        except FirmwrightError:
            return None
        flash_limit = flash_for_model(program.board)
        fits = flash_limit is None or predict_flash_bytes(program) <= flash_limit
        return _Need(program.module.memory_plan.workspace_bytes, fits)


def _quantized(
    module: IRModule, need_bytes: int, room: _Room, trials: _OptionTrials
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
    text = f"quantize the model to int8 ({_way_to_int8(trials.model.file)})"
    flash_bytes = _quarter(constants_bytes(module))
    estimate = _quarter(need_bytes)
    # If inputs and outputs alone are too large, no plan was searched. The plans that
    # a search finds for int8 are smaller than a quarter of the best one for floats.
    is_least = need_bytes <= interface_bytes(module)
    certainty = Certainty.AT_LEAST if is_least else Certainty.AT_MOST
    if not room.holds_estimate(estimate, flash_bytes):
        need_by_rows = trials.need_by_rows()
        if need_by_rows is None:
            return None
        estimate, certainty = _quarter(need_by_rows), Certainty.AT_MOST
        if not room.holds_estimate(estimate, flash_bytes):
            return None
        text += f" and {_BY_ROWS.text}"
    return Remedy(RemedyKind.QUANTIZE, text, estimate, certainty)


def _way_to_int8(file: str) -> str:
    """Return what quantizes a model of this format: `quantize` reads ONNX only."""
    match Path(file).suffix:
        case ".onnx":
            return "firmwright quantize, or at its export"
        case ".pt2":
            return "at its export: docs/models.md#pytorch"
        case _:
            return "at its export: docs/models.md#keras"


def _quarter(float_bytes: int) -> int:
    """Return the bytes of int8 tensors in place of floats."""
    return float_bytes * INT8.size_bytes // FLOAT32.size_bytes


def constants_bytes(module: IRModule) -> int:
    """Return the bytes of the constants of an imported model."""
    return sum(constant.size_bytes for constant in module.constants.values())


def _activations(entry: Function) -> list[Value]:
    values = list(entry.params)
    for call in entry.body:
        values += call.outputs
    return values


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


def _smaller_input(module: IRModule, need_bytes: int, room: _Room) -> Remedy | None:
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
        if is_image and room.holds_estimate(estimate, constants_bytes(module)):
            text = f"train with images of {rows} x {columns} pixels"
            return Remedy(RemedyKind.INPUT, text, estimate, Certainty.ABOUT)
    return None


def _other_boards(module: IRModule, board: Board, need_bytes: int) -> Remedy | None:
    """Return the chips of the board's family, then the boards, with the least RAM.

    A family is what the names of its chips begin with, such as STM32.
    """
    boards, chips = list_boards(), list_chips()
    has_family = any(chip.soc == board.soc for chip in chips)
    with_board = {other.soc for other in boards}
    fitting: list[tuple[bool, int, str]] = []
    for other in (*boards, *chips):
        if other.is_host or other.chip == board.chip:
            continue
        is_relative = has_family and _family(other) == _family(board)
        is_chip = other.name == other.soc
        if is_chip and (other.soc in with_board or not is_relative):
            continue
        room = _Room(workspace_limit(other, None), flash_for_model(other))
        has_flash = room.holds_estimate(0, constants_bytes(module))
        if has_flash and need_bytes <= room.workspace_bytes:
            fitting.append((not is_relative, other.ram_bytes or 0, other.name))
    if not fitting:
        return None
    names = [name for *_, name in sorted(fitting)[:_BOARDS_MAX]]
    text = f"a board or chip with more memory: {', '.join(names)}"
    return Remedy(RemedyKind.BOARD, text, need_bytes, Certainty.ABOUT)


def _family(board: Board) -> str:
    """Return the beginning of the names of the chips of a family."""
    found = re.match(r"stm32|[a-z]*", board.soc)
    return found[0] if found else ""
