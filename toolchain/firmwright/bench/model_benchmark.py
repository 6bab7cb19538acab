"""Benchmarks of models on boards: instructions, memory, flash and compile time."""

import logging
import operator
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

from firmwright.artifacts import Image
from firmwright.base.errors import FirmwrightError, InternalError
from firmwright.base.resources import digits_dir
from firmwright.bench.peer_figures import PeerFigure, find_figure
from firmwright.boards import load_board
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.board.model_session import open_session
from firmwright.flows.executors import DaskExecutor, Executor
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import find_model_files, load_model, provide_file
from firmwright.flows.samples.sample_batches import measured_sample
from firmwright.pipeline import OPTIMIZE_GOALS, Compilation

log = logging.getLogger(__name__)
BALANCED = "balanced"
_HERE = Executor()
STREAM_INPUT_SUFFIX = "+rows"
"""Suffix of a mode in which the input is streamed row by row."""
MODES = tuple(
    goal + rows for goal in OPTIMIZE_GOALS for rows in ("", STREAM_INPUT_SUFFIX)
)


@dataclass(frozen=True, slots=True)
class PeerResult:
    """Another system's figures for a model; None if unknown."""

    instructions: int | None
    workspace_bytes: int | None
    flash_bytes: int | None


@dataclass(frozen=True, slots=True)
class BenchmarkRow:
    """One model on one board in one mode; if `problem` is set, nothing was measured.

    `count` is in `unit` (instructions, cycles or ns); `flash_bytes` and `stack_bytes`
    are the model's.
    """

    model: str
    board: str
    core: str
    mode: str = BALANCED
    unit: str = ""
    count: int | None = None
    workspace_bytes: int | None = None
    lower_bound_bytes: int | None = None
    flash_bytes: int | None = None
    stack_bytes: int | None = None
    compile_seconds: float | None = None
    peer: PeerResult = PeerResult(None, None, None)
    problem: str = ""

    @property
    def ratio(self) -> float | None:
        theirs = self.peer.instructions
        if self.count is None or not theirs or self.unit != "instructions":
            return None
        return self.count / theirs


def find_models(folder: str) -> tuple[Path, ...]:
    """Return the model files in `folder` by name, by default the bundled example's."""
    return find_model_files(folder) if folder else (digits_dir() / "digits.tflite",)


def measure_models(
    models: Sequence[Path],
    boards: Sequence[str],
    figures: Sequence[PeerFigure],
    modes: Sequence[str] = (BALANCED,),
    executor: Executor = _HERE,
) -> tuple[BenchmarkRow, ...]:
    for board in boards:
        load_board(board)  # an unknown name is an error before the first measurement
    is_local = not isinstance(executor, DaskExecutor)
    calls: list[Callable[[], BenchmarkRow]] = []
    for path, board, mode in product(models, boards, modes):
        content = None if is_local else path.read_bytes()
        calls.append(partial(measure_model, path, board, mode, content))
    measured: dict[int, BenchmarkRow] = {}
    for index, row in executor.run(operator.call, calls):
        measured[index] = row
        done = f"{row.model} on {row.board}, {row.mode}"
        log.info("%d of %d rows: %s", len(measured), len(calls), done)
    rows: list[BenchmarkRow] = []
    for index in range(len(calls)):
        row = measured[index]
        peer = _peer_result(row.model, row.core, figures)
        rows.append(replace(row, peer=peer))
    return tuple(rows)


def measure_model(
    path: Path, board: str, mode: str, content: bytes | None = None
) -> BenchmarkRow:
    """Measure one model; the row has no figures of other systems.

    An error of this combination is the row's problem, since the other rows are worth
    keeping.
    """
    core = load_board(board).core
    try:
        with provide_file(path, content) as local:
            return _row(local, board, core, mode)
    except InternalError:
        raise
    except FirmwrightError as error:
        log.info("%s on %s cannot be measured: %s", path.name, board, error)
        return BenchmarkRow(path.name, board, core, mode, problem=str(error))


def _row(path: Path, board: str, core: str, mode: str) -> BenchmarkRow:
    start = time.perf_counter()
    goal = mode.removesuffix(STREAM_INPUT_SUFFIX)
    by_rows = mode.endswith(STREAM_INPUT_SUFFIX)
    compiled = compile_for(
        load_model(path), board, optimize=goal, stream_input_rows=by_rows
    )
    seconds = time.perf_counter() - start
    image = build_image(compiled)
    summary = compiled.summary
    unit, count = _count(compiled, image)
    return BenchmarkRow(
        model=path.name,
        board=board,
        core=core,
        mode=mode,
        unit=unit,
        count=count,
        workspace_bytes=summary.workspace_bytes,
        lower_bound_bytes=summary.lower_bound_bytes,
        flash_bytes=image.model_flash_bytes,
        stack_bytes=image.stack.size_bytes,
        compile_seconds=round(seconds, 2),
    )


def _count(compiled: Compilation, image: Image) -> tuple[str, int]:
    log.info("measuring %s on %s", compiled.module.name, compiled.board.name)
    sample = measured_sample(compiled.module)
    with open_session(compiled, image=image) as session:
        return session.device.info.counter_unit, session.device.measure(sample)


def _peer_result(model: str, core: str, figures: Sequence[PeerFigure]) -> PeerResult:
    def of(metric: str) -> int | None:
        return find_figure(figures, model=model, core=core, metric=metric)

    code = of("code_flash_bytes")
    weights = of("model_flash_bytes")
    flash = None if code is None or weights is None else code + weights
    return PeerResult(of("instructions"), of("workspace_bytes"), flash)
