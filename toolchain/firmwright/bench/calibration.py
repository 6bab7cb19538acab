"""Calibration of a board's modeled cycles: a chip runs micro-benchmarks and models."""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from statistics import fmean, median_low

from firmwright.artifacts import Variant
from firmwright.base.dtypes import INT32
from firmwright.base.errors import UsageError
from firmwright.boards import Board, load_board
from firmwright.boards.load import BOARD_FILE, board_file
from firmwright.boards.schema import Calibration
from firmwright.flows.board.model_session import ModelSession
from firmwright.flows.measure.instruction_counts import measure_instructions
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model
from firmwright.flows.samples.sample_batches import measured_sample
from firmwright.ir.graph.attributes.control import CustomAttrs
from firmwright.ir.graph.nodes import Call, Function, TensorType, Value
from firmwright.ir.module import IRModule
from firmwright.ops.custom import CUSTOM_OPS, CustomOp
from firmwright.pipeline import Compilation

_SOURCE = Path(__file__).with_name("micro_benchmarks.c")
_RUNS = 5
_MORE_WAIT_STATES = 4
_CLEARLY = 0.05
"""The difference (natural logarithm) of programs in flash from others to explain."""
_ENOUGH_MODELS = 3
"""With fewer models, micro-benchmarks are part of the range."""


@dataclass(frozen=True, slots=True)
class CalibrationPoint:
    """A program's cycles on the chip and in the model, without calibration."""

    name: str
    measured: int
    modeled: int

    @property
    def ratio(self) -> float:
        return self.measured / max(1, self.modeled)


def micro_benchmarks() -> IRModule:
    """Return a module with one operator for each function of micro_benchmarks.c."""
    text = _SOURCE.read_text(encoding="utf-8")
    x = Value("x", TensorType((1024,), INT32, None))
    calls: list[Call] = []
    results: list[Value] = []
    for name in re.findall(r"void bench_(\w+)\(.*\);", text):
        sources = {_SOURCE.name: text}
        op = CustomOp(
            name, f"bench_{name}", sources, lambda call, arrays: (), domain=__name__
        )
        CUSTOM_OPS.register(op)
        attrs = CustomAttrs(domain=__name__, name=name, data="")
        result = Value(name, TensorType((2,), INT32, None))
        calls.append(Call("custom", (x,), (result,), attrs))
        results.append(result)
    main = Function("main", (x,), tuple(calls), tuple(results))
    return IRModule("calibration", {"main": main}, {}, entry_name="main")


def calibrate(
    models: Sequence[Model],
    board_name: str,
    open_chip: Callable[[Compilation, Variant], ModelSession],
    board_dirs: Sequence[Path] = (),
) -> tuple[tuple[CalibrationPoint, ...], Calibration]:
    """Measure micro-benchmarks, then models.

    `open_chip` flashes the variant of a compilation.
    """
    dirs, points = tuple(board_dirs), []
    small = compile_for(micro_benchmarks(), board_name, board_dirs=dirs)
    board = replace(small.board, calibration=None)
    if (unit := board.counter.unit) != "cycles":
        what = f"the counter counts {unit}, and not cycles of a chip."
        raise UsageError(what, where=board.name, hint="use a board that counts cycles.")
    with open_chip(small, "profile") as session:
        session.device.measure(measured_sample(small.module))
        records = session.device.profile()
        measured = {op.name: records[op.index].count for op in small.summary.operators}
    waits, benchmarks = _explain(small, board, measured)
    for model in models:
        compiled = compile_for(model, board_name, board_dirs=dirs)
        with open_chip(compiled, "release") as session:
            sample = measured_sample(compiled.module)
            cycles = median_low(session.device.measurements(sample, _RUNS))
        timing_board = _with_wait_states(board, waits)
        counts = measure_instructions(compiled, timing_board=timing_board)
        modeled = counts.total.cycles or 0
        points.append(CalibrationPoint(model.name, cycles, modeled))
    ranged = points if len(points) >= _ENOUGH_MODELS else [*benchmarks, *points]
    ratios = [point.ratio for point in ranged]
    mean = fmean(math.log(point.ratio) for point in points or benchmarks)
    programs = [f"{date.today()} with micro-benchmarks"]
    programs += [point.name for point in points]
    calibration = Calibration(
        scale=round(math.exp(mean), 3),
        least=math.floor(1000 * min(ratios)) / 1000,
        most=math.ceil(1000 * max(ratios)) / 1000,
        measured=", ".join(programs),
        wait_states=waits,
    )
    return (*benchmarks, *points), calibration


def _explain(
    compiled: Compilation, board: Board, measured: Mapping[str, int]
) -> tuple[int | None, tuple[CalibrationPoint, ...]]:
    """Return the wait states that explain the cycles best, and the points with them."""

    def points(waits: int | None) -> tuple[CalibrationPoint, ...]:
        timing_board = _with_wait_states(board, waits)
        counts = measure_instructions(compiled, timing_board=timing_board)
        found: list[CalibrationPoint] = []
        for op in compiled.summary.operators:
            cycles = counts.operators[op.index].cycles or 0
            found.append(CalibrationPoint(op.name, measured[op.name], cycles))
        return tuple(found)

    stated = board.flash.wait_states
    found = points(stated)
    if stated is None or _flash_difference(found) <= _CLEARLY:
        return stated, found
    tries = {waits: points(waits) for waits in range(stated + _MORE_WAIT_STATES)}
    return min(tries.items(), key=lambda item: _flash_difference(item[1]))


def _flash_difference(points: Sequence[CalibrationPoint]) -> float:
    """Return how far mean ratios of programs that wait for flash and others differ."""
    waiting: list[float] = []
    others: list[float] = []
    for point in points:
        group = waiting if point.name.startswith("flash") else others
        group.append(math.log(point.ratio))
    return abs(fmean(waiting) - fmean(others))


def _with_wait_states(board: Board, waits: int | None) -> Board:
    flash = replace(board.flash, wait_states=waits)
    regions = [flash if r == board.flash else r for r in board.memory]
    return replace(board, memory=tuple(regions))


def write_calibration(
    board: str, calibration: Calibration, place: Path, board_dirs: Sequence[Path] = ()
) -> Path:
    """Write `place/BOARD/board.toml`: the board's file with the calibration."""
    text = board_file(board, (place, *board_dirs)).read_text(encoding="utf-8")
    text = re.sub(r"(?ms)^\[calibration\].*?(?=^\[|\Z)", "", text).rstrip()
    table = ""
    for key, value in asdict(calibration).items():
        if value is not None:
            table += f"{key} = {json.dumps(value)}\n"
    file = place / board / BOARD_FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n\n[calibration]\n{table}", encoding="utf-8", newline="\n")
    load_board(board, (place, *board_dirs))
    return file
