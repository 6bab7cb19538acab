"""Compares a backend's patterns with the core's own kernels on conformance cases.

A chain of operators runs on the cases of the first one and their variants, with the
others appended. Both firmware images run on the same board and samples, each sample
twice. The backend's outputs there and in the TIR interpreter must equal the core's bit
for bit, also when the core reads them at once; inputs, and guard bytes around the
buffers, must keep their values. On the host, sanitizers check every access and
operation of the C.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from firmwright.base.errors import UsageError
from firmwright.boards import load_board
from firmwright.flows.board.model_session import SessionOpener, open_session
from firmwright.flows.model.given_options import GivenOptions
from firmwright.flows.verify.chain_runs import (
    CaseDifference,
    CaseOutcome,
    ChainOutcome,
    ChainRun,
)
from firmwright.flows.verify.operand_checks import (
    can_check_operands,
)
from firmwright.flows.verify.operator_chains import (
    OperatorChain,
    operator_chains,
)
from firmwright.ir.core import PoolInfo, Target
from firmwright.ir.settings import NumericsProfile
from firmwright.targets.backend import Backend
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

    @property
    def matched(self) -> list[str]:
        return [case for case, found in self.outcomes.items() if found is not None]

    @property
    def rejected(self) -> list[str]:
        return [case for case, found in self.outcomes.items() if found is None]

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
    checks_operands: bool
    """Whether the accesses and operations of all C were checked, as on the host."""


def run_backend_test(
    target: str,
    board_name: str = "host",
    *,
    sample_count: int = 4,
    open_with: SessionOpener = open_session,
    numerics: NumericsProfile = "litert",
    board_dirs: tuple[Path, ...] = (),
) -> BackendTestResult:
    """Test the backend's table on a board; UsageError if an entry matches no case."""
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
    found: list[ChainOutcome] = []
    for chain in _chains(backend):
        run = ChainRun(backend, target, board, chain, sample_count, open_with, given)
        found += run.outcomes()
    results = tuple(_result_of(entry.name, found) for entry in backend.table)
    for entry, result in zip(backend.table, results, strict=True):
        if not result.matched:
            ops: set[str] = set()
            for chain in operator_chains(entry.pattern):
                ops.update(part.op for part in chain)
            raise UsageError(
                f"the pattern {entry.name} matches none of the {len(result.outcomes)} "
                f"cases of {', '.join(sorted(ops)) or 'its operators'}.",
                where=f"backend {backend.name}",
                hint=(
                    "relax the pattern or its predicate, or change the target's "
                    "attributes."
                ),
            )
    has_meaning = backend.kind.hooks.relay_to_runtime is None
    return BackendTestResult(
        target=target,
        board=board.name,
        samples=sample_count,
        entries=results,
        has_numpy_meaning=has_meaning,
        checks_operands=board.is_host and can_check_operands(),
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
    return PatternResult(entry, outcomes, variants)


def _chains(backend: Backend) -> Iterable[OperatorChain]:
    """Return each distinct operator chain of the table."""
    chains_by_ops: dict[tuple[str, ...], OperatorChain] = {}
    for entry in backend.table:
        for chain in operator_chains(entry.pattern):
            chains_by_ops.setdefault(tuple(part.op for part in chain), chain)
    return chains_by_ops.values()
