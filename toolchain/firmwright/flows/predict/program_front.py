"""The programs of a model that none beats in RAM, flash and time, with options."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from firmwright.base.errors import DoesNotFitError
from firmwright.compilation_summary import MemoryTradeoff
from firmwright.flows.predict.cost_prediction import predict_lowered
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IRModule
from firmwright.ir.tir.cost_model import estimate_cost
from firmwright.ir.tir.traversal import callees, used_constants
from firmwright.partitioning.backend_libraries import collect_intrinsics
from firmwright.pipeline import Compilation, compile_model
from firmwright.report.pareto_front import ParetoProgram, pareto_front
from firmwright.schedules.registry import INTRINSICS
from firmwright.targets.cost_weights import cost_weights_for

OBJECTIVES = ("speed", "balanced", "size")
"""The values of `--optimize` that are combined with the limits of RAM."""


def find_program_front(
    compiled: Compilation, file: str, tradeoffs: Sequence[MemoryTradeoff]
) -> tuple[ParetoProgram, ...]:
    """Compile the model in `file` for each objective, and each RAM of `tradeoffs`.

    Return () for a lowered module, which has no other programs.
    """
    imported = compiled.imported
    if not isinstance(imported.entry, Function) or imported.is_started:
        return ()
    limits: list[int | None] = [None, *(item.workspace_bytes for item in tradeoffs)]
    programs = [_describe(compiled, file, is_current=True)]
    for objective in OBJECTIVES:
        for limit in limits:
            options = replace(compiled.options, optimize=objective, ram_bytes=limit)
            if options == compiled.options:
                continue
            try:
                program = compile_model(imported, options, source=compiled.source)
            except DoesNotFitError:
                continue
            programs.append(_describe(program, file))
    return pareto_front(programs)


def _describe(
    compiled: Compilation, file: str, *, is_current: bool = False
) -> ParetoProgram:
    options = compiled.options
    words = ["--optimize", options.optimize]
    if options.ram_bytes is not None:
        words += ["--ram", str(options.ram_bytes)]
    command = ["firmwright", "compile", Path(file).name, "--board", options.board]
    return ParetoProgram(
        options=shlex.join(words),
        command=shlex.join([*command, *words]),
        workspace_bytes=compiled.summary.workspace_bytes,
        flash_bytes=predict_model_flash(compiled.module),
        instructions=sum(predict_lowered(compiled.module).values()),
        is_current=is_current,
    )


def predict_model_flash(module: IRModule) -> int:
    """Predict the bytes of kernels and constants, each once."""
    intrinsics = collect_intrinsics(module, INTRINSICS)
    code: dict[str, int] = {}
    constants: dict[tuple[str, str], int] = {}
    main = module.aot_main
    bodies = [main.body]
    for kernel in map(module.kernel, callees(main.body)):
        bodies.append(kernel.body)
        target = module.targets.get(str(kernel.attrs.get("target", "")))
        cost = estimate_cost(kernel, intrinsics, cost_weights_for(target))
        code[kernel.code] = cost.code_bytes
    for body in bodies:
        for name in used_constants(body):
            constant = module.constants[name]
            key = (constant.dtype.name, constant.digest)
            constants[key] = constant.size_bytes
    return sum(code.values()) + sum(constants.values())
