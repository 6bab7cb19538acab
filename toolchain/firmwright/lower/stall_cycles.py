"""Cycles that a kernel waits for memory: flash, and pools assigned to tensors."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from firmwright.ir import tir
from firmwright.ir.core import Constant, PoolInfo
from firmwright.ir.graph.nodes import Call
from firmwright.ir.module import IRModule
from firmwright.ir.tir.memory_traffic import (
    NO_TRAFFIC,
    count_traffic,
    has_known_speed,
    transfer_cycles,
)
from firmwright.ops.schedule import LoweringCandidate

_CACHED_BYTES = 256
"""Constants up to this size are assumed to stay in the data cache of flash."""


def with_stall_cycles(
    candidate: LoweringCandidate, call: Call, module: IRModule
) -> LoweringCandidate:
    """Return a kernel with the cycles that it waits for flash and assigned pools."""
    func, per_byte = candidate.function, module.settings.flash.stalls_per_byte
    stalls = pool_stall_cycles(func, call, module.pools)
    stalls += flash_stall_cycles(func, candidate.constants, per_byte)
    return replace(candidate, stall_cycles=stalls) if stalls else candidate


def flash_stall_cycles(
    func: tir.PrimFunc, constants: Mapping[str, Constant], per_byte: float
) -> int:
    """Return the cycles that reads of constants wait for flash, but for small ones."""
    if not per_byte:
        return 0
    moved = count_traffic(func, {})
    stalls = 0.0
    for name, constant in constants.items():
        if constant.size_bytes > _CACHED_BYTES:
            buffer_name = name.rpartition(".")[2]
            stalls += per_byte * moved.get(buffer_name, NO_TRAFFIC).read_bytes
    return round(stalls)


def pool_stall_cycles(func: tir.PrimFunc, call: Call, pools: Sequence[PoolInfo]) -> int:
    """Return the cycles that the pools of a call's tensors add to the fastest pool."""
    known = {pool.name: pool for pool in pools if has_known_speed(pool)}
    values = [*call.variables, *call.outputs]
    assigned = [known.get(value.virtual_device.memory_scope) for value in values]
    if not any(assigned) or len(func.params) != len(values):
        return 0
    moved = count_traffic(func, {})
    stalls = 0.0
    for param, pool in zip(func.params, assigned, strict=True):
        if pool is not None:
            traffic = moved.get(param.name, NO_TRAFFIC)
            # Only the difference counts: the kernel's own price assumes the fastest
            # pool.
            fastest = min(transfer_cycles(traffic, other) for other in known.values())
            stalls += transfer_cycles(traffic, pool) - fastest
    return round(stalls)
