"""What selection asks of lowering, planning and the cost model.

In: a module and options. Out: a `Planner`, whose answers are remembered for kernels that several
candidates share, and the `Lowering` of a module.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from firmwright.base.errors import DoesNotFitError
from firmwright.ir.module import IRModule
from firmwright.ir.tir.cost import Cost, cost
from firmwright.ir.tir.nodes import PrimFunc
from firmwright.ir.tir.walk import prim_calls
from firmwright.ir.tuning import UNTUNED
from firmwright.lower.lower import Lowering
from firmwright.ops.registry import op_table
from firmwright.partitioning.libraries import intrinsics_of
from firmwright.passes.tir.skeleton import skeleton
from firmwright.pipeline.options import Options
from firmwright.schedules.registry import INTRINSICS, RULES
from firmwright.select.choice import Estimate
from firmwright.select.select import Planner
from firmwright.targets.cost_weights import weights_of
from firmwright.targets.registry import features
from firmwright.usmp.bound import needs_by_time
from firmwright.usmp.distances import KnownSpans
from firmwright.usmp.plan_module import plan
from firmwright.usmp.registry import DEFAULT as DEFAULT_PLANNER
from firmwright.usmp.search import first_fits


def price(module: IRModule, kernel: PrimFunc, arguments: Mapping[str, int]) -> Cost:
    """What `kernel` costs with those values of its scalar parameters."""
    target = module.targets.get(str(kernel.attrs.get("target", "")))
    return cost(kernel, intrinsics_of(module, INTRINSICS), weights_of(target), arguments)


def lowering_of(module: IRModule, options: Options) -> Lowering:
    """What lowers a module's calls. Measurements are of kernels with inline assembly."""
    tuning = options.tuning if options.inline_asm else UNTUNED
    return Lowering(module, op_table(), RULES, INTRINSICS, features, tuning, weights_of)


def asked(options: Options) -> Planner:
    """What selection asks: kernels are looked into once, however many modules hold them."""
    known = KnownSpans()
    quick = first_fits if options.planner == DEFAULT_PLANNER else options.planner

    def estimate(candidate: IRModule) -> Estimate:
        unlimited = tuple(replace(pool, size_bytes=None) for pool in candidate.pools)
        made = plan(replace(candidate, pools=unlimited), quick, known).plan
        assert made is not None
        needs = needs_by_time(made.buffers, made.conflicts)
        return Estimate(made.workspace_bytes, _by_call(candidate, needs))

    def fits(candidate: IRModule) -> bool:
        for planner in dict.fromkeys((quick, options.planner)):
            try:
                plan(candidate, planner, known)
            except DoesNotFitError:
                continue
            return True
        return False

    def key(kernel: PrimFunc) -> Hashable:
        found = skeleton(kernel, INTRINSICS)
        return found.key if options.optimize == "size" else found.merging_key

    return Planner(estimate, fits, key)


def _by_call(module: IRModule, needs: Sequence[int]) -> dict[int, int]:
    """`needs` by the operator whose call is at each moment: the calls are what takes time."""
    main = module.entry
    assert isinstance(main, PrimFunc)
    calls = [call.op for call in prim_calls(main.body)]
    return dict(zip(calls, needs, strict=False))
