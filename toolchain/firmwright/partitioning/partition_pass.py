"""Pass `partition`: assign every operator to the target that executes it.

Each part that a backend takes becomes a function. The attribute `partitioned` marks the result. The
passes that backends add before and after partitioning run here.
"""

from __future__ import annotations

import logging

from firmwright.ir.module import IRModule
from firmwright.partitioning.byoc import partition_by_patterns
from firmwright.partitioning.custom_ops import lower_custom_ops
from firmwright.partitioning.pattern_matching import PartitionStrategy, greedy_cover
from firmwright.partitioning.per_target_passes import (
    PassTimer,
    count_functions_by_target,
    run_phase,
)
from firmwright.partitioning.target_resolution import active_backends

log = logging.getLogger(__name__)


def partition_module(
    module: IRModule, watch: PassTimer, choose: PartitionStrategy = greedy_cover
) -> IRModule:
    if not active_backends(module) or module.attrs.get("partitioned"):
        return lower_custom_ops(module)
    return run_partition(run_pre_partition(module, watch), watch, choose)


def run_pre_partition(module: IRModule, watch: PassTimer) -> IRModule:
    """Run the passes of backends that precede partitioning, so that patterns see their result."""
    return run_phase(module, "pre_partition", watch)


def run_partition(
    module: IRModule, watch: PassTimer, choose: PartitionStrategy = greedy_cover
) -> IRModule:
    active = active_backends(module)
    module = partition_by_patterns(module, active, choose)
    for name, count in count_functions_by_target(module).items():
        if choose is greedy_cover and not count and name in {item.name for item in active}:
            log.warning("%s: the backend %s takes none of its operators", module.name, name)
    module = run_phase(module, "post_partition", watch)
    return lower_custom_ops(module.with_attrs(partitioned=True))
