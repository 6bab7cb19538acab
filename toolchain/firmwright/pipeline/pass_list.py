"""The passes of a compilation in the order of `ir/pass_catalog.txt`."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from firmwright.base.errors import PluginError, UsageError
from firmwright.boards import load_board
from firmwright.choose.call_order import reorder_calls
from firmwright.choose.kernel_selection import KernelSelector
from firmwright.choose.program_replay import replay_selection
from firmwright.ir import tir
from firmwright.ir.graph.devices import CYCLES_ATTR
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IRModule, Pass
from firmwright.ir.pass_catalog import PASS_NAMES
from firmwright.ir.tir.verify import diagnose_prim_func
from firmwright.lower.equal_layers import EqualLayers
from firmwright.lower.lowering import Lowering
from firmwright.lower.subgraphs import lower_subgraphs
from firmwright.ops.registry import op_table
from firmwright.partitioning.backend_libraries import collect_intrinsics
from firmwright.partitioning.byoc import partition_module
from firmwright.partitioning.engine_split import (
    insert_tile_transfers,
    split_over_engines,
)
from firmwright.partitioning.per_target_passes import (
    PassTimer,
    make_per_target_pass,
    run_phase,
)
from firmwright.partitioning.plan_devices import plan_devices
from firmwright.partitioning.run_pipelining import pipeline_runs
from firmwright.partitioning.target_hooks import check_lowered, run_hook
from firmwright.partitioning.target_resolution import target_of
from firmwright.passes import BY_NAME
from firmwright.passes.graph.copy_elision import mark_copies_as_views
from firmwright.passes.graph.fold_constant_channels import fold_if_not_slower
from firmwright.passes.graph.multi_core_split import split_over_cores
from firmwright.passes.graph.rematerialize import rematerialize
from firmwright.passes.tir import dce
from firmwright.passes.tir.assign_ramfuncs import assign_ramfuncs
from firmwright.passes.tir.column_sums import record_products
from firmwright.passes.tir.harden import harden
from firmwright.passes.tir.outline_common_kernels import outline_common_kernels
from firmwright.pipeline.bounded_selection import select_bounded
from firmwright.pipeline.checked_requests import with_checked_requests
from firmwright.pipeline.options import Options
from firmwright.pipeline.program_update import check_kernels
from firmwright.pipeline.selection_oracle import (
    SelectionMemo,
    kernel_cost_estimator,
    make_lowering,
    make_selection_oracle,
)
from firmwright.pipeline.user_passes import (
    IMPORT_STAGE,
    insert_user_passes,
    without_applied,
)
from firmwright.schedules.registry import INTRINSICS
from firmwright.targets.registry import features_of_known
from firmwright.targets.target_kind import BACKEND_METHODS, HookName
from firmwright.usmp.cache_constants import copy_constants_to_ram
from firmwright.usmp.compress_weights import compress_weights
from firmwright.usmp.memory_planning import plan_memory

SELECTION_PASS = "lower-select"
"""The pass that chooses kernels and segments."""

_VECTOR_FEATURES = frozenset({"mve", "rvv"})
"""The features of cores with vector instructions."""


def passes_for(
    options: Options,
    watch: PassTimer | None = None,
    memo: SelectionMemo | None = None,
    resized: Mapping[int, IRModule] = MappingProxyType({}),
) -> tuple[Pass, ...]:
    """Return all passes in order; `watch` records the time per pass and target.

    `resized` are the configured modules of the sizes of a bounded axis.
    """
    timer = watch or PassTimer()
    passes = {**BY_NAME, **_built_passes(options, timer, memo, resized)}
    if options.update_of is not None and not options.update_of.has_removed_channels:
        del passes["fold-constant-channels"]
    has_core_targets = any("=" in device for device in options.devices)
    if options.link_params and not has_core_targets:
        del passes["externalize-constants"]
    names = tuple(name for name in PASS_NAMES if name in passes)
    steps = [make_per_target_pass(passes[n], names, timer) for n in names]
    return tuple(map(with_checked_requests, insert_user_passes(steps, options.passes)))


def _built_passes(
    options: Options,
    timer: PassTimer,
    memo: SelectionMemo | None,
    resized: Mapping[int, IRModule],
) -> dict[str, Pass]:
    """Return the passes that need more input than the module, by name."""
    table = op_table()
    predict = partial(_predict_cycles, options=options)
    find_board = partial(load_board, options.board, options.board_dirs)
    steps: dict[str, Callable[[IRModule], IRModule]] = {
        "partition": lambda module: partition_module(module, timer),
        "reorder-calls": lambda module: reorder_calls(module, table),
        "rematerialize": lambda module: rematerialize(module, table),
        "pipeline-runs": lambda module: pipeline_runs(module, predict),
        "engine-split": lambda module: split_over_engines(
            module, table, predict, find_board
        ),
        "multi-core-split": lambda module: split_over_cores(module, table, predict),
        "tile-transfers": lambda module: insert_tile_transfers(module, table),
        "plan-devices": lambda module: plan_devices(module, table),
        "elide-copies": lambda module: mark_copies_as_views(module, table),
        "relay-to-runtime": lambda module: _make_kernels(module, "relay_to_runtime"),
        "relay-to-tir": lambda module: _make_kernels(module, "relay_to_tir"),
        "plan-scopes": lambda module: plan_devices(module, table),
        SELECTION_PASS: lambda module: _with_products(
            module, _lower_and_select(module, options, memo, resized)
        ),
        "harden": lambda module: harden(module, collect_intrinsics(module, INTRINSICS)),
        "compress-weights": lambda module: compress_weights(
            module, kernel_cost_estimator(module)
        ),
        "after-scheduling": lambda module: run_phase(module, "after_scheduling", timer),
        "cache-constants-in-ram": lambda module: copy_constants_to_ram(
            module, options.planner
        ),
        "usmp": lambda module: plan_memory(module, options.planner),
        "after-planning": lambda module: run_phase(module, "after_planning", timer),
        "outline-common-kernels": lambda module: outline_common_kernels(
            module,
            collect_intrinsics(module, INTRINSICS),
            kernel_cost_estimator(module),
        ),
        "assign-ramfuncs": lambda module: assign_ramfuncs(
            module, kernel_cost_estimator(module)
        ),
        "tir-to-runtime": lambda module: run_hook(module, "tir_to_runtime"),
        "final-dce": dce.run,
    }
    if options.update_of is None:
        steps["fold-constant-channels"] = lambda module: fold_if_not_slower(
            module, partial(_predict_layers, options=options)
        )
    return {name: Pass(name, run) for name, run in steps.items()}


def _make_kernels(module: IRModule, hook: HookName) -> IRModule:
    """Run a hook and verify its kernels."""
    after = run_hook(module, hook)
    intrinsics = collect_intrinsics(after, INTRINSICS)
    for name, function in after.functions.items():
        is_new = function is not module.functions.get(name)
        if not is_new or not isinstance(function, tir.PrimFunc):
            continue
        problems = diagnose_prim_func(function, after, intrinsics)
        if problems:
            label = f"`{BACKEND_METHODS[hook]}` of target {target_of(function)}"
            what = f"{label} made an invalid kernel: {'; '.join(problems)}."
            raise PluginError(what, where=module.name)
    return after


def remaining_passes(
    module: IRModule,
    options: Options,
    watch: PassTimer | None = None,
    memo: SelectionMemo | None = None,
    resized: Mapping[int, IRModule] = MappingProxyType({}),
) -> tuple[Pass, ...]:
    """Return the passes after the one in the module's result `stage`, or all passes."""
    steps = passes_for(options, watch, memo, resized)
    done = module.results.stage
    names = [step.name for step in steps]
    first = names.index(str(done)) + 1 if done in names else 0
    remaining = without_applied(module, steps[first:])
    with_place = [step for step in steps if step.after]
    for step in without_applied(module, with_place):
        if step not in remaining:
            what = f"the pass {step.name} follows {step.after}"
            what += f", but the module is at {done}."
            raise UsageError(what, where=module.name, hint="start from the model file.")
    return remaining


def run_imported(module: IRModule, options: Options) -> IRModule:
    """Run the user's passes that precede the pipeline."""
    for step in remaining_passes(module, options):
        module = step(module) if step.after == IMPORT_STAGE else module
    return module


def _lower_and_select(
    module: IRModule,
    options: Options,
    memo: SelectionMemo | None,
    resized: Mapping[int, IRModule],
) -> IRModule:
    if not isinstance(module.entry, Function):
        return check_lowered(module)
    if module.settings.axis is not None:
        return _select_for_axis(module, options, memo, resized)
    lowering, module = lower_for_selection(module, options, memo)
    record = options.update_of
    if record is not None:
        selected = replay_selection(module, lowering.calls(), lowering.rows, record)
        check_kernels(module, selected, lowering, record)
        return selected
    features = features_of_known(module.targets.values())
    oracle = make_selection_oracle(options, memo)
    oracle = replace(oracle, has_vectors=not features.isdisjoint(_VECTOR_FEATURES))
    equal = EqualLayers()
    if not (lowering.tuning.layers or module.requests):
        sharing = replace(lowering, equal_layers=equal)
        candidates = sharing.calls()
        selected = KernelSelector(module, candidates, lowering.rows, oracle).select()
        complete = equal.with_own_kernels(selected, lowering.maker)
        if complete is not None:
            return complete
    return KernelSelector(module, lowering.calls(), lowering.rows, oracle).select()


def _with_products(graph: IRModule, selected: IRModule) -> IRModule:
    return record_products(graph, selected) if graph.settings.harden else selected


def _select_for_axis(
    module: IRModule,
    options: Options,
    memo: SelectionMemo | None,
    resized: Mapping[int, IRModule],
) -> IRModule:
    axis = module.settings.axis
    if axis is None or not resized:
        what = f"the text of the module has one size of the axis {axis}, not all."
        raise UsageError(what, where=module.name, hint="start from the model file.")
    _, module = lower_for_selection(module, options, memo)
    oracle = make_selection_oracle(options, memo)
    graphs = {axis.most: module}
    for size in axis.sizes[:-1]:
        graph = resized[size]
        for step in passes_for(options):
            if step.name == SELECTION_PASS:
                break
            if step.name != "reorder-calls":
                graph = step(graph)
        graphs[size] = graph
    return select_bounded(
        axis,
        graphs,
        lambda module: make_lowering(module, options, None, memo),
        lambda module, calls: KernelSelector(module, calls, _no_rows, oracle).select(),
    )


def _no_rows(index: int, band: int = 1) -> None:
    """Return no kernels that compute a call by rows."""


def _predict_cycles(module: IRModule, options: Options) -> list[int]:
    """Return the predicted cycles of each call of the entry."""
    for hook in ("relay_to_runtime", "relay_to_tir"):
        module = _make_kernels(module, hook)
    estimate = kernel_cost_estimator(module)
    cycles = []
    for call, candidates in make_lowering(module, options).calls():
        kernel = module.callee(call.op)
        if isinstance(kernel, tir.PrimFunc):
            declared = kernel.attrs.get(CYCLES_ATTR)
            cost = estimate(kernel, {})
            cycles.append(int(str(declared)) if declared is not None else cost.time)
        else:
            cycles.append(candidates[0].time if candidates else 0)
    return cycles


def _predict_layers(module: IRModule, options: Options) -> int:
    """Return the predicted time of the entry's calls that have several kernels."""
    lowered = make_lowering(module, options).calls()
    return sum(item.candidates[0].time for item in lowered if item.candidates)


def lower_for_selection(
    module: IRModule, options: Options, memo: SelectionMemo | None = None
) -> tuple[Lowering, IRModule]:
    module = check_lowered(module)
    record = options.update_of
    module = lower_subgraphs(
        module, lambda part: make_lowering(part, options, record, memo)
    )
    return make_lowering(module, options, record, memo), module
