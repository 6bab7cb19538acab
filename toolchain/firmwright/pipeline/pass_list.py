"""The ordered list of all passes."""

from __future__ import annotations

from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IRModule, Pass
from firmwright.lower.subgraphs import lower_subgraphs
from firmwright.ops.registry import op_table
from firmwright.partitioning.backend_libraries import collect_intrinsics
from firmwright.partitioning.partition_pass import partition_module
from firmwright.partitioning.plan_devices import plan_devices
from firmwright.partitioning.target_hooks import check_lowered, run_hook
from firmwright.partitioning.target_passes import PassTimer, make_per_target_pass, run_phase
from firmwright.partitioning.tile_transfers import insert_tile_transfers
from firmwright.passes import graph as graph_passes
from firmwright.passes import tir as tir_passes
from firmwright.passes.graph.copy_elision import elide_copies
from firmwright.passes.graph.multi_core_split import split_over_cores
from firmwright.passes.graph.rematerialize import rematerialize
from firmwright.passes.tir.outline_common_kernels import outline_common_kernels
from firmwright.pipeline.options import Options
from firmwright.pipeline.selection_oracle import (
    estimate_kernel_cost,
    make_lowering,
    make_selection_oracle,
)
from firmwright.schedules.registry import INTRINSICS
from firmwright.select.call_order import reorder_calls
from firmwright.select.kernel_selection import select_module
from firmwright.targets.registry import target_kind_of
from firmwright.usmp.cache_constants import copy_constants_to_ram
from firmwright.usmp.memory_planning import plan_memory

_BEFORE_LOWERING = (
    *graph_passes.PASSES,
    Pass("order", lambda module: reorder_calls(module, op_table())),
    Pass("recompute", lambda module: rematerialize(module, op_table())),
    Pass("multi-core-split", lambda module: split_over_cores(module, op_table())),
    Pass("tile-transfers", lambda module: insert_tile_transfers(module, op_table())),
    Pass("plan-devices", lambda module: plan_devices(module, op_table())),
    Pass("windows", lambda module: elide_copies(module, op_table())),
)


def passes_for(options: Options, watch: PassTimer | None = None) -> tuple[Pass, ...]:
    """Return all passes in order; `watch` records the time each takes per target."""
    seen = watch or PassTimer()
    steps = (
        Pass("partition", lambda module: partition_module(module, seen)),
        *_BEFORE_LOWERING,
        Pass(
            "relay-to-runtime", lambda module: run_hook(module, "relay_to_runtime", target_kind_of)
        ),
        Pass("relay-to-tir", lambda module: run_hook(module, "relay_to_tir", target_kind_of)),
        Pass("plan-scopes", lambda module: plan_devices(module, op_table())),
        Pass("lower-select", lambda module: _lower_and_select(check_lowered(module), options)),
        Pass("after-scheduling", lambda m: run_phase(m, "after_scheduling", target_kind_of, seen)),
        *tir_passes.BEFORE_PLANNING,
        Pass(
            "cache-constants-in-ram", lambda module: copy_constants_to_ram(module, options.planner)
        ),
        Pass("usmp", lambda module: plan_memory(module, options.planner)),
        Pass("after-planning", lambda m: run_phase(m, "after_planning", target_kind_of, seen)),
        Pass(
            "outline-common-kernels",
            lambda m: outline_common_kernels(
                m, collect_intrinsics(m, INTRINSICS), estimate_kernel_cost
            ),
        ),
        *tir_passes.AFTER_PLANNING,
        *(() if options.link_params else tir_passes.UNLINKED),
        Pass("tir-to-runtime", lambda module: run_hook(module, "tir_to_runtime", target_kind_of)),
        *tir_passes.CLEAN_UP,
    )
    names = tuple(step.name for step in steps)
    return tuple(make_per_target_pass(step, names, target_kind_of, seen) for step in steps)


def remaining_passes(
    module: IRModule, options: Options, watch: PassTimer | None = None
) -> tuple[Pass, ...]:
    """Return the passes that `module` has not been through."""
    steps = passes_for(options, watch)
    done = module.attrs.get("stage")
    names = [step.name for step in steps]
    return steps[names.index(str(done)) + 1 :] if done in names else steps


def _lower_and_select(module: IRModule, options: Options) -> IRModule:
    """Lower the graph and select kernels, unless the entry already is an AOT main."""
    if not isinstance(module.entry, Function):
        return module
    module = lower_subgraphs(module, lambda part: make_lowering(part, options))
    lowering = make_lowering(module, options)
    return select_module(
        module, lowering.candidates_per_call(), lowering.rows, make_selection_oracle(options)
    )
