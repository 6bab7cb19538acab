"""Application of board pools, target and options to a module."""

from dataclasses import replace
from typing import Literal

from firmwright.base.errors import UsageError
from firmwright.base.version import VERSION
from firmwright.boards import Board
from firmwright.build.compiler_flags import format_tuning_flags
from firmwright.codegen.emit_options import EmitOptions
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IoBinding, IRModule
from firmwright.ir.settings import FlashTiming, Minimize, Settings
from firmwright.partitioning.device_requests import apply_device_requests
from firmwright.partitioning.device_targets import core_flags
from firmwright.partitioning.target_resolution import check_targets, resolve_targets
from firmwright.passes.graph.assign_pools import assign_tensor_pools
from firmwright.pipeline.numerics_profile import choose_profile
from firmwright.pipeline.options import Options, check_options
from firmwright.usmp.cache_constants import SPARE_PERCENT_MAX
from firmwright.usmp.pool_options import resolve_pools, with_program_memory_speed


def make_emit_options(
    board: Board, options: Options, module: IRModule | None = None
) -> EmitOptions:
    """Return the options of the generated C; raise UsageError if one is invalid.

    Flags of cores are those of the targets in `module`.
    """
    return EmitOptions(
        tool_version=VERSION,
        inline_asm=options.inline_asm,
        emit_step_api=options.emit_step_api,
        emit_probe_callback=options.emit_probe_callback,
        emit_descriptor=options.emit_descriptor,
        tvm_api=options.c_api == "tvm",
        notes=format_tuning_flags(board),
        core_flags=() if module is None else core_flags(module, board),
        c_standard=options.c_standard,
        sections=options.sections,
        license=options.license,
        constants_in_header=options.constants_in_header,
        analysis_hints=options.analysis_hints,
    )


def configure_module(model: IRModule, board: Board, options: Options) -> IRModule:
    """Return `model` with pools, target and options; unchanged once a pass has run."""
    if model.is_started:
        return model
    check_options(options)
    make_emit_options(board, options)  # only to check them early
    targets = resolve_targets(board, options.target)
    pools = resolve_pools(board, options, tuple(targets))
    module = replace(
        model,
        name=options.name or model.name,
        targets=targets,
        pools=pools,
        io=_io(model, options),
    )
    module = replace(module, settings=_settings(module, board, options))
    check_targets(module, board)
    module = apply_device_requests(
        module,
        board,
        options.devices,
        options.device_assignments,
        fallback=options.fallback,
    )
    return assign_tensor_pools(
        with_program_memory_speed(module, board, options), options.pool_assignments
    )


def _settings(model: IRModule, board: Board, options: Options) -> Settings:
    """Return the settings of a module that already has its pools."""
    return replace(
        model.settings,
        numerics=choose_profile(model, options.numerics),
        objective=options.objective,
        flash=_flash_timing(model, board, options),
        board=board.name,
        planner=options.planner,
        tuning=options.tuning.digest if options.tuning.layers else "",
        link_params=options.link_params,
        recompute=options.recompute,
        pipeline_runs=options.pipeline_runs,
        weight_independent=options.weight_independent,
        no_nan=options.no_nan,
        all_channels=not options.constant_channels,
        harden=options.harden,
        offload=options.offload or model.settings.offload,
    )


def _flash_timing(model: IRModule, board: Board, options: Options) -> FlashTiming:
    """Return what flash wait states require: functions in RAM, short loops, stalls.

    Short loops suit a small cache. Constants do not stall that `cache_constants` copies
    to RAM.
    """
    if board.is_host or not board.flash.wait_states:
        return FlashTiming()
    flash, wait_states = board.flash, board.flash.wait_states
    is_fast = options.objective.minimize is Minimize.SPEED
    runs_from_ram = is_fast and board.ramfunc is not None
    has_budget = options.ram_bytes is not None
    room = 0
    for pool in model.pools:
        if pool.access == "rw" and not has_budget:
            room += pool.size_bytes or 0
    constants = sum(constant.size_bytes for constant in model.constants.values())
    are_copied = is_fast and constants <= room * SPARE_PERCENT_MAX // 100
    stalls = flash.has_small_cache and not are_copied
    return FlashTiming(
        ramfunc_bytes=board.ramfunc.size_bytes if is_fast and board.ramfunc else 0,
        has_short_loops=flash.has_small_cache and not runs_from_ram,
        stalls_per_byte=wait_states / flash.read_bytes if stalls else 0.0,
    )


def _io(model: IRModule, options: Options) -> IoBinding:
    mode: Literal["arena", "caller"] = (
        "caller" if options.io_buffers == "caller" else "arena"
    )
    entry = model.entry
    if options.stream_input_rows and isinstance(entry, Function):
        if len(entry.params) != 1:
            raise UsageError(
                "--stream-input-rows requires a model with one input; "
                f"{model.name} has {len(entry.params)}."
            )
        shape = entry.params[0].type.shape
        if shape[1:2] == (1,):
            raise UsageError(
                f"--stream-input-rows: the input {list(shape)} has one row; rows are "
                "on the axis after that of samples.",
                hint="compile without it, or export the model with the channels last.",
            )
    return IoBinding(
        mode, options.preserve_input, stream_input_rows=options.stream_input_rows
    )
