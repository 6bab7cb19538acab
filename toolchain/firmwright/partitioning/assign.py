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
from firmwright.partitioning.matching import Choose, eager
from firmwright.partitioning.phases import Stopwatch, owners_of, run_phase
from firmwright.targets.registry import kind_of

log = logging.getLogger(__name__)


def assign(module: IRModule, watch: Stopwatch, choose: Choose = eager) -> IRModule:
    """The partitioned module; see the module docstring."""
    if not active_backends(module) or module.attrs.get("partitioned"):
        return claim(module)
    return divided(prepared(module, watch), watch, choose)


def prepared(module: IRModule, watch: Stopwatch) -> IRModule:
    """The module as patterns are to see it: after what backends do before partitioning."""
    return run_phase(module, "pre_partition", kind_of, watch)


def divided(module: IRModule, watch: Stopwatch, choose: Choose = eager) -> IRModule:
    """A prepared module, partitioned."""
    active = active_backends(module)
    module = partition_module(module, active, choose)
    for name, count in owners_of(module).items():
        if choose is eager and not count and name in {item.name for item in active}:
            log.warning("%s: the backend %s takes none of its operators", module.name, name)
    module = run_phase(module, "post_partition", kind_of, watch)
    return claim(module.with_attrs(partitioned=True))
