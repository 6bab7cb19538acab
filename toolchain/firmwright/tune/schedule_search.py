"""The search: every layer of a model, round by round, until spaces or trials are at their end.

In: a model, options, a log, workers. Out: a `TuningResult` that says what was found; the log has
every
measurement. Layers that are alike are searched once. Spaces no larger than the trials are measured
whole. What a round proposes depends on the seed and on what the search itself saw, not on the log,
on the workers or on their number: so the log's content and order are always the same.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import TypeAlias

import numpy as np

from firmwright.boards import Board, load_board
from firmwright.flows.compilation import module_after, pass_names
from firmwright.flows.kernel_comparison import LOWERED_STAGE, layer_module
from firmwright.flows.model import Model
from firmwright.flows.selftest import budget_bytes
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.nodes import Function
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.module import IRModule
from firmwright.ir.tir.schedule import DEFAULT_SCHEDULE, LoweringCandidate
from firmwright.ir.tuning_records import (
    ConfiguredSchedule,
    Measurement,
    MeasurementContext,
    MeasurementKey,
    configured_schedule,
    kernel_digest,
    layer_digest,
)
from firmwright.lower.lowering import Lowering, format_shapes
from firmwright.ops.registry import op_table
from firmwright.pipeline import Options, configure_module, make_lowering
from firmwright.tune.executors import Executor
from firmwright.tune.kernel_measurement import (
    KernelResult,
    MeasurementSetup,
    MeasurementTask,
    group_by_layer,
)
from firmwright.tune.log_writer import TuningLogWriter
from firmwright.tune.search_strategies import STRATEGIES, SearchSpace

log = logging.getLogger(__name__)
PROPOSALS_PER_ROUND = 8
"""Proposals of a layer in one round."""
_KERNEL_CODE_BYTES = 6 << 10
"""A generous guess of what a kernel's code takes in the image."""
_IMAGE_INSTRUCTIONS = 100_000_000
"""What a run of one image may take by prediction, so that no task is long."""
_FAR_OFF = 2
"""Rules whose best is that much slower than the best of all are tried as they are offered."""
_BAR = 20


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How to search: at most `trials` kernels of a layer, by that strategy, so many at once."""

    trials: int = 32
    strategy: str = "model"
    seed: int = 0
    kernels_per_image: int = 16


@dataclass(frozen=True, slots=True)
class LayerSearchResult:
    """One layer: how many kernels were tried, the best, and what would be taken without a log.

    `guess_count` is 0 where that was not measured. `calls` counts the layer's calls in the model.
    """

    what: str
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
    """What a search did: `measured` now, `known` from the log before, and every layer."""

    board: str
    unit: str
    measured: int
    known: int
    layers: tuple[LayerSearchResult, ...]
    untuned: int


@dataclass
class _LayerSearch:
    """A layer in the course of its search."""

    call: OpCall
    what: str
    digest: str
    lowering: Lowering
    calls: int = 1
    seen: dict[ConfiguredSchedule, int | None] = field(default_factory=dict)
    built: dict[ConfiguredSchedule, LoweringCandidate] = field(default_factory=dict)

    @cached_property
    def choices(self) -> tuple[ConfiguredSchedule, ...]:
        """What is offered, and the larger spaces of rules that are not far off by prediction."""
        costs = {rule: item.instructions for (rule, _), item in reversed(self.offered.items())}
        most = _FAR_OFF * min(costs.values())
        space = (configured_schedule(rule, config) for rule, config in self.lowering.space(0))
        near = {rule for rule, cost in costs.items() if cost <= most}
        return tuple(c for c in space if c in self.offered or c[0] in near or c[0] not in costs)

    @cached_property
    def offered(self) -> dict[ConfiguredSchedule, LoweringCandidate]:
        """What there is to choose from without a log, best predicted first."""
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
        """The next ones to try; none when the search is over.

        What would be taken without a log comes first: a log makes nothing worse.
        """
        space = SearchSpace(self.choices, self.predicted)
        if len(self.choices) <= plan.trials:
            return space.unseen(self.seen)
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
    """Search all layers of `model`, which no pass has been through."""
    layers, untuned = _layers(model, options)
    at = executor.circumstances(options, setup.method)
    total = sum(min(len(layer.choices), plan.trials) for layer in layers)
    run = _SearchRun(options, setup, log_writer, executor, at, total, plan.kernels_per_image)
    while True:
        wanted = [(layer, choice) for layer in layers for choice in layer.proposals(plan)]
        if not wanted:
            break
        run.round(wanted)
    return TuningResult(
        board=options.board,
        unit=run.unit,
        measured=run.measured,
        known=run.known,
        layers=tuple(_told(layer) for layer in layers),
        untuned=untuned,
    )


def list_layers(model: Model, options: Options) -> Iterator[tuple[IRModule, OpCall, str]]:
    """The operator calls of a model as lowering will see them, each with a line for readers."""
    names = pass_names(model.module, options)
    module = module_after(model, names[names.index(LOWERED_STAGE) - 1], options)
    assert isinstance(module.entry, Function)
    for call in module.entry.body:
        if not call.op.startswith("@"):
            yield module, make_op_call(call, module), format_shapes(call)


def _layers(model: Model, options: Options) -> tuple[list[_LayerSearch], int]:
    """The layers that there is something to choose for, and how many calls there are beside."""
    board = load_board(options.board, options.board_dirs)
    found: dict[tuple[str, ...], _LayerSearch] = {}
    untuned = 0
    for module, call, what in list_layers(model, options):
        (target,) = module.targets.values()
        alone = configure_module(layer_module(call), board, options)
        layer = _LayerSearch(call, what, layer_digest(call, target), make_lowering(alone, options))
        if op_table()[call.op].is_view or len(layer.choices) < 2 or not _is_exact(call):
            untuned += 1
            continue
        forms = [kernel_digest(item.function) for item in layer.offered.values()]
        identity = (layer.digest, *sorted(forms))
        if identity in found:
            found[identity].calls += 1
        else:
            found[identity] = layer
    return list(found.values()), untuned


def _is_exact(call: OpCall) -> bool:
    """Kernels of floats may differ in the last bits, so equality does not judge them."""
    kinds = [*(kind for kind in call.inputs if kind is not None), *call.outputs]
    return len(call.outputs) == 1 and all(kind.dtype.is_int for kind in kinds)


def _told(layer: _LayerSearch) -> LayerSearchResult:
    counts = [(count, choice) for choice, count in layer.seen.items() if count is not None]
    guess = next(iter(layer.offered))
    best_count, best = min(counts, default=(0, guess))
    return LayerSearchResult(
        what=layer.what,
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


_Wanted: TypeAlias = tuple[_LayerSearch, ConfiguredSchedule]


@dataclass
class _SearchRun:
    """What rounds share, and what they add up to."""

    options: Options
    setup: MeasurementSetup
    log_writer: TuningLogWriter
    executor: Executor
    at: MeasurementContext
    total: int
    kernels_per_image: int
    measured: int = 0
    known: int = 0
    unit: str = ""

    def round(self, wanted: Sequence[_Wanted]) -> None:
        """Measure what the log does not know of `wanted`, and write all of it in that order."""
        keys = [layer.key(choice, self.at) for layer, choice in wanted]
        order: dict[MeasurementKey, _Wanted] = {}
        for key, item in zip(keys, wanted, strict=True):
            order.setdefault(key, item)
        pending = [key for key in order if self.log_writer.find(key) is None]
        self.known += len(order) - len(pending)
        tasks = list(self._tasks([order[key] for key in pending]))
        spans = _spans(tasks)
        ready = iter(order)
        upcoming = self._write(ready, next(ready, None))
        for index, results in self.executor.run(tasks):
            for key, result in zip(pending[spans[index]], results, strict=True):
                self.log_writer.record_early(self._measurement(key, order[key][0], result))
            self.measured += len(results)
            self._say()
            upcoming = self._write(ready, upcoming)
        for (layer, choice), key in zip(wanted, keys, strict=True):
            found = self.log_writer.find(key)
            assert found is not None  # every task came back
            layer.seen[choice] = found.count if found.status == "ok" else None
            self.unit = found.unit or self.unit

    def _write(
        self, rest: Iterator[MeasurementKey], upcoming: MeasurementKey | None
    ) -> MeasurementKey | None:
        """Write what is known from `upcoming` on; what comes next is returned."""
        while upcoming is not None and (found := self.log_writer.find(upcoming)) is not None:
            self.log_writer.append(found)
            upcoming = next(rest, None)
        return upcoming

    def _measurement(
        self, key: MeasurementKey, layer: _LayerSearch, result: KernelResult
    ) -> Measurement:
        digest, kernel, choice, at = key
        return Measurement(
            digest, kernel, choice, result.status, result.count, result.unit, layer.what, at
        )

    def _say(self) -> None:
        done = self.measured + self.known
        filled = round(_BAR * done / max(self.total, done, 1))
        bar = "█" * filled + "░" * (_BAR - filled)
        log.info("%s %d of %d kernels, %d from the log", bar, done, self.total, self.known)

    def _tasks(self, wanted: Sequence[_Wanted]) -> Iterator[MeasurementTask]:
        """Consecutive kernels that fit into one firmware."""
        board = load_board(self.options.board, self.options.board_dirs)
        group: list[_Wanted] = []
        for item in wanted:
            full = len(group) == self.kernels_per_image
            if group and (full or not _fit([*group, item], board)):
                yield self._task(group)
                group = []
            group.append(item)
        if group:
            yield self._task(group)

    def _task(self, group: Sequence[_Wanted]) -> MeasurementTask:
        kernels = [(layer.call, choice) for layer, choice in group]
        return MeasurementTask(group_by_layer(kernels), self.options, self.setup)


def _spans(tasks: Sequence[MeasurementTask]) -> list[slice]:
    """Where the kernels of each task are among those of all."""
    ends = list(accumulate(task.size for task in tasks))
    return [slice(end - task.size, end) for end, task in zip(ends, tasks, strict=True)]


def _fit(group: Sequence[_Wanted], board: Board) -> bool:
    """Whether these kernels may be one firmware, by estimate: memory, code, time."""
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
    """What a layer's tensors take in an image: its inputs, and its result twice."""
    inputs = sum(
        kind.size_bytes
        for index, kind in enumerate(call.inputs)
        if kind is not None and call.constant(index) is None
    )
    return inputs + 2 * call.output.size_bytes
