"""Callbacks for kernel selection: lowering, memory planning and cost estimation."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace

from firmwright.base.errors import DoesNotFitError
from firmwright.choose.flash_budget import CodeKey
from firmwright.choose.kernel_selection import SelectionOracle
from firmwright.choose.program_search import PlanEstimate
from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.program_record import ProgramRecord
from firmwright.ir.settings import Minimize
from firmwright.ir.tir.cost_model import Cost, estimate_cost
from firmwright.ir.tir.plan import Planner
from firmwright.ir.tir.traversal import prim_calls
from firmwright.lower.kernel_memo import KernelMemo
from firmwright.lower.lowering import Lowering
from firmwright.ops.registry import op_table
from firmwright.ops.tuning_records import NO_TUNING_RECORDS
from firmwright.partitioning.backend_libraries import collect_intrinsics
from firmwright.passes.tir.shape_abstraction import (
    KernelTemplate,
    flatten_buffers,
    make_template,
    template_identity,
)
from firmwright.passes.tir.simplify import simplify
from firmwright.pipeline.options import Options
from firmwright.schedules.registry import INTRINSICS, schedules_for
from firmwright.targets.cost_weights import cost_weights_for
from firmwright.targets.registry import features_of_known, target_features
from firmwright.usmp.heuristics import best_first_fit_planner
from firmwright.usmp.interference import InplaceCache
from firmwright.usmp.lower_bound import min_bytes_by_time
from firmwright.usmp.memory_planning import (
    collect_workspace,
    plan_memory,
    plan_workspace,
)
from firmwright.usmp.planner_registry import DEFAULT_PLANNER as DEFAULT_PLANNER
from firmwright.usmp.planning_input import PlanningInput


@dataclass(frozen=True)
class SelectionMemo:
    """Kernels that compilations of one model can share, with their analyses.

    The kernels of templates and codes are kept for unique identities.
    """

    kernels: KernelMemo = field(default_factory=KernelMemo)
    inplace: InplaceCache = field(default_factory=InplaceCache)
    templates: dict[Hashable, tuple[tir.PrimFunc, KernelTemplate]] = field(
        default_factory=dict
    )
    shared_codes: dict[Hashable, tuple[tir.PrimFunc, CodeKey]] = field(
        default_factory=dict
    )

    def shared_key(self, kernel: tir.PrimFunc) -> CodeKey:
        """Return the code that kernels share, and the numbers that they pass to it."""
        identity = template_identity(kernel)
        if identity not in self.shared_codes:
            simple = simplify(kernel)
            template = make_template(flatten_buffers(simple) or simple, INTRINSICS)
            numbers = tuple((n.value, n.runs) for n in template.numbers)
            self.shared_codes[identity] = kernel, CodeKey(template.key, numbers)
        return self.shared_codes[identity][1]

    def merging_key(self, kernel: tir.PrimFunc) -> CodeKey:
        """Return the code of kernels that differ only in constants and scalars."""
        return CodeKey(self._template(kernel).merging_key)

    def form(self, kernel: tir.PrimFunc) -> CodeKey:
        """Return the code without numbers before it is simplified."""
        return CodeKey(self._template(kernel).key)

    def _template(self, kernel: tir.PrimFunc) -> KernelTemplate:
        identity = template_identity(kernel)
        if identity not in self.templates:
            self.templates[identity] = kernel, make_template(kernel, INTRINSICS)
        return self.templates[identity][1]


def kernel_cost_estimator(
    module: IRModule,
) -> Callable[[tir.PrimFunc, Mapping[str, int]], Cost]:
    """Return the cost of a kernel of `module` for given values of scalar parameters.

    That of a bounded axis is its largest size.
    """
    intrinsics = collect_intrinsics(module, INTRINSICS)
    largest = module.settings.largest_size

    def estimate(kernel: tir.PrimFunc, arguments: Mapping[str, int]) -> Cost:
        target = module.targets.get(str(kernel.attrs.get("target", "")))
        weights, values = cost_weights_for(target), {**largest, **arguments}
        return estimate_cost(kernel, intrinsics, weights, values)

    return estimate


def make_lowering(
    module: IRModule,
    options: Options,
    record: ProgramRecord | None = None,
    memo: SelectionMemo | None = None,
) -> Lowering:
    """Return the lowering of a module's calls.

    Measurements apply only with inline assembly. With a `record` each call has the
    recorded kernel only.
    """
    tuning = options.tuning if options.inline_asm else NO_TUNING_RECORDS
    features = features_of_known(module.targets.values())
    return Lowering(
        module,
        op_table(),
        schedules_for(features),
        INTRINSICS,
        target_features,
        tuning,
        cost_weights_for,
        record=record,
        kernels=KernelMemo() if memo is None else memo.kernels,
    )


def make_selection_oracle(
    options: Options, memo: SelectionMemo | None = None
) -> SelectionOracle:
    """Return the selection callbacks, which cache the analysis of each kernel."""
    memo = memo or SelectionMemo()
    cache = memo.inplace
    quick: str | Planner = options.planner
    if options.planner == DEFAULT_PLANNER:
        quick = best_first_fit_planner

    # Candidates of a call often have equal scratch and may overlap the same tensors.
    estimates: dict[tuple[PlanningInput, tuple[int, ...]], PlanEstimate] = {}

    def estimate(candidate: IRModule) -> PlanEstimate:
        unlimited = tuple(replace(pool, size_bytes=None) for pool in candidate.pools)
        trial = replace(candidate, pools=unlimited)
        workspace = collect_workspace(trial, cache)
        calls = tuple(call.op for call in prim_calls(candidate.aot_main.body))
        key = workspace.content, calls
        known = estimates.get(key) if workspace.is_decided_by_content else None
        if known is not None:
            return known
        plan = plan_workspace(workspace, quick)
        needs = min_bytes_by_time(plan.buffers, plan.conflicts)
        by_call = dict(zip(calls, needs, strict=False))
        estimates[key] = PlanEstimate(plan.workspace_bytes, by_call)
        return estimates[key]

    def fits(candidate: IRModule) -> bool:
        for planner in dict.fromkeys((quick, options.planner)):
            try:
                plan_memory(candidate, planner, cache)
            except DoesNotFitError as error:
                if error.is_proven:
                    return False
            else:
                return True
        return False

    has_shared_code = options.objective.minimize is Minimize.SIZE
    key = memo.shared_key if has_shared_code else memo.merging_key
    return SelectionOracle(estimate, fits, key, memo.shared_key, memo.form)
