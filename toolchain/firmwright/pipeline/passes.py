"""Every pass, in order.

In: options. Out: the passes of a compilation, or those that a module has not been through.
"""

from __future__ import annotations

from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IRModule, Pass
from firmwright.lower.branches import lower_branches
from firmwright.ops.registry import op_table
from firmwright.partitioning.assign import assign
from firmwright.partitioning.hooks import check_lowered, run_hook
from firmwright.partitioning.libraries import intrinsics_of
from firmwright.partitioning.phases import Stopwatch, for_targets, run_phase
from firmwright.partitioning.plan_devices import plan_devices
from firmwright.partitioning.tile_transfers import tile_transfers
from firmwright.passes import graph as graph_passes
from firmwright.passes import tir as tir_passes
from firmwright.passes.graph.recompute import recompute
from firmwright.passes.graph.split_devices import split_over_cores
from firmwright.passes.graph.windows import mark_windows
from firmwright.passes.tir.share_code import share_code
from firmwright.pipeline.options import Options
from firmwright.pipeline.selecting import asked, lowering_of, price
from firmwright.schedules.registry import INTRINSICS
from firmwright.select.order import order_calls
from firmwright.select.select import select_module
from firmwright.targets.registry import kind_of
from firmwright.usmp.plan_module import plan
from firmwright.usmp.resident import keep_constants

_BEFORE_LOWERING = (
    *graph_passes.PASSES,
    Pass("order", lambda module: order_calls(module, op_table())),
    Pass("recompute", lambda module: recompute(module, op_table())),
    Pass("split-devices", lambda module: split_over_cores(module, op_table())),
    Pass("tile-transfers", lambda module: tile_transfers(module, op_table())),
    Pass("plan-devices", lambda module: plan_devices(module, op_table())),
    Pass("windows", lambda module: mark_windows(module, op_table())),
)


def passes_for(options: Options, watch: Stopwatch | None = None) -> tuple[Pass, ...]:
    """The compiler: every pass, in order; `watch` writes down what each takes for each target."""
    seen = watch or Stopwatch()
    steps = (
        Pass("partition", lambda module: assign(module, seen)),
        *_BEFORE_LOWERING,
        Pass("relay-to-runtime", lambda module: run_hook(module, "relay_to_runtime", kind_of)),
        Pass("relay-to-tir", lambda module: run_hook(module, "relay_to_tir", kind_of)),
        Pass("plan-scopes", lambda module: plan_devices(module, op_table())),
        Pass("lower-select", lambda module: _lower_and_select(check_lowered(module), options)),
        Pass("after-scheduling", lambda m: run_phase(m, "after_scheduling", kind_of, seen)),
        *tir_passes.BEFORE_PLANNING,
        Pass("keep-constants", lambda module: keep_constants(module, options.planner)),
        Pass("usmp", lambda module: plan(module, options.planner)),
        Pass("after-planning", lambda m: run_phase(m, "after_planning", kind_of, seen)),
        Pass("share-code", lambda m: share_code(m, intrinsics_of(m, INTRINSICS), price)),
        *tir_passes.AFTER_PLANNING,
        *(() if options.link_params else tir_passes.UNLINKED),
        Pass("tir-to-runtime", lambda module: run_hook(module, "tir_to_runtime", kind_of)),
        *tir_passes.CLEAN_UP,
    )
    names = tuple(step.name for step in steps)
    return tuple(for_targets(step, names, kind_of, seen) for step in steps)


def remaining(
    module: IRModule, options: Options, watch: Stopwatch | None = None
) -> tuple[Pass, ...]:
    """The passes that `module` has not been through."""
    steps = passes_for(options, watch)
    done = module.attrs.get("stage")
    names = [step.name for step in steps]
    return steps[names.index(str(done)) + 1 :] if done in names else steps


def _lower_and_select(module: IRModule, options: Options) -> IRModule:
    """Nothing is left to do for a module whose entry is an AOT main already."""
    if not isinstance(module.entry, Function):
        return module
    module = lower_branches(module, lambda part: lowering_of(part, options))
    lowering = lowering_of(module, options)
    return select_module(module, lowering.offers(), lowering.rows, asked(options))
