"""Says of every constant which read-only pool holds it.

In: a module with its kernels, and read-only pools in the order in which they are to be filled. Out:
the same, with the pool of each constant that the program uses. In the order of use, a constant goes
to the first pool that has room for it; without read-only pools all stay where the program is.
DoesNotFitError if the pools are too small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from firmwright.base.errors import DoesNotFitError, RegionOverflow
from firmwright.ir import tir
from firmwright.ir.constant_pools import IMAGE_ALIGNMENT, constant_pools
from firmwright.ir.core import Constant, PoolInfo
from firmwright.ir.module import IRModule, Pass
from firmwright.ir.tir.traversal import callees, used_constants


def run(module: IRModule) -> IRModule:
    """Places the constants that have no pool yet."""
    pools = constant_pools(module)
    entry = module.functions.get(str(module.attrs.get("entry", "main")))
    if not pools or not isinstance(entry, tir.PrimFunc):
        return module
    constants = dict(module.constants)
    taken = {pool.name: 0 for pool in pools}
    for name in constants_in_order(module, entry):
        if not constants[name].pool:
            pool = _first_with_room(pools, taken, constants[name], constants)
            constants[name] = replace(constants[name], pool=pool)
            taken[pool] += padded_size_bytes(constants[name])
    return replace(module, constants=constants)


def constants_in_order(module: IRModule, entry: tir.PrimFunc) -> list[str]:
    """The constants that `entry` and its kernels link, in the order of the calls."""
    kernels = (module.functions.get(name) for name in callees(entry.body))
    found = [
        name for k in kernels if isinstance(k, tir.PrimFunc) for name in used_constants(k.body)
    ]
    return list(dict.fromkeys([*found, *used_constants(entry.body)]))


def padded_size_bytes(constant: Constant) -> int:
    """What it takes in a pool's image."""
    return -(-constant.size_bytes // IMAGE_ALIGNMENT) * IMAGE_ALIGNMENT


def _first_with_room(
    pools: Sequence[PoolInfo],
    taken: dict[str, int],
    constant: Constant,
    constants: dict[str, Constant],
) -> str:
    for pool in pools:
        need = taken[pool.name] + padded_size_bytes(constant)
        if pool.size_bytes is None or need <= pool.size_bytes:
            return pool.name
    raise constants_do_not_fit(pools[-1], sum(map(padded_size_bytes, constants.values())), pools)


def constants_do_not_fit(
    pool: PoolInfo, need_bytes: int, pools: Sequence[PoolInfo]
) -> DoesNotFitError:
    """The error for constants that the read-only pools have no room for."""
    have = sum(p.size_bytes or 0 for p in pools)
    names = " and ".join(p.name for p in pools)
    return DoesNotFitError(
        f"the constants do not fit: they need {need_bytes:,} bytes, {names} may hold {have:,}.",
        regions=[RegionOverflow(pool.name, need_bytes, have)],
        hint="a further pool for the rest, by --const-pool, or --optimize size.",
    )


PASS = Pass("assign-constant-memory", run)
