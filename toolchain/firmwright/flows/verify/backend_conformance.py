"""Compares a backend's patterns with the core's own kernels on conformance cases.

A chain of operators runs on the cases of the first one, with the others appended. Both
firmware images run on the same board and samples. The backend's outputs there and in
the TIR interpreter must equal the core's bit for bit, and guard bytes around the
buffers must keep their values.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from firmwright.base.dtypes import UINT8, Array
from firmwright.base.errors import FirmwrightError, NotSupportedError, UsageError
from firmwright.boards import Board, load_board
from firmwright.conformance.case_tables import conformance_cases
from firmwright.flows.board.model_session import SessionOpener, open_session
from firmwright.flows.model.given_options import GivenOptions
from firmwright.flows.model.model import Model, partition
from firmwright.flows.samples.reference_outputs import run_interpreter
from firmwright.flows.samples.sample_batches import Tensors
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
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.nodes import Call, Function, TensorType, Value
from firmwright.ir.graph.patterns import AlternativesPattern, OpPattern, Pattern
from firmwright.ir.module import IoTensor, IRModule
from firmwright.ir.settings import NumericsProfile
from firmwright.ir.tir.builder import INDEX
from firmwright.ir.tir.plan import BufferInfo, Placement, RelocatedBuffer
from firmwright.ir.tir.traversal import prim_calls
from firmwright.ops.registry import op_table
from firmwright.oracle.compare import Difference
from firmwright.oracle.random_samples import make_samples
from firmwright.pipeline import Compilation, emit_compilation
from firmwright.targets.backend import Backend
from firmwright.targets.registry import backend_of, parse_target
from firmwright.usmp.redzones import insert_redzones

log = logging.getLogger(__name__)
OperatorChain = tuple[OpPattern, ...]


@dataclass(frozen=True, slots=True)
class CaseDifference:
    """A check's first difference; indices of guard bytes count from the buffer."""

    check: Literal["output", "numpy meaning", "guard byte"]
    first: Difference


CaseOutcome = tuple[CaseDifference, ...] | None
"""The differences of a case, or None if no pattern matches it."""


@dataclass(frozen=True, slots=True)
class PatternResult:
    """The outcomes of the candidate cases of an entry in a backend's table."""

    name: str
    outcomes: Mapping[str, CaseOutcome]

    @property
    def matched(self) -> list[str]:
        return [case for case, found in self.outcomes.items() if found is not None]

    @property
    def rejected(self) -> list[str]:
        return [case for case, found in self.outcomes.items() if found is None]

    @property
    def differing(self) -> list[tuple[str, CaseDifference]]:
        """The differences of all cases, each with the case."""
        differing: list[tuple[str, CaseDifference]] = []
        for case, differences in self.outcomes.items():
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
    outcomes: dict[str, dict[str, CaseOutcome]] = {}
    for entry in backend.table:
        outcomes[entry.name] = {}
    for chain, cases in _grid(backend, budget_bytes(board)):
        run = _ChainRun(target, board, chain, sample_count, open_with, given)
        for name, case, outcome in run.outcomes(backend, cases):
            outcomes[name][case] = outcome
    results = tuple(PatternResult(name, by_case) for name, by_case in outcomes.items())
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
    return BackendTestResult(target, board.name, sample_count, results, has_meaning)


def _grid(
    backend: Backend, budget: int
) -> Iterator[tuple[OperatorChain, list[NamedCase]]]:
    """Yield each distinct operator chain with groups of its first operator's cases."""
    chains_by_ops: dict[tuple[str, ...], OperatorChain] = {}
    for entry in backend.table:
        for chain in operator_chains(entry.pattern):
            chains_by_ops.setdefault(tuple(part.op for part in chain), chain)
    for chain in chains_by_ops.values():
        first = chain[0].op
        cases = [NamedCase(first, case) for case in conformance_cases(first)]
        for group in grouped(cases, budget):
            yield chain, group


def operator_chains(pattern: Pattern) -> list[OperatorChain]:
    """Return a pattern's operator chains, first operator first; [] if it branches."""
    match pattern:
        case AlternativesPattern(choices=choices):
            chains: list[OperatorChain] = []
            for choice in choices:
                chains += operator_chains(choice)
            return chains
        case OpPattern(inputs=inputs):
            of_inputs = [operator_chains(part) for part in inputs or ()]
            below = [chains for chains in of_inputs if chains]
            if not below:
                return [(pattern,)]
            if len(below) > 1:
                return []
            return [(*chain, pattern) for chain in below[0]]
        case _:
            return []


@dataclass(frozen=True)
class _ChainRun:
    """One operator chain on a board."""

    target: str
    board: Board
    chain: OperatorChain
    sample_count: int
    open_with: SessionOpener
    options: GivenOptions

    def outcomes(
        self, backend: Backend, cases: Sequence[NamedCase]
    ) -> Iterator[tuple[str, str, CaseOutcome]]:
        """Yield entry, case and outcome for the entries that may match the chain."""
        owners = self._matched_entries(cases)
        chosen = sorted(owners)
        differences: dict[int, list[CaseDifference]] = {index: [] for index in chosen}
        if chosen:
            tested = [cases[index] for index in chosen]
            for number, difference in self._differing(tested):
                differences[chosen[number]].append(difference)
        ops = "+".join(part.op for part in self.chain)
        for index, item in enumerate(cases):
            label = f"{ops} {item.case.name}"
            for entry in backend.table:
                if owners.get(index) == entry.name:
                    yield entry.name, label, tuple(differences[index])
                    continue
                is_open = index not in owners
                if is_open and self.chain in operator_chains(entry.pattern):
                    yield entry.name, label, None

    def _matched_entries(self, cases: Sequence[NamedCase]) -> dict[int, str]:
        """Return the pattern entry that matches each case, by the case's number."""
        numerics = self.options.get("numerics", "litert")
        module = append_operators(cases_module(cases), self.chain[1:])
        model = Model(module.with_numerics(numerics))
        partitioned = partition(model, self.target).module
        entries: dict[int, str] = {}
        for function in partitioned.functions.values():
            if isinstance(function, Function) and function.attrs.get("composite"):
                # The names of a case's tensors begin with its number.
                number, _, _ = function.results[0].name.partition(".")
                entries[int(number)] = str(function.attrs["composite"])
        return entries

    def _differing(
        self, cases: Sequence[NamedCase]
    ) -> Iterator[tuple[int, CaseDifference]]:
        """Yield the numbers of cases with differences, and these, by three checks."""
        module = append_operators(cases_module(cases), self.chain[1:])
        seed = case_seed(cases)
        inputs = tuple(make_samples(case_inputs(cases), self.sample_count, seed))
        core = self._compiled(module, "")
        compiled = self._compiled(module, self.target)
        guarded = insert_guard_bytes(compiled)
        sent = guarded.with_guards(inputs)
        expected = self._outputs(core, inputs)
        actual = self._outputs(guarded.compiled, sent)
        found = first_differences(expected, actual, EXACT_TOLERANCE)
        for number, first in found.items():
            yield number, CaseDifference("output", first)
        cases_by_buffer = _cases_by_buffer(compiled.module)
        for buffer, first in guarded.changes(sent, actual).items():
            yield cases_by_buffer[buffer], CaseDifference("guard byte", first)
        functions = compiled.module.functions.values()
        if any("extern" in function.attrs for function in functions):
            return
        meant = run_interpreter(compiled.module, inputs).outputs
        found = first_differences(expected, meant, EXACT_TOLERANCE)
        for number, first in found.items():
            yield number, CaseDifference("numpy meaning", first)

    def _compiled(self, module: IRModule, target: str) -> Compilation:
        given: GivenOptions = {**self.options, "target": target}
        return compile_cases(module, self.board.name, given)

    def _outputs(
        self, compiled: Compilation, inputs: Sequence[Tensors]
    ) -> Sequence[Tensors]:
        target = compiled.options.target or "the core alone"
        log.info("%s on %s", target, self.board.name)
        with self.open_with(compiled) as session:
            return session.run_all(inputs)


def _cases_by_buffer(module: IRModule) -> dict[str, int]:
    """Return the cases of all buffers, as their tensors begin with their number."""
    cases: dict[str, int] = {}
    for call in prim_calls(module.aot_main.body):
        if not call.span.tensor:
            continue
        number, _, _ = call.span.tensor.partition(".")
        for arg in call.args:
            if isinstance(arg, tir.AccessPtr):
                cases[arg.buffer.name] = int(number)
    return cases


def append_operators(module: IRModule, following: OperatorChain) -> IRModule:
    """Return the module with a chain's operators after each call where they apply."""
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
    results_of_all = tuple(results.values())
    main = replace(main, body=tuple(body), results=results_of_all)
    return module.with_function(main)


def _following_calls(
    value: Value, following: OperatorChain, module: IRModule
) -> list[Call]:
    """Return calls of the operators on `value`; [] if one fails or changes shapes."""
    calls: list[Call] = []
    for number, part in enumerate(following):
        stem = value.name.split(".")[0]
        result = replace(value, name=f"{stem}.c{number}")
        attrs: dict[str, int | str] = {}
        for name, want in part.attrs.items():
            if isinstance(want, int | str):
                attrs[name] = want
        try:
            own = attrs_from_mapping(part.op, attrs)
            call = Call(part.op, (value,), (result,), own)
            inferred = op_table()[part.op].infer(make_op_call(call, module))
        except (FirmwrightError, NotSupportedError, KeyError, IndexError):
            return []
        if [kind.shape for kind in inferred] != [value.type.shape]:
            return []
        calls.append(call)
        value = result
    return calls


_BEFORE, _AFTER = "guard_before_", "guard_after_"


@dataclass(frozen=True, slots=True)
class GuardedFirmware:
    """A compilation with guard bytes, and the buffers by pool, at tensor offsets."""

    compiled: Compilation
    buffers: Mapping[str, Sequence[RelocatedBuffer]]

    def with_guards(self, samples: Sequence[Tensors]) -> list[Tensors]:
        """Return the samples with random bytes for the guards."""
        random = np.random.Generator(np.random.PCG64(0))
        tensors = self.compiled.module.io.inputs[: len(self.buffers)]
        guards: dict[str, Array] = {}
        for tensor in tensors:
            shape = tensor.type.shape
            guards[tensor.name] = random.integers(0, 256, shape, np.uint8)
        return [{**guards, **sample} for sample in samples]

    def changes(
        self, sent: Sequence[Tensors], received: Sequence[Tensors]
    ) -> dict[str, Difference]:
        """Return the first guard byte that a run changed near each buffer."""
        firsts: dict[str, Difference] = {}
        for sample, (before, after) in enumerate(zip(sent, received, strict=True)):
            for pool, buffers in self.buffers.items():
                old, new = before[_BEFORE + pool], after[_AFTER + pool]
                is_changed = old != new
                for buffer in buffers:
                    is_changed[buffer.offset : buffer.end] = False
                for at in np.flatnonzero(is_changed).tolist():
                    distances = [max(b.offset - at, at - b.end) for b in buffers]
                    near = buffers[distances.index(min(distances))]
                    index = (at - near.offset,)
                    first = Difference(
                        sample, near.name, index, old[at].item(), new[at].item()
                    )
                    firsts.setdefault(near.name, first)
        return firsts


def insert_guard_bytes(compiled: Compilation) -> GuardedFirmware:
    """Return the firmware with guard bytes around its buffers, as inputs and outputs.

    In each pool, constants and states keep their place at the start. The rest of the
    pool, buffers and guards, is an input with random bytes and an output with the bytes
    after a run.
    """
    module, moved = insert_redzones(compiled.module)
    main = module.aot_main
    plan = module.memory_plan
    kept = {info.name for info in plan.buffers if info.kind in ("const", "state")}
    tensors: dict[str, list[IoTensor]] = {_BEFORE: [], _AFTER: []}
    body = main.body
    buffers: dict[str, list[RelocatedBuffer]] = {}
    infos = list(plan.buffers)
    placements = dict(plan.placements)
    for param in main.params:
        if param.role != "pool":
            continue
        pool = param.value
        assert isinstance(pool, tir.Buffer)
        own = [item for item in moved if item.pool == pool.name]
        start = max((item.end for item in own if item.name in kept), default=0)
        size = pool.size_bytes - start
        shifted: list[RelocatedBuffer] = []
        for item in own:
            if item.name not in kept:
                shifted.append(replace(item, offset=item.offset - start))
        buffers[pool.name] = shifted
        for prefix, of_kind in tensors.items():
            guard = tir.Buffer(prefix + pool.name, UINT8, (size,))
            source = tir.AccessPtr(pool, tir.IntImm(start, INDEX), size, "rw")
            body = tir.DeclBuffer(guard, source, body)
            of_kind.append(IoTensor(guard.name, guard.name, TensorType((size,), UINT8)))
            infos.append(BufferInfo(guard.name, size, 1, (), "scratch", (pool.name,)))
            placements[guard.name] = Placement(pool.name, start)
    inputs = (*tensors[_BEFORE], *module.io.inputs)
    outputs = (*module.io.outputs, *tensors[_AFTER])
    module = replace(
        module.with_function(replace(main, body=body)),
        io=replace(module.io, inputs=inputs, outputs=outputs),
        plan=replace(plan, placements=placements, buffers=tuple(infos)),
    )
    guarded = emit_compilation(
        replace(compiled, module=module, record=None), compiled.source
    )
    return GuardedFirmware(guarded, buffers)
