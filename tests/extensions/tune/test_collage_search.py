"""Collage in QEMU: measured regions, compared programs, edited and applied results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from firmwright.base.errors import PluginError, UsageError
from firmwright.boards import load_board
from firmwright.cli.main import main
from firmwright.extensions.cmsis_nn.backend import PATH_VARIABLE
from firmwright.extensions.tune import collage_search as collage_module
from firmwright.extensions.tune.kernel_measurement import measurement_context
from firmwright.extensions.tune.log_writer import RegionCostLog
from firmwright.extensions.tune.partition_search import search_partition
from firmwright.extensions.tune.region_costs import RegionCostEstimator
from firmwright.extensions.vanilla.accelerator import VanillaAccelerator
from firmwright.flows.measure.instruction_counts import measure_instructions
from firmwright.flows.model.compilation import compile_for, options_for
from firmwright.flows.model.model import Model, load_model, save_module
from firmwright.flows.model.partition_methods import (
    PartitionRequest,
    partition_model,
    prepare_module,
)
from firmwright.flows.verify.verification import verify
from firmwright.ir.core import PoolInfo
from firmwright.ir.graph.patterns import op
from firmwright.partitioning.partition_result import RegionCost
from firmwright.targets.backend import Backend, PatternEntry
from firmwright.targets.backend_registry import BACKENDS
from firmwright.targets.target_kind import TargetAttribute
from tests import mlperf_tiny
from tests.backends.engine_networks import network
from tests.backends.toy_backends import chain

ROOT = Path(__file__).resolve().parents[3]
STAND_IN = ROOT / "tests" / "extensions" / "cmsis_nn" / "stand_in"
DIGITS = ROOT / "examples" / "01_digits" / "digits.tflite"
MODELS = Path(os.environ.get("FIRMWRIGHT_MODELS", ROOT.parent / "shared" / "models"))
GIVEN = {
    "board": "mps2-an386",
    "target": "cmsis-nn",
    "numerics": "tflm",
    "optimize": "speed",
}


@pytest.fixture
def no_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the backends that a test registers."""
    monkeypatch.setattr(BACKENDS, "_known", {})


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PATH_VARIABLE, str(STAND_IN))


class Loud(Backend):
    """A backend for sums and relus; the C of `broken` kernels is invalid."""

    name = "loud"
    broken: tuple[str, ...] = ()
    modeled: int | None = None

    def patterns(self):
        return [PatternEntry(name, op(name)) for name in ("add", "relu")]

    def generate(self, kernel):
        (call,) = kernel.ops
        words = [f"const float *x{i}" for i in range(len(kernel.inputs))] + ["float *y"]
        value = {"add": "x0[i] + x1[i]", "relu": "x0[i] > 0 ? x0[i] : 0"}[call.op]
        body = f"for (int i = 0; i < {kernel.outputs[0].elements}; ++i) {{ y[i] = {value}; }}"
        body = "this is no C;" if call.op in self.broken else body
        kernel.file(
            f"{kernel.symbol}.c",
            f"void {kernel.symbol}({', '.join(words)}) {{{body}}}\n",
        )
        kernel.extern(kernel.symbol, [*kernel.inputs, *kernel.outputs])

    def cost(self, match):
        return self.modeled if match.calls[0].op == "add" else None


TOY = chain(("add", "x z", "a"), ("relu", "a", "b"), ("tanh", "b", "c"))
TOY_GIVEN = {"board": "mps2-an386", "target": "loud", "optimize": "speed"}


@pytest.mark.qemu
def test_collage_is_never_worse_than_eager_and_results_can_be_edited(
    no_backends: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    BACKENDS.register(Loud)
    log, result, toy = (
        tmp_path / name for name in ("parts.jsonl", "found.json", "toy.fwir")
    )
    save_module(TOY, toy)
    words = [
        "partition",
        str(toy),
        "--target",
        "loud",
        "--board",
        "mps2-an386",
        "--optimize",
    ]
    words += ["speed", "--partition", "collage", "--partition-log", str(log)]
    assert (
        main([*words, "--save-partition", str(result), "-o", str(tmp_path / "it.fwir")])
        == 0
    )
    actual = json.loads(result.read_text())
    totals = {how: total["count"] for how, total in actual["totals"].items()}
    assert totals[actual["chosen"]] == min(totals.values())
    assert [len(part["alternatives"]) for part in actual["parts"]] == [1, 1, 0]
    costs = [
        [part["cost"], *(a["cost"] for a in part["alternatives"])]
        for part in actual["parts"]
    ]
    assert all(
        cost["count"] == min(c["count"] for c in (cost, *more)) for cost, *more in costs
    )

    # Nothing is measured again: log and result do not change.
    before = log.read_text(), actual
    for owner, name in (
        (RegionCostEstimator, "_measured"),
        (collage_module._CollageSearch, "_run"),
    ):
        monkeypatch.setattr(owner, name, None)
    again = search_partition(
        load_model(toy), TOY_GIVEN, PartitionRequest("collage", str(log))
    )
    assert (log.read_text(), json.loads(again.partition.text())) == before

    # The applied result compiles to the bytes of the saved module, an edited one not.
    (tmp_path / "elsewhere").mkdir()
    saved = load_model(
        (tmp_path / "it.fwir").rename(tmp_path / "elsewhere" / "it.fwir")
    )
    applied = partition_model(load_model(toy), TOY_GIVEN, PartitionRequest(str(result)))
    files = compile_for(saved, "mps2-an386", optimize="speed").tree.files
    assert compile_for(applied.model, **applied.options).tree.files == files
    for expected in ("loud", "cpu"):
        actual["parts"][0]["target"] = expected
        result.write_text(json.dumps(actual))
        edited = partition_model(
            load_model(toy), TOY_GIVEN, PartitionRequest(str(result))
        )
        rows = compile_for(edited.model, **edited.options).metadata["operators"]
        assert (rows[0]["schedule"] == "loud") == (expected == "loud")


@pytest.mark.deep
@pytest.mark.qemu
def test_region_that_does_not_build_is_reported_with_the_reason(
    no_backends: None, monkeypatch: pytest.MonkeyPatch
):
    BACKENDS.register(Loud)
    monkeypatch.setattr(Loud, "broken", ("relu",))
    module = chain(("add", "x z", "a"), ("relu", "a", "b"))
    inputs = {"board": "mps2-an386", "target": "loud"}
    actual = search_partition(
        Model(module), inputs, PartitionRequest("collage")
    ).partition
    _, relu = actual.parts
    assert relu.target == "cpu"
    (other,) = relu.alternatives
    assert other.cost.status == "failed"
    assert "_run.c" in other.cost.reason
    assert actual.totals["eager"].count is None
    assert actual.totals["collage"].count <= actual.totals["none"].count


def test_cost_model_of_a_backend_precedes_measurements(
    no_backends: None, monkeypatch: pytest.MonkeyPatch
):
    BACKENDS.register(Loud)
    monkeypatch.setattr(Loud, "modeled", 5)
    module = chain(("add", "x z", "a"), ("tanh", "a", "b"))
    inputs = {"board": "host", "target": "loud"}
    actual = search_partition(
        Model(module), inputs, PartitionRequest("collage")
    ).partition
    first = actual.parts[0]
    assert (first.target, first.cost.count, first.cost.how) == ("loud", 5, "modeled")
    monkeypatch.setattr(Loud, "transfer", lambda self, size_bytes: 1_000_000)
    actual = search_partition(
        Model(module), inputs, PartitionRequest("collage")
    ).partition
    assert [part.target for part in actual.parts] == ["cpu", "cpu"]


@pytest.mark.parametrize("cost", [0, 10**40])
def test_declared_costs_may_be_nothing_or_huge(
    no_backends: None, monkeypatch: pytest.MonkeyPatch, cost: int
) -> None:
    BACKENDS.register(Loud)
    monkeypatch.setattr(Loud, "modeled", cost)
    model = Model(chain(("add", "x z", "a"), ("tanh", "a", "b")))
    given = {"board": "host", "target": "loud"}
    found = search_partition(model, given, PartitionRequest("collage")).partition
    assert found is not None
    first, _ = found.parts
    assert first.target == ("cpu" if cost else "loud")
    counts = [first.cost.count, first.alternatives[0].cost.count]
    assert cost in counts
    assert str(cost) in found.text()


@pytest.mark.parametrize("cost", [-1, float("inf"), float("nan"), 2.5, "9", True])
def test_wrong_declared_costs_are_errors_of_the_backend(
    no_backends: None, monkeypatch: pytest.MonkeyPatch, cost: object
) -> None:
    BACKENDS.register(Loud)
    monkeypatch.setattr(Loud, "modeled", cost)
    model = Model(chain(("add", "x z", "a")))
    with pytest.raises(
        PluginError, match=r"`cost` of the backend loud.*integer from 0"
    ):
        search_partition(
            model, {"board": "host", "target": "loud"}, PartitionRequest("collage")
        )


def test_exception_in_a_cost_names_the_backend_and_the_operator(
    no_backends: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    BACKENDS.register(Loud)

    def cost(self: Loud, match: object) -> int:
        raise ZeroDivisionError("no speed")

    monkeypatch.setattr(Loud, "cost", cost)
    model = Model(chain(("add", "x z", "a")))
    with pytest.raises(PluginError, match=r"`cost` of the backend loud, for the add"):
        search_partition(
            model, {"board": "host", "target": "loud"}, PartitionRequest("collage")
        )


def test_regions_are_estimated_if_the_user_places_a_tensor(no_backends: None) -> None:
    BACKENDS.register(Loud)
    module = chain(("tanh", "x", "a"), ("add", "a z", "b"))
    inputs = {
        "board": "host",
        "target": "loud",
        "pools": (PoolInfo("sram"), PoolInfo("dtcm")),
        "device_assignments": (("a", "cpu0", "dtcm"),),
    }
    found = search_partition(Model(module), inputs, PartitionRequest("collage"))
    costs = [part.cost for part in found.partition.parts]
    assert {cost.status for cost in costs} == {"ok"}
    done = compile_for(found.model, **inputs)
    assert done.module.memory_plan.placements["a"].pool == "dtcm"


def test_order_of_preference_holds_without_measurements():
    actual = search_partition(
        load_model(DIGITS), {**GIVEN, "board": "host"}, PartitionRequest("collage")
    )
    assert actual.partition.method == "modeled"
    assert {p.target for p in actual.partition.parts if p.entries} == {"cmsis-nn"}
    straight = compile_for(load_model(DIGITS), **{**GIVEN, "board": "host"})
    assert (
        compile_for(actual.model, **{**GIVEN, "board": "host"}).tree.files
        == straight.tree.files
    )


def test_method_none_uses_the_core_and_invalid_methods_are_reported(tmp_path: Path):
    choice = partition_model(load_model(DIGITS), GIVEN, PartitionRequest("none"))
    alone = compile_for(
        load_model(DIGITS), "mps2-an386", numerics="tflm", optimize="speed"
    )
    assert compile_for(choice.model, **choice.options).tree.files == alone.tree.files
    path = tmp_path / "it.fwir"
    words = ["partition", str(DIGITS), "--target", "cmsis-nn", "--partition", "none"]
    assert main([*words, "-o", str(path), "--numerics", "tflm"]) == 0
    assert load_model(path).module.targets == {}
    with pytest.raises(
        UsageError, match="there is nothing to choose: no backend is among the tar"
    ):
        search_partition(
            load_model(DIGITS), {**GIVEN, "target": ""}, PartitionRequest("collage")
        )
    with pytest.raises(
        UsageError,
        match="--partition must be eager, collage, none or a file, and colla",
    ):
        partition_model(load_model(DIGITS), GIVEN, PartitionRequest("collapse"))


@pytest.mark.qemu
@pytest.mark.models
@pytest.mark.deep
@pytest.mark.parametrize("name", mlperf_tiny.MODELS)
def test_collage_is_never_worse_than_eager_on_the_benchmark_models(name: str):
    actual = search_partition(
        load_model(MODELS / f"{name}.tflite"), GIVEN, PartitionRequest("collage")
    )
    totals = {how: total.count for how, total in actual.partition.totals.items()}
    assert totals[actual.partition.chosen] == min(totals.values())


def test_goal_ram_chooses_the_program_with_least_workspace(
    no_backends: None, monkeypatch: pytest.MonkeyPatch
):
    BACKENDS.register(Loud)
    counts = iter((10, 30, 20))
    monkeypatch.setattr(
        collage_module._CollageSearch,
        "_run",
        lambda self, compiled: RegionCost("ok", next(counts)),
    )
    monkeypatch.setattr(Loud, "modeled", 1)
    inputs = {**TOY_GIVEN, "board": "host", "optimize": "ram"}
    actual = search_partition(Model(TOY), inputs, PartitionRequest("collage")).partition
    bytes_of = {how: total.workspace_bytes for how, total in actual.totals.items()}
    assert bytes_of[actual.chosen] == min(bytes_of.values()) < bytes_of["eager"]
    assert {part.target for part in actual.parts} == {"cpu"}


class SlowModel(VanillaAccelerator):
    """A backend whose kernels model in software what its hardware does in 20 cycles."""

    name = "slow_model"
    device = ""
    attrs: ClassVar[dict[str, TargetAttribute]] = {}

    def cost(self, match):
        return 20


@pytest.mark.qemu
def test_programs_are_compared_by_declared_costs_not_by_software_models(
    no_backends: None,
) -> None:
    BACKENDS.register(SlowModel)
    model = Model(network(("x", "a"), ("a", "r1"), ("r1", "b")))
    given = {"board": "mps2-an386", "target": "slow_model"}
    found = search_partition(model, given, PartitionRequest("collage")).partition
    assert found is not None
    assert (found.unit, found.chosen) == ("cycles", "collage")
    own = [part.cost for part in found.parts if part.target == "slow_model"]
    assert [(cost.count, cost.how) for cost in own] == [(20, "modeled")] * 2
    on_core = [part.alternatives[0].cost.count for part in found.parts[::2]]
    saved = sum(on_core) - 40
    totals = {how: total.count or 0 for how, total in found.totals.items()}
    assert totals["collage"] == totals["eager"] < totals["none"]
    assert abs(totals["none"] - totals["collage"] - saved) < 0.1 * saved
    assert found.totals["none"].reason == f"{totals['none'] - totals['collage']:,} more"


BRANCHES = (("x", "a"), ("a", "r1"), ("x", "c"), ("c", "r2"))


@pytest.mark.deep
@pytest.mark.qemu
@pytest.mark.parametrize("board", ["mps2-an386", "mps2-an521"])
def test_two_engines_are_searched_and_profiled(board: str) -> None:
    model, slow, fast = Model(network(*BRANCHES)), 1, 4
    target = ", ".join(f"vanilla -macs-per-cycle={speed}" for speed in (slow, fast))
    given = {"board": board, "target": target}
    choice = search_partition(model, given, PartitionRequest("collage"))
    found = choice.partition
    assert found is not None
    assert found.chosen in ("collage", "parallel")
    totals = {how: total.count or 0 for how, total in found.totals.items()}
    assert totals["collage"] < totals["eager"], "which takes the first, slow engine"
    done = compile_for(choice.model, **choice.options)
    counts = measure_instructions(done)
    assert counts.timeline is not None
    assert counts.until_over(in_cycles=True) == totals[found.chosen]
    assert verify(done, samples=1).exact


@pytest.mark.qemu
def test_one_convolution_on_two_equal_engines_takes_half_of_the_time(
    tmp_path: Path,
) -> None:
    model = Model(network(("x", "a")))
    target = ", ".join(["vanilla -macs-per-cycle=1"] * 2)
    given = {"board": "mps2-an386", "target": target}
    choice = search_partition(model, given, PartitionRequest("collage"))
    found = choice.partition
    assert found is not None
    assert found.chosen == "parallel"
    whole = 8 * 8 * 4 * 36
    (part,) = found.parts
    assert (part.target, part.cost.count) == ("vanilla:50,vanilla_1:50", whole // 2)
    ways = {other.target: other for other in part.alternatives}
    assert ways["vanilla"].cost.count == ways["vanilla_1"].cost.count == whole
    done = compile_for(choice.model, **choice.options)
    line = measure_instructions(done).timeline
    assert line is not None
    engines = {item.call.device: item for item in line.schedule if item.call.device}
    assert {name: it.end - it.begin for name, it in engines.items()} == {
        "vanilla0": whole // 2,
        "vanilla1": whole // 2,
    }
    starts_and_waits = line.makespan - whole // 2
    assert 0 < starts_and_waits < 400
    assert line.makespan == found.totals["parallel"].count
    assert verify(done, samples=2).exact

    saved = tmp_path / "found.json"
    saved.write_text(found.text())
    again = partition_model(model, given, PartitionRequest(str(saved)))
    same = compile_for(again.model, **again.options)
    assert same.tree.files == done.tree.files


@pytest.mark.parametrize("pipeline_runs", [False, True])
def test_calls_of_pipelined_runs_are_not_divided(pipeline_runs: bool) -> None:
    target = ", ".join(["vanilla -macs-per-cycle=1"] * 2)
    given = {"board": "host", "target": target, "pipeline_runs": pipeline_runs}
    model = Model(network(("x", "a"), ("a", "b")))
    found = search_partition(model, given, PartitionRequest("collage")).partition
    assert found is not None
    places = {other.target for part in found.parts for other in part.alternatives}
    assert ("vanilla:50,vanilla_1:50" in places) is not pipeline_runs


@pytest.mark.qemu
def test_equal_engines_work_at_the_same_time_on_one_core() -> None:
    """Each of two software models proceeds on its own, with the declared cycles."""
    model = Model(network(*BRANCHES))
    target = ", ".join(["vanilla -macs-per-cycle=1"] * 2)
    done = compile_for(model, board="mps2-an386", target=target)
    line = measure_instructions(done).timeline
    assert line is not None
    engines = {item.call.device: item for item in line.schedule if item.call.device}
    assert set(engines) == {"vanilla0", "vanilla1"}
    first, second = engines["vanilla0"], engines["vanilla1"]
    assert first.end - first.begin == second.end - second.begin == 8 * 8 * 4 * 36
    assert second.begin < first.end
    assert line.executed[0] < line.makespan < line.parallel.sequential


@pytest.mark.deep
@pytest.mark.qemu
@pytest.mark.parametrize(
    "assignment",
    [
        ("--partition", "collage"),
        tuple(f"--offload=conv_2d_{n}=vanilla:50,vanilla_1:30" for n in (1, 2, 3)),
        tuple(f"--offload=conv_2d_{n}=vanilla_2:50,vanilla:50" for n in (2, 3)),
    ],
    ids=["a search", "three parts", "two parts"],
)
def test_processes_with_different_hashes_write_the_same_c(
    assignment: Sequence[str], tmp_path: Path
) -> None:
    target = ", ".join(f"vanilla -macs-per-cycle={speed}" for speed in (1, 2, 1))
    results: list[list[bytes]] = []
    for seed in ("1", "2"):
        folder = tmp_path / seed
        words = [sys.executable, "-m", "firmwright", "compile", str(DIGITS)]
        words += ["--board", "mps2-an386", "--target", target, *assignment]
        words += ["--partition-log", f"{folder}.jsonl"]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([*words, "-o", str(folder)], check=True, env=environment)
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        results.append([path.read_bytes() for path in files])
        assert any(b"vanilla_2" in data for data in results[-1])
    assert results[0] == results[1]


def test_transfers_cost_what_the_dma_controller_takes() -> None:
    options = options_for(TOY, {"board": "mps2-an521", "target": "vanilla"})
    module = prepare_module(Model(TOY), options)
    search = collage_module._CollageSearch(
        Model(TOY),
        module,
        options,
        None,
        measurement_context(options, "modeled"),
        RegionCostLog(),
    )
    dma = load_board("mps2-an521").dma
    assert dma is not None
    plain = PoolInfo("any")
    expected = dma.setup + dma.bus_cycles(1000, plain, plain)
    assert (
        search._transfer("", "vanilla", 1000)
        == search._transfer("vanilla", "", 1000)
        == expected
    )
    assert search._transfer("", "", 1000) == 0
