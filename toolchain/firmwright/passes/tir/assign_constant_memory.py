"""Assignment of constants to read-only pools.

Constants are assigned in order of use, each to the first pool that has room. Without
read-only pools, all stay in the program image. So do those that `NAME_init` copies to
RAM for a kernel, unless a pool is linked too.
"""

from collections.abc import Sequence
from dataclasses import replace

from firmwright.base.errors import DoesNotFitError, RegionOverflow
from firmwright.base.rounding import round_up
from firmwright.ir import tir
from firmwright.ir.constant_pools import (
    IMAGE_ALIGNMENT,
    UNLINKED_SCOPES,
    constant_pools,
    hash_bytes,
)
from firmwright.ir.core import Constant, PoolInfo
from firmwright.ir.graph.devices import CONSTANTS_POOL_ATTR
from firmwright.ir.module import IRModule, Pass
from firmwright.ir.tir.traversal import callees, used_constants


def run(module: IRModule) -> IRModule:
    """Assign a pool to all constants without one; DoesNotFitError if space runs out."""
    pools = constant_pools(module)
    entry = module.find_entry()
    if not pools or not isinstance(entry, tir.PrimFunc):
        return module
    constants = dict(module.constants)
    used_bytes = {pool.name: hash_bytes(pool) for pool in pools}
    linked = [pool for pool in pools if pool.scope not in UNLINKED_SCOPES]
    resident = _resident_constants(module, entry)
    for name in constants_in_order(module, entry):
        permitted = linked if name in resident else pools
        if permitted and not constants[name].pool:
            pool = _first_with_room(permitted, used_bytes, constants[name], constants)
            constants[name] = replace(constants[name], pool=pool)
            used_bytes[pool] += padded_size_bytes(constants[name])
    return replace(module, constants=constants)


def _resident_constants(module: IRModule, entry: tir.PrimFunc) -> set[str]:
    """Return the constants that are copied once to a pool that kernels require."""
    names: set[str] = set()
    for callee in callees(entry.body):
        kernel = module.functions.get(callee)
        if isinstance(kernel, tir.PrimFunc) and CONSTANTS_POOL_ATTR in kernel.attrs:
            names.update(used_constants(kernel.body))
    return names


def constants_in_order(module: IRModule, entry: tir.PrimFunc) -> list[str]:
    """Return the used constants, each once: by call of a kernel, then the main's."""
    names: list[str] = []
    for callee in callees(entry.body):
        kernel = module.functions.get(callee)
        if isinstance(kernel, tir.PrimFunc):
            names += used_constants(kernel.body)
    names += used_constants(entry.body)
    return list(dict.fromkeys(names))


def padded_size_bytes(constant: Constant) -> int:
    """Return the bytes that a constant takes in the image of a pool."""
    return round_up(constant.size_bytes, IMAGE_ALIGNMENT)


def _first_with_room(
    pools: Sequence[PoolInfo],
    used_bytes: dict[str, int],
    constant: Constant,
    constants: dict[str, Constant],
) -> str:
    for pool in pools:
        need = used_bytes[pool.name] + padded_size_bytes(constant)
        if pool.size_bytes is None or need <= pool.size_bytes:
            return pool.name
    need = sum(padded_size_bytes(constant) for constant in constants.values())
    need += sum(hash_bytes(pool) for pool in pools)
    raise constants_do_not_fit(pools[-1], need, pools)


def constants_do_not_fit(
    pool: PoolInfo, need_bytes: int, pools: Sequence[PoolInfo]
) -> DoesNotFitError:
    have = sum(p.size_bytes or 0 for p in pools)
    names = " and ".join(p.name for p in pools)
    need = f"they need {need_bytes:,} bytes, {names} may hold {have:,}"
    return DoesNotFitError(
        f"the constants do not fit: {need}.",
        regions=[RegionOverflow(pool.name, need_bytes, have)],
        hint="a further pool for the rest, by --const-pool, or --optimize size.",
    )


PASS = Pass("assign-constant-memory", run)
