"""Predicts the time of a run from the cost model, without building the firmware."""

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
    """Predict the time of a run; None for a core whose pipeline is not known."""
    cycles = predict_cycles(program)
    return None if cycles is None else run_time(cycles, program.board, clock_hz)


def predict_cycles(program: LoweredProgram) -> int | None:
    """Predict the modeled cycles of a run, with waits for flash."""
    total = 0
    for cost in predict_lowered(program.selected).values():
        if cost.cycles is None:
            return None
        total += cost.cycles
    if not program.board.is_host:
        total += _flash_stalls(program)
    scale = program.board.calibration.scale if program.board.calibration else 1.0
    return round(scale * total)


def _flash_stalls(program: LoweredProgram) -> int:
    module = program.selected
    costs = kernel_costs(module)
    reads: dict[str, KernelReads] = {}
    for name, cost in costs.items():
        reads[name] = kernel_reads(module, module.kernel(name), cost.code_bytes)
    calls = [call.callee for call in kernel_calls(module.aot_main.body)]
    return flash_stall_cycles(program.board.flash, reads, calls)
