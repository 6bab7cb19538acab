"""Compiles a model with the options recorded in its module and those of the user."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Unpack

from firmwright.base.errors import InternalError, ModelError, UsageError
from firmwright.boards import load_board
from firmwright.flows.model.earlier_program import options_of_program, read_program
from firmwright.flows.model.given_options import (
    GivenOptions,
    OptionValues,
    make_options,
    to_option_values,
)
from firmwright.flows.model.model import Model
from firmwright.ir.core import Target
from firmwright.ir.graph.devices import is_core_target
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IRModule
from firmwright.ir.requests import RequestOrigin
from firmwright.ir.settings import Objective, Settings
from firmwright.ir.tir.verify import verify_module
from firmwright.ops.registry import op_table
from firmwright.ops.tuning_records import TuningRecords
from firmwright.partitioning.backend_libraries import collect_intrinsics
from firmwright.partitioning.device_targets import join_targets
from firmwright.partitioning.per_target_passes import PassTimer
from firmwright.partitioning.target_resolution import (
    extend_targets,
    format_targets,
    is_backend,
)
from firmwright.pipeline import (
    Compilation,
    Options,
    compile_model,
    configure_module,
    remaining_passes,
)
from firmwright.pipeline.options import OPTIMIZE_GOALS
from firmwright.pipeline.user_passes import IMPORT_STAGE as IMPORT_STAGE
from firmwright.schedules.registry import INTRINSICS

log = logging.getLogger(__name__)
PassObserver = Callable[[str, IRModule], None]
_ALWAYS_RECORDED = ("board", "numerics", "optimize", "planner", "link_params")
"""Options that every configured module has in its text."""


def compile_for(
    model: Model | IRModule,
    board: str = "",
    *,
    watch: PassObserver | None = None,
    stopwatch: PassTimer | None = None,
    **given: Unpack[GivenOptions],
) -> Compilation:
    """Compile `model` for `board`, by default the host.

    `given` are fields of `Options`. `tuning` may also be a log's path, `passes`
    functions or names, and `update_of` the path of an earlier project or package. Raise
    UsageError, UnsupportedError, DoesNotFitError, or MismatchError if new weights do
    not suit the earlier code.
    """
    if isinstance(model, IRModule):
        model = Model(model)
    values = to_option_values(given)
    earlier = values.get("update_of")
    if isinstance(earlier, str | Path):
        del values["update_of"]
        values = {**options_of_program(read_program(earlier), earlier), **values}
    if board:
        values["board"] = board
    options = options_for(model.module, values)
    log.info("compiling %s for %s", model.name, options.board)
    return compile_model(
        model.module,
        options,
        source=model.source,
        watch=watch,
        stopwatch=stopwatch,
        resized=model.resized,
    )


def options_for(module: IRModule, given: OptionValues) -> Options:
    """Return the options that the module records, with those of the user instead."""
    names = {field.name for field in fields(Options)}
    unknown = sorted(set(given) - names)
    if unknown:
        hint = f"use one of {', '.join(sorted(names))}."
        raise UsageError(f"there is no option {unknown[0]!r}.", hint=hint)
    if module.is_started:
        return _options_of_started_module(module, given)
    recorded = _options_in_text(module, given)
    values: OptionValues = {**recorded, **given}
    if module.results.partitioned is not None and "target" in recorded:
        # The recorded target includes the user's, which is in addition to the module's.
        values["target"] = recorded["target"]
    return make_options(values)


def _options_in_text(module: IRModule, given: OptionValues) -> OptionValues:
    """Return the recorded options; core and pools apply to the recorded board only."""
    options, recorded_board = _recorded_options(module), module.settings.board
    board = given.get("board", recorded_board)
    is_same = not recorded_board or board == recorded_board
    targets: list[Target] = []
    for name, target in module.targets.items():
        if not is_core_target(name) and (is_same or is_backend(target)):
            targets.append(target)
    if module.results.partitioned is not None and given.get("target"):
        table: dict[str, Target] = {}
        for name, target in module.targets.items():
            if target in targets:
                table[name] = target
        targets = list(extend_targets(table, given["target"]).values())
    if targets:
        options["target"] = format_targets(targets)
    if not is_same:
        return options
    if module.pools and (recorded_board or board in ("", "host")):
        pools = module.pools
        options["pools"] = tuple(pool for pool in pools if pool.access == "rw")
        options["const_pools"] = tuple(pool for pool in pools if pool.access == "ro")
    return options


def _recorded_options(module: IRModule) -> OptionValues:
    """Return the options in the module's settings, its interface and its requests."""
    return {
        **_recorded_settings(module.settings),
        **_recorded_devices(module),
        "io_buffers": module.io.mode,
        "preserve_input": module.io.preserve_input,
        **_recorded_placements(module),
        "stream_input_rows": module.io.stream_input_rows,
    }


def _recorded_settings(settings: Settings) -> OptionValues:
    """Return the options that made the settings; those that differ without a board."""
    objective, defaults = settings.objective, Options()
    options: OptionValues = {
        "board": settings.board or defaults.board,
        "numerics": settings.profile,
        "optimize": objective.minimize.value,
        "planner": settings.planner or defaults.planner,
        "link_params": settings.link_params,
        "ram_bytes": objective.ram_bytes,
        "flash_bytes": objective.flash_bytes,
        "recompute": settings.recompute,
        "compress_weights": objective.has_coded_weights,
        "pipeline_runs": settings.pipeline_runs,
        "weight_independent": settings.weight_independent,
        "no_nan": settings.no_nan,
        "harden": settings.harden,
        "constant_channels": not settings.all_channels,
        "fallback": settings.devices.has_fallback,
    }
    always = _ALWAYS_RECORDED if settings.board else ()
    recorded: dict[str, object] = {}
    for name, value in options.items():
        if name in always or value != getattr(defaults, name):
            recorded[name] = value
    return to_option_values(recorded)


def _recorded_devices(module: IRModule) -> OptionValues:
    """Return the option of the devices, with the targets of cores, unless empty."""
    devices = join_targets(module)
    return {"devices": devices} if devices else {}


def _recorded_placements(module: IRModule) -> OptionValues:
    """Return the options from which the module's requests were recorded."""
    devices: list[tuple[str, str, str]] = []
    pools: list[tuple[str, str]] = []
    for request in module.requests:
        if request.named:
            continue
        match request.origin:
            case RequestOrigin.DEVICE_OPTION:
                devices.append((request.tensor, request.device, request.pool))
            case RequestOrigin.POOL_OPTION:
                pools.append((request.tensor, request.pool))
    # The options of a partly compiled module are complete: without requests, none can
    # be added.
    options: OptionValues = {}
    if devices or module.is_started:
        options["device_assignments"] = tuple(devices)
    if pools or module.is_started:
        options["pool_assignments"] = tuple(pools)
    return options


def _options_of_started_module(module: IRModule, given: OptionValues) -> Options:
    """Return a partly compiled module's options; UsageError if the user changes one."""
    recorded = _recorded_options(module)
    recorded_values = dict(recorded.items())
    for name, value in given.items():
        if name == "optimize":
            objective = module.settings.objective
            if _means_objective(given["optimize"], recorded, objective):
                continue
        if name in recorded_values and recorded_values[name] != value:
            raise UsageError(
                f"the module was compiled up to {module.results.stage} with {name} "
                f"{recorded_values[name]}, which cannot be changed to {value}.",
                where=module.name,
                hint=f"omit {name}, or start from the model file.",
            )
    options = make_options({**given, **recorded})
    _check_tuning(module, options.tuning)
    return options


def _means_objective(goal: str, recorded: OptionValues, objective: Objective) -> bool:
    """Return whether `--optimize goal` with recorded budgets means the objective."""
    if goal not in OPTIMIZE_GOALS:
        return False
    return make_options({**recorded, "optimize": goal}).objective == objective


def _check_tuning(module: IRModule, given: TuningRecords) -> None:
    """Check that a module is resumed with its tuning log unless it is lowered."""
    if isinstance(module.entry, Function) and module.settings.tuning != given.digest:
        usage = "with" if module.settings.tuning else "without"
        raise UsageError(
            f"the module was compiled up to {module.results.stage} {usage} a tuning "
            "log; the log cannot be changed now.",
            where=module.name,
            hint="give the same --tuning, or start from the model file.",
        )


def module_after(model: Model, stage: str, options: Options) -> IRModule:
    """Return the module after the pass `stage`, or before all passes for "import"."""
    board = load_board(options.board, options.board_dirs)
    module = configure_module(model.module, board, options)
    if stage == IMPORT_STAGE:
        return module
    resized: dict[int, IRModule] = {}
    for size, sized in model.resized.items():
        resized[size] = configure_module(sized.module, board, options)
    steps = remaining_passes(module, options, resized=resized)
    names = [step.name for step in steps]
    if stage not in names:
        what = f"no pass {stage!r} remains to be run."
        hint = f"use one of {', '.join([IMPORT_STAGE, *names])}."
        raise UsageError(what, where=model.file or module.name, hint=hint)
    for step in steps[: names.index(stage) + 1]:
        module = step(module).with_stage(step.stage)
    return module


def pass_names(module: IRModule, options: Options) -> tuple[str, ...]:
    board = load_board(options.board, options.board_dirs)
    module = configure_module(module, board, options)
    return tuple(step.name for step in remaining_passes(module, options))


def verify_after_pass(name: str, module: IRModule) -> None:
    try:
        verify_module(module, op_table(), collect_intrinsics(module, INTRINSICS))
    except ModelError as error:
        raise InternalError(f"pass {name} broke the module: {error}") from error
