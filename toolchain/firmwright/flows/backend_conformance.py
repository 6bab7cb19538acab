"""Compares the code of a backend's patterns with the core's own kernels on conformance cases.

A chain of operators runs on the cases of the first one, with the others appended. Both firmware
images run on the same board and samples, and must agree bit for bit.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from firmwright.base.errors import FirmwrightError, NotSupportedError, UsageError
from firmwright.boards import Board, load_board
from firmwright.conformance.registry import conformance_cases
from firmwright.flows.model import Model, partition
from firmwright.flows.model_session import ModelSession, open_session
from firmwright.flows.operator_conformance import (
    NamedCase,
    budget_bytes,
    case_inputs,
    case_seed,
    cases_module,
    compile_cases,
    first_differences,
    grouped,
)
from firmwright.flows.sample_batches import Tensors
from firmwright.flows.verification import EXACT_TOLERANCE
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.nodes import Call, Function, Value
from firmwright.ir.graph.patterns import AlternativesPattern, OpPattern, Pattern
from firmwright.ir.module import IRModule
from firmwright.ops.registry import op_table
from firmwright.oracle.compare import Difference
from firmwright.oracle.random_samples import make_samples
from firmwright.targets.backend import Backend
from firmwright.targets.registry import backend_of, parse_target

log = logging.getLogger(__name__)
OperatorChain = tuple[OpPattern, ...]


@dataclass(frozen=True, slots=True)
class PatternResult:
    """The result of an entry in a backend's table: candidate, matching and differing cases."""

    name: str
    cases: int
    matched: tuple[str, ...]
    differing: tuple[tuple[str, Difference], ...]


@dataclass(frozen=True, slots=True)
class BackendTestResult:
    """The results of all entries of a backend's table."""

    target: str
    board: str
    samples: int
    entries: tuple[PatternResult, ...]


def run_backend_test(
    target: str,
    board_name: str = "host",
    *,
    sample_count: int = 4,
    open_with: Callable[..., ModelSession] = open_session,
    **given: Any,
) -> BackendTestResult:
    """Test every entry of the backend's table on a board.

    Raise UsageError for an entry that matches none of its candidate cases.
    """
    backend = backend_of(parse_target(target))
    if backend is None:
        raise UsageError(
            f"{target} is a core, not a backend.", hint="run firmwright backends for the list."
        )
    board = load_board(board_name, given.get("board_dirs", ()))
    results_by_entry: dict[str, list[PatternResult]] = {entry.name: [] for entry in backend.table}
    for chain, cases in _grid(backend, budget_bytes(board)):
        run = _ChainRun(target, board, chain, sample_count, open_with, given)
        for result in run.results(backend, cases):
            results_by_entry[result.name].append(result)
    entries = tuple(
        PatternResult(
            name,
            sum(result.cases for result in results),
            tuple(case for result in results for case in result.matched),
            tuple(case for result in results for case in result.differing),
        )
        for name, results in results_by_entry.items()
    )
    for entry, total in zip(backend.table, entries, strict=True):
        if not total.matched:
            ops = sorted({part.op for chain in operator_chains(entry.pattern) for part in chain})
            raise UsageError(
                f"the pattern {entry.name} matches none of the {total.cases} cases of "
                f"{', '.join(ops) or 'its operators'}.",
                where=f"backend {backend.name}",
                hint="relax the pattern or its predicate, or change the target's attributes.",
            )
    return BackendTestResult(target, board.name, sample_count, entries)


def _grid(backend: Backend, budget: int) -> Iterator[tuple[OperatorChain, list[NamedCase]]]:
    """Yield each distinct operator chain with groups of its first operator's cases."""
    chains_by_ops: dict[tuple[str, ...], OperatorChain] = {}
    for entry in backend.table:
        for chain in operator_chains(entry.pattern):
            chains_by_ops.setdefault(tuple(part.op for part in chain), chain)
    for chain in chains_by_ops.values():
        cases = (NamedCase(chain[0].op, case) for case in conformance_cases(chain[0].op))
        for group in grouped(list(cases), budget):
            yield chain, group


def operator_chains(pattern: Pattern) -> list[OperatorChain]:
    """Return the operator chains that a pattern covers, first operator first; [] if it branches."""
    match pattern:
        case AlternativesPattern(choices=choices):
            return [chain for choice in choices for chain in operator_chains(choice)]
        case OpPattern(inputs=inputs):
            inner = [operator_chains(part) for part in inputs or ()]
            below = [nested for nested in inner if nested]
            if len(below) > 1:
                return []
            return [(*chain, pattern) for chain in (below[0] if below else [()])]
        case _:
            return []


@dataclass(frozen=True)
class _ChainRun:
    """One operator chain on a board."""

    target: str
    board: Board
    chain: OperatorChain
    sample_count: int
    open_with: Callable[..., ModelSession]
    options: Mapping[str, Any]

    def results(self, backend: Backend, cases: Sequence[NamedCase]) -> Iterator[PatternResult]:
        numerics = str(self.options.get("numerics", "litert"))
        module = append_operators(cases_module(cases), self.chain[1:]).with_attrs(numerics=numerics)
        owners = {
            int(function.results[0].name.split(".")[0]): str(function.attrs["composite"])
            for function in partition(Model(module), self.target).module.functions.values()
            if isinstance(function, Function) and function.attrs.get("composite")
        }
        chosen = [item for i, item in enumerate(cases) if i in owners]
        names = [owners[i] for i in range(len(cases)) if i in owners]
        differing = self._differing(chosen) if chosen else {}
        for entry in backend.table:
            if self.chain not in operator_chains(entry.pattern) and entry.name not in names:
                continue
            labels = {
                index: f"{'+'.join(part.op for part in self.chain)} {chosen[index].case.name}"
                for index, name in enumerate(names)
                if name == entry.name
            }
            wrong = tuple((labels[i], differing[i]) for i in labels if i in differing)
            yield PatternResult(entry.name, len(cases), tuple(labels.values()), wrong)

    def _differing(self, cases: Sequence[NamedCase]) -> dict[int, Difference]:
        module = append_operators(cases_module(cases), self.chain[1:])
        inputs = tuple(make_samples(case_inputs(cases), self.sample_count, case_seed(cases)))
        expected, actual = (self._outputs(module, inputs, text) for text in ("", self.target))
        return first_differences(expected, actual, EXACT_TOLERANCE)

    def _outputs(
        self, module: IRModule, inputs: Sequence[Tensors], target: str
    ) -> Sequence[Tensors]:
        log.info("%s on %s", target or "the core alone", self.board.name)
        options = {**self.options, "target": target}
        with self.open_with(compile_cases(module, self.board.name, options)) as session:
            return session.run_all(inputs)


def append_operators(module: IRModule, following: OperatorChain) -> IRModule:
    main = module.entry
    if not following or not isinstance(main, Function):
        return module
    body: list[Call] = []
    results: dict[str, Value] = {value.name: value for value in main.results}
    for call in main.body:
        body.append(call)
        last = call.outputs[0]
        more = _following_calls(last, following, module)
        if more:
            body += more
            results[last.name] = more[-1].outputs[0]
    return module.with_function(replace(main, body=tuple(body), results=tuple(results.values())))


def _following_calls(value: Value, following: OperatorChain, module: IRModule) -> list[Call]:
    """Return calls that apply the operators to `value`; [] if one fails or changes the shape."""
    calls: list[Call] = []
    for number, part in enumerate(following):
        stem = value.name.split(".")[0]
        result = replace(value, name=f"{stem}.c{number}")
        attrs = {name: want for name, want in part.attrs.items() if isinstance(want, int | str)}
        call = Call(part.op, (value,), (result,), attrs)
        try:
            inferred = op_table()[part.op].infer(make_op_call(call, module))
        except (FirmwrightError, NotSupportedError, KeyError, IndexError):
            return []
        if [kind.shape for kind in inferred] != [value.type.shape]:
            return []
        calls.append(call)
        value = result
    return calls
