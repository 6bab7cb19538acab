"""Runs of one operator chain on conformance cases, on a backend and the core alone."""

import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from pathlib import Path

import numpy as np

from firmwright.base.errors import DeviceError
from firmwright.boards import Board
from firmwright.conformance.case_tables import conformance_cases
from firmwright.conformance.case_variants import case_variants
from firmwright.flows.board.model_session import SessionOpener, open_session
from firmwright.flows.model.given_options import GivenOptions
from firmwright.flows.model.model import Model, partition
from firmwright.flows.samples.reference_outputs import run_interpreter
from firmwright.flows.samples.sample_batches import Tensors
from firmwright.flows.verify.emulated_operands import (
    can_watch_operands,
    run_watched,
)
from firmwright.flows.verify.guard_bytes import GuardedFirmware, insert_guard_bytes
from firmwright.flows.verify.operand_checks import (
    OperandFault,
    build_checked_image,
    can_check_operands,
    read_operand_faults,
)
from firmwright.flows.verify.operator_chains import (
    OperatorChain,
    append_operators,
    append_readers,
    operator_chains,
)
from firmwright.flows.verify.operator_conformance import (
    NamedCase,
    budget_bytes,
    case_inputs,
    case_seed,
    cases_module,
    compile_cases,
    first_differences,
    grouped,
)
from firmwright.flows.verify.verification import EXACT_TOLERANCE
from firmwright.ir import tir
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IRModule
from firmwright.ir.tir.traversal import prim_calls
from firmwright.oracle.compare import Difference
from firmwright.oracle.random_samples import make_samples
from firmwright.pipeline import Compilation
from firmwright.targets.backend import Backend

log = logging.getLogger(__name__)
VARIANTS_OF_A_KIND = 4
"""The least number of variants of each kind that run, if that many are matched."""


class AccessCheck(Enum):
    """The way to check that operators access only their operands."""

    NONE = "none"
    SANITIZERS = "sanitizers"
    """Of the C of kernels and backend, on the host, with that of its operations."""
    EMULATOR = "emulator"
    """A plugin of QEMU."""


def access_check_of(board: Board) -> AccessCheck:
    """Return the check that board and computer allow."""
    if board.is_host and can_check_operands():
        return AccessCheck.SANITIZERS
    if can_watch_operands(board):
        return AccessCheck.EMULATOR
    return AccessCheck.NONE


class Check(Enum):
    """A property that the kit checks of each case."""

    OUTPUT = "output"
    NUMPY_MEANING = "numpy meaning"
    REPEATED_RUN = "repeated run"
    INPUT = "unchanged input"
    GUARD_BYTE = "guard byte"
    ACCESS = "operand access"
    DEFINED = "defined behavior"


@dataclass(frozen=True, slots=True)
class CaseDifference:
    """A check's first difference; indices of guard bytes count from the buffer.

    `pool` is the requested pool of the case's tensors, "" if the planner chose.
    """

    check: Check
    first: Difference | OperandFault
    pool: str = ""


CaseOutcome = tuple[CaseDifference, ...] | None
"""The differences of a case, or None if no pattern matches it."""


@dataclass(frozen=True, slots=True)
class ChainOutcome:
    """The outcome of a case, or variant, for an entry of the table.

    `reason` is the backend's for a case that it rejects, or "".
    """

    entry: str
    case: str
    outcome: CaseOutcome
    is_variant: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MatchedCases:
    """The entry that matches each case, and reasons of the backend for others."""

    owners: Mapping[str, str]
    reasons: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CaseSamples:
    """A module of cases, its inputs, forward and in reverse, and the core's outputs."""

    module: IRModule
    inputs: Sequence[Tensors]
    expected: Sequence[Tensors]


@dataclass(frozen=True)
class ChainRun:
    """One operator chain on a board."""

    backend: Backend
    target: str
    board: Board
    chain: OperatorChain
    sample_count: int
    open_with: SessionOpener
    options: GivenOptions
    access_check: AccessCheck

    def outcomes(self) -> Iterator[ChainOutcome]:
        """Yield the outcomes for the entries that may match the chain."""
        first = self.chain[0].op
        cases = [NamedCase(first, case) for case in conformance_cases(first)]
        if not cases:
            return
        kinds: list[list[NamedCase]] = []
        for variants in case_variants(first).values():
            kinds.append([NamedCase(first, case) for case in variants])
        matched = self._matched([*cases, *chain.from_iterable(kinds)])
        owners = matched.owners
        tested = [item for item in cases if item.case.name in owners]
        chosen = list(_chosen_variants(kinds, owners))
        differences = self._all_differences([*tested, *chosen])
        ops = "+".join(part.op for part in self.chain)
        for number, item in enumerate((*tested, *chosen)):
            name = item.case.name
            found = tuple(differences[name])
            is_variant = number >= len(tested)
            yield ChainOutcome(owners[name], f"{ops} {name}", found, is_variant)
        for item in cases:
            name = item.case.name
            if name in owners:
                continue
            reason = matched.reasons.get(name, "")
            for entry in self.backend.table:
                if self.chain in operator_chains(entry.pattern):
                    label = f"{ops} {name}"
                    yield ChainOutcome(entry.name, label, None, reason=reason)

    def _all_differences(
        self, cases: Sequence[NamedCase]
    ) -> Mapping[str, list[CaseDifference]]:
        """Run the cases in as many images as they need; return all by the case."""
        differences: dict[str, list[CaseDifference]] = {}
        for group in grouped(cases, budget_bytes(self.board)):
            samples = self.samples(group)
            differences.update({item.case.name: [] for item in group})
            for pool in ("", *self._other_pools()):
                for number, difference in self._differing(samples, pool):
                    differences[group[number].case.name].append(difference)
        return differences

    def _other_pools(self) -> Sequence[str]:
        """Return the pools where the backend can also have all tensors."""
        visible = self.backend.visible_pools
        return visible[1:] if visible else self.backend.pools

    def _matched(self, cases: Sequence[NamedCase]) -> MatchedCases:
        """Partition a module of all cases."""
        numerics = self.options.get("numerics", "litert")
        module = append_operators(cases_module(cases), self.chain[1:])
        model = Model(module.with_numerics(numerics))
        partitioned = partition(model, self.target).module
        owners: dict[str, str] = {}
        for function in partitioned.functions.values():
            if isinstance(function, Function) and function.attrs.get("composite"):
                number = _case_of(function.results[0].name)
                owners[cases[number].case.name] = str(function.attrs["composite"])
        reasons: dict[str, str] = {}
        for rejection in partitioned.results.rejections:
            name = cases[_case_of(rejection.tensor)].case.name
            reasons[name] = rejection.reason
        return MatchedCases(owners, reasons)

    def samples(self, cases: Sequence[NamedCase]) -> CaseSamples:
        """Make the samples of cases and the core's results."""
        module = append_operators(cases_module(cases), self.chain[1:])
        if self.backend.device or self.backend.wait:
            module = append_readers(module)
        seed = case_seed(cases)
        made = tuple(make_samples(case_inputs(cases), self.sample_count, seed))
        inputs = (*made, *reversed(made))
        expected = self._outputs(self._compiled(module, ""), inputs)
        return CaseSamples(module, inputs, expected)

    def _differing(
        self, samples: CaseSamples, pool: str
    ) -> Iterator[tuple[int, CaseDifference]]:
        """Yield the numbers of cases with differences, and these, by all checks."""
        inputs, expected = samples.inputs, samples.expected
        compiled = self._compiled(samples.module, self.target, pool)
        is_emulated = self.access_check is AccessCheck.EMULATOR
        guarded = insert_guard_bytes(compiled, after_constants=is_emulated)
        sent = guarded.with_guards(inputs)
        actual, faults = self._checked_outputs(guarded, sent)
        for number, fault in _faults_by_case(compiled, faults):
            check = Check.ACCESS if fault.is_access else Check.DEFINED
            yield number, CaseDifference(check, fault, pool)
        if not actual:
            return
        compared = [
            (Check.OUTPUT, first_differences(expected, actual, EXACT_TOLERANCE)),
            (Check.REPEATED_RUN, _repeated_differences(expected, actual)),
            (Check.INPUT, _by_case(guarded.changed_inputs(sent, actual))),
            (Check.GUARD_BYTE, _guard_changes(compiled, guarded, sent, actual)),
        ]
        functions = compiled.module.functions.values()
        if not any("extern" in function.attrs for function in functions):
            half = len(inputs) // 2
            meant = run_interpreter(compiled.module, inputs[:half]).outputs
            found = first_differences(expected[:half], meant, EXACT_TOLERANCE)
            compared.append((Check.NUMPY_MEANING, found))
        for check, firsts in compared:
            for number, first in firsts.items():
                yield number, CaseDifference(check, first, pool)

    def _compiled(self, module: IRModule, target: str, pool: str = "") -> Compilation:
        given: GivenOptions = {**self.options, "target": target}
        if pool and isinstance(module.entry, Function):
            values = module.entry.values
            names = [value.name for value in values if value.constant is None]
            given["pool_assignments"] = tuple((name, pool) for name in names)
        return compile_cases(module, self.board.name, given)

    def _checked_outputs(
        self, guarded: GuardedFirmware, inputs: Sequence[Tensors]
    ) -> tuple[Sequence[Tensors], Sequence[OperandFault]]:
        """Run firmware with checked accesses; there are no outputs after a crash."""
        compiled = guarded.compiled
        match self.access_check:
            case AccessCheck.NONE:
                return self._outputs(compiled, inputs), ()
            case AccessCheck.EMULATOR:
                return run_watched(guarded, inputs, self.open_with)
        outputs: Sequence[Tensors] = ()
        with tempfile.TemporaryDirectory(prefix="firmwright-kit-") as folder:
            image = build_checked_image(compiled, Path(folder))
            try:
                with open_session(compiled, image=image) as session:
                    outputs = session.run_all(inputs)
            except DeviceError:
                if not read_operand_faults(Path(folder)):
                    raise
            return outputs, read_operand_faults(Path(folder))

    def _outputs(
        self, compiled: Compilation, inputs: Sequence[Tensors]
    ) -> Sequence[Tensors]:
        target = compiled.options.target or "the core alone"
        log.info("%s on %s", target, self.board.name)
        with self.open_with(compiled) as session:
            return session.run_all(inputs)


def _chosen_variants(
    kinds: Sequence[Sequence[NamedCase]], owners: Mapping[str, str]
) -> Iterator[NamedCase]:
    """Yield some of the matched variants of each kind, evenly spaced."""
    for number, variants in enumerate(kinds):
        matched = [item for item in variants if item.case.name in owners]
        step = max(1, len(matched) // VARIANTS_OF_A_KIND)
        yield from matched[number % step :: step]


def _case_of(tensor: str) -> int:
    """Return the number of the case with a tensor, with which its name begins."""
    return int(tensor.partition(".")[0])


def _repeated_differences(
    expected: Sequence[Tensors], actual: Sequence[Tensors]
) -> dict[int, Difference]:
    """Compare the second half of the runs, which repeat the first in reverse order.

    Results that differ on the core, as those of states do, are not compared.
    """
    half = len(actual) // 2
    repeated: list[Tensors] = []
    for number, outputs in enumerate(actual[:half]):
        again = expected[-1 - number]
        alike = {
            name: value
            for name, value in outputs.items()
            if name in again and np.array_equal(again[name], expected[number][name])
        }
        repeated.append(alike)
    return first_differences(repeated, actual[: half - 1 : -1], EXACT_TOLERANCE)


def _guard_changes(
    compiled: Compilation,
    guarded: GuardedFirmware,
    sent: Sequence[Tensors],
    received: Sequence[Tensors],
) -> dict[int, Difference]:
    """Return the first changed guard byte of each case."""
    cases = _cases_by_buffer(compiled.module)
    changes: dict[int, Difference] = {}
    for buffer, first in guarded.changes(sent, received).items():
        changes.setdefault(cases[buffer], first)
    return changes


def _faults_by_case(
    compiled: Compilation, faults: Sequence[OperandFault]
) -> Iterator[tuple[int, OperandFault]]:
    """Yield the faults in the backend's operators with their cases.

    The case is that of a kernel on the stack, or else of the operator that ran.
    """
    module = compiled.module
    cases_by_kernel: dict[str, int] = {}
    cases_by_operator: dict[int, int] = {}
    for call in prim_calls(module.aot_main.body):
        is_own = bool(module.functions[call.callee].attrs.get("target"))
        if call.span.tensor and is_own:
            case = _case_of(call.span.tensor)
            cases_by_operator[call.op] = case
            cases_by_kernel.setdefault(f"{compiled.c_prefix}_{call.callee}", case)
    for fault in faults:
        kernels = [name for name in fault.functions if name in cases_by_kernel]
        if kernels:
            yield cases_by_kernel[kernels[0]], fault
        elif fault.operator in cases_by_operator:
            yield cases_by_operator[fault.operator], fault


def _cases_by_buffer(module: IRModule) -> dict[str, int]:
    """Return the cases of all buffers."""
    cases: dict[str, int] = {}
    for call in prim_calls(module.aot_main.body):
        if not call.span.tensor:
            continue
        for arg in call.args:
            if isinstance(arg, tir.AccessPtr):
                cases[arg.buffer.name] = _case_of(call.span.tensor)
    return cases


def _by_case(changes: Mapping[str, Difference]) -> dict[int, Difference]:
    return {_case_of(tensor): first for tensor, first in changes.items()}
