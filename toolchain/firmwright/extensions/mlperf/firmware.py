"""Firmware for MLPerf Tiny, with the benchmark's device protocol instead of the link.

Model, plan and glue are unchanged, so the benchmark measures the same code as other
firmware.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from firmwright.artifacts import SourceTree
from firmwright.base.errors import UsageError
from firmwright.base.templates import render_template
from firmwright.boards import Board
from firmwright.ir.module import IoBinding
from firmwright.package.custom_main import replace_main_loop

SampleKind = Literal["int8", "uint8", "float32"]
VENDOR: Final = "Firmwright"
_HARNESS: Final = ("fwr_mlperf.c", "fwr_mlperf.h")
"""The files of the folder `c`, which need no changes for a model."""
GLUE: Final = "firmware/fwr_mlperf_task.c"


@dataclass(frozen=True, slots=True)
class MlperfTask:
    """One task of the benchmark, which makes a firmware's main (a `FirmwareMain`).

    With `is_error`, the single result is the difference between output and input. With
    `streams`, the firmware records detections. With `energy`, it marks times on a pin.
    `clock_hz` replaces the emulator's clock of 1 GHz, and an instruction takes 2^`pace`
    nanoseconds of the emulator's time.
    """

    name: str
    model: str
    elements: int
    results: int
    sample: SampleKind
    is_error: bool = False
    streams: bool = False
    energy: bool = False
    clock_hz: int = 0
    pace: int = 0

    @property
    def sample_bytes(self) -> int:
        """Return the size of one sample as the protocol transmits it."""
        return self.elements * (4 if self.sample == "float32" else 1)

    def make_project(
        self, project: SourceTree, io: IoBinding, board: Board
    ) -> SourceTree:
        """Return `project` with the benchmark's harness in place of the server loop."""
        folder = Path(__file__).parent / "c"
        harness = {f"runtime/{name}": (folder / name).read_bytes() for name in _HARNESS}
        # A counter without cycles counts nanoseconds.
        ticks_hz = board.run_hz if board.counter.unit == "cycles" else 1_000_000_000
        glue = render_template(
            "firmwright.extensions.mlperf",
            "fwr_mlperf_task.c.j2",
            io=io,
            board=board,
            task=self,
            vendor=VENDOR,
            units_per_second=self.clock_hz << self.pace or ticks_hz,
        )
        return replace_main_loop(project, {**harness, GLUE: glue})


TASKS: Final = (
    MlperfTask("kws", "kws01", 490, 12, "int8"),
    MlperfTask("vww", "vww01", 96 * 96 * 3, 2, "uint8"),
    MlperfTask("ic", "ic01", 32 * 32 * 3, 10, "uint8"),
    MlperfTask("ad", "ad01", 640, 640, "float32", is_error=True),
    MlperfTask("ww", "sww01", 30 * 40, 3, "int8", streams=True),
)


def find_task(io: IoBinding, name: str = "") -> MlperfTask:
    """Return the task called `name`, by default one with the model's sizes."""
    if len(io.inputs) != 1 or len(io.outputs) != 1 or io.stream_input_rows:
        counts = f"{len(io.inputs)} and {len(io.outputs)}"
        what = "the benchmark's models have one whole input and one output"
        raise UsageError(f"{what}; this has {counts}.")
    for tensor in (*io.inputs, *io.outputs):
        if tensor.type.dtype.name != "int8" or tensor.type.quantization is None:
            dtype = tensor.type.dtype.name
            what = f"{tensor.name} is {dtype}; the harness is for quantised int8."
            raise UsageError(what, hint="the benchmark's int8 models.")
    elements, results = io.inputs[0].type.elements, io.outputs[0].type.elements
    for task in TASKS:
        has_sizes = (task.elements, task.results) == (elements, results)
        if has_sizes and name in ("", task.name):
            return task
    sizes = [f"{task.name} {task.elements} to {task.results}" for task in TASKS]
    called = f" called {name}" if name else ""
    no_task = f"which no task of the benchmark{called} does"
    what = f"the model takes {elements} values to {results}, {no_task}."
    raise UsageError(what, hint=f"a model of one: {', '.join(sizes)}.")
