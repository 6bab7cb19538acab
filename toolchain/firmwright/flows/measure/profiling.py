"""Measures the cost of a run: in total, by operator, and on the stack.

The total is that of the second run on the measured sample in the release image, counted
by the firmware, without the counter's own cost. The operators' shares come from the
profile image; `probe_overhead` is the difference of the totals. If counts vary, several
runs are measured. Exact profiles (QEMU only) count every instruction of the release
image.
"""

import logging
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median_low

from firmwright.base.errors import UsageError
from firmwright.base.html_views import show_html
from firmwright.boards import Board, Compiler
from firmwright.build.compiler_flags import (
    MODEL_OPTIMIZATION,
    clang_flags,
    compile_flags,
)
from firmwright.build.compiler_selection import choose_compiler
from firmwright.build.zig_toolchain import zig_flags
from firmwright.device.session import OperatorCount
from firmwright.flows.board.emulated_board import emulate
from firmwright.flows.board.model_session import (
    ModelSession,
    SessionOpener,
    open_session,
)
from firmwright.flows.measure.core_timeline import software_models
from firmwright.flows.measure.instruction_counts import (
    InstructionCounts,
    measure_instructions,
)
from firmwright.flows.predict import run_schedule
from firmwright.flows.predict.cost_prediction import predict_instructions
from firmwright.flows.predict.run_schedule import ModeledTimes, ScheduledCall
from firmwright.flows.predict.time_prediction import predict_time
from firmwright.flows.samples.sample_batches import Tensors, measured_sample
from firmwright.pipeline import Compilation
from firmwright.report.model import PoolUsage
from firmwright.targets.backend_registry import BACKENDS
from firmwright.targets.run_time import RunTime

log = logging.getLogger(__name__)
RUNS = 11
"""The number of runs if counts do not repeat exactly."""
_NOT_COUNTED = "the cycles of another board are modeled for counted instructions only."
_COUNTING_HINT = "add --count-instructions."


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """The cost of one operator in the profile's unit, rounded to its resolution.

    `label` is its name for people. `predicted` is the cost model's value in
    instructions. Exact profiles set `kinds` (instructions by kind) and
    `modeled_cycles`, which transfers and engines have in any emulator. `least` is the
    minimum over all runs.
    """

    index: int
    name: str
    kind: str
    macs: int
    count: int
    schedule: str
    predicted: int
    label: str
    modeled_cycles: int | None = None
    kinds: Mapping[str, int] | None = None
    least: int | None = None
    device: str = ""


@dataclass(frozen=True, slots=True)
class Profile:
    """The cost of a model on a board; `unit` is instructions, cycles or ns.

    `resolution` is one tick of the counter. `stack_bytes` is the maximum since
    start-up, including the runtime, or None if not measured, as on the host. `exact`
    holds instruction counts. `total` is the median of `runs` runs, `least` the
    minimum, `most` the maximum and `mean` the mean. `clock_hz` is the processor's
    clock, or 0 if unknown. `flags` are the compiler and its flags.
    """

    model: str
    board: str
    unit: str
    total: int
    resolution: int
    operators: tuple[OperatorCost, ...]
    probe_overhead: int
    stack_bytes: int | None
    stack_reserve_bytes: int
    exact: InstructionCounts | None = None
    runs: int = 1
    least: int = 0
    most: int = 0
    mean: float = 0.0
    clock_hz: int = 0
    flags: str = ""
    pools: tuple[PoolUsage, ...] = ()
    schedule: tuple[ScheduledCall, ...] = ()
    time: RunTime | None = None
    """The modeled time of a run whose counter counts instructions, if it is known."""

    @property
    def macs(self) -> int:
        return sum(operator.macs for operator in self.operators)

    @property
    def estimates(self) -> tuple[tuple[str, int, str], ...]:
        """Return devices with their calls' declared cycles and the source of these."""
        cycles: Counter[tuple[str, str]] = Counter()
        for operator in self.operators:
            backend = BACKENDS.find(operator.schedule)
            if backend is not None and backend.estimated_by:
                device = (operator.device, backend.estimated_by)
                cycles[device] += operator.modeled_cycles or 0
        rows: list[tuple[str, int, str]] = []
        for (name, source), count in cycles.items():
            rows.append((name, count, source))
        return tuple(rows)

    def _repr_html_(self) -> str:
        return show_html(self)


def profile(
    compiled: Compilation,
    *,
    open_with: SessionOpener = open_session,
    count_instructions: bool = False,
    timing_board: Board | None = None,
    compiler: Compiler | None = None,
    runs: int | None = None,
    clock_hz: int | None = None,
) -> Profile:
    """Measure `compiled` on its board, with 1 run if counts repeat exactly, else RUNS.

    With `count_instructions`, QEMU counts each instruction, and emulates real boards.
    Cycles are modeled for `timing_board`, by default the model's, at `clock_hz`.
    """
    program, board, counts = compiled, compiled.board, None
    timed = _timed_board(board, timing_board, clock_hz, is_counted=count_instructions)
    if count_instructions:
        compiled = emulate(compiled)
        counts = measure_instructions(
            compiled, open_with=open_with, compiler=compiler, timing_board=timed
        )
    runs = runs or (1 if compiled.board.run.kind == "qemu" else RUNS)
    predictions = predict_instructions(compiled)
    sample = measured_sample(compiled.module)
    with open_with(compiled, variant="release", compiler=compiler) as session:
        log.info("measuring on %s", compiled.board.name)
        device = session.device
        totals = list(device.measurements(sample, runs))
        info = device.info
        stack_bytes = device.stack_bytes() if info.stack_bytes else None
    totals = _with_emulated_devices(compiled, counts, totals)
    total = median_low(totals)
    if counts is not None:
        probed, operators = total, _counted(compiled, counts, predictions)
    else:
        with open_with(compiled, variant="profile", compiler=compiler) as session:
            probed, operators = _probed(compiled, session, sample, runs, predictions)
    times = run_schedule.modeled_times(compiled)
    return Profile(
        model=compiled.module.name,
        board=board.name,
        unit=info.counter_unit,
        total=total,
        resolution=math.ceil(info.counter_scale),
        operators=_with_modeled(operators, times),
        probe_overhead=probed - total,
        stack_bytes=stack_bytes,
        stack_reserve_bytes=info.stack_bytes,
        exact=counts,
        runs=runs,
        least=min(totals),
        most=max(totals),
        mean=fmean(totals),
        clock_hz=_clock_hz(compiled.board, timed, info.start_up_text),
        flags=_flags(compiler, board),
        pools=_pool_usage(compiled),
        schedule=_schedule(compiled, operators, counts, times),
        time=_modeled_time(program, counts, info.counter_unit, clock_hz),
    )


def _timed_board(
    board: Board, other: Board | None, clock_hz: int | None, *, is_counted: bool
) -> Board:
    """Return the board whose cycles are modeled, at its clock."""
    if other is not None and not is_counted:
        raise UsageError(_NOT_COUNTED, where="--timing-board", hint=_COUNTING_HINT)
    return _at_clock(other or board, clock_hz)


def _modeled_time(
    program: Compilation,
    counts: InstructionCounts | None,
    unit: str,
    clock_hz: int | None,
) -> RunTime | None:
    """Return the time of the counted instructions, or else the predicted one."""
    if unit != "instructions":
        return None
    if counts is not None:
        return counts.time
    return predict_time(program, clock_hz)


def _with_emulated_devices(
    compiled: Compilation, counts: InstructionCounts | None, totals: list[int]
) -> list[int]:
    """Return the totals, or the count without the software models of devices."""
    if counts is not None and software_models(compiled):
        return [counts.total.instructions]
    return totals


def _at_clock(board: Board, clock_hz: int | None) -> Board:
    return board if clock_hz is None else board.at_clock(clock_hz)


def _clock_hz(board: Board, timed: Board, start_up_text: str) -> int:
    """Return the clock of the run, or the modeled one of another `timed` board.

    After start-up with an error, `start_up_text`, the board has its reset clock.
    """
    if timed is not board:  # it is emulated, or another board was named
        return timed.modeled_hz
    return board.clock_hz if start_up_text else board.run_hz


def _pool_usage(compiled: Compilation) -> tuple[PoolUsage, ...]:
    usage: list[PoolUsage] = []
    for name, pool in compiled.summary.pools.items():
        usage.append(PoolUsage(name, pool.bytes, pool.limit_bytes))
    return tuple(usage)


def _flags(requested: Compiler | None, board: Board) -> str:
    compiler = choose_compiler(requested, default=board.compiler)
    flags = {"gcc": compile_flags, "clang": clang_flags, "zig": zig_flags}[compiler]
    return " ".join((compiler, MODEL_OPTIMIZATION, *flags(board)))


def _with_modeled(
    operators: Sequence[OperatorCost], times: ModeledTimes
) -> tuple[OperatorCost, ...]:
    modeled: list[OperatorCost] = []
    for cost in operators:
        if cost.index in times:
            cost = replace(cost, modeled_cycles=times[cost.index].cycles)
        modeled.append(cost)
    return tuple(modeled)


def _schedule(
    compiled: Compilation,
    operators: Sequence[OperatorCost],
    counts: InstructionCounts | None,
    times: ModeledTimes,
) -> tuple[ScheduledCall, ...]:
    if counts is not None and counts.timeline is not None:
        schedule = counts.timeline.schedule
    else:
        by_operator = {operator.index: operator.count for operator in operators}
        schedule = run_schedule.schedule_run(compiled.module, by_operator, times)
    run_schedule.check_races(compiled.module, schedule)
    return schedule


def _probed(
    compiled: Compilation,
    session: ModelSession,
    sample: Tensors,
    runs: int,
    predictions: Mapping[int, int],
) -> tuple[int, tuple[OperatorCost, ...]]:
    log.info("measuring each operator on %s", compiled.board.name)
    totals: list[int] = []
    counts: list[tuple[OperatorCount, ...]] = []
    for total in session.device.measurements(sample, runs):
        totals.append(total)
        counts.append(session.device.profile())
    costs = []
    for cost in _costs(compiled, predictions):
        values = [of_run[cost.index].count for of_run in counts]
        costs.append(replace(cost, count=median_low(values), least=min(values)))
    return median_low(totals), tuple(costs)


def _costs(
    compiled: Compilation, predictions: Mapping[int, int]
) -> Iterator[OperatorCost]:
    """Yield the operators with counts of 0."""
    devices = run_schedule.operator_devices(compiled.module)
    for op in compiled.summary.operators:
        yield OperatorCost(
            index=op.index,
            name=op.name,
            kind=op.kind,
            macs=op.macs,
            count=0,
            schedule=op.schedule,
            predicted=predictions.get(op.index, 0),
            label=op.label,
            device=devices[op.index],
        )


def _counted(
    compiled: Compilation, counts: InstructionCounts, predictions: Mapping[int, int]
) -> tuple[OperatorCost, ...]:
    costs = []
    for cost in _costs(compiled, predictions):
        share = counts.operators[cost.index]
        kinds = {str(kind): count for kind, count in share.kinds.items()}
        count, cycles = share.instructions, share.cycles
        costs.append(replace(cost, count=count, modeled_cycles=cycles, kinds=kinds))
    return tuple(costs)
