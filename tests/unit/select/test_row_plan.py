"""Row plans, against a simulation that keeps row numbers instead of rows."""

from __future__ import annotations

import random
from collections.abc import Sequence

from firmwright.ir.graph.opdef import RowMap
from firmwright.select.row_plan import RowPlan, Stage, Tensor, plan_rows

ROW_BYTES = 16


def _simulate(plan: RowPlan, stages: Sequence[Stage], tensors: dict[str, Tensor]) -> list[int]:
    """Runs the plan on row numbers; returns how many rows each stage made, all of them right."""
    kept: dict[str, list[int | None]] = {name: [None] * k.rows for name, k in plan.kept.items()}
    made = [0] * len(stages)

    def take(name: str, index: int) -> None:
        """Band `index` comes in."""
        if name not in kept:
            return
        band = plan.kept[name].band
        if index < tensors[name].height // band + plan.kept[name].padding_bands:
            kept[name] = [*kept[name][band:], *range(index * band, (index + 1) * band)]

    for step in range(plan.steps):
        if plan.fed:
            take(plan.source, step)
        for index, (stage, firing) in enumerate(zip(stages, plan.firings, strict=True)):
            row = step // firing.period - firing.lag
            if (step + 1) % firing.period or row < 0:
                continue
            if row < stage.height:
                for name, start in zip(stage.sources, firing.starts, strict=True):
                    _check_window(stage, row, tensors[name], start, kept.get(name, []), step)
                made[index] += 1
            if stage.result:
                take(stage.result, row)
    return made


def _check_window(
    stage: Stage, row: int, x: Tensor, start: int | None, kept: list[int | None], step: int
) -> None:
    """The rows under the window are the right ones, or padding where there are none."""
    first = row * stage.rows.stride - stage.rows.before
    for offset in range(stage.rows.reach):
        wanted = first + offset
        if start is None:
            assert 0 <= wanted < x.height
        elif 0 <= wanted < x.height:
            assert kept[start + offset] == wanted, (step, row, kept)
        else:
            found = kept[start + offset]
            assert found is None or not 0 <= found < x.height


def _height(height: int, rows: RowMap, after: int) -> int:
    return (height + rows.before + after - rows.reach) // rows.stride + 1


def _random_stages(rng: random.Random, band: int) -> tuple[list[Stage], dict[str, Tensor]]:
    """A chain of windows with residual additions; heights are multiples of `band`."""
    tensors = {"x": Tensor(rng.randint(1, 30), ROW_BYTES, True)}
    stages: list[Stage] = []
    name = "x"
    for _ in range(rng.randint(1, 7)):
        height, last = tensors[name].height, f"t{len(stages)}"
        if rng.random() < 0.3 and height > 2 and height % band == 0:  # a residual block
            rows = RowMap(3, 1, 1, 0.0).banded(band)
            stages.append(Stage((name,), last, rows, height // band))
            tensors[last] = Tensor(height, ROW_BYTES, band=band)
            both = (name, last)
            last = f"t{len(stages)}"
            stages.append(Stage(both, last, RowMap().banded(band), height // band))
        else:
            reach, stride = rng.randint(1, 5), rng.randint(1, 3)
            before, after = rng.randint(0, reach - 1), rng.randint(0, reach - 1)
            rows = RowMap(reach, stride, before, 0.0)
            height = _height(height, rows, after)
            if height < 1 or height % band:
                continue
            stages.append(Stage((name,), last, rows.banded(band), height // band))
        name = last
        tensors[name] = Tensor(stages[-1].height * band, ROW_BYTES, band=band)
    return stages, tensors


def test_every_window_holds_its_rows_in_random_segments() -> None:
    planned = 0
    for seed in range(800):
        rng = random.Random(seed)
        band = rng.choice((1, 1, 1, 2, 3))
        stages, tensors = _random_stages(rng, band)
        if not stages:
            continue
        last = stages[-1].result
        tensors[last] = Tensor(tensors[last].height, ROW_BYTES, True, band)
        plan = plan_rows("x", stages, tensors, feed=rng.random() < 0.3)
        if plan is None:
            continue
        planned += 1
        assert _simulate(plan, stages, tensors) == [stage.height for stage in stages]
    assert planned > 300


def test_a_chain_keeps_as_many_rows_as_its_windows_reach() -> None:
    window = RowMap(3, 1, 1, 0.0)
    tensors = {"x": Tensor(9, 16, True), "a": Tensor(9, 16), "b": Tensor(9, 16), "c": Tensor(9, 16)}
    stages = [
        Stage(("x",), "a", window, 9),
        Stage(("a",), "b", RowMap(), 9),
        Stage(("b",), "c", window, 9),
    ]
    plan = plan_rows("x", stages, tensors)
    assert plan is not None
    assert {name: kept.rows for name, kept in plan.kept.items()} == {"x": 3, "a": 1, "b": 3}


def test_the_short_branch_of_a_residual_block_keeps_no_more_than_the_long_one() -> None:
    window = RowMap(3, 1, 1, 0.0)
    tensors = {name: Tensor(9, 16, name in "xd") for name in "xabcd"}
    stages = [
        Stage(("x",), "a", RowMap(), 9),
        Stage(("a",), "b", window, 9),
        Stage(("b",), "c", window, 9),
        Stage(("a", "c"), "d", RowMap(), 9),
    ]
    plan = plan_rows("x", stages, tensors)
    assert plan is not None
    assert {name: kept.rows for name, kept in plan.kept.items()} == {"a": 3, "b": 3, "c": 1}


def test_padding_that_has_no_value_cannot_be_streamed() -> None:
    tensors = {"x": Tensor(8, 16, True), "a": Tensor(8, 16, True)}
    assert plan_rows("x", [Stage(("x",), "a", RowMap(3, 1, 1, None), 8)], tensors) is None


def test_two_users_that_disagree_about_padding_cannot_be_streamed() -> None:
    tensors = {name: Tensor(8, 16, name in "xd") for name in "xabcd"}
    stages = [
        Stage(("x",), "a", RowMap(), 8),
        Stage(("a",), "b", RowMap(3, 1, 1, 0.0), 8),
        Stage(("a",), "c", RowMap(3, 1, 1, -128.0), 8),
        Stage(("b", "c"), "d", RowMap(), 8),
    ]
    assert plan_rows("x", stages, tensors) is None


def test_rows_that_flow_at_different_rates_do_not_meet() -> None:
    tensors = {"x": Tensor(8, 16, True), "a": Tensor(4, 16), "b": Tensor(4, 16), "c": Tensor(4, 16)}
    stages = [
        Stage(("x",), "a", RowMap(2, 2), 4),
        Stage(("x",), "b", RowMap(5, 1), 4),
        Stage(("a", "b"), "c", RowMap(), 4),
    ]
    assert plan_rows("x", stages, tensors) is None
