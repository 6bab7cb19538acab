"""Application of board pools, target and options to a module."""

from dataclasses import replace
from typing import Literal

from firmwright.base.errors import UsageError
from firmwright.base.version import VERSION
from firmwright.boards import Board
from firmwright.build.compiler_flags import format_tuning_flags
from firmwright.codegen.emit_options import EmitOptions
from firmwright.ir.core import Attr, PoolInfo
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IoBinding, IRModule
from firmwright.partitioning.device_requests import apply_device_requests
from firmwright.partitioning.target_resolution import check_targets, resolve_targets
from firmwright.passes.graph.assign_pools import assign_tensor_pools
from firmwright.pipeline.options import Options, check_options
from firmwright.usmp.cache_constants import SPARE_PERCENT_MAX
from firmwright.usmp.pool_options import resolve_pools, with_program_memory_speed

_FLAGS = ("recompute", "compress_weights", "pipeline_runs", "weight_independent")


def make_emit_options(board: Board, options: Options) -> EmitOptions:
    """Return the options of the generated C; raise UsageError if one is invalid."""
    return EmitOptions(
        tool_version=VERSION,
        inline_asm=options.inline_asm,
        emit_step_api=options.emit_step_api,
        emit_probe_callback=options.emit_probe_callback,
        emit_descriptor=options.emit_descriptor,
        tvm_api=options.c_api == "tvm",
        notes=format_tuning_flags(board),
        c_standard=options.c_standard,
        sections=options.sections,
        license=options.license,
        constants_in_header=options.constants_in_header,
    )


def configure_module(model: IRModule, board: Board, options: Options) -> IRModule:
    """Return `model` with pools, target and options set; unchanged with the attribute `stage`."""
    if "stage" in model.attrs:
        return model
    check_options(options)
    make_emit_options(board, options)  # only to check them early
    targets = resolve_targets(board, options.target)
    pools = resolve_pools(board, options, tuple(targets))
    module = replace(
        model, name=options.name or model.name, targets=targets, pools=pools, io=_io(model, options)
    )
    module = module.with_attrs(**_attributes(model, pools, board, options))
    check_targets(module, board)
    module = apply_device_requests(
        module, board, options.devices, options.device_assignments, fallback=options.fallback
    )
    return assign_tensor_pools(
        with_program_memory_speed(module, board, options), options.pool_assignments
    )


def _attributes(
    model: IRModule, pools: tuple[PoolInfo, ...], board: Board, options: Options
) -> dict[str, Attr]:
    """Return the attributes of a module that hold options and facts of the board."""
    attrs: dict[str, Attr] = {
        "numerics": _numerics(model, options),
        "optimize": options.goal,
        "planner": options.planner,
        "link_params": options.link_params,
        "board": board.name,
    }
    if options.ram_bytes is not None:
        attrs["ram_bytes"] = options.ram_bytes
    if options.flash_bytes is not None:
        attrs["flash_bytes"] = options.flash_bytes
    attrs |= _flash_attrs(replace(model, pools=pools), board, options)
    if options.offload:
        attrs["offload"] = options.offload
    for flag in _FLAGS:
        if getattr(options, flag):
            attrs[flag] = True
    if options.tuning.layers:
        attrs["tuning"] = options.tuning.digest
    return attrs


def _numerics(model: IRModule, options: Options) -> str:
    """Return the profile: that of the option, but `onnx` for ONNX models and PyTorch programs."""
    if model.attrs.get("numerics") != "onnx":
        if options.numerics == "onnx":
            what = "--numerics onnx applies to ONNX models and PyTorch programs only."
            raise UsageError(what, hint="use litert or tflm.")
        return options.numerics
    if options.numerics not in ("litert", "onnx"):
        what = f"--numerics {options.numerics} does not apply to this model."
        raise UsageError(what, hint="leave it out: ONNX Runtime or PyTorch defines the results.")
    return "onnx"


def _flash_attrs(model: IRModule, board: Board, options: Options) -> dict[str, int | float]:
    """Return the attributes for flash with wait states: functions in RAM, short loops, stalls.

    Short loops suit a small cache. Constants do not stall that `cache_constants` copies to RAM.
    """
    wait_states = 0 if board.is_host else board.flash.wait_states or 0
    if not wait_states:
        return {}
    attrs: dict[str, int | float] = {}
    is_fast, flash = options.optimize == "speed", board.flash
    if is_fast and board.ramfunc:
        attrs["ramfunc_bytes"] = board.ramfunc.size_bytes
    elif flash.has_small_cache:
        attrs["short_loops"] = True
    pools = (p for p in model.pools if p.access == "rw" and options.ram_bytes is None)
    room = sum(pool.size_bytes or 0 for pool in pools)
    constants = sum(constant.size_bytes for constant in model.constants.values())
    if flash.has_small_cache and not (is_fast and constants <= room * SPARE_PERCENT_MAX // 100):
        attrs["flash_stalls"] = wait_states / flash.read_bytes
    return attrs


def _io(model: IRModule, options: Options) -> IoBinding:
    mode: Literal["arena", "caller"] = "caller" if options.io_buffers == "caller" else "arena"
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
                f"--stream-input-rows: the input {list(shape)} has one row; rows are on the axis "
                "after that of samples.",
                hint="compile without it, or export the model with the channels last.",
            )
    return IoBinding(mode, options.preserve_input, stream_input_rows=options.stream_input_rows)
