"""The programs of a model that none beats in RAM, flash and time, with options."""

import itertools
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from firmwright.base.errors import DoesNotFitError
from firmwright.compilation_summary import MemoryTradeoff
from firmwright.flows.predict.cost_prediction import kernel_costs, predict_lowered
from firmwright.flows.predict.memory_prediction import predict_flash_bytes
from firmwright.flows.predict.time_prediction import predict_cycles
from firmwright.ir.graph.nodes import Function
from firmwright.pipeline import Compilation, LoweredProgram, lower_program
from firmwright.report.pareto_front import ParetoProgram, pareto_front

OBJECTIVES = ("speed", "balanced", "size")
"""The values of `--optimize` that are combined with the limits of RAM."""


def find_program_front(
    compiled: Compilation,
    file: str,
    tradeoffs: Sequence[MemoryTradeoff],
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[ParetoProgram, ...]:
    """Compile the model in `file` for each objective, and each RAM of `tradeoffs`.

    `watch` is called with the number of programs that are done, and of all. Return ()
    for a lowered module, which has no other programs.
    """
    imported = compiled.imported
    if not isinstance(imported.entry, Function) or imported.is_started:
        return ()
    limits: list[int | None] = [None, *(item.workspace_bytes for item in tradeoffs)]
    programs = [_describe(compiled, file, is_current=True)]
    variants = list(itertools.product(OBJECTIVES, limits))
    for done, (objective, limit) in enumerate(variants):
        watch(done, len(variants))
        options = replace(compiled.options, optimize=objective, ram_bytes=limit)
        if options == compiled.options:
            continue
        try:
            program = lower_program(imported, options)
        except DoesNotFitError:
            continue
        programs.append(_describe(program, file))
    return pareto_front(programs)


def _describe(
    program: LoweredProgram, file: str, *, is_current: bool = False
) -> ParetoProgram:
    options = program.options
    known = kernel_costs(program.selected)
    costs = predict_lowered(program.selected, known).values()
    words = ["--optimize", options.optimize]
    if options.ram_bytes is not None:
        words += ["--ram", str(options.ram_bytes)]
    command = ["firmwright", "compile", Path(file).name, "--board", options.board]
    return ParetoProgram(
        options=shlex.join(words),
        command=shlex.join([*command, *words]),
        workspace_bytes=program.module.memory_plan.workspace_bytes,
        flash_bytes=predict_flash_bytes(program),
        instructions=sum(cost.instructions for cost in costs),
        cycles=predict_cycles(program, program.board, known),
        is_current=is_current,
    )
