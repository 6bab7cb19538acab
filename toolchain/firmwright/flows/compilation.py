"""From a model to a compilation: options given or remembered, then the pipeline.

In: a `Model` and the options that the user named. Out: a `Compilation`. Invariant: a module that
was saved in the middle of a compilation keeps the options it was started with; naming another value
for one of those is an error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from firmwright.base.errors import InternalError, ModelError, UsageError
from firmwright.boards import load_board
from firmwright.flows.model import Model
from firmwright.flows.tuning_log import read_tuning
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IRModule
from firmwright.ir.tir.verify import verify_module
from firmwright.ir.tuning_records import NO_TUNING_RECORDS, TuningRecords
from firmwright.ops.registry import op_table
from firmwright.partitioning.backend_libraries import collect_intrinsics
from firmwright.partitioning.target_passes import PassTimer
from firmwright.partitioning.target_resolution import format_targets, is_backend
from firmwright.pipeline import (
    Compilation,
    Options,
    compile_model,
    configure_module,
    remaining_passes,
)
from firmwright.schedules.registry import INTRINSICS

log = logging.getLogger(__name__)
PassObserver = Callable[[str, IRModule], None]
IMPORT_STAGE = "import"
"""The name by which `show --after` knows the module before any pass."""
MODULE_OPTIONS = (
    "board",
    "numerics",
    "optimize",
    "planner",
    "link_params",
    "ram_bytes",
    "flash_bytes",
    "recompute",
    "devices",
    "fallback",
    "device_assignments",
)
"""The options that a module carries as attributes."""


def compile_for(
    model: Model | IRModule,
    board: str = "",
    *,
    watch: PassObserver | None = None,
    stopwatch: PassTimer | None = None,
    **given: Any,
) -> Compilation:
    """Compile `model` for `board` (default: host); `given` are fields of `Options` by name.

    `tuning` may be the path of a log.
    Raises UsageError, UnsupportedError, DoesNotFitError.
    """
    if isinstance(model, IRModule):
        model = Model(model)
    if isinstance(given.get("tuning"), str | Path):
        given["tuning"] = read_tuning(given["tuning"])
    options = options_for(model.module, {**given, **({"board": board} if board else {})})
    log.info("compiling %s for %s", model.name, options.board)
    return compile_model(
        model.module, options, source=model.source, watch=watch, stopwatch=stopwatch
    )


def options_for(module: IRModule, given: Mapping[str, Any]) -> Options:
    """The options of a compilation that goes on from `module`."""
    known = {field.name for field in fields(Options)}
    unknown = sorted(set(given) - known)
    if unknown:
        raise UsageError(
            f"there is no option {unknown[0]!r}.", hint=f"one of {', '.join(sorted(known))}."
        )
    if "stage" in module.attrs:
        return _options_of_started_module(module, given)
    return Options(**{**_options_in_text(module, given), **given})


def _options_in_text(module: IRModule, given: Mapping[str, Any]) -> dict[str, Any]:
    """What the text of a module that no pass has seen asks for; anything may be overruled.

    Its core and pools are a board's, so they do not outlive a change of the board.
    """
    attrs = module.attrs
    found: dict[str, Any] = {name: attrs[name] for name in MODULE_OPTIONS if name in attrs}
    found |= _io_options(module)
    board = given.get("board", attrs.get("board"))
    is_same = board == attrs.get("board", board)
    targets = [target for target in module.targets.values() if is_same or is_backend(target)]
    if targets:
        found["target"] = format_targets(targets)
    if not is_same:
        return found
    if module.pools and ("board" in attrs or board in (None, "host")):
        found["pools"] = tuple(pool for pool in module.pools if pool.access == "rw")
        found["const_pools"] = tuple(pool for pool in module.pools if pool.access == "ro")
    return found


def _io_options(module: IRModule) -> dict[str, Any]:
    io = module.io
    return {
        "io_buffers": io.mode,
        "preserve_input": io.preserve_input,
        "stream_input_rows": io.stream_input_rows,
    }


def _options_of_started_module(module: IRModule, given: Mapping[str, Any]) -> Options:
    """What a module in the middle of a compilation was started with, which must not change."""
    attrs = module.attrs
    kept: dict[str, Any] = {name: attrs[name] for name in MODULE_OPTIONS if name in attrs}
    kept |= _io_options(module)
    for name, value in given.items():
        if name in kept and kept[name] != value:
            raise UsageError(
                f"the module went through {attrs['stage']} with {name} {kept[name]}, "
                f"which cannot become {value}.",
                where=module.name,
                hint=f"leave {name} out, or start from the model file.",
            )
    _check_tuning(module, given.get("tuning", NO_TUNING_RECORDS))
    return Options(**{**given, **kept})


def _check_tuning(module: IRModule, given: TuningRecords) -> None:
    """A module that is not lowered yet needs the measurements that it was started with."""
    if isinstance(module.entry, Function) and module.attrs.get("tuning", "") != given.digest:
        begun = "with" if "tuning" in module.attrs else "without"
        raise UsageError(
            f"the module went through {module.attrs['stage']} {begun} a tuning log, and goes on "
            "with another or none.",
            where=module.name,
            hint="the same --tuning, or start from the model file.",
        )


def module_after(model: Model, stage: str, options: Options) -> IRModule:
    """The module as it is after the pass `stage` ("import": before all), for reading or saving."""
    board = load_board(options.board, options.board_dirs)
    module = configure_module(model.module, board, options)
    steps = remaining_passes(module, options)
    names = [step.name for step in steps]
    if stage == IMPORT_STAGE:
        return module
    if stage not in names:
        raise UsageError(
            f"no pass {stage!r} is left to run.",
            where=model.file or module.name,
            hint=f"one of {', '.join([IMPORT_STAGE, *names])}.",
        )
    for step in steps[: names.index(stage) + 1]:
        module = step(module).with_attrs(stage=step.name)
    return module


def pass_names(module: IRModule, options: Options) -> tuple[str, ...]:
    """The passes that a compilation of `module` runs, in order."""
    board = load_board(options.board, options.board_dirs)
    return tuple(
        step.name for step in remaining_passes(configure_module(module, board, options), options)
    )


def verify_after_pass(name: str, module: IRModule) -> None:
    """A `PassObserver` that checks the module after every pass: what a pass breaks is our bug."""
    try:
        verify_module(module, op_table(), collect_intrinsics(module, INTRINSICS))
    except ModelError as error:
        raise InternalError(f"pass {name} broke the module: {error}") from error
