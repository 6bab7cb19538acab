"""The programs for less RAM, each with its memory and predicted instructions."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from firmwright.base.errors import UsageError
from firmwright.boards import load_board
from firmwright.choose.kernel_selection import KernelSelector
from firmwright.compilation_summary import MemoryTradeoff
from firmwright.flows.predict.cost_prediction import predict_lowered
from firmwright.ir.module import IRModule, Pass
from firmwright.pipeline import Options, configure_module, passes_for
from firmwright.pipeline.pass_list import lower_for_selection
from firmwright.pipeline.selection_oracle import make_selection_oracle

_RESOLUTION: Final = 1000
"""A smaller share of the instructions is no reason for more memory."""


def pareto_rows(model: IRModule, options: Options) -> tuple[MemoryTradeoff, ...]:
    """Return the programs that none beats in memory and instructions, largest first.

    Of programs that differ by less than a thousandth in instructions, only the one with
    the least memory is returned.

    The search starts without a limit on memory. Each further program must fit in the
    memory of the one before, less one byte. If its plan needs less than the limit,
    selection runs again with that as the limit, since it may find a faster program for
    it.
    """
    if model.is_started:
        raise UsageError(
            "the module is lowered already.", where=model.name, hint="the model file."
        )
    board = load_board(options.board, options.board_dirs)
    steps = passes_for(options)
    names = [step.name for step in steps]
    selection = names.index("lower-select")
    planning = names.index("usmp")

    def configured(ram_bytes: int) -> IRModule:
        return configure_module(model, board, replace(options, ram_bytes=ram_bytes))

    module = _run(steps[:selection], configured(sys.maxsize))
    lowering, module = lower_for_selection(module, options)
    oracle = make_selection_oracle(options)
    selector = KernelSelector(module, lowering.calls(), lowering.rows, oracle)
    rows: list[MemoryTradeoff] = []
    limit = sys.maxsize
    while limit:
        program = selector.fastest_within(configured(limit).pools)
        if program is None:
            break
        plan = _run(steps[selection + 1 : planning + 1], program.module).memory_plan
        is_exact = plan.workspace_bytes == limit
        if is_exact:
            costs = predict_lowered(program.module).values()
            instructions = sum(cost.instructions for cost in costs)
            rows = [row for row in rows if row.instructions < instructions]
            rows.append(MemoryTradeoff(limit, instructions, program.segments))
        limit = plan.workspace_bytes - 1 if is_exact else plan.workspace_bytes
    return distinct_rows(rows)


def distinct_rows(rows: Sequence[MemoryTradeoff]) -> tuple[MemoryTradeoff, ...]:
    """Return the last of each group of rows that are about as fast as its first."""
    distinct: list[MemoryTradeoff] = []
    fastest = 0
    for row in rows:
        if distinct and row.instructions - fastest < fastest // _RESOLUTION:
            distinct[-1] = row
        else:
            distinct.append(row)
            fastest = row.instructions
    return tuple(distinct)


def _run(steps: Sequence[Pass], module: IRModule) -> IRModule:
    """Run passes in order."""
    for step in steps:
        module = step(module)
    return module
