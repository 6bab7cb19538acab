"""Row-streamed programs and row input verified in QEMU; too small budgets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from firmwright.base.errors import DoesNotFitError
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.measure.profiling import profile
from firmwright.flows.model.compilation import compile_for, options_for
from firmwright.flows.model.model import load_model
from firmwright.flows.predict.pareto_rows import pareto_rows
from firmwright.flows.samples.sample_batches import generate_samples
from firmwright.flows.verify.verification import verify
from firmwright.pipeline import Compilation

pytestmark = [pytest.mark.qemu, pytest.mark.models]

KWS, VWW, IC = (
    "kws_ref_model.tflite",
    "vww_96_int8.tflite",
    "pretrainedResnet_quant.tflite",
)
AD, WW = "ad01_int8.tflite", "str_ww_ref_model.tflite"
M4, M55 = "mps2-an386", "mps3-an547"
GRID = [
    *((model, board, False) for model in (KWS, VWW, IC, AD, WW) for board in (M4, M55)),
    *((model, board, True) for model in (KWS, VWW, IC) for board in (M4, M55)),
]
DEFAULT = ((KWS, M4, True),)
SLACK = 1.02


def _compiled(path: Path, board: str, **more: Any) -> Compilation:
    return compile_for(load_model(path), board, **more)


def _assert_exact(compiled: Compilation, samples: int) -> None:
    found = verify(compiled, batch=generate_samples(compiled.module.io.inputs, samples))
    assert found.exact, found


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("model", "board", "stream_input_rows"), GRID)
def test_row_streaming_programs_are_bit_exact(
    model: str,
    board: str,
    stream_input_rows: bool,
    model_path: Callable[[str], Path],
    deep: bool,
) -> None:
    if (model, board, stream_input_rows) not in DEFAULT and not deep:
        pytest.skip("part of the larger grid; --deep runs it")
    compiled = _compiled(
        model_path(model), board, optimize="ram", stream_input_rows=stream_input_rows
    )
    _assert_exact(compiled, 4)
    assert build_image(compiled).stack.size_bytes > 0


def test_budget_below_every_program_reports_the_minimum(digits_path: Path) -> None:
    with pytest.raises(DoesNotFitError) as caught:
        _compiled(digits_path, M4, ram_bytes=1_000)
    assert caught.value.lowest_bytes is not None
    assert 1_000 < caught.value.lowest_bytes < 2_112
    assert caught.value.peak
    compiled = _compiled(digits_path, M4, ram_bytes=caught.value.lowest_bytes)
    assert compiled.metadata["workspace_bytes"] == caught.value.lowest_bytes


@pytest.mark.parametrize(("model", "stream_input_rows"), [(IC, False), (VWW, True)])
def test_more_memory_never_costs_instructions(
    model: str, stream_input_rows: bool, model_path: Callable[[str], Path], deep: bool
) -> None:
    """Each program of the frontier is verified and no slower than smaller ones."""
    if not deep:
        pytest.skip("part of the larger grid; --deep runs it")
    loaded = load_model(model_path(model))
    options = options_for(
        loaded.module, {"board": M4, "stream_input_rows": stream_input_rows}
    )
    found = [
        item
        for item in pareto_rows(loaded.module, options)
        if item.instructions < 20_000_000
    ]
    assert len({item.segments for item in found}) >= 3
    assert len({item.workspace_bytes for item in found}) >= 5
    predicted = [item.instructions for item in found]
    assert predicted == sorted(predicted)
    measured = _measured(
        model_path(model), [item.workspace_bytes for item in found], stream_input_rows
    )
    for roomier, tighter in pairwise(measured):
        assert roomier <= tighter * SLACK


def _measured(path: Path, budgets: Sequence[int], stream_input_rows: bool) -> list[int]:
    """Instructions of the program within each budget, all of them exact."""
    counts = []
    for budget in budgets:
        compiled = _compiled(
            path, M4, ram_bytes=budget, stream_input_rows=stream_input_rows
        )
        assert compiled.metadata["workspace_bytes"] <= budget
        _assert_exact(compiled, 3)
        counts.append(profile(compiled).total)
    return counts
