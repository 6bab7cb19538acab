"""Selection of the MLPerf task of a model, and the files of its firmware."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from firmwright.base.dtypes import FLOAT32, INT8
from firmwright.base.errors import UsageError
from firmwright.base.quant import Quantization
from firmwright.boards import load_board
from firmwright.build.project_files import project_files
from firmwright.extensions.mlperf.benchmark import benchmark_task
from firmwright.extensions.mlperf.firmware import GLUE, TASKS, find_task
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.module import IoBinding, IoTensor
from firmwright.pipeline import Compilation


def io_of(elements: int, results: int, quantized: bool = True) -> IoBinding:
    quantization = Quantization((0.25,), (-3,)) if quantized else None
    dtype = INT8 if quantized else FLOAT32
    tensors = [
        IoTensor(name, name, TensorType((1, size), dtype, quantization))
        for name, size in (("x", elements), ("y", results))
    ]
    return IoBinding("arena", inputs=(tensors[0],), outputs=(tensors[1],))


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_task_is_identified_by_its_sizes(task):
    assert find_task(io_of(task.elements, task.results)) == task


@pytest.mark.parametrize(
    ("io", "name", "what"),
    [
        (io_of(10, 2), "", "takes 10 values to 2, which no task of the benchmark does"),
        (
            io_of(490, 12),
            "vww",
            "takes 490 values to 12, which no task of the benchmark called",
        ),
        (io_of(490, 12, quantized=False), "", "x is float32"),
        (replace(io_of(490, 12), inputs=()), "", "this has 0 and 1"),
    ],
)
def test_other_models_are_refused(io: IoBinding, name: str, what: str):
    with pytest.raises(UsageError, match=what):
        find_task(io, name)


def test_the_project_contains_the_harness_instead_of_the_link():
    board = load_board("mps2-an386")
    plain = project_files(board)
    assert "runtime/fwr_mlperf.c" not in plain.files
    task = TASKS[3]
    benchmark = task.make_project(plain, io_of(640, 640), board)
    assert not [
        file
        for file in benchmark.files
        if re.match(r"runtime/fwr_(main|loop).*\.c", file)
    ]
    sources = json.loads(str(benchmark.files["board/board.json"]))["runtime_sources"]
    assert {"runtime/fwr_mlperf.c", GLUE} <= set(sources)
    assert "runtime/fwr_main.c" not in sources
    glue = str(benchmark.files[GLUE])
    for words in (
        '.model = "ad01"',
        "sample[640];",
        ".in = {0.25f, -3}",
        ".quantised = quantised",
    ):
        assert words in glue
    assert Path(GLUE).name not in str(plain.files)


def test_pipelined_runs_are_refused(compiled: Callable[..., Compilation]):
    pipelined = compiled("digits", board="host", target="vanilla", pipeline_runs=True)
    with pytest.raises(UsageError, match="the outputs of each input after one run"):
        benchmark_task(pipelined)
