"""The MLPerf Tiny benchmark: firmware, data set and score (decision 0051).

The folder of the data set has `y_labels.csv` with one line for each file: name, number
of classes, class and, for files with several windows, window size and stride in bytes.
A file's result is the mean of its windows.
"""

import csv
import logging
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from firmwright.base.child_process import Word
from firmwright.base.dtypes import Array
from firmwright.base.errors import UsageError
from firmwright.base.input_files import read_input_bytes, read_input_rows
from firmwright.device.process_transport import PtyProcess
from firmwright.device.qemu_process import PACE_MAX, QemuCommand
from firmwright.device.transport_selection import open_transport, takes_image
from firmwright.extensions.mlperf.firmware import MlperfTask, find_task
from firmwright.extensions.mlperf.session import InferenceTiming, MlperfSession
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.board.firmware_mains import FirmwareFactory
from firmwright.flows.samples.metrics import area_under_curve, top_k_accuracy
from firmwright.pipeline import Compilation

log = logging.getLogger(__name__)
LABELS = "y_labels.csv"
TIMED_SAMPLES = 5
"""The benchmark's throughput is the median over this number of samples."""


@dataclass(frozen=True, slots=True)
class LabeledSample:
    """A file of the data set with its windows and class."""

    file: str
    windows: tuple[bytes, ...]
    label: int


@dataclass(frozen=True, slots=True)
class BenchmarkScore:
    """The benchmark results of a firmware.

    `top1` is None without class scores, and `auc` is None if all samples belong to one
    class. `results` has one row for each file. Times are reported by the firmware, in
    microseconds.
    """

    task: str
    name: str
    samples: int
    top1: float | None
    auc: float | None
    per_second: float
    microseconds: float
    results: tuple[tuple[float, ...], ...]
    timings: tuple[InferenceTiming, ...]


def with_benchmark_firmware(
    compiled: Compilation, task: str = "", *, energy: bool = False, clock_hz: int = 0
) -> Compilation:
    """Return the compilation with the benchmark's firmware.

    `clock_hz` is the clock of an emulated core; 0 leaves it as it is.
    """
    if clock_hz and compiled.board.run.kind != "qemu":
        what = "a clock can be set for emulated boards only."
        raise UsageError(what, where=compiled.board.name, hint="no --clock.")
    main = benchmark_task(compiled, task, energy=energy)
    return replace(compiled, firmware_main=replace(main, clock_hz=clock_hz))


def benchmark_task(
    compiled: Compilation, task: str = "", *, energy: bool = False
) -> MlperfTask:
    """Return the task called `task`, by default the model's; UsageError without one."""
    if compiled.module.results.pipelined_runs:
        what = "the benchmark reads the outputs of each input after one run."
        raise UsageError(what, where=compiled.module.name, hint="omit --pipeline-runs.")
    return replace(find_task(compiled.module.io, task), energy=energy)


FIRMWARE_MAINS: Mapping[str, FirmwareFactory] = {
    "mlperf": benchmark_task,
    "mlperf-energy": partial(benchmark_task, energy=True),
}


def task_of(compiled: Compilation) -> MlperfTask | None:
    """Return the task of a compilation; None if its firmware is not the benchmark's."""
    main = compiled.firmware_main
    return main if isinstance(main, MlperfTask) else None


def run_benchmark(
    compiled: Compilation,
    samples: Sequence[LabeledSample],
    *,
    port: str = "",
    timeout_s: float = 300.0,
    iterations: int = 10,
    warmups: int = 10,
) -> BenchmarkScore:
    """Measure the accuracy on all samples and the time on the first five."""
    elf = build_image(compiled).elf if takes_image(port) else Path()
    transport = open_transport(compiled.board, elf, port=port)
    with MlperfSession(transport, timeout_s=timeout_s) as session:
        name = session.value("name", "m-name-dut-")
        log.info("%d samples through %s", len(samples), compiled.board.name)
        scores = np.array([_mean_result(session, sample) for sample in samples])
        timings: list[InferenceTiming] = []
        for sample in samples[:TIMED_SAMPLES]:
            session.load(sample.windows[0])
            timings.append(session.infer(iterations, warmups))
    task = task_of(compiled) or find_task(compiled.module.io)
    labels = np.array([sample.label for sample in samples])
    times = [timing.microseconds / timing.count for timing in timings]
    microseconds = statistics.median(times)
    return BenchmarkScore(
        task=task.name,
        name=name,
        samples=len(samples),
        top1=None if task.is_error else top_k_accuracy(scores, labels),
        auc=area_under_curve(scores, labels),
        per_second=1e6 / microseconds if microseconds else 0.0,
        microseconds=microseconds,
        results=tuple(map(tuple, scores.tolist())),
        timings=tuple(timings),
    )


def _mean_result(session: MlperfSession, sample: LabeledSample) -> Array:
    """Return the mean result of a file's windows, each computed once."""
    results: list[Sequence[float]] = []
    for window in sample.windows:
        session.load(window)
        results.append(session.infer(1, 0).results)
    return np.asarray(np.mean(results, axis=0))


def serve_on_pty(compiled: Compilation) -> PtyProcess:
    """Run the firmware on a pseudo terminal for the benchmark's runner.

    The pace of the emulator is the power of two next to the period of the task's clock.
    """
    task, run = task_of(compiled), compiled.board.run
    if task is not None and task.clock_hz:
        pace = min(max(round(math.log2(1e9 / task.clock_hz)), 0), PACE_MAX)
        task = replace(task, pace=pace)
        compiled = replace(compiled, firmware_main=task)
    image = build_image(compiled)
    if run.kind == "qemu":
        command = QemuCommand(
            run.machine,
            image.elf,
            run.program,
            tuple(run.args),
            pace=task.pace if task else 0,
        )

        def arguments(terminal: int) -> list[Word]:
            return replace(command, terminal=terminal).arguments()

        return PtyProcess(arguments, drops_output=True)
    if run.kind == "host":
        return PtyProcess(lambda _: [image.elf])
    what = "a physical board has its own serial port."
    hint = "flash the board, and give that port to the runner."
    raise UsageError(what, where=compiled.board.name, hint=hint)


def read_dataset(
    folder: str | Path, task: MlperfTask, limit: int | None = None
) -> tuple[LabeledSample, ...]:
    """Read at most `limit` samples; UsageError for missing files and wrong sizes."""
    labels = Path(folder) / LABELS
    try:
        rows = read_input_rows(labels)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        what = f"the data set has no {LABELS} that can be read: {error}."
        hint = "use a data set folder of the benchmark's runner, which has that file."
        raise UsageError(what, where=str(folder), hint=hint) from error
    samples = []
    for row in rows[:limit]:
        samples.append(_labeled_sample(Path(folder), row, task, labels))
    if not samples:
        raise UsageError("the data set holds no samples.", where=str(labels))
    return tuple(samples)


def _labeled_sample(
    folder: Path, row: Sequence[str], task: MlperfTask, labels: Path
) -> LabeledSample:
    """Read the file of a line of the labels; UsageError if they do not fit the task."""
    try:
        name, _, label, *window = row
        size, stride = 0, 0
        if window:
            size, stride = map(int, window[:2])
        data = read_input_bytes(folder / name)
        windows = _windows(data, size, stride, task.sample_bytes)
        return LabeledSample(name, windows, int(label))
    except OSError as error:
        what = f"{row[0]} cannot be read: {error.strerror}."
        raise UsageError(what, where=str(labels)) from error
    except ValueError as error:
        what = f"the line {','.join(row)!r} or its file does not fit: {error}."
        hint = f"use lines FILE,CLASSES,CLASS and files of {task.sample_bytes} bytes."
        raise UsageError(what, where=str(labels), hint=hint) from error


def _windows(
    data: bytes, size: int, stride: int, sample_bytes: int
) -> tuple[bytes, ...]:
    """Split a file into windows, one if `size` is 0; ValueError unless samples fit."""
    if not size:
        size = stride = max(len(data), 1)
    if size != sample_bytes or stride < 1 or len(data) < size:
        windows = f"{len(data)} bytes in windows of {size}"
        raise ValueError(f"{windows}, samples have {sample_bytes}")
    starts = range(0, len(data) - size + 1, stride)
    return tuple(data[start : start + size] for start in starts)
