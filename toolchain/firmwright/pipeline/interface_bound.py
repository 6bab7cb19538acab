"""A lower bound on the workspace of every program for a model: its inputs and outputs.

All inputs are in memory when a run begins, and all outputs when it ends, whatever the
kernels and the plan, unless the caller provides the buffers or feeds the input's rows.
"""

from collections.abc import Sequence

from firmwright.base.errors import DoesNotFitError, RegionOverflow
from firmwright.ir.graph.nodes import Function, Value
from firmwright.ir.module import IRModule


def interface_bytes(module: IRModule) -> int:
    """Return the bytes that any program needs for the inputs, or for the outputs."""
    entry = module.entry
    if not isinstance(entry, Function) or module.io.mode != "arena":
        return 0
    inputs = 0 if module.io.stream_input_rows else _size_bytes(entry.params)
    return max(inputs, _size_bytes(entry.results))


def check_interface_fits(module: IRModule) -> None:
    """Raise DoesNotFitError if the inputs or the outputs alone exceed the pools."""
    available = 0
    names: list[str] = []
    for pool in module.pools:
        if pool.access == "rw":
            if pool.size_bytes is None:
                return
            available += pool.size_bytes
            names.append(pool.name)
    needed = interface_bytes(module)
    if not names or needed <= available:  # without pools, memory has no limit
        return
    raise DoesNotFitError(
        f"the inputs and outputs of the model take {needed:,} bytes at the same time; "
        f"the pools have {available:,}.",
        regions=[RegionOverflow(" and ".join(names), needed, available)],
        lowest_bytes=needed,
        peak=_largest_first(module.entry_graph),
        is_proven=True,
        where=module.name,
        hint="a board with more memory, or a model with a smaller input.",
    )


def _largest_first(entry: Function) -> list[tuple[str, int]]:
    """Return the names and sizes of the inputs and outputs."""
    sizes: dict[str, int] = {}
    for value in (*entry.params, *entry.results):
        sizes[value.name] = value.type.size_bytes
    return sorted(sizes.items(), key=lambda item: -item[1])


def _size_bytes(values: Sequence[Value]) -> int:
    return sum(value.type.size_bytes for value in values)
