"""Which targets a compilation has: the board's core, and the backends that the user names.

In: a board and the user's text, such as `npu1 -lanes=8, npu2`. Out: the module's table of targets:
`cpu` first, which takes what nobody else does, then the backends in the user's order of preference,
called after their kinds (`npu1`, a second one of a kind `npu1_1`). UsageError for a core that
contradicts the board, and for a pool that a backend needs and the board lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from firmwright.base.errors import UsageError
from firmwright.boards import Board
from firmwright.ir.core import Target
from firmwright.ir.module import IRModule
from firmwright.partitioning.function_targets import target_of
from firmwright.partitioning.pattern_matching import ActiveBackend
from firmwright.targets.registry import backend_of, parse_target, parse_targets, target_kind_of

CORE_TARGET_NAME = "cpu"
"""The name, in a module's table of targets, of the core that runs the program."""


def resolve_targets(board: Board, text: str) -> dict[str, Target]:
    """The table of targets of a compilation for `board`."""
    asked = parse_targets(text) if text else ()
    table = {CORE_TARGET_NAME: resolve_core(board, find_core(asked))}
    return {**table, **name_targets(filter(is_backend, asked))}


def find_core(asked: Sequence[Target]) -> Target | None:
    """The core among targets, if they name one; UsageError if they name two."""
    cores = [target for target in asked if not is_backend(target)]
    if len(cores) > 1:
        raise UsageError(
            f"two of the targets are cores: {cores[0]} and {cores[1]}.",
            hint="one core, behind the backends that it is to work with.",
        )
    return cores[0] if cores else None


def name_targets(targets: Iterable[Target]) -> dict[str, Target]:
    """Targets under their names in a module."""
    found: dict[str, Target] = {}
    for target in targets:
        name, count = target.kind, 0
        while name in found:
            count += 1
            name = f"{target.kind}_{count}"
        found[name] = target
    return found


def resolve_core(board: Board, asked: Target | None) -> Target:
    """The core of a board, or the one asked for, which may not contradict it."""
    own = board_target(board)
    if asked is None:
        return own
    if not board.is_host and asked.kind == own.kind and asked != own:
        raise UsageError(
            f"target {asked} contradicts board {board.name}, which is {own}.",
            hint="leave --target out, or choose a board with that core.",
        )
    if not board.is_host and asked.kind not in (own.kind, "c"):
        raise UsageError(f"target {asked} cannot run on board {board.name}, which is {own}.")
    return asked


def board_target(board: Board) -> Target:
    """The target that a board's core is an instance of."""
    if board.is_host:
        return parse_target("host")
    if board.core.startswith("cortex-m"):
        return parse_target(f"cortex-m -mcpu={board.core}")
    return parse_target(f"riscv32 -march={board.core}")


def format_targets(targets: Sequence[Target]) -> str:
    """What `parse_targets` reads back."""
    return ", ".join(map(str, targets))


def canonical_target_string(targets: Mapping[str, Target], board: Board) -> str:
    """The text that asks for this table on `board`, the same whichever way it was asked for."""
    core = targets.get(CORE_TARGET_NAME)
    own = [] if core is None or core == board_target(board) else [core]
    return format_targets(
        [target for name, target in targets.items() if name != CORE_TARGET_NAME] + own
    )


def active_backends(module: IRModule) -> tuple[ActiveBackend, ...]:
    """The backends of the module's targets, in order of preference."""
    return tuple(
        ActiveBackend(name, target, backend)
        for name, target in module.targets.items()
        if (backend := backend_of(target)) is not None
    )


def is_backend(target: Target) -> bool:
    """Whether it takes parts of a program that another target runs."""
    return not target_kind_of(target).is_core


def check_targets(module: IRModule, board: Board) -> None:
    """UsageError for a target that a function carries, or a pool, that the compilation lacks."""
    for function in module.functions.values():
        if target_of(function) and target_of(function) not in module.targets:
            raise UsageError(
                f"the function @{function.name} is of target {target_of(function)}, which is not among "
                f"the targets ({format_targets(tuple(module.targets.values()))}).",
                where=module.name,
                hint="leave --target out: the module says its own; or partition the model again.",
            )
    known = [pool.name for pool in module.pools]
    for item in active_backends(module):
        for pool in item.backend.pools:
            if pool not in known:
                raise UsageError(
                    f"the backend {item.name} needs the pool {pool}, which board {board.name} "
                    f"does not have (its pools: {', '.join(known) or 'none'}).",
                    hint=_pool_hint(board, pool),
                )


def _pool_hint(board: Board, pool: str) -> str:
    if board.is_host:
        return f"--pool {pool}=BYTES, beside the others."
    return f"a board whose memory map has a region {pool}."
