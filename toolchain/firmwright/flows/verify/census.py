"""Census of a folder: import, compile, verify and profile each model by itself.

Each model is examined in its own process.
"""

import logging
import pickle
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path

from firmwright.base.child_process import (
    end_process,
    kill_process,
    python_command,
    start_process,
)
from firmwright.base.errors import (
    DoesNotFitError,
    FirmwrightError,
    InternalError,
    ModelError,
    ReferenceRefusalError,
    UnsupportedError,
)
from firmwright.boards import load_board
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.executors import Executor
from firmwright.flows.measure.profiling import profile
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.given_options import OptionValues
from firmwright.flows.model.model import Model, load_model_of_many, provide_file
from firmwright.flows.model.model_inspection import inspect_module
from firmwright.flows.predict.fit import fit_boards
from firmwright.flows.verify.verification import verify
from firmwright.ir import tir
from firmwright.ir.tir.op_count import SHORT_LOOP_MAX
from firmwright.ir.tir.traversal import prim_calls, statements, walk
from firmwright.ops.schedule import DEFAULT_SCHEDULE
from firmwright.pipeline import Compilation
from firmwright.report.census_page import CensusEntry, CensusFit, CensusStatus
from firmwright.schedules.registry import schedules_for
from firmwright.targets.registry import features_of_known

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CensusTask:
    """One model with its compilation options; the limit `timeout_s` is for the model.

    `shapes` are those of inputs with these names in models that leave sizes open. The
    needs of models that pass are predicted for `fit_boards`. A task without `content`
    reads `path` on the machine that runs it.
    """

    name: str
    path: str
    size_bytes: int
    options: OptionValues
    shapes: Mapping[str, tuple[int, ...]]
    samples: int
    with_profile: bool
    timeout_s: float
    content: bytes | None = None
    fit_boards: tuple[str, ...] = ()


def take_census(
    tasks: Sequence[CensusTask], executor: Executor
) -> tuple[CensusEntry, ...]:
    """Return one entry for each task, in their order."""
    entries: dict[int, CensusEntry] = {}
    for index, entry in executor.run(run_in_process, tasks):
        entries[index] = entry
        done, total = len(entries), len(tasks)
        log.info("%d of %d models, %s: %s", done, total, entry.file, entry.status)
    return tuple(entries[index] for index in range(len(tasks)))


def run_in_process(task: CensusTask) -> CensusEntry:
    """Examine a model in its own process, which may crash or be ended at the limit."""
    with (
        tempfile.TemporaryDirectory(prefix="firmwright-census-") as name,
        provide_file(task.path, task.content) as path,
    ):
        folder = Path(name)
        request, answer = folder / "task", folder / "entry"
        request.write_bytes(pickle.dumps(replace(task, path=str(path), content=None)))
        command = python_command("firmwright.flows.verify.census", request, answer)
        with (folder / "log").open("wb") as output:
            # The options may hold paths relative to the current folder.
            process = start_process(
                command,
                "repeat the census.",
                task.name,
                folder=Path.cwd(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
            try:
                process.wait(task.timeout_s)
            except subprocess.TimeoutExpired:
                end_process(process)
                reason = f"not finished after {task.timeout_s:g} s"
                return CensusEntry(task.name, task.size_bytes, reason=reason)
            finally:
                kill_process(process)
        if answer.is_file():
            entry: CensusEntry = pickle.loads(answer.read_bytes())
            return entry
        text = (folder / "log").read_text(encoding="utf-8", errors="replace")
        last = "".join(text.splitlines()[-1:])
        reason = f"the process ended with status {process.returncode}: {last}"
        return CensusEntry(task.name, task.size_bytes, reason=reason)


def examine_model(task: CensusTask) -> CensusEntry:
    """Compile and verify a model; `.tflite` models that LiteRT does not run are TFLM's.

    A defect of Firmwright is the result, whatever the other runtime would say.
    """
    entry = _examine(task)
    is_tflite = task.path.endswith(".tflite") and "numerics" not in task.options
    if is_tflite and entry.status in _RETRIED_WITH_TFLM:
        of_tflm = _examine(replace(task, options={**task.options, "numerics": "tflm"}))
        return of_tflm if of_tflm.passed else entry
    return entry


_RETRIED_WITH_TFLM = (
    CensusStatus.UNREADABLE,
    CensusStatus.UNSUPPORTED,
    CensusStatus.REFUSED,
    CensusStatus.FAILED,
)


def _examine(task: CensusTask) -> CensusEntry:
    entry = CensusEntry(task.name, task.size_bytes)
    try:
        for step in _steps(task, entry):
            entry = step
    except UnsupportedError as error:
        return replace(entry, status=CensusStatus.UNSUPPORTED, reason=_reasons(error))
    except FirmwrightError as error:
        return replace(entry, status=_status_of(error), reason=_one_line(error))
    except Exception as error:  # noqa: BLE001 - a census also records our own defects
        internal = InternalError(f"{type(error).__name__}: {error}")
        return replace(entry, status=CensusStatus.DEFECT, reason=_one_line(internal))
    return entry


def _reasons(error: UnsupportedError) -> str:
    """Return a model's unsupported features, each once with the number of places."""
    places = Counter(f"{item.op}: {item.why}" for item in error.items)
    reasons: list[str] = []
    for why, count in places.items():
        reasons.append(why if count == 1 else f"{why} ({count} places)")
    return "; ".join(reasons)


def _status_of(error: FirmwrightError) -> CensusStatus:
    match error:
        case ModelError():
            return CensusStatus.UNREADABLE
        case DoesNotFitError():
            return CensusStatus.TOO_LARGE
        case ReferenceRefusalError():
            return CensusStatus.REFUSED
        case InternalError():
            return CensusStatus.DEFECT
    return CensusStatus.FAILED


def _steps(task: CensusTask, entry: CensusEntry) -> Iterator[CensusEntry]:
    """Yield the entry after each step, so that a failing one leaves earlier figures."""
    model = load_model_of_many(task.path, task.shapes)
    inspection = inspect_module(model.module)
    entry = replace(entry, operators=len(inspection.operators), macs=inspection.macs)
    yield entry
    compiled = compile_for(model, **task.options)
    entry = replace(entry, workspace_bytes=compiled.summary.workspace_bytes)
    yield entry
    result = verify(compiled, samples=task.samples)
    worst = result.max_abs_error
    entry = replace(entry, reference=result.reference, max_abs_error=worst)
    if not result.exact:
        reason = f"{result.mismatches:,} of {result.values:,} values differ"
        yield replace(entry, status=CensusStatus.DIFFERS, reason=reason)
        return
    status = CensusStatus.TOLERANCE if result.is_float else CensusStatus.EQUAL
    entry = replace(entry, status=status)
    yield entry
    if task.with_profile:
        entry = _profiled(compiled, entry)
        yield entry
    if task.fit_boards:
        yield replace(entry, fits=_fits(model, task))


def _fits(model: Model, task: CensusTask) -> tuple[CensusFit, ...]:
    """Return the predicted needs of a model on each of the boards of the task."""
    folders = task.options.get("board_dirs", ())
    boards = [load_board(name, folders) for name in task.fit_boards]
    fits: list[CensusFit] = []
    for fit in fit_boards(model, task.options, boards):
        census_fit = CensusFit(
            board=fit.board,
            fits=fit.fits,
            workspace_bytes=fit.workspace.need_bytes if fit.workspace else None,
            flash_bytes=fit.flash.need_bytes if fit.flash else None,
            stack_bytes=fit.stack_bytes,
            instructions=fit.instructions,
            cycles=fit.time.cycles if fit.time else None,
            milliseconds=fit.time.milliseconds if fit.time else "",
        )
        fits.append(census_fit)
    return tuple(fits)


def _profiled(compiled: Compilation, entry: CensusEntry) -> CensusEntry:
    """Return the entry with a run's costs, and their part in default loops."""
    costs = profile(compiled, runs=1)
    total = sum(operator.count for operator in costs.operators)
    slow = _operators_in_default_loops(compiled)
    by_kind: Counter[str] = Counter()
    for operator in costs.operators:
        if operator.index in slow:
            by_kind[operator.kind] += operator.count
    slowest, most = max(by_kind.items(), key=itemgetter(1), default=("", 0))
    return replace(
        entry,
        model_flash_bytes=build_image(compiled).model_flash_bytes,
        unit=costs.unit,
        count=costs.total,
        default_loops=round(by_kind.total() / max(total, 1), 4),
        slowest_default=slowest,
        slowest_default_share=round(most / max(total, 1), 4),
    )


_VECTORS = frozenset({"mve", "rvv"})
_FLOAT_VECTORS = frozenset({"mvefp", "rvvf"})
_NOT_SCALAR = _VECTORS | _FLOAT_VECTORS | {"fpu"}
"""The features of schedules for vectors, and for floats, which few vectors compute."""


def _operators_in_default_loops(compiled: Compilation) -> set[int]:
    """Return the operators whose loops use nothing that the core has for them.

    Vectors are for integers on cores without vectors of floats.
    """
    features = features_of_known(compiled.module.targets.values())
    lacking = _schedules_lacking_vectors(features)
    of_floats = features.isdisjoint(_FLOAT_VECTORS)
    kernels = _kernels_with_loops(compiled)
    operators: set[int] = set()
    for operator in compiled.summary.operators:
        schedule, _, _ = operator.schedule.partition(" ")
        kernel = kernels.get(operator.index)
        if kernel is None:
            continue
        is_exempt = of_floats and _computes_floats(kernel)
        if schedule == DEFAULT_SCHEDULE or (schedule in lacking and not is_exempt):
            operators.add(operator.index)
    return operators


def _schedules_lacking_vectors(features: frozenset[str]) -> set[str]:
    """Return the integer schedules that leave the vectors of the core unused."""
    if features.isdisjoint(_VECTORS):
        return set()
    available = schedules_for(features)
    return {each.name for each in available if each.requires.isdisjoint(_NOT_SCALAR)}


def _computes_floats(kernel: tir.PrimFunc) -> bool:
    """Return whether a kernel takes floats, or has a constant that is one."""
    takes_floats = any(parameter.value.dtype.is_float for parameter in kernel.params)
    constants = (isinstance(node, tir.FloatImm) for node in walk(kernel.body))
    return takes_floats or any(constants)


def _kernels_with_loops(compiled: Compilation) -> dict[int, tir.PrimFunc]:
    """Return the kernels that have a loop that is not short, by operator."""
    main = compiled.module.entry
    assert isinstance(main, tir.PrimFunc)
    kernels: dict[int, tir.PrimFunc] = {}
    for call in prim_calls(main.body):
        kernel = compiled.module.kernel(call.callee)
        if any(map(_is_loop, statements(kernel.body))):
            kernels[call.op] = kernel
    return kernels


def _is_loop(stmt: tir.Stmt) -> bool:
    match stmt:
        case tir.For(extent=tir.IntImm(value=trips)):
            return trips > SHORT_LOOP_MAX
    return isinstance(stmt, tir.For | tir.While)


def _one_line(error: FirmwrightError) -> str:
    return " ".join(str(error).split())


def main(request: str, answer: str) -> None:
    """Write the entry of the pickled task in file `request` to the file `answer`.

    A termination ends compilers and emulators, too.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    task: CensusTask = pickle.loads(Path(request).read_bytes())
    Path(answer).write_bytes(pickle.dumps(examine_model(task)))


if __name__ == "__main__":
    main(*sys.argv[1:])
