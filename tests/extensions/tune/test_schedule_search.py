"""A search writes the same lines with every executor and after an interruption."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from firmwright.extensions.tune.kernel_measurement import (
    KernelResult,
    MeasurementSetup,
    MeasurementTask,
)
from firmwright.extensions.tune.log_writer import TuningLogWriter
from firmwright.extensions.tune.schedule_search import SearchOptions, TuningResult, tune
from firmwright.flows.model.model import Model, load_model
from firmwright.ops.tuning_records import ConfiguredSchedule, MeasurementContext
from firmwright.pipeline import Options, load_module_bytes

OPTIONS = Options(board="mps2-an386")
TEXT = """firmwright ir 2
module @small
const @w = i8[8,1,1,4] {weights}
const @m = i8[2,64] {matrix}
graph @main(%x: i8[1,4,2,4] quant(0.05, -3)) -> (%y) {{
  %a = const @w: i8[8,1,1,4] quant(0.01, 0)
  %b = const @m: i8[2,64] quant(0.02, 0)
  %c: i8[1,4,2,8] quant(0.1, -128) = conv2d(%x, %a)
      {{stride=[1, 1], dilation=[1, 1], padding=[0, 0, 0, 0], activation="relu"}}
  %flat: i8[1,64] quant(0.1, -128) = reshape(%c)
  %y: i8[1,2] quant(0.1, 5) = fully_connected(%flat, %b) {{activation="none", keep_dims=false}}
}}
"""
AT = MeasurementContext("mps2-an386", "exact", "gcc 12", "-O2", "0.1.0")


class Pretenders:
    """An executor with fake counts, hashes of the kernels; it counts its tasks."""

    def __init__(
        self, order: Callable[[int], Sequence[int]] = range, stop_at: int = 1000
    ) -> None:
        self.order, self.stop_at = order, stop_at
        self.tasks: list[MeasurementTask] = []

    def call(
        self, function: object, options: Options, method: str
    ) -> MeasurementContext:
        return AT

    def run(
        self, function: object, tasks: Sequence[MeasurementTask]
    ) -> Iterator[tuple[int, tuple[KernelResult, ...]]]:
        for index in self.order(len(tasks)):
            if len(self.tasks) == self.stop_at:
                raise KeyboardInterrupt
            self.tasks.append(tasks[index])
            yield (
                index,
                tuple(
                    self.result(call.output.shape, choice)
                    for call, choice in tasks[index].kernels
                ),
            )

    def result(
        self, shape: tuple[int, ...], choice: ConfiguredSchedule
    ) -> KernelResult:
        if choice == ConfiguredSchedule("scalar.conv2d.blocks", (("pixels", 2),)):
            return KernelResult("wrong")
        return KernelResult(
            "ok",
            1000
            + zlib.crc32(f"{shape} {choice.rule} {choice.settings}".encode()) % 1000,
            "instructions",
        )


def searched(
    model: Model,
    path: Path,
    executor: Pretenders,
    plan: SearchOptions = SearchOptions(),  # noqa: B008
) -> TuningResult:
    with TuningLogWriter(path) as book:
        return tune(model, OPTIONS, MeasurementSetup(), plan, book, executor)


@pytest.fixture
def model() -> Model:
    weights, matrix = (
        [37 * n % 255 - 127 for n in range(count)] for count in (32, 128)
    )
    return Model(
        load_module_bytes(
            TEXT.format(weights=weights, matrix=matrix).encode(), "small.fwir"
        )
    )


def test_small_spaces_are_measured_whole(model: Model, tmp_path: Path) -> None:
    crew = Pretenders()
    result = searched(model, tmp_path / "log", crew, SearchOptions(trials=100))
    assert [layer.tried for layer in result.layers] == [
        layer.space for layer in result.layers
    ]
    assert result.measured == sum(len(task.kernels) for task in crew.tasks)
    assert result.measured == sum(layer.space for layer in result.layers)
    assert all(
        len(task.kernels) <= SearchOptions().kernels_per_image for task in crew.tasks
    )


def test_best_choice_is_never_a_wrong_kernel(model: Model, tmp_path: Path) -> None:
    result = searched(model, tmp_path / "log", Pretenders())
    records = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    for layer in result.layers:
        mine = [r for r in records if r["what"] == layer.description]
        good = [r["count"] for r in mine if r["status"] == "ok"]
        assert layer.best_count == min(good)
        assert (
            layer.bad == len(mine) - len(good) == layer.description.startswith("conv2d")
        )


def test_results_in_any_order_are_written_in_one(model: Model, tmp_path: Path) -> None:
    orders: dict[str, Callable[[int], Sequence[int]]] = {
        "forth": range,
        "back": lambda n: range(n - 1, -1, -1),
        "odd": lambda n: [*range(1, n, 2), *range(0, n, 2)],
    }
    for name, order in orders.items():
        searched(model, tmp_path / name, Pretenders(order))
    assert len({(tmp_path / name).read_bytes() for name in orders}) == 1
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(orders)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("strategy", "trials"),
    [("random", 4), ("evolutionary", 3), ("model", 2), ("model", 32)],
)
def test_a_search_that_was_stopped_measures_nothing_twice(
    model: Model, tmp_path: Path, strategy: str, trials: int
) -> None:
    plan = SearchOptions(trials=trials, strategy=strategy, seed=1, kernels_per_image=3)
    whole = searched(model, tmp_path / "whole", Pretenders(), plan)
    crew = Pretenders(lambda n: range(n - 1, -1, -1), stop_at=1)
    with pytest.raises(KeyboardInterrupt):
        searched(model, tmp_path / "log", crew, plan)
    before = len(crew.tasks[0].kernels)
    again = searched(model, tmp_path / "log", Pretenders(), plan)
    assert again.from_log == before
    assert again.measured + before == whole.measured
    assert (tmp_path / "log").read_bytes() == (tmp_path / "whole").read_bytes()
    assert again.layers == whole.layers


def test_log_entries_do_not_change_a_search(model: Model, tmp_path: Path) -> None:
    few = SearchOptions(trials=3, strategy="random", seed=5)
    searched(model, tmp_path / "few", Pretenders(), few)
    searched(model, tmp_path / "all", Pretenders(), SearchOptions(trials=100))
    before = (tmp_path / "all").read_bytes()
    crew = Pretenders()
    assert (
        searched(model, tmp_path / "all", crew, few).layers
        == searched(model, tmp_path / "few", Pretenders(), few).layers
    )
    assert not crew.tasks
    assert (tmp_path / "all").read_bytes() == before


def test_layers_that_are_alike_are_searched_once(
    model_path: Callable[[str], Path], tmp_path: Path
) -> None:
    model = load_model(model_path("kws_ref_model.tflite"))
    result = searched(model, tmp_path / "log", Pretenders())
    assert [layer.calls for layer in result.layers].count(4) == 2


def test_float_layers_are_not_tuned(
    model_path: Callable[[str], Path], tmp_path: Path
) -> None:
    model = load_model(model_path("ad01_fp32.tflite"))
    result = searched(model, tmp_path / "log", Pretenders())
    assert (result.layers, result.measured) == ((), 0)
    assert result.untuned > 0
