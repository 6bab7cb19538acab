"""Compares a backend's patterns with the core's own kernels on conformance cases.

A chain of operators runs on the cases of the first one and their variants, with the
others appended. Both firmware images run on the same board and samples, each sample
twice. The backend's outputs there and in the TIR interpreter must equal the core's bit
for bit, also when the core reads them at once; inputs, and guard bytes around the
buffers, must keep their values. On the host, sanitizers check every access and
operation of the C; in QEMU, a plugin checks every access.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from firmwright.base.errors import UsageError
from firmwright.boards import load_board
from firmwright.flows.board.model_session import SessionOpener, open_session
from firmwright.flows.model.given_options import GivenOptions
from firmwright.flows.verify.chain_runs import (
    AccessCheck,
    CaseDifference,
    CaseOutcome,
    ChainOutcome,
    ChainRun,
    access_check_of,
)
from firmwright.flows.verify.operator_chains import (
    OperatorChain,
    operator_chains,
)
from firmwright.ir.core import PoolInfo, Target
from firmwright.ir.settings import NumericsProfile
from firmwright.targets.backend import Backend, PatternEntry
from firmwright.targets.backend_calls import library_version, transfer_cycles
from firmwright.targets.registry import backend_of, parse_target

HOST_POOL = "sram"


@dataclass(frozen=True, slots=True)
class PatternResult:
    """The outcomes of the candidate cases of an entry in a backend's table."""

    name: str
    outcomes: Mapping[str, CaseOutcome]
    variants: Mapping[str, tuple[CaseDifference, ...]]
    """The differences of the variants of cases that were run."""
    reasons: Mapping[str, str]
    """The backend's reasons for cases that it rejects."""

    @property
    def matched(self) -> list[str]:
        return [case for case, found in self.outcomes.items() if found is not None]

    @property
    def rejected(self) -> list[str]:
        return [case for case, found in self.outcomes.items() if found is None]

    @property
    def is_unexpected(self) -> bool:
        """Whether it matches none of its cases, and not all are rejected by reasons."""
        return len(self.reasons) < len(self.outcomes) and not self.matched

    @property
    def differing(self) -> list[tuple[str, CaseDifference]]:
        """The differences of all cases and variants, each with its name."""
        differing: list[tuple[str, CaseDifference]] = []
        for case, differences in (*self.outcomes.items(), *self.variants.items()):
            differing += [(case, difference) for difference in differences or ()]
        return differing


@dataclass(frozen=True, slots=True)
class BackendTestResult:
    """The results of all entries of a backend's table."""

    target: str
    board: str
    samples: int
    entries: tuple[PatternResult, ...]
    has_numpy_meaning: bool
    """Whether the kernels consist of TIR, not of calls of generated C."""
    access_check: AccessCheck


def run_backend_test(
    target: str,
    board_name: str = "host",
    *,
    sample_count: int = 4,
    open_with: SessionOpener = open_session,
    numerics: NumericsProfile = "litert",
    board_dirs: tuple[Path, ...] = (),
    is_external: bool = False,
    patterns: Sequence[str] = (),
) -> BackendTestResult:
    """Test the backend's table on a board, or only the entries of some names.

    With `is_external`, the firmware runs behind a port, not in the board's emulator.

    Raises:
        UsageError: there is no such entry, or one matches no case, without reasons.
    """
    backend = backend_of(parse_target(target))
    if backend is None:
        raise UsageError(
            f"{target} is a core, not a backend.",
            hint="run firmwright backends for the list.",
        )
    board = load_board(board_name, board_dirs)
    given: GivenOptions = {"numerics": numerics, "board_dirs": board_dirs}
    own_pools = tuple(dict.fromkeys((*backend.pools, *backend.visible_pools)))
    if board.is_host and own_pools:
        others = tuple(PoolInfo(name) for name in own_pools if name != HOST_POOL)
        given["pools"] = (PoolInfo(HOST_POOL), *others)
    _call_other_methods(backend, parse_target(target))
    check = AccessCheck.NONE if is_external else access_check_of(board)
    found: list[ChainOutcome] = []
    entries = _chosen_entries(backend, patterns)
    for chain in _chains(entries):
        run = ChainRun(
            backend, target, board, chain, sample_count, open_with, given, check
        )
        found += run.outcomes()
    results = tuple(_result_of(entry.name, found) for entry in entries)
    for entry, result in zip(entries, results, strict=True):
        if result.is_unexpected or not any(each.matched for each in results):
            raise _untested_error(backend, entry, result)
    has_meaning = backend.kind.hooks.relay_to_runtime is None
    return BackendTestResult(
        target=target,
        board=board.name,
        samples=sample_count,
        entries=results,
        has_numpy_meaning=has_meaning,
        access_check=check,
    )


def _chosen_entries(
    backend: Backend, patterns: Sequence[str]
) -> Sequence[PatternEntry]:
    """Return the entries named BACKEND.PATTERN or PATTERN; all for no names."""
    if not patterns:
        return backend.table
    entries = {entry.name: entry for entry in backend.table}
    names = [name if name in entries else f"{backend.name}.{name}" for name in patterns]
    for given, name in zip(patterns, names, strict=True):
        if name not in entries:
            raise UsageError(
                f"there is no pattern {given!r}.",
                where=f"backend {backend.name}",
                hint=f"use one of {', '.join(entries)}.",
            )
    return [entry for name, entry in entries.items() if name in names]


def _untested_error(
    backend: Backend, entry: PatternEntry, result: PatternResult
) -> UsageError:
    ops: set[str] = set()
    for chain in operator_chains(entry.pattern):
        ops.update(part.op for part in chain)
    return UsageError(
        f"the pattern {entry.name} matches none of the {len(result.outcomes)} "
        f"cases of {', '.join(sorted(ops)) or 'its operators'}.",
        where=f"backend {backend.name}",
        hint="relax the pattern or its predicate, or change the target's attributes.",
    )


def _call_other_methods(backend: Backend, target: Target) -> None:
    """Call the methods that no compilation of the cases calls, for their errors."""
    library_version(backend, target)
    for size_bytes in (0, 1, 4096):
        transfer_cycles(backend, size_bytes)


def _result_of(entry: str, found: Sequence["ChainOutcome"]) -> PatternResult:
    own = [item for item in found if item.entry == entry]
    outcomes = {item.case: item.outcome for item in own if not item.is_variant}
    variants = {item.case: item.outcome or () for item in own if item.is_variant}
    reasons = {item.case: item.reason for item in own if item.reason}
    return PatternResult(entry, outcomes, variants, reasons)


def _chains(entries: Sequence[PatternEntry]) -> Iterable[OperatorChain]:
    """Return each distinct operator chain of the entries."""
    chains_by_ops: dict[tuple[str, ...], OperatorChain] = {}
    for entry in entries:
        for chain in operator_chains(entry.pattern):
            chains_by_ops.setdefault(tuple(part.op for part in chain), chain)
    return chains_by_ops.values()
