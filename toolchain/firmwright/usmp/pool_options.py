"""Memory pools of a compilation: the board's pools, restricted by the user's options.

Raises UsageError for pools that the board lacks or that are requested for both buffers
and constants.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from firmwright.base.errors import UsageError
from firmwright.boards import Board, with_const_pools
from firmwright.ir.constant_pools import UNADDRESSABLE_SCOPES
from firmwright.ir.core import POOL_SPEEDS, PoolInfo
from firmwright.ir.module import IRModule
from firmwright.ir.settings import ReadSpeed
from firmwright.usmp.memory_planning import DEFAULT_POOL


class PoolOptions(Protocol):
    """The options of `pipeline.Options` that determine pools."""

    @property
    def pools(self) -> tuple[PoolInfo, ...]: ...
    @property
    def const_pools(self) -> tuple[PoolInfo, ...]: ...
    @property
    def ram_bytes(self) -> int | None: ...
    @property
    def link_params(self) -> bool: ...
    @property
    def stream_input_rows(self) -> bool: ...
    @property
    def optimize(self) -> str: ...


def resolve_pools(
    board: Board, asked: PoolOptions, targets: Collection[str]
) -> tuple[PoolInfo, ...]:
    """Return the pools for buffers, then those for constants.

    Code that runs from RAM takes a pool of its own, which buffers then cannot use.
    """
    reserved = {pool.name for pool in asked.const_pools}
    if asked.optimize == "speed" and board.ramfunc:
        reserved.add(board.ramfunc.pool)
    ram_bytes = asked.ram_bytes
    buffers = resolve_buffer_pools(board, asked.pools, reserved, ram_bytes, targets)
    if asked.const_pools and not asked.link_params:
        raise UsageError("--no-link-params leaves no constant for --const-pool.")
    constants = resolve_constant_pools(
        board, asked.const_pools, asked.pools, asked.stream_input_rows
    )
    return buffers + constants


def with_program_memory_speed(
    module: IRModule, board: Board, asked: PoolOptions
) -> IRModule:
    """Record the program memory's speed if it can affect where constants are."""
    speed = None if board.is_host else board.flash.read_bandwidth
    if speed is None or asked.optimize != "speed" or not asked.link_params:
        return module
    program_memory = ReadSpeed(speed, board.flash.latency or 0)
    flash = replace(module.settings.flash, program_memory=program_memory)
    return replace(module, settings=replace(module.settings, flash=flash))


def resolve_buffer_pools(
    board: Board,
    asked: Sequence[PoolInfo],
    reserved: Collection[str],
    ram_bytes: int | None,
    targets: Collection[str] = (),
) -> tuple[PoolInfo, ...]:
    """Return the board's or requested pools, with `ram_bytes` writable bytes in all.

    Pools in `reserved` (for constants or functions) are excluded, as are pools of
    engines without a target in `targets`.
    """
    own: dict[str, PoolInfo] = {}
    for pool in board.pools():
        has_target = not pool.targets or set(pool.targets) & set(targets)
        if pool.name not in reserved and has_target:
            own[pool.name] = pool
    if not asked:
        pools = tuple(own.values())
    elif board.is_host:
        pools = tuple(asked)
    else:
        pools = tuple(_restrict_board_pool(board, own, pool) for pool in asked)
    return _limit_to_budget(pools, ram_bytes)


def resolve_constant_pools(
    board: Board,
    asked: Sequence[PoolInfo],
    buffers: Sequence[PoolInfo],
    stream_input_rows: bool,
) -> tuple[PoolInfo, ...]:
    """Return the requested pools for constants; none if the program keeps them."""
    names = [pool.name for pool in (*buffers, *asked)]
    for pool in asked:
        if names.count(pool.name) > 1:
            what = f"two pools have the name {pool.name}."
            raise UsageError(what, hint="another name.")
    scopes = [pool.scope for pool in asked]
    if len([scope for scope in scopes if scope in UNADDRESSABLE_SCOPES]) > 1:
        raise UsageError("only one pool of constants can be read by a function.")
    if stream_input_rows and "async" in scopes:
        raise UsageError(
            "constants cannot be loaded asynchronously while the caller provides rows.",
            hint="--const-pool NAME:port with --stream-input-rows.",
        )
    if board.is_host:
        return tuple(asked)
    own = {pool.name: pool for pool in with_const_pools(board, asked).const_pools()}
    pools: list[PoolInfo] = []
    for pool in asked:
        restricted = _restrict_board_pool(board, own, pool)
        restricted = replace(restricted, start=pool.start)
        pools.append(_set_access_mode(board, restricted, pool.scope))
    return tuple(pools)


def _set_access_mode(board: Board, pool: PoolInfo, scope: str) -> PoolInfo:
    """Return the pool with the scope that the user asked for, such as `external`.

    The bytes of an external pool are a section that the image does not initialize;
    those of other pools outside the address space have no section.
    """
    if scope == "global":
        return pool
    if not pool.section:
        what = f"{pool.name} is the program memory of board {board.name}."
        hint = f"--const-pool {pool.name}, without :external, :port or :async."
        raise UsageError(what, hint=hint)
    region = pool.section.removeprefix(".rodata.")
    section = f".noinit.{region}.external" if scope == "external" else ""
    return replace(pool, scope=scope, section=section)


def _limit_to_budget(
    pools: tuple[PoolInfo, ...], ram_bytes: int | None
) -> tuple[PoolInfo, ...]:
    """Return the pools, the writable ones limited to `ram_bytes` in all."""
    if ram_bytes is None:
        return pools
    if not any(pool.access == "rw" for pool in pools):
        pools = (DEFAULT_POOL, *pools)
    limited: list[PoolInfo] = []
    left = ram_bytes
    for pool in pools:
        if pool.access == "rw":
            size = left if pool.size_bytes is None else min(left, pool.size_bytes)
            left -= size
            pool = replace(pool, size_bytes=size)
        limited.append(pool)
    return tuple(limited)


def _restrict_board_pool(
    board: Board, own: Mapping[str, PoolInfo], asked: PoolInfo
) -> PoolInfo:
    """Return the board's pool with the smaller size, and the given speeds."""
    if asked.name not in own:
        is_writable = asked.access == "rw"
        kind = "pool" if is_writable else "pool for constants"
        key = "pool" if is_writable else "const_pool"
        what = f"board {board.name} has no {kind} {asked.name}."
        hint = f"a board file of which a [[memory]] has {key} = {asked.name!r}."
        if not is_writable:
            hint = f"--const-pool {asked.name}=BYTES@ADDRESS, or {hint}"
        if own:
            hint = f"one of {', '.join(own)}, or {hint}"
        raise UsageError(what, hint=hint)
    pool = own[asked.name]
    sizes = [size for size in (asked.size_bytes, pool.size_bytes) if size is not None]
    pool = replace(pool, size_bytes=min(sizes, default=None))
    for name in POOL_SPEEDS:
        speed = getattr(asked, name)
        if speed is not None:
            pool = replace(pool, **{name: speed})
    return pool
