"""Search for the fastest schedule of every layer of a model, in rounds of measurements.

Proposals depend on the seed and on the search's own measurements, not on the log or the
executor, so the log's content and order are reproducible.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

import numpy as np

from firmwright.boards import Board, load_board
from firmwright.extensions.tune import kernel_measurement
from firmwright.extensions.tune.kernel_comparison import LOWERED_STAGE, layer_module
from firmwright.extensions.tune.kernel_measurement import (
    KernelResult,
    MeasurementSetup,
    MeasurementTask,
)
from firmwright.extensions.tune.log_writer import TuningLogWriter
from firmwright.extensions.tune.search_strategies import STRATEGIES, SearchSpace
from firmwright.flows.executors import Executor
from firmwright.flows.model.compilation import module_after, pass_names
from firmwright.flows.model.model import Model
from firmwright.flows.verify.operator_conformance import budget_bytes
from firmwright.ir.graph import OpCall
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.module import IRModule
from firmwright.lower.kernel_texts import format_shapes
from firmwright.lower.lowering import Lowering
from firmwright.ops.registry import op_table
from firmwright.ops.schedule import LoweringCandidate
from firmwright.ops.tuning_records import (
    DEFAULT_CHOICE,
    ConfiguredSchedule,
    Measurement,
    MeasurementContext,
    MeasurementKey,
    configured_schedule,
    kernel_digest,
    layer_digest,
)
from firmwright.pipeline import Options, configure_module, make_lowering

log = logging.getLogger(__name__)
PROPOSALS_PER_ROUND = 8
"""Proposals per layer in one round."""
_KERNEL_CODE_BYTES = 6 << 10
"""Generous estimate of a kernel's code size in the image."""
_IMAGE_INSTRUCTIONS = 100_000_000
"""Maximum predicted instructions of one image's run, to keep tasks short."""
_FAR_OFF = 2
"""Schedules predicted to be slower by more than this are tried only as offered."""
_BAR = 20
"""Number of characters of the progress bar."""


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Options of a search: at most `trials` kernels per layer are measured."""

    trials: int = 32
    strategy: str = "model"
    seed: int = 0
    kernels_per_image: int = 16


@dataclass(frozen=True, slots=True)
class LayerSearchResult:
    """The result of one layer: trials, best choice, and the choice without a log.

    The latter is `guess`; `guess_count` is 0 if that was not measured. `calls` counts
    the layer's calls in the model.
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
    """The search for one layer; `calls` counts its calls in the model."""

    call: OpCall
    description: str
    digest: str
    lowering: Lowering
    calls: int = 0
    seen: dict[ConfiguredSchedule, int | None] = field(default_factory=dict)
    """The count of each choice that was tried; None if its kernel is wrong or fails."""
    built: dict[ConfiguredSchedule, LoweringCandidate] = field(default_factory=dict)
    """The kernels that are not offered."""

    @cached_property
    def choices(self) -> tuple[ConfiguredSchedule, ...]:
        """The offered choices, and all those of competitive or unoffered schedules."""
        # The best prediction of a schedule comes first, so that it overwrites the
        # others.
        costs: dict[str, int] = {}
        for choice, candidate in reversed(self.offered.items()):
            costs[choice.rule] = candidate.instructions
        most = _FAR_OFF * min(costs.values())
        far_off = {rule for rule, cost in costs.items() if cost > most}
        choices: list[ConfiguredSchedule] = []
        for choice in self.lowering.space(0):
            if choice in self.offered or choice.rule not in far_off:
                choices.append(choice)
        return tuple(choices)

    @cached_property
    def offered(self) -> dict[ConfiguredSchedule, LoweringCandidate]:
        """The candidates that are offered without a log, best prediction first."""
        (lowered,) = self.lowering.calls()
        offered: dict[ConfiguredSchedule, LoweringCandidate] = {}
        for item in lowered.candidates:
            offered[configured_schedule(item.rule, item.config)] = item
        return offered

    def kernel(self, choice: ConfiguredSchedule) -> LoweringCandidate:
        """Return the kernel of a choice, which is built once."""
        if choice in self.offered:
            return self.offered[choice]
        if choice not in self.built:
            self.built[choice] = self.lowering.kernel(0, choice)
        return self.built[choice]

    def predicted(self, choice: ConfiguredSchedule) -> int:
        return self.kernel(choice).instructions

    def key(self, choice: ConfiguredSchedule, at: MeasurementContext) -> MeasurementKey:
        return self.digest, kernel_digest(self.kernel(choice).function), choice, at

    def proposals(self, plan: SearchOptions) -> Sequence[ConfiguredSchedule]:
        """Return the next choices, the default one first; none at the search's end."""
        space = SearchSpace(self.choices, self.predicted)
        if len(self.choices) <= plan.trials:
            return space.untried(self.seen)
        count = min(PROPOSALS_PER_ROUND, plan.trials - len(self.seen))
        if count <= 0:
            return ()
        # A seed of its own for each round, so that the other layers do not matter.
        words = f"{plan.seed} {self.digest} {len(self.seen)}".encode()
        seed = int.from_bytes(hashlib.sha256(words).digest()[:8], "little")
        propose = STRATEGIES[plan.strategy]
        chosen = propose(space, self.seen, count, np.random.default_rng(seed))
        guess = next(iter(self.offered))
        if guess in self.seen:
            return chosen
        return list(dict.fromkeys([guess, *chosen]))[:count]


def tune(
    model: Model,
    options: Options,
    setup: MeasurementSetup,
    plan: SearchOptions,
    log_writer: TuningLogWriter,
    executor: Executor,
) -> TuningResult:
    """Search all layers of `model` in rounds, until no layer has a proposal."""
    layers, untuned = _layers(model, options)
    run = _SearchRun(
        options=options,
        setup=setup,
        log_writer=log_writer,
        executor=executor,
        at=executor.call(kernel_measurement.measurement_context, options, setup.method),
        total=sum(min(len(layer.choices), plan.trials) for layer in layers),
        kernels_per_image=plan.kernels_per_image,
    )
    while True:
        proposals: list[_Proposal] = []
        for layer in layers:
            proposals += [_Proposal(layer, choice) for choice in layer.proposals(plan)]
        if not proposals:
            break
        run.round(proposals)
    return TuningResult(
        board=options.board,
        unit=run.unit,
        measured=run.measured,
        from_log=run.from_log,
        layers=tuple(map(_layer_result, layers)),
        untuned=untuned,
    )


def list_layers(
    model: Model, options: Options
) -> Iterator[tuple[IRModule, OpCall, str]]:
    """Yield each operator call as lowering receives it, its module and its description.

    The description names the operator with its shapes.
    """
    names = pass_names(model.module, options)
    module = module_after(model, names[names.index(LOWERED_STAGE) - 1], options)
    for call in module.entry_graph.body:
        if not call.op.startswith("@"):
            yield module, make_op_call(call, module), format_shapes(call)


def _layers(model: Model, options: Options) -> tuple[list[_LayerSearch], int]:
    """Return the layers to tune, and the number of calls that are not tuned.

    Layers with equal digests and kernels are one. Views, inexact operators, and those
    with a single choice are not tuned.
    """
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
    """Return whether the result is exact: float kernels may differ in the last bits."""
    if len(call.outputs) != 1:
        return False
    for kind in (*call.inputs, *call.outputs):
        if kind is not None and not kind.dtype.is_int:
            return False
    return True


def _layer_result(layer: _LayerSearch) -> LayerSearchResult:
    """Return the best choice of a layer; of equal counts, the one that sorts first."""
    counts: list[tuple[int, ConfiguredSchedule]] = []
    for choice, count in layer.seen.items():
        if count is not None:
            counts.append((count, choice))
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


# ---- rounds --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Proposal:
    """A choice that is to be tried for a layer."""

    layer: _LayerSearch
    choice: ConfiguredSchedule

    @property
    def kernel(self) -> LoweringCandidate:
        return self.layer.kernel(self.choice)


@dataclass
class _SearchRun:
    """The rounds of a search; `measured`, `from_log` and `total` count kernels."""

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
        """Measure the choices that are not in the log, and log all results in order.

        Tasks end in any order. Their measurements are recorded at once, and appended to
        the log as soon as all earlier ones are there.
        """
        keys = [proposal.layer.key(proposal.choice, self.at) for proposal in proposals]
        order: dict[MeasurementKey, _Proposal] = {}
        for key, proposal in zip(keys, proposals, strict=True):
            order.setdefault(key, proposal)
        pending = [key for key in order if self.log_writer.find(key) is None]
        self.from_log += len(order) - len(pending)
        tasks = list(self._tasks([order[key] for key in pending]))
        ends = list(accumulate(len(task.kernels) for task in tasks))
        ready = iter(order)
        upcoming = self._write(ready, next(ready, None))
        for index, results in self.executor.run(kernel_measurement.run_task, tasks):
            keys_of_task = pending[ends[index] - len(results) : ends[index]]
            for key, result in zip(keys_of_task, results, strict=True):
                self._record(key, order[key].layer.description, result)
            self.measured += len(results)
            self._log_progress()
            upcoming = self._write(ready, upcoming)
        for proposal, key in zip(proposals, keys, strict=True):
            done = self.log_writer.find(key)
            # Every task has returned a result.
            assert done is not None
            count = done.count if done.status == "ok" else None
            proposal.layer.seen[proposal.choice] = count
            self.unit = done.unit or self.unit

    def _record(
        self, key: MeasurementKey, description: str, result: KernelResult
    ) -> None:
        digest, kernel, choice, at = key
        measurement = Measurement(
            layer=digest,
            kernel=kernel,
            choice=choice,
            status=result.status,
            count=result.count,
            unit=result.unit,
            what=description,
            at=at,
        )
        self.log_writer.record_early(measurement)

    def _write(
        self, rest: Iterator[MeasurementKey], upcoming: MeasurementKey | None
    ) -> MeasurementKey | None:
        """Write known measurements, `upcoming` first; return the first unknown key."""
        while upcoming is not None:
            measurement = self.log_writer.find(upcoming)
            if measurement is None:
                return upcoming
            self.log_writer.append(measurement)
            upcoming = next(rest, None)
        return None

    def _log_progress(self) -> None:
        done = self.measured + self.from_log
        filled = round(_BAR * done / max(self.total, done, 1))
        bar = "█" * filled + "░" * (_BAR - filled)
        message = "%s %d of %d kernels, %d from the log"
        log.info(message, bar, done, self.total, self.from_log)

    def _tasks(self, proposals: Sequence[_Proposal]) -> Iterator[MeasurementTask]:
        """Yield the proposals in order, in tasks as large as one image permits."""
        board = load_board(self.options.board, self.options.board_dirs)
        group: list[_Proposal] = []
        for proposal in proposals:
            is_full = len(group) == self.kernels_per_image
            if group and (is_full or not _fits_one_image([*group, proposal], board)):
                yield self._task(group)
                group = []
            group.append(proposal)
        if group:
            yield self._task(group)

    def _task(self, group: Sequence[_Proposal]) -> MeasurementTask:
        kernels = tuple((proposal.layer.call, proposal.choice) for proposal in group)
        return MeasurementTask(kernels, self.options, self.setup)


def _fits_one_image(group: Sequence[_Proposal], board: Board) -> bool:
    """Return whether the kernels and their layers' references fit in one short run."""
    layers = {id(proposal.layer): proposal.layer for proposal in group}.values()
    references = [layer.kernel(DEFAULT_CHOICE) for layer in layers]
    kernels = [*references, *(proposal.kernel for proposal in group)]
    tensor_bytes = sum(_tensor_bytes(layer.call) for layer in layers)
    if tensor_bytes > budget_bytes(board):
        return False
    flash_bytes = sum(kernel.flash_bytes + _KERNEL_CODE_BYTES for kernel in kernels)
    if not board.is_host and flash_bytes > board.flash.size_bytes:
        return False
    return sum(kernel.instructions for kernel in kernels) <= _IMAGE_INSTRUCTIONS


def _tensor_bytes(call: OpCall) -> int:
    """Return the bytes of a layer's tensors in an image: inputs, twice the result."""
    size = 2 * call.output.size_bytes
    for index, kind in enumerate(call.inputs):
        if kind is not None and call.constant(index) is None:
            size += kind.size_bytes
    return size
