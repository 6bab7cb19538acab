"""The pass `partition_module`: every operator gets the target that is to run it.

In: a module as it was imported, with its table of targets. Out: the same program with a function
for each part that a backend takes, and `partitioned` among its attributes: it is done once. A
module without backends or custom operators is returned as it is. The passes that backends add
before and after it run here, in the order of the table.
"""

from __future__ import annotations

import logging

from firmwright.ir.module import IRModule
from firmwright.partitioning.byoc import partition_by_patterns
from firmwright.partitioning.custom_ops import lower_custom_ops
from firmwright.partitioning.pattern_matching import PartitionStrategy, greedy_cover
from firmwright.partitioning.target_passes import PassTimer, count_functions_by_target, run_phase
from firmwright.partitioning.target_resolution import active_backends
from firmwright.targets.registry import target_kind_of

log = logging.getLogger(__name__)


def partition_module(
    module: IRModule, watch: PassTimer, choose: PartitionStrategy = greedy_cover
) -> IRModule:
    """The partitioned module; see the module docstring."""
    if not active_backends(module) or module.attrs.get("partitioned"):
        return lower_custom_ops(module)
    return run_partition(run_pre_partition(module, watch), watch, choose)


def run_pre_partition(module: IRModule, watch: PassTimer) -> IRModule:
    """The module as patterns are to see it: after what backends do before partitioning."""
    return run_phase(module, "pre_partition", target_kind_of, watch)


def run_partition(
    module: IRModule, watch: PassTimer, choose: PartitionStrategy = greedy_cover
) -> IRModule:
    """A prepared module, partitioned."""
    active = active_backends(module)
    module = partition_by_patterns(module, active, choose)
    for name, count in count_functions_by_target(module).items():
        if choose is greedy_cover and not count and name in {item.name for item in active}:
            log.warning("%s: the backend %s takes none of its operators", module.name, name)
    module = run_phase(module, "post_partition", target_kind_of, watch)
    return lower_custom_ops(module.with_attrs(partitioned=True))
