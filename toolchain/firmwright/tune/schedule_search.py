"""Search for the fastest schedule of every layer of a model, in rounds of measurements.

Proposals depend on the seed and on the search's own measurements, not on the log or the executor,
so the log's content and order are reproducible.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import TypeAlias

import numpy as np

from firmwright.boards import Board, load_board
from firmwright.flows.executors import Executor
from firmwright.flows.model.compilation import module_after, pass_names
from firmwright.flows.model.model import Model
from firmwright.flows.verify.operator_conformance import budget_bytes
from firmwright.ir.graph import OpCall
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.module import IRModule
from firmwright.lower.lowering import Lowering, format_shapes
from firmwright.ops.registry import op_table
from firmwright.ops.schedule import DEFAULT_SCHEDULE, LoweringCandidate
from firmwright.ops.tuning_records import (
    ConfiguredSchedule,
    Measurement,
    MeasurementContext,
    MeasurementKey,
    configured_schedule,
    kernel_digest,
    layer_digest,
)
from firmwright.pipeline import Options, configure_module, make_lowering
from firmwright.tune import kernel_measurement
from firmwright.tune.kernel_comparison import LOWERED_STAGE, layer_module
from firmwright.tune.kernel_measurement import MeasurementSetup, MeasurementTask
from firmwright.tune.log_writer import TuningLogWriter

log = logging.getLogger(__name__)
PROPOSALS_PER_ROUND = 8
"""Proposals per layer in one round."""
_KERNEL_CODE_BYTES = 6 << 10
"""Generous estimate of a kernel's code size in the image."""
_IMAGE_INSTRUCTIONS = 100_000_000
"""Maximum predicted instructions of one image's run, to keep tasks short."""
_FAR_OFF = 2
"""Schedules predicted to be slower by more than this factor are tried only as offered."""
_BAR = 20


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Options of a search: at most `trials` kernels per layer are measured."""

    trials: int = 32
    strategy: str = "model"
    seed: int = 0
    kernels_per_image: int = 16


@dataclass(frozen=True, slots=True)
class LayerSearchResult:
    """The result of one layer: trials, best choice, and `guess`, the choice without a log.

    `guess_count` is 0 if that was not measured. `calls` counts the layer's calls in the model.
    """

    description: str
    calls: int
    tried: int
    space: int
    bad: int
    best: ConfiguredSchedule
    best_count: int
    guess: ConfiguredSchedule
    guess_count: int


@dataclass(frozen=True, slots=True)
class TuningResult:
    """The result of a search; `measured` and `from_log` count kernels."""

    board: str
    unit: str
    measured: int
    from_log: int
    layers: tuple[LayerSearchResult, ...]
    untuned: int


@dataclass
class _LayerSearch:
    call: OpCall
    description: str
    digest: str
    lowering: Lowering
    calls: int = 0
    seen: dict[ConfiguredSchedule, int | None] = field(default_factory=dict)
    built: dict[ConfiguredSchedule, LoweringCandidate] = field(default_factory=dict)

    @cached_property
    def choices(self) -> tuple[ConfiguredSchedule, ...]:
        """Return the offered choices, and all those of competitive or unoffered schedules."""
        costs = {rule: item.instructions for (rule, _), item in reversed(self.offered.items())}
        most = _FAR_OFF * min(costs.values())
        space = (configured_schedule(rule, config) for rule, config in self.lowering.space(0))
        near = {rule for rule, cost in costs.items() if cost <= most}
        return tuple(c for c in space if c in self.offered or c[0] in near or c[0] not in costs)

    @cached_property
    def offered(self) -> dict[ConfiguredSchedule, LoweringCandidate]:
        """Return the candidates that are offered without a log, best prediction first."""
        (lowered,) = self.lowering.calls()
        return {configured_schedule(item.rule, item.config): item for item in lowered.candidates}

    def kernel(self, choice: ConfiguredSchedule) -> LoweringCandidate:
        if choice in self.offered:
            return self.offered[choice]
        if choice not in self.built:
            self.built[choice] = self.lowering.kernel(0, choice[0], dict(choice[1]))
        return self.built[choice]

    def predicted(self, choice: ConfiguredSchedule) -> int:
        return self.kernel(choice).instructions

    def key(self, choice: ConfiguredSchedule, at: MeasurementContext) -> MeasurementKey:
        return self.digest, kernel_digest(self.kernel(choice).function), choice, at

    def proposals(self, plan: SearchOptions) -> Sequence[ConfiguredSchedule]:
        """Return the next choices, the default one first, or none when the search is complete."""
        space = SearchSpace(self.choices, self.predicted)
        if len(self.choices) <= plan.trials:
            return space.untried(self.seen)
        count = min(PROPOSALS_PER_ROUND, plan.trials - len(self.seen))
        if count <= 0:
            return ()
        words = f"{plan.seed} {self.digest} {len(self.seen)}".encode()
        seed = int.from_bytes(hashlib.sha256(words).digest()[:8], "little")
        chosen = STRATEGIES[plan.strategy](space, self.seen, count, np.random.default_rng(seed))
        guess = next(iter(self.offered))
        return chosen if guess in self.seen else list(dict.fromkeys([guess, *chosen]))[:count]


def tune(
    model: Model,
    options: Options,
    setup: MeasurementSetup,
    plan: SearchOptions,
    log_writer: TuningLogWriter,
    executor: Executor,
) -> TuningResult:
    layers, untuned = _layers(model, options)
    at = executor.call(kernel_measurement.measurement_context, options, setup.method)
    total = sum(min(len(layer.choices), plan.trials) for layer in layers)
    run = _SearchRun(options, setup, log_writer, executor, at, total, plan.kernels_per_image)
    while True:
        proposals = [(layer, choice) for layer in layers for choice in layer.proposals(plan)]
        if not proposals:
            break
        run.round(proposals)
    results = tuple(map(_layer_result, layers))
    return TuningResult(options.board, run.unit, run.measured, run.from_log, results, untuned)


def list_layers(model: Model, options: Options) -> Iterator[tuple[IRModule, OpCall, str]]:
    """Yield each operator call as lowering receives it, with its module and a description."""
    names = pass_names(model.module, options)
    module = module_after(model, names[names.index(LOWERED_STAGE) - 1], options)
    for call in module.entry_graph.body:
        if not call.op.startswith("@"):
            yield module, make_op_call(call, module), format_shapes(call)


def _layers(model: Model, options: Options) -> tuple[list[_LayerSearch], int]:
    board = load_board(options.board, options.board_dirs)
    searches: dict[tuple[str, ...], _LayerSearch] = {}
    untuned = 0
    for module, call, description in list_layers(model, options):
        (target,) = module.targets.values()
        layer_only = configure_module(layer_module(call), board, options)
        lowering = make_lowering(layer_only, options)
        layer = _LayerSearch(call, description, layer_digest(call, target), lowering)
        if op_table()[call.op].is_view or len(layer.choices) < 2 or not _is_exact(call):
            untuned += 1
            continue
        forms = [kernel_digest(item.function) for item in layer.offered.values()]
        identity = (layer.digest, *sorted(forms))
        searches.setdefault(identity, layer).calls += 1
    return list(searches.values()), untuned


def _is_exact(call: OpCall) -> bool:
    """Return whether results are exact integers; float kernels may differ in the last bits."""
    kinds = [*(kind for kind in call.inputs if kind is not None), *call.outputs]
    return len(call.outputs) == 1 and all(kind.dtype.is_int for kind in kinds)


def _layer_result(layer: _LayerSearch) -> LayerSearchResult:
    counts = [(count, choice) for choice, count in layer.seen.items() if count is not None]
    guess = next(iter(layer.offered))
    best_count, best = min(counts, default=(0, guess))
    return LayerSearchResult(
        description=layer.description,
        calls=layer.calls,
        tried=len(layer.seen),
        space=len(layer.choices),
        bad=len(layer.seen) - len(counts),
        best=best,
        best_count=best_count,
        guess=guess,
        guess_count=layer.seen.get(guess) or 0,
    )


# ---- rounds --------------------------------------------------------------------------------------


_Proposal: TypeAlias = tuple[_LayerSearch, ConfiguredSchedule]


@dataclass
class _SearchRun:
    options: Options
    setup: MeasurementSetup
    log_writer: TuningLogWriter
    executor: Executor
    at: MeasurementContext
    total: int
    kernels_per_image: int
    measured: int = 0
    from_log: int = 0
    unit: str = ""

    def round(self, proposals: Sequence[_Proposal]) -> None:
        """Measure the choices that are not in the log, and log all results in order."""
        keys = [layer.key(choice, self.at) for layer, choice in proposals]
        order: dict[MeasurementKey, _Proposal] = {}
        for key, item in zip(keys, proposals, strict=True):
            order.setdefault(key, item)
        pending = [key for key in order if self.log_writer.find(key) is None]
        self.from_log += len(order) - len(pending)
        tasks = list(self._tasks([order[key] for key in pending]))
        ends = list(accumulate(len(task.kernels) for task in tasks))
        ready = iter(order)
        upcoming = self._write(ready, next(ready, None))
        for index, results in self.executor.run(kernel_measurement.run_task, tasks):
            keys_of_task = pending[ends[index] - len(results) : ends[index]]
            for key, result in zip(keys_of_task, results, strict=True):
                digest, kernel, choice, at = key
                measurement = Measurement(
                    layer=digest,
                    kernel=kernel,
                    choice=choice,
                    status=result.status,
                    count=result.count,
                    unit=result.unit,
                    what=order[key][0].description,
                    at=at,
                )
                self.log_writer.record_early(measurement)
            self.measured += len(results)
            self._log_progress()
            upcoming = self._write(ready, upcoming)
        for (layer, choice), key in zip(proposals, keys, strict=True):
            done = self.log_writer.find(key)
            assert done is not None  # every task has returned a result
            layer.seen[choice] = done.count if done.status == "ok" else None
            self.unit = done.unit or self.unit

    def _write(
        self, rest: Iterator[MeasurementKey], upcoming: MeasurementKey | None
    ) -> MeasurementKey | None:
        """Write the known measurements, `upcoming` first; return the first unknown key."""
        while upcoming is not None and (measurement := self.log_writer.find(upcoming)) is not None:
            self.log_writer.append(measurement)
            upcoming = next(rest, None)
        return upcoming

    def _log_progress(self) -> None:
        done = self.measured + self.from_log
        filled = round(_BAR * done / max(self.total, done, 1))
        bar = "█" * filled + "░" * (_BAR - filled)
        log.info("%s %d of %d kernels, %d from the log", bar, done, self.total, self.from_log)

    def _tasks(self, proposals: Sequence[_Proposal]) -> Iterator[MeasurementTask]:
        board = load_board(self.options.board, self.options.board_dirs)
        group: list[_Proposal] = []
        for item in proposals:
            full = len(group) == self.kernels_per_image
            if group and (full or not _fits_one_image([*group, item], board)):
                yield self._task(group)
                group = []
            group.append(item)
        if group:
            yield self._task(group)

    def _task(self, group: Sequence[_Proposal]) -> MeasurementTask:
        kernels = tuple((layer.call, choice) for layer, choice in group)
        return MeasurementTask(kernels, self.options, self.setup)


def _fits_one_image(group: Sequence[_Proposal], board: Board) -> bool:
    layers = {id(layer): layer for layer, _ in group}.values()
    references = [layer.kernel((DEFAULT_SCHEDULE, ())) for layer in layers]
    kernels = [*references, *(layer.kernel(choice) for layer, choice in group)]
    tensors = sum(_tensor_bytes(layer.call) for layer in layers)
    flash = sum(kernel.flash_bytes + _KERNEL_CODE_BYTES for kernel in kernels)
    return (
        tensors <= budget_bytes(board)
        and (board.is_host or flash <= board.flash.size_bytes)
        and sum(kernel.instructions for kernel in kernels) <= _IMAGE_INSTRUCTIONS
    )


def _tensor_bytes(call: OpCall) -> int:
    """Return the bytes of a layer's tensors in an image: its inputs, and its result twice."""
    variables = (k for index, k in enumerate(call.inputs) if call.constant(index) is None)
    inputs = sum(kind.size_bytes for kind in variables if kind is not None)
    return inputs + 2 * call.output.size_bytes


# ---- strategies that propose the next kernels of a layer ----------------------------------------

TriedCounts: TypeAlias = Mapping[ConfiguredSchedule, int | None]
"""Counts of tried choices; None for kernels that are wrong or failed."""


@dataclass(frozen=True)
class SearchSpace:
    """The choices of a layer, most promising first, and a function that predicts their counts."""

    choices: tuple[ConfiguredSchedule, ...]
    predicted: Callable[[ConfiguredSchedule], int]

    def untried(self, seen: TriedCounts) -> list[ConfiguredSchedule]:
        return [choice for choice in self.choices if choice not in seen]


Strategy: TypeAlias = Callable[
    [SearchSpace, TriedCounts, int, np.random.Generator], Sequence[ConfiguredSchedule]
]


def propose_random(
    space: SearchSpace, seen: TriedCounts, count: int, rng: np.random.Generator
) -> Sequence[ConfiguredSchedule]:
    untried = space.untried(seen)
    order = rng.permutation(len(untried))
    return [untried[index] for index in order[:count]]


def propose_by_cost_model(
    space: SearchSpace, seen: TriedCounts, count: int, rng: np.random.Generator
) -> Sequence[ConfiguredSchedule]:
    """Propose choices by predicted cost, corrected by the measured error of each schedule."""
    untried = space.untried(seen)
    corrections = _corrections(space, seen)
    overall = corrections.get("", 1.0)
    costs = {c: space.predicted(c) * corrections.get(c[0], overall) for c in untried}
    return sorted(untried, key=costs.__getitem__)[:count]


def _corrections(space: SearchSpace, seen: TriedCounts) -> dict[str, float]:
    """Return the mean ratio of measured to predicted counts by schedule, and overall under ""."""
    logs: dict[str, list[float]] = {}
    for choice, counted in seen.items():
        if counted:
            ratio = math.log(counted / max(1, space.predicted(choice)))
            logs.setdefault(choice[0], []).append(ratio)
            logs.setdefault("", []).append(ratio)
    return {name: math.exp(math.fsum(ratios) / len(ratios)) for name, ratios in logs.items()}


_PARENTS = 4
_RANDOM_SHARE = 0.2
"""Probability that a proposal is random although mutations are available."""


def propose_by_mutation(
    space: SearchSpace, seen: TriedCounts, count: int, rng: np.random.Generator
) -> Sequence[ConfiguredSchedule]:
    """Propose mutations of the best choices so far, each with one changed setting.

    The first call proposes the best guess of each schedule, and random choices.
    """
    untried = space.untried(seen)
    if not seen:
        guesses = list({choice[0]: choice for choice in reversed(untried)}.values())[::-1]
        seen = dict.fromkeys(guesses)
        return [*guesses, *propose_random(space, seen, count, rng)][:count]
    counted = sorted((n, choice) for choice, n in seen.items() if n is not None)
    parents = [choice for _, choice in counted[:_PARENTS]]
    proposals: list[ConfiguredSchedule] = []
    while len(proposals) < count and untried:
        parent = parents[int(rng.integers(len(parents)))] if parents else None
        near = [] if parent is None else [c for c in untried if _is_neighbor(parent, c)]
        pool = untried if not near or rng.random() < _RANDOM_SHARE else near
        child = pool[int(rng.integers(len(pool)))]
        untried.remove(child)
        proposals.append(child)
    return proposals


def _is_neighbor(a: ConfiguredSchedule, b: ConfiguredSchedule) -> bool:
    return a[0] == b[0] and len({name for name, _ in set(a[1]) ^ set(b[1])}) == 1


STRATEGIES: Mapping[str, Strategy] = {
    "random": propose_random,
    "evolutionary": propose_by_mutation,
    "model": propose_by_cost_model,
}
