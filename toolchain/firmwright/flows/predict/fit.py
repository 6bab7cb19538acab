"""Whether a model fits a board, and how fast it runs there, predicted without a build.

The workspace is that of the memory plan. Flash, stack and time are predictions
(docs/developing/predictions.md); none of them needs a compiler or an emulator.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from firmwright.base.errors import DoesNotFitError
from firmwright.boards import Board, load_board
from firmwright.flows.model.compilation import options_for
from firmwright.flows.model.given_options import OptionValues
from firmwright.flows.model.model import Model
from firmwright.flows.predict.cost_prediction import kernel_costs, predict_lowered
from firmwright.flows.predict.memory_prediction import (
    flash_for_model,
    predict_flash_bytes,
    predict_stack_bytes,
)
from firmwright.flows.predict.remedies import (
    Remedy,
    constants_bytes,
    find_remedies,
    workspace_limit,
)
from firmwright.flows.predict.time_prediction import predict_time, predict_time_as_built
from firmwright.ir.module import IRModule
from firmwright.ir.tir.memory_traffic import count_traffic
from firmwright.pipeline import LoweredProgram, Options, lower_program
from firmwright.pipeline.interface_bound import interface_bytes
from firmwright.pipeline.program_existence import has_program
from firmwright.pipeline.selection_oracle import SelectionMemo
from firmwright.targets.run_time import RunTime

log = logging.getLogger(__name__)

FIRMWARE_RAM_BYTES = 640
"""The data of the firmware around a model, and its stack besides the model's."""


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """The bytes of a kind of memory that a model needs, and those that it may use."""

    need_bytes: int
    have_bytes: int | None

    @property
    def fits(self) -> bool:
        return self.have_bytes is None or self.need_bytes <= self.have_bytes

    @property
    def spare_bytes(self) -> int | None:
        """The bytes left over; negative if they are missing."""
        return None if self.have_bytes is None else self.have_bytes - self.need_bytes


@dataclass(frozen=True, slots=True)
class RamSize:
    """Whether the model fits a chip with that much RAM, beside the firmware."""

    ram_bytes: int
    fits: bool


@dataclass(frozen=True, slots=True)
class PoolTraffic:
    """The bytes that a run moves to and from a pool outside the fastest memory."""

    pool: str
    read_bytes: int
    written_bytes: int


@dataclass(frozen=True, slots=True)
class Fit:
    """The memory and time of a model on a board.

    `workspace` is what the program needs; if none fits, it is the least that any
    program needs as far as known, and `flash` has only the constants. `problem` says
    what does not fit; "" if all does. Figures that are not known are None. `pools` are
    the bytes of each pool, as one of them holds a whole tensor. `time_as_built` is set
    if the firmware that `build` makes runs at another clock than that of `time`.
    """

    model: str
    board: str
    chip: str
    workspace: MemoryNeed | None
    flash: MemoryNeed | None = None
    stack_bytes: int | None = None
    instructions: int | None = None
    time: RunTime | None = None
    time_as_built: RunTime | None = None
    pools: tuple[tuple[str, int], ...] = ()
    other_ram: tuple[RamSize, ...] = ()
    slow_memory: tuple[PoolTraffic, ...] = ()
    problem: str = ""
    remedies: tuple[Remedy, ...] = ()

    @property
    def fits(self) -> bool:
        return not self.problem


def fit_model(model: Model, given: OptionValues, clock_hz: int | None = None) -> Fit:
    """Predict memory and time of `model` on the board in `given`, by default the host.

    Raise UsageError or UnsupportedError for options or a model that cannot be compiled.
    """
    fit = _fit_without_remedies(model, given, clock_hz)
    if fit.fits:
        return fit
    need_bytes = fit.workspace.need_bytes if fit.workspace else 0
    return replace(fit, remedies=find_remedies(model, given, need_bytes))


def fit_boards(
    model: Model,
    given: OptionValues,
    boards: Sequence[Board],
    clock_hz: int | None = None,
) -> tuple[Fit, ...]:
    """Return the fit on each of `boards`, without remedies."""
    fits: list[Fit] = []
    memo = SelectionMemo()
    for number, board in enumerate(boards, 1):
        log.info("%d of %d boards: %s", number, len(boards), board.name)
        own: OptionValues = {**given, "board": board.name}
        fits.append(_fit_on_board(model, own, clock_hz, memo))
    return tuple(fits)


def _fit_without_remedies(
    model: Model, given: OptionValues, clock_hz: int | None
) -> Fit:
    memo = SelectionMemo()
    program = _lowered(model, given, memo)
    if isinstance(program, Fit):
        return program
    fit = fit_of_program(program, clock_hz)
    if program.board.is_host or model.module.is_started:
        return fit
    sizes = _other_ram(model, program, fit.stack_bytes or 0, memo)
    return replace(fit, other_ram=sizes)


def _fit_on_board(
    model: Model, given: OptionValues, clock_hz: int | None, memo: SelectionMemo
) -> Fit:
    """Return the fit without other sizes of RAM."""
    program = _lowered(model, given, memo)
    return program if isinstance(program, Fit) else fit_of_program(program, clock_hz)


def _lowered(
    model: Model, given: OptionValues, memo: SelectionMemo
) -> LoweredProgram | Fit:
    """Return the program, or the fit that says that no program is small enough."""
    options = options_for(model.module, given)
    try:
        return lower_program(model.module, options, memo, model.resized)
    except DoesNotFitError as error:
        return _too_large(model, options, error)


def fit_of_program(program: LoweredProgram, clock_hz: int | None = None) -> Fit:
    """Return the fit of a program that has been compiled, without other RAM sizes."""
    module, board = program.module, program.board
    known = kernel_costs(program.selected)
    costs = predict_lowered(program.selected, known).values()
    workspace_bytes = module.memory_plan.workspace_bytes
    own = kernel_costs(module)
    flash = MemoryNeed(predict_flash_bytes(program, own), flash_for_model(board))
    return Fit(
        model=module.name,
        board=board.name,
        chip=board.chip,
        workspace=MemoryNeed(workspace_bytes, _pool_bytes(module)),
        flash=flash,
        stack_bytes=predict_stack_bytes(program, own),
        instructions=sum(cost.instructions for cost in costs),
        time=None if board.is_host else predict_time(program, clock_hz, known),
        time_as_built=None if clock_hz else predict_time_as_built(program, known),
        pools=_pools(module),
        slow_memory=_slow_traffic(program),
        problem=_flash_problem(flash),
    )


def _flash_problem(flash: MemoryNeed, content: str = "code and constants") -> str:
    if flash.fits:
        return ""
    return (
        f"its {content} take about {flash.need_bytes:,} bytes of flash, and "
        f"{flash.have_bytes:,} are left beside the firmware"
    )


def _too_large(model: Model, options: Options, error: DoesNotFitError) -> Fit:
    board = load_board(options.board, options.board_dirs)
    need: MemoryNeed | None = None
    flash: MemoryNeed | None = None
    problems = [error.what.rstrip(".")]
    pools: list[tuple[str, int]] = []
    if error.lowest_bytes:
        limit_bytes = workspace_limit(board, options.ram_bytes)
        need = MemoryNeed(error.lowest_bytes, limit_bytes)
        flash = MemoryNeed(constants_bytes(model.module), flash_for_model(board))
        for pool in board.pools() if options.ram_bytes is None else ():
            if not pool.targets and pool.size_bytes is not None:
                pools.append((pool.name, pool.size_bytes))
        problems += [
            _buffer_problem(error.peak, pools),
            _flash_problem(flash, "constants"),
        ]
    return Fit(
        model=model.name,
        board=board.name,
        chip=board.chip,
        workspace=need,
        flash=flash,
        pools=tuple(pools),
        problem="; ".join(filter(None, problems)),
    )


def _buffer_problem(
    buffers: Sequence[tuple[str, int]], pools: Sequence[tuple[str, int]]
) -> str:
    """Say that a buffer is larger than each of several pools; "" if none is."""
    if not buffers or len(pools) < 2:
        return ""
    buffer, need_bytes = max(buffers, key=lambda item: item[1])
    pool, have_bytes = max(pools, key=lambda item: item[1])
    if need_bytes <= have_bytes:
        return ""
    return (
        f"{buffer} takes {need_bytes:,} bytes in one pool, and the largest, {pool}, "
        f"has {have_bytes:,}"
    )


def _pools(module: IRModule) -> tuple[tuple[str, int], ...]:
    """Return the writable pools of the core that have a limit, with their bytes."""
    pools: list[tuple[str, int]] = []
    for pool in module.pools:
        if pool.access == "rw" and not pool.targets and pool.size_bytes:
            pools.append((pool.name, pool.size_bytes))
    return tuple(pools)


def _pool_bytes(module: IRModule) -> int | None:
    """Return the bytes of all writable pools; None if one has no limit."""
    total = 0
    for pool in module.pools:
        if pool.access == "rw" and not pool.targets:
            if pool.size_bytes is None:
                return None
            total += pool.size_bytes
    return total


def _other_ram(
    model: Model, program: LoweredProgram, stack_bytes: int, memo: SelectionMemo
) -> tuple[RamSize, ...]:
    """Return the smaller usual sizes of RAM for which the answer is known.

    For the first size below the need of this program, a smaller program is searched, as
    for a chip of that size. Below the inputs and outputs, none exists.
    """
    beside = stack_bytes + FIRMWARE_RAM_BYTES
    need_bytes = program.module.memory_plan.workspace_bytes + beside
    sizes: list[RamSize] = []
    most = program.board.ram.size_bytes
    if program.options.ram_bytes is not None:
        most = min(most, program.options.ram_bytes + beside)
    size = _power_of_two_below(most)
    while size >= need_bytes:
        sizes.append(RamSize(size, fits=True))
        size //= 2
    has_smaller = _fits_within(model, program, size - beside, memo)
    sizes.append(RamSize(size, fits=has_smaller))
    if has_smaller and size // 2 < interface_bytes(program.imported) + beside:
        sizes.append(RamSize(size // 2, fits=False))
    return tuple(sizes)


def _fits_within(
    model: Model, program: LoweredProgram, limit_bytes: int, memo: SelectionMemo
) -> bool:
    """Return whether a program needs at most `limit_bytes` of workspace."""
    if limit_bytes < max(interface_bytes(program.imported), 1):
        return False
    options: Options = replace(program.options, ram_bytes=limit_bytes)
    return has_program(model.module, options, memo)


def _power_of_two_below(size_bytes: int) -> int:
    """Return the largest power of two below a size."""
    return 1 << (size_bytes - 1).bit_length() - 1


def _slow_traffic(program: LoweredProgram) -> tuple[PoolTraffic, ...]:
    """Return the traffic of pools that are slower than the fastest one."""
    module = program.module
    speeds: dict[str, float] = {}
    for pool in module.pools:
        if pool.access == "rw" and pool.read_bandwidth is not None:
            speeds[pool.name] = pool.read_bandwidth
    if not speeds:
        return ()
    moved = count_traffic(module.aot_main, module.functions)
    slow: list[PoolTraffic] = []
    for name, speed in speeds.items():
        traffic = moved.get(name)
        if traffic is not None and speed < max(speeds.values()):
            slow.append(PoolTraffic(name, traffic.read_bytes, traffic.written_bytes))
    return tuple(slow)
