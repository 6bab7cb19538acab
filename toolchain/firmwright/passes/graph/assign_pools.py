"""Assignment of tensors to memory pools as requested by the user.

Every use of the tensor gets the pool as memory scope. The equivalent in module text is
`%a: i8[16] on(scope="dtcm") = relu(%x)`.
"""

from collections.abc import Mapping, Sequence

from firmwright.base.errors import UsageError
from firmwright.base.suggestions import suggest_name
from firmwright.ir.module import IRModule
from firmwright.ir.requests import PlacementRequest, RequestOrigin
from firmwright.passes.graph.placement_requests import record_requests
from firmwright.passes.graph.value_names import with_unique_names
from firmwright.passes.map_functions import names_of

PoolAssignments = Sequence[tuple[str, str]]


def assign_tensor_pools(module: IRModule, pins: PoolAssignments) -> IRModule:
    """Return the module with the tensors assigned; UsageError for invalid requests."""
    if not pins:
        return module
    if not module.graphs:
        raise UsageError(
            "tensors of a lowered module cannot be assigned to pools.",
            where=module.name,
            hint="assign them when compiling the original model.",
        )
    module = with_unique_names(module)
    origin = RequestOrigin.POOL_OPTION
    requests: list[PlacementRequest] = []
    for name, pool in _checked(module, pins).items():
        requests.append(PlacementRequest(name, pool=pool, origin=origin))
    return record_requests(module, requests)


def _checked(module: IRModule, pins: PoolAssignments) -> Mapping[str, str]:
    entry, *_ = module.graphs
    constants: set[str] = set()
    tensors: set[str] = set()
    for graph in module.graphs:
        for value in graph.values:
            (constants if value.constant else tensors).add(value.name)
    tensors -= constants
    if module.io.mode == "caller":
        tensors -= names_of((*entry.params, *entry.results))
    pools = {pool.name for pool in module.pools if pool.access == "rw"}
    assigned: dict[str, str] = {}
    for tensor, pool in pins:
        problem, hint = "", ""
        if tensor in constants:
            problem = "it is a constant, which is part of the program"
        elif tensor not in tensors:
            problem = "no planned tensor has this name"
            hint = f"{suggest_name(tensor, tensors)}."
        elif pool not in pools:
            problem = "no writable pool has this name"
            hint = f"{suggest_name(pool, pools)}."
        elif assigned.get(tensor, pool) != pool:
            problem = f"it is already assigned to {assigned[tensor]}"
        if problem:
            what = f"tensor {tensor!r} cannot be assigned to pool {pool!r}: {problem}."
            raise UsageError(what, where=module.name, hint=hint)
        assigned[tensor] = pool
    return assigned
