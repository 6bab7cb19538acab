"""Predicts the time of a run from the cost model, without building the firmware."""

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
from firmwright.pipeline import LoweredProgram
from firmwright.targets.run_time import RunTime, run_time


def predict_time(
    program: LoweredProgram, clock_hz: int | None = None
) -> RunTime | None:
    """Predict the time of a run; None for a core whose pipeline is not known.

    With `clock_hz`, flash has the wait states of that clock, if the board states them.
    """
    board = program.board if clock_hz is None else program.board.at_clock(clock_hz)
    cycles = predict_cycles(program, board)
    return None if cycles is None else run_time(cycles, board)


def predict_cycles(program: LoweredProgram, board: Board) -> int | None:
    """Predict the modeled cycles of a run on `board`, with waits for flash."""
    total = instructions = 0
    for cost in predict_lowered(program.selected).values():
        if cost.cycles is None:
            return None
        total += cost.cycles
        instructions += cost.instructions
    total += _flash_stalls(program, board.flash, instructions)
    scale = board.calibration.scale if board.calibration else 1.0
    return round(scale * total)


def _flash_stalls(
    program: LoweredProgram, flash: MemoryRegion, instructions: int
) -> int:
    module = program.selected
    costs = kernel_costs(module)
    reads: dict[str, KernelReads] = {}
    for name, cost in costs.items():
        reads[name] = kernel_reads(module, module.kernel(name), cost.code_bytes)
    calls = [call.callee for call in kernel_calls(module.aot_main.body)]
    return flash_stall_cycles(flash, reads, calls, instructions)
