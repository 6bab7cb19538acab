"""Predicts the time of a run from the cost model, without building the firmware."""

from collections.abc import Mapping

from firmwright.boards import Board, MemoryRegion
from firmwright.flows.predict.cost_prediction import (
    kernel_calls,
    kernel_costs,
    predict_lowered,
)
from firmwright.flows.predict.flash_stalls import (
    KernelReads,
    flash_stall_cycles,
    kernel_reads,
)
from firmwright.ir.module import IRModule
from firmwright.ir.tir.cost_model import Cost
from firmwright.pipeline import LoweredProgram
from firmwright.targets.run_time import RunTime, run_time


def predict_time(
    program: LoweredProgram,
    clock_hz: int | None = None,
    known: Mapping[str, Cost] | None = None,
) -> RunTime | None:
    """Predict the time of a run; None for a core whose pipeline is not known.

    With `clock_hz`, flash has the wait states of that clock, if the board states them.
    `known` are the costs of the selected kernels, if they were computed before.
    """
    board = program.board if clock_hz is None else program.board.at_clock(clock_hz)
    cycles = predict_cycles(program, board, known)
    return None if cycles is None else run_time(cycles, board)


def predict_time_as_built(
    program: LoweredProgram, known: Mapping[str, Cost] | None = None
) -> RunTime | None:
    """Predict the time in the firmware that `build` makes, at the clock after reset.

    Return None if that is the modeled clock, as on boards with a clock driver, or if
    no firmware can be built.
    """
    board = program.board
    is_built = not board.is_host and not board.export_only
    if not is_built or board.run_hz in (0, board.modeled_hz):
        return None
    return predict_time(program, board.run_hz, known)


def predict_cycles(
    program: LoweredProgram, board: Board, known: Mapping[str, Cost] | None = None
) -> int | None:
    """Predict the modeled cycles of a run on `board`, with waits for flash."""
    costs = kernel_costs(program.selected) if known is None else known
    total = instructions = 0
    for cost in predict_lowered(program.selected, costs).values():
        if cost.cycles is None:
            return None
        total += cost.cycles
        instructions += cost.instructions
    total += _flash_stalls(program.selected, costs, board.flash, instructions)
    scale = board.calibration.scale if board.calibration else 1.0
    return round(scale * total)


def _flash_stalls(
    module: IRModule,
    costs: Mapping[str, Cost],
    flash: MemoryRegion,
    instructions: int,
) -> int:
    if not flash.wait_states:
        return 0
    reads: dict[str, KernelReads] = {}
    for name, cost in costs.items():
        reads[name] = kernel_reads(module, module.kernel(name), cost.code_bytes)
    calls = [call.callee for call in kernel_calls(module.aot_main.body)]
    return flash_stall_cycles(flash, reads, calls, instructions)
