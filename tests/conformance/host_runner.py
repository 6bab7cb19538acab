"""Run a batch of kernels on the host and compare every result bit for bit.

A run fails if its result differs (for floats, by more than the bound), if it writes
outside its arguments, or if its result depends on memory around them. A kernel that
crashes or is stopped by a sanitizer is reported with its output.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.build.compiler_flags import WARNINGS, language_flags
from firmwright.conformance.case_tables import ConformanceCase
from tests.conformance.expected_results import Expected, float_layers, inputs
from tests.conformance.kernel_batches import (
    VERDICTS,
    Batch,
    Kernel,
    RowBand,
    make_batch,
)

HERE = Path(__file__).parent
FLIPS = (0, 255)
QUICKLY_BUILT = ("-O0",)
FAST = ("-O1",)
CHECKS_ARE_CALLS = (
    "--param=asan-instrumentation-with-call-threshold=0",
    "-Wno-unused-command-line-argument",
)
"""Saves a third of gcc's time; clang does not support the option."""
SANITIZED = ("-O0", "-fsanitize=address", *CHECKS_ARE_CALLS)
UNDEFINED = ("-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a kernel: its inputs and the expected result of each profile.

    A float may differ from the result by up to `bound`.
    """

    kernel: int
    sample: int
    flip: int
    inputs: list[Array]
    expected: list[Array]
    bound: Array | None = None


def build(
    batch: Batch, folder: Path, flags: Sequence[str] = FAST, compiler: str = "cc"
) -> Path:
    """Build the program of the batch."""
    write_sources(batch, folder)
    program = folder / "conform"
    command = [
        compiler,
        *language_flags(),
        *WARNINGS,
        *flags,
        "-I.",
        "harness.c",
        "host_main.c",
    ]
    done = subprocess.run(
        [*command, "-o", str(program), "-lm"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return program


def write_sources(batch: Batch, folder: Path) -> None:
    for name, text in batch.files.items():
        (folder / name).write_text(text)
    for name in ("harness.c", "harness.h", "host_main.c"):
        (folder / name).write_bytes((HERE / name).read_bytes())


def make_runs(
    batch: Batch, expected: Expected, samples: Sequence[int]
) -> Iterator[Run]:
    """Return a run for every kernel and sample, with both patterns around arguments."""
    for index, kernel in enumerate(batch.kernels):
        for sample in samples:
            given = inputs(batch.cases[kernel.layer], sample)
            results = expected.of(kernel.profiles, kernel.layer, sample)
            bound = expected.bounds.get((kernel.layer, sample))
            if kernel.rows is not None:
                band = _band_position(kernel, sample, len(results[0][0]))
                if band is None:
                    continue
                given = _rows_of(kernel, given, band)
                rows = slice(band * kernel.rows.band, (band + 1) * kernel.rows.band)
                results = [each[:, rows] for each in results]
                bound = None if bound is None else bound[:, rows]
            for flip in FLIPS:
                yield Run(index, sample, flip, given, results, bound)


def _band_position(kernel: Kernel, sample: int, height: int) -> int | None:
    """Return the first, last complete or middle band; None if it lacks rows."""
    assert kernel.rows is not None
    bands = height // kernel.rows.band
    return (0, bands - 1, bands // 2)[sample]


def _rows_of(kernel: Kernel, given: Sequence[Array], band: int) -> list[Array]:
    """Return the inputs of a band: rows of streamed inputs, all of the others."""
    assert kernel.rows is not None
    call, whole = kernel.call, kernel.rows.map.whole_inputs
    variable = [
        place
        for place, kind in enumerate(call.inputs)
        if kind is not None and call.constant(place) is None
    ]
    return [
        x if place in whole else _rows_of_one(kernel.rows, x, band)
        for place, x in zip(variable, given, strict=True)
    ]


def _rows_of_one(rows_of: RowBand, x: Array, band: int) -> Array:
    """Return the input rows of a band; rows outside the tensor have the pad value."""
    where = rows_of.map
    start = where.stride * band - where.pad_before
    rows = np.arange(start, start + where.window_height)
    is_outside = (rows < 0) | (rows >= x.shape[1])
    found = x[:, np.clip(rows, 0, x.shape[1] - 1)].copy()
    if is_outside.any():
        assert where.pad_value is not None
        found[:, is_outside] = where.pad_value
    return found


def find_failures(batch: Batch, program: Path, todo: Sequence[Run]) -> list[str]:
    """Return a message for each failed run."""
    answers, said = _answers(program, todo)
    found = [
        line
        for run, (result, verdict) in zip(todo, answers, strict=False)
        for line in _verdicts(batch, run, result, verdict)
    ]
    if len(answers) < len(todo):
        found.append(f"{batch.describe(todo[len(answers)].kernel)}: {said}")
    return found


def _answers(program: Path, todo: Sequence[Run]) -> tuple[list[tuple[Array, int]], str]:
    """Return results and verdicts until the program stopped, and its message."""
    sent = b"".join(
        np.array([run.kernel, run.flip], np.uint32).tobytes()
        + b"".join(each.tobytes() for each in run.inputs)
        for run in todo
    )
    done = subprocess.run([str(program)], input=sent, capture_output=True, check=False)
    said = done.stderr.decode("utf-8", "replace")
    said = said[said.find("ERROR") :] if "ERROR" in said else said
    answers: list[tuple[Array, int]] = []
    place = 0
    for run in todo:
        expected = run.expected[0]
        end = place + expected.nbytes
        if end + 4 > len(done.stdout):
            break
        result = np.frombuffer(done.stdout, expected.dtype, expected.size, place)
        verdict = int.from_bytes(done.stdout[end : end + 4], "little")
        answers.append((result.reshape(expected.shape), verdict))
        place = end + 4
    return answers, f"exit {done.returncode}: {said[-3000:]}"


def _verdicts(batch: Batch, run: Run, result: Array, verdict: int) -> Iterator[str]:
    label = f"{batch.describe(run.kernel)}, sample {run.sample}, pattern {run.flip}"
    if verdict:
        yield f"{label}: {VERDICTS[verdict]}"
    for expected in run.expected:
        is_wrong = result != expected
        if run.bound is not None:
            distance = np.abs(result.astype(np.float64) - expected)
            is_wrong &= ~(distance <= run.bound)
        differing = np.flatnonzero(is_wrong)
        if differing.size:
            first = int(differing[0])
            yield (
                f"{label}: {differing.size} of {result.size} values differ, at {first} "
                f"{result.flat[first]} instead of {expected.flat[first]}"
            )


def with_host_floats(
    cases: Sequence[ConformanceCase],
    expected: Expected,
    samples: Sequence[int],
    folder: Path,
) -> Expected:
    """Return `expected` with float results from the default loops on this host.

    All kernels sum products in the same order, so they give these bits on every core.
    """
    places = float_layers(cases)
    if not places:
        return expected
    some = [cases[place] for place in places]
    batch = make_batch(some, ("c",))
    folder.mkdir()
    todo = list(make_runs(batch, _part(expected, places), samples))
    program = build(batch, folder, QUICKLY_BUILT)
    assert find_failures(batch, program, todo) == []
    results = dict(expected.results)
    for run, (result, _) in zip(todo, _answers(program, todo)[0], strict=True):
        kernel = batch.kernels[run.kernel]
        for profile in kernel.profiles:
            results[profile, places[kernel.layer], run.sample] = result
    return Expected(results, expected.bounds)


def _part(expected: Expected, places: Sequence[int]) -> Expected:
    """Return the expected results of the layers at `places`, renumbered."""
    position = {place: k for k, place in enumerate(places)}
    return Expected(
        {
            (p, position[n], s): v
            for (p, n, s), v in expected.results.items()
            if n in position
        },
        {(position[n], s): v for (n, s), v in expected.bounds.items() if n in position},
    )
