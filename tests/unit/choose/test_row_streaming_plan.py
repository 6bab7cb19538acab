"""Row-streaming plans compared with a simulation on row numbers."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from firmwright.choose.row_streaming_plan import (
    RowStage,
    RowStreamingPlan,
    StreamedTensor,
    plan_row_streaming,
)
from firmwright.ops.opdef import RowWindow

ROW_BYTES = 16


def _simulate(
    plan: RowStreamingPlan,
    stages: Sequence[RowStage],
    tensors: dict[str, StreamedTensor],
) -> list[int]:
    """Run the plan on row numbers; return how many rows each stage computed."""
    remaining: dict[str, list[int | None]] = {
        name: [None] * k.rows for name, k in plan.row_buffers.items()
    }
    result = [0] * len(stages)

    def take(name: str, index: int) -> None:
        """Receive band `index`."""
        if name not in remaining:
            return
        band = plan.row_buffers[name].band
        if index < tensors[name].height // band + plan.row_buffers[name].padding_bands:
            remaining[name] = [
                *remaining[name][band:],
                *range(index * band, (index + 1) * band),
            ]

    for step in range(plan.steps):
        if plan.fed:
            take(plan.source, step)
        for index, (stage, firing) in enumerate(zip(stages, plan.firings, strict=True)):
            row = step // firing.period - firing.lag
            if (step + 1) % firing.period or row < 0:
                continue
            if row < stage.height:
                for name, start in zip(stage.sources, firing.starts, strict=True):
                    _check_window(
                        stage, row, tensors[name], start, remaining.get(name, []), step
                    )
                result[index] += 1
            if stage.result:
                take(stage.result, row)
    return result


def _check_window(
    stage: RowStage,
    row: int,
    x: StreamedTensor,
    start: int | None,
    kept: list[int | None],
    step: int,
) -> None:
    """Check that the window has the right rows, or padding outside of the tensor."""
    first = row * stage.rows.stride - stage.rows.pad_before
    for offset in range(stage.rows.window_height):
        expected = first + offset
        if start is None:
            assert 0 <= expected < x.height
        elif 0 <= expected < x.height:
            assert kept[start + offset] == expected, (step, row, kept)
        else:
            result = kept[start + offset]
            assert result is None or not 0 <= result < x.height


def _height(height: int, rows: RowWindow, after: int) -> int:
    return (height + rows.pad_before + after - rows.window_height) // rows.stride + 1


def _random_stages(
    rng: random.Random, band: int
) -> tuple[list[RowStage], dict[str, StreamedTensor]]:
    """Return a chain of windows with residual adds; heights are multiples of `band`."""
    tensors = {"x": StreamedTensor(rng.randint(1, 30), ROW_BYTES, True)}
    stages: list[RowStage] = []
    name = "x"
    for _ in range(rng.randint(1, 7)):
        height, last = tensors[name].height, f"t{len(stages)}"
        if rng.random() < 0.3 and height > 2 and height % band == 0:  # a residual block
            rows = RowWindow(3, 1, 1, 0.0).for_bands(band)
            stages.append(RowStage((name,), last, rows, height // band))
            tensors[last] = StreamedTensor(height, ROW_BYTES, band=band)
            both = (name, last)
            last = f"t{len(stages)}"
            stages.append(
                RowStage(both, last, RowWindow().for_bands(band), height // band)
            )
        else:
            reach, stride = rng.randint(1, 5), rng.randint(1, 3)
            before, after = rng.randint(0, reach - 1), rng.randint(0, reach - 1)
            rows = RowWindow(reach, stride, before, 0.0)
            height = _height(height, rows, after)
            if height < 1 or height % band:
                continue
            stages.append(RowStage((name,), last, rows.for_bands(band), height // band))
        name = last
        tensors[name] = StreamedTensor(stages[-1].height * band, ROW_BYTES, band=band)
    return stages, tensors


def rows_kept(
    stages: Sequence[RowStage], tensors: Mapping[str, StreamedTensor]
) -> dict[str, int]:
    """Return the rows of each buffer of a plan that streams `x`."""
    plan = plan_row_streaming("x", stages, tensors)
    assert plan is not None
    return {name: remaining.rows for name, remaining in plan.row_buffers.items()}


def test_every_window_has_the_right_rows_in_random_segments() -> None:
    planned = 0
    for seed in range(800):
        rng = random.Random(seed)
        band = rng.choice((1, 1, 1, 2, 3))
        stages, tensors = _random_stages(rng, band)
        if not stages:
            continue
        last = stages[-1].result
        tensors[last] = StreamedTensor(tensors[last].height, ROW_BYTES, True, band)
        plan = plan_row_streaming("x", stages, tensors, feed=rng.random() < 0.3)
        if plan is None:
            continue
        planned += 1
        assert _simulate(plan, stages, tensors) == [stage.height for stage in stages]
    assert planned > 300


def test_row_buffers_of_a_chain_have_the_size_of_its_windows() -> None:
    window = RowWindow(3, 1, 1, 0.0)
    tensors = {
        "x": StreamedTensor(9, 16, True),
        "a": StreamedTensor(9, 16),
        "b": StreamedTensor(9, 16),
        "c": StreamedTensor(9, 16),
    }
    stages = [
        RowStage(("x",), "a", window, 9),
        RowStage(("a",), "b", RowWindow(), 9),
        RowStage(("b",), "c", window, 9),
    ]
    assert rows_kept(stages, tensors) == {"x": 3, "a": 1, "b": 3}


def test_short_branch_of_a_residual_block_needs_no_more_rows_than_the_long_one() -> (
    None
):
    window = RowWindow(3, 1, 1, 0.0)
    tensors = {name: StreamedTensor(9, 16, name in "xd") for name in "xabcd"}
    stages = [
        RowStage(("x",), "a", RowWindow(), 9),
        RowStage(("a",), "b", window, 9),
        RowStage(("b",), "c", window, 9),
        RowStage(("a", "c"), "d", RowWindow(), 9),
    ]
    assert rows_kept(stages, tensors) == {"a": 3, "b": 3, "c": 1}


def test_undefined_padding_cannot_be_streamed() -> None:
    tensors = {"x": StreamedTensor(8, 16, True), "a": StreamedTensor(8, 16, True)}
    assert (
        plan_row_streaming(
            "x", [RowStage(("x",), "a", RowWindow(3, 1, 1, None), 8)], tensors
        )
        is None
    )


def test_readers_with_different_padding_cannot_be_streamed() -> None:
    tensors = {name: StreamedTensor(8, 16, name in "xd") for name in "xabcd"}
    stages = [
        RowStage(("x",), "a", RowWindow(), 8),
        RowStage(("a",), "b", RowWindow(3, 1, 1, 0.0), 8),
        RowStage(("a",), "c", RowWindow(3, 1, 1, -128.0), 8),
        RowStage(("b", "c"), "d", RowWindow(), 8),
    ]
    assert plan_row_streaming("x", stages, tensors) is None


def test_sources_with_different_row_rates_cannot_be_streamed() -> None:
    tensors = {
        "x": StreamedTensor(8, 16, True),
        "a": StreamedTensor(4, 16),
        "b": StreamedTensor(4, 16),
        "c": StreamedTensor(4, 16),
    }
    stages = [
        RowStage(("x",), "a", RowWindow(2, 2), 4),
        RowStage(("x",), "b", RowWindow(5, 1), 4),
        RowStage(("a", "b"), "c", RowWindow(), 4),
    ]
    assert plan_row_streaming("x", stages, tensors) is None
