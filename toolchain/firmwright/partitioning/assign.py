"""The pass `partition`: every operator gets the target that is to run it.

In: a module as it was imported, with its table of targets. Out: the same program with a function
for each part that a backend takes, and `partitioned` among its attributes: it is done once. A
module without backends or custom operators is returned as it is. The passes that backends add
before and after it run here, in the order of the table.
"""

from __future__ import annotations

import logging

from firmwright.ir.module import IRModule
from firmwright.partitioning.byoc import partition_module
from firmwright.partitioning.choosing import active_backends
from firmwright.partitioning.custom import claim
from firmwright.partitioning.phases import Stopwatch, owners_of, run_phase
from firmwright.targets.registry import kind_of

log = logging.getLogger(__name__)


def assign(module: IRModule, watch: Stopwatch) -> IRModule:
    """The partitioned module; see the module docstring."""
    return claim(_to_backends(module, watch))


def _to_backends(module: IRModule, watch: Stopwatch) -> IRModule:
    active = active_backends(module)
    if not active or module.attrs.get("partitioned"):
        return module
    module = run_phase(module, "pre_partition", kind_of, watch)
    module = partition_module(module, active)
    for name, count in owners_of(module).items():
        if not count and name in {item.name for item in active}:
            log.warning("%s: the backend %s takes none of its operators", module.name, name)
    module = run_phase(module, "post_partition", kind_of, watch)
    return module.with_attrs(partitioned=True)
