"""A project whose firmware speaks MLPerf Tiny's device protocol instead of our link.

In: a project's files, the model's input and output, and the task. Out: the project with
fwr_mlperf.c in the place of main and loop, and a glue that says what a sample is. The model, its
plan and its glue are the same, so what is measured is what the other firmware runs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final, Literal

from firmwright.artifacts import SourceTree
from firmwright.base.errors import UsageError
from firmwright.base.resources import runtime_dir
from firmwright.boards import Board
from firmwright.ir.module import IoBinding, IoTensor

SampleKind = Literal["int8", "uint8", "float32"]
VENDOR: Final = "Firmwright"
_REPLACED: Final = ("runtime/fwr_main.c", "runtime/fwr_loop.c")
_ADDED: Final = ("fwr_mlperf.c", "fwr_mlperf.h")
GLUE: Final = "firmware/fwr_mlperf_task.c"
_SAMPLE_WORDS: Final = {
    "int8": "FWR_MLPERF_INT8",
    "uint8": "FWR_MLPERF_UINT8",
    "float32": "FWR_MLPERF_FLOAT32",
}


@dataclass(frozen=True, slots=True)
class Task:
    """One of the benchmark's tasks.

    `elements` and `results` are the sizes of the model's input and output, by which a model is
    known. `is_error` tells that the one result is the difference of output and input.
    """

    name: str
    model: str
    elements: int
    results: int
    sample: SampleKind
    is_error: bool = False

    @property
    def sample_bytes(self) -> int:
        """Of one sample on the line."""
        return self.elements * (4 if self.sample == "float32" else 1)


TASKS: Final = (
    Task("kws", "kws01", 490, 12, "int8"),
    Task("vww", "vww01", 96 * 96 * 3, 2, "uint8"),
    Task("ic", "ic01", 32 * 32 * 3, 10, "uint8"),
    Task("ad", "ad01", 640, 640, "float32", is_error=True),
    Task("ww", "strww01", 30 * 40, 3, "int8"),
)


def task_of(io: IoBinding, name: str = "") -> Task:
    """The task called `name`, or the one whose sizes the model has; UsageError if it is none."""
    tensors = (*io.inputs, *io.outputs)
    if len(io.inputs) != 1 or len(io.outputs) != 1 or io.input_rows:
        raise UsageError(
            f"the benchmark's models have one whole input and one output; this has "
            f"{len(io.inputs)} and {len(io.outputs)}."
        )
    for tensor in tensors:
        if tensor.type.dtype.name != "int8" or tensor.type.quantization is None:
            raise UsageError(
                f"{tensor.name} is {tensor.type.dtype.name}; the harness is for quantised int8.",
                hint="the benchmark's int8 models.",
            )
    sizes = tuple(_elements(tensor) for tensor in tensors)
    found = [task for task in TASKS if (task.name == name if name else _sizes(task) == sizes)]
    if not found or _sizes(found[0]) != sizes:
        known = ", ".join(f"{t.name} {t.elements} to {t.results}" for t in TASKS)
        raise UsageError(
            f"the model takes {sizes[0]} values to {sizes[1]}, which no task of the benchmark "
            f"{'called ' + name if name else ''} does.".replace("  ", " "),
            hint=f"a model of one: {known}.",
        )
    return found[0]


def _elements(tensor: IoTensor) -> int:
    return tensor.type.size_bytes // tensor.type.dtype.size_bytes


def _sizes(task: Task) -> tuple[int, int]:
    return task.elements, task.results


def benchmark_project(project: SourceTree, io: IoBinding, board: Board, task: Task) -> SourceTree:
    """`project` with the harness instead of our link."""
    files = {path: text for path, text in project.files.items() if path not in _REPLACED}
    files |= {f"runtime/{name}": (runtime_dir() / "mlperf" / name).read_bytes() for name in _ADDED}
    files[GLUE] = _glue(io, board, task)
    facts = json.loads(str(files["board/board.json"]))
    kept = [name for name in facts["runtime_sources"] if name not in _REPLACED]
    facts["runtime_sources"] = sorted([*kept, "runtime/fwr_mlperf.c", GLUE])
    files["board/board.json"] = json.dumps(facts, indent=2) + "\n"
    return SourceTree(files)


def _glue(io: IoBinding, board: Board, task: Task) -> str:
    quantised = f"static int8_t quantised[{task.elements}];\n" if task.sample == "float32" else ""
    rows = [
        f'.vendor = "{VENDOR}"',
        f'.model = "{task.model}"',
        ".sample = (uint8_t *)sample",
        *([".quantised = quantised"] if quantised else []),
        f".sample_bytes = {task.sample_bytes}u",
        f".units_per_second = {_units_per_second(board)}u",
        f".input = {_SAMPLE_WORDS[task.sample]}",
        f".results = {'FWR_MLPERF_ERROR' if task.is_error else 'FWR_MLPERF_OUTPUTS'}",
        f".flushes = {int(board.is_host)}",
        f".in = {_quantization(io.inputs[0])}",
        f".out = {_quantization(io.outputs[0])}",
    ]
    body = "".join(f"    {row},\n" for row in rows)
    return (
        f"/* fwr_mlperf_task.c: MLPerf Tiny's task {task.name}, for the benchmark's firmware.\n"
        " * Generated by firmwright; changes are lost.\n */\n"
        '#include "fwr_mlperf.h"\n\n'
        f"static uint32_t sample[{-(-task.sample_bytes // 4)}]; /* words: aligned for floats */\n"
        f"{quantised}\n"
        f"const struct fwr_mlperf_task fwr_mlperf_task = {{\n{body}}};\n"
    )


def _quantization(tensor: IoTensor) -> str:
    found = tensor.type.quantization
    assert found is not None  # task_of has made sure
    scale = repr(float(found.scales[0]))
    return f"{{{scale}f, {found.zero_points[0]}}}"


def _units_per_second(board: Board) -> int:
    """An emulator's instruction takes a nanosecond of its time."""
    if board.counter.unit == "cycles":
        return board.clock.hz if board.clock is not None else board.clock_hz
    return 1_000_000_000
