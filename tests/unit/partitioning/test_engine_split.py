"""One operator over accelerator and cores: parts, shares, results, planted defects."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firmwright as fw
from firmwright.base.errors import UsageError
from firmwright.cli.main import main
from firmwright.extensions.vanilla.accelerator import VanillaAccelerator
from firmwright.flows.board.model_session import open_session
from firmwright.flows.measure.instruction_counts import measure_instructions
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model, load_model
from firmwright.flows.predict.cost_prediction import predict_instructions
from firmwright.flows.predict.run_schedule import parallel_calls
from firmwright.flows.samples.sample_batches import generate_samples
from firmwright.flows.verify.verification import verify
from firmwright.graph_builder import GraphBuilder
from firmwright.ir import tir
from firmwright.ir.core import PoolInfo
from firmwright.ir.graph.evaluate import evaluate_graph
from firmwright.ir.module import IRModule
from firmwright.ir.printer import parse_module, print_module
from firmwright.ir.tir.traversal import Node, prim_calls, rewrite_func
from firmwright.ir.tir.verify_async_calls import diagnose_async_calls
from firmwright.ir.tir.verify_plan import diagnose_devices
from firmwright.ops.registry import op_table
from firmwright.pipeline import Compilation
from firmwright.targets.backend import PatternEntry
from tests.conftest import models_folder

BANK = (PoolInfo("sram"), PoolInfo("bank", targets=("vanilla",)))
SHARED = ("cpu0", "vanilla0")
TARGET = "vanilla -macs-per-cycle=1"


def network(*, rows: int = 20, dense: bool = False) -> IRModule:
    """Return relu, convolution `y` on `rows` x 8 x 8, and optional dense layer `z`."""
    rng = np.random.Generator(np.random.PCG64(5))
    g = GraphBuilder("net")
    at = {"scale": 12.0, "zero_point": -2}
    x = g.call("relu", g.input("x", (1, rows, 8, 8), **at), name="a")
    weights = g.constant(rng.integers(-100, 100, (8, 3, 3, 8), np.int8), scale=0.01)
    biases = g.constant(rng.integers(-100, 100, (8,), np.int32), scale=0.12)
    shape = {"stride": (1, 1), "dilation": (1, 1), "padding": (1, 1, 1, 1)}
    y = g.call("conv2d", x, weights, biases, name="y", activation="none", **at, **shape)
    if not dense:
        return g.module(y)
    flat = g.call("reshape", y, name="flat", shape=(1, rows * 64))
    weights = g.constant(rng.integers(-100, 100, (40, rows * 64), np.int8), scale=0.01)
    biases = g.constant(rng.integers(-100, 100, (40,), np.int32), scale=0.12)
    inputs = (flat, weights, biases)
    z = g.call(
        "fully_connected", *inputs, name="z", activation="none", keep_dims=False, **at
    )
    return g.module(z)


def compiled(module: IRModule, **given: Any) -> Compilation:
    return compile_for(module, **{"target": TARGET, "devices": SHARED, **given})


def macs(done: Compilation) -> dict[str, int]:
    return {
        row["name"]: row["macs"] for row in done.metadata["operators"] if row["macs"]
    }


def is_right(done: Compilation, module: IRModule) -> bool:
    (sample,) = generate_samples(done.module.io.inputs, 1, 3).samples
    with open_session(done, in_process=True) as session:
        result = session.run(sample)
    expected = evaluate_graph(module, sample, op_table(), {})
    return all(np.array_equal(result[name], expected[name]) for name in result)


@pytest.mark.host_c
@pytest.mark.parametrize("pools", [(), BANK])
def test_parts_of_engine_and_core_are_views_of_one_tensor(
    pools: Sequence[PoolInfo],
) -> None:
    module = network(dense=True)
    done = compiled(module, pools=tuple(pools), devices=(*SHARED, "dma0"))
    assert pools or is_right(done, module)  # QEMU runs a private pool
    assert set(macs(done)) == {"y_vanilla0", "y_cpu0", "z_vanilla0", "z_cpu0"}
    kinds = [row["kind"] for row in done.metadata["operators"]]
    copies = ["device_copy"] * 4 if pools else []
    work = ["relu", *["conv2d"] * 2, *["fully_connected"] * 2]
    assert sorted(kinds) == sorted([*work, *copies]), (
        "nothing is sliced or concatenated in a copy"
    )
    entry = done.module.entry
    assert isinstance(entry, tir.PrimFunc)
    calls = [call for call in prim_calls(entry.body) if call.op >= 0]
    phases = [call.phase for call in calls if not call.device.startswith("dma")]
    assert phases == ["call", *["start", "call", "wait"] * 2]


@pytest.mark.parametrize("speed", [1, 4])
def test_parts_are_predicted_to_end_together(speed: int) -> None:
    done = compiled(network(rows=64), target=f"vanilla -macs-per-cycle={speed}")
    engine, core = (
        macs(done)["y_vanilla0"] / speed,
        predict_instructions(done)[index(done)],
    )
    assert abs(engine - core) < 64 * 72 * 2.5, "the core's time for a row"


def index(done: Compilation, name: str = "y_cpu0") -> int:
    return next(
        int(row["index"]) for row in done.metadata["operators"] if row["name"] == name
    )


def test_slow_engine_or_transfer_leaves_the_operator_to_the_core() -> None:
    class Remote(VanillaAccelerator):
        name, device = "remote", "remote0"

        def transfer(self, size_bytes: int) -> int:
            return 100_000_000

    fw.register_backend(Remote)
    done = compiled(
        network(), target="remote -macs-per-cycle=1", devices=("cpu0", "remote0")
    )
    assert set(macs(done)) == {"y"}


@pytest.mark.parametrize(
    ("share", "parts"),
    [("25", {"y_vanilla0": 5, "y_cpu0": 15}), ("100", {"y": 20}), ("0", {"y": 20})],
)
def test_user_chooses_a_share(share: str, parts: dict[str, int]) -> None:
    done = compiled(network(), devices=(), offload=(("y", f"vanilla:{share}"),))
    assert macs(done) == {name: 64 * 72 * rows for name, rows in parts.items()}


def test_saved_partition_keeps_shares() -> None:
    module = fw.partition(Model(network()), TARGET, offload={"y": "vanilla:25"}).module
    again = compile_for(parse_module(print_module(module)))
    assert macs(again) == {"y_vanilla0": 5 * 64 * 72, "y_cpu0": 15 * 64 * 72}


TWO = "vanilla -macs-per-cycle=1, vanilla -macs-per-cycle=2"


@pytest.mark.host_c
@pytest.mark.parametrize(
    ("shares", "rows"),
    [
        ("vanilla:50,vanilla_1:50", {"y_vanilla0": 10, "y_vanilla1": 10}),
        (
            "vanilla_1:50, vanilla:25",
            {"y_vanilla1": 10, "y_vanilla0": 5, "y_cpu0": 5},
        ),
    ],
)
def test_several_engines_compute_parts_of_one_tensor(
    shares: str, rows: dict[str, int]
) -> None:
    module = network()
    done = compiled(module, target=TWO, devices=(), offload=(("y", shares),))
    assert macs(done) == {name: 64 * 72 * count for name, count in rows.items()}
    assert is_right(done, module)
    phases = [c.phase for c in prim_calls(done.module.aot_main.body) if c.op >= 0]
    cores = phases[3:-2]
    assert phases[1:3] == ["start"] * 2, "both work at the same time"
    assert phases[-2:] == ["wait"] * 2
    assert cores == ["call"] * (len(rows) - 2)


def divided_tensors(path: Path, tensors: Sequence[str]) -> set[str]:
    """Verify halves of these tensors on two engines; return the operators' names."""
    shares = tuple((name, "vanilla:50,vanilla_1:50") for name in tensors)
    done = compile_for(load_model(path), target=TWO, offload=shares)
    outcome = verify(done, samples=3)
    assert outcome.exact
    assert "LiteRT" in outcome.reference
    return set(macs(done))


@pytest.mark.host_c
def test_rows_on_two_engines_equal_those_of_litert(digits_path: Path) -> None:
    names = divided_tensors(digits_path, ["conv_2d_2", "conv_2d_3"])
    assert {"conv_2d_3_vanilla0", "conv_2d_3_vanilla1"} <= names


@pytest.mark.deep
@pytest.mark.host_c
@pytest.mark.models
def test_channels_on_two_engines_equal_those_of_litert() -> None:
    path = models_folder() / "ad01_int8.tflite"
    model = load_model(path)
    dense = [call for call in model.module.entry.body if call.op == "fully_connected"]
    tensors = [
        call.outputs[0].name for call in dense if call.outputs[0].type.elements == 128
    ]
    names = divided_tensors(path, tensors)
    assert len(names) == 2 * len(tensors) + len(dense) - len(tensors)


def test_work_of_the_core_between_two_starts_delays_no_engine(
    digits_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The core copies rows of the input for the second engine."""
    halves = (("conv_2d_1", "vanilla:50,vanilla_1:50"),)
    done = compile_for(load_model(digits_path), target=TWO, offload=halves)
    phases = [call.phase for call in prim_calls(done.module.aot_main.body)]
    assert phases[:5] == ["start", "call", "start", "wait", "wait"]
    assert "takes none of its operators" not in caplog.text


@pytest.mark.deep
@pytest.mark.qemu
@pytest.mark.parametrize("board", ["mps2-an386", "mps2-an521"])
def test_engines_and_core_share_an_operator_in_qemu(board: str) -> None:
    """On mps2-an521 the first engine has a bank, and DMA channels move its part."""
    shares = (("y", "vanilla:40,vanilla_1:40"), ("z", "vanilla_1:50,vanilla:50"))
    module = network(dense=True)
    done = compile_for(module, board=board, target=TWO, offload=shares)
    names = {"y_vanilla0", "y_vanilla1", "y_cpu0", "z_vanilla0", "z_vanilla1"}
    assert names <= set(macs(done))
    assert verify(done, samples=3).exact
    line = measure_instructions(done).timeline
    assert line is not None
    together = parallel_calls(line.schedule)
    pairs = {(a.call.device, b.call.device) for a, b in together}
    assert {("vanilla0", "vanilla1"), ("vanilla1", "vanilla0")} & pairs


def test_private_banks_receive_and_return_parts() -> None:
    pools = (*BANK, PoolInfo("bank1", targets=("vanilla_1",)))
    halves = (("y", "vanilla:50,vanilla_1:50"),)
    done = compiled(network(), target=TWO, pools=pools, devices=(), offload=halves)
    kinds = [row["kind"] for row in done.metadata["operators"]]
    assert kinds.count("device_copy") == 4
    assert kinds.count("conv2d") == 2


@pytest.mark.parametrize("share", ["vanilla:x", "vanilla:50,vanilla:50", "ghost:50"])
def test_wrong_shares_of_a_file_are_refused(share: str) -> None:
    module = fw.partition(Model(network()), TARGET, offload={"y": "vanilla:25"}).module
    text = print_module(module).replace("vanilla:25", share)
    with pytest.raises(UsageError, match=f"--offload y={share} is invalid"):
        compile_for(parse_module(text))


class Whole(VanillaAccelerator):
    name, device = "one-row", "whole0"

    def patterns(self) -> Sequence[PatternEntry]:
        (entry, *_) = super().patterns()
        return [
            replace(entry, predicate=lambda match: match.ops[0].output.shape[1] == 20)
        ]


class Library(VanillaAccelerator):
    name, device = "library", ""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"offload": (("y", "vanilla:101"),)},
            "y=vanilla:101 is invalid: a share is a percent",
        ),
        ({"offload": (("y", "cpu:50"),)}, "y=cpu:50 is invalid: a share is a percent"),
        (
            {"offload": (("y", "one-row:50"),)},
            "y=one-row:50 is invalid: it cannot be divided",
        ),
        (
            {"offload": (("y", "library:50"),)},
            "y=library:50 is invalid: the target does not",
        ),
        (
            {"devices": ("cpu0", "vanilla1")},
            "there is no device vanilla1: the board has",
        ),
        (
            {"offload": (("y", "vanilla:50,one-row:50"),)},
            "y=vanilla:50,one-row:50 is invalid: it cannot be divided into parts that",
        ),
        (
            {"offload": (("y", "vanilla:50,library:50"),)},
            "y=vanilla:50,library:50 is invalid: it cannot be divided",
        ),
        (
            {"offload": (("y", "vanilla:60,one-row:50"),)},
            "y=vanilla:60,one-row:50 is invalid: the shares of different",
        ),
        (
            {"offload": (("y", "vanilla:50,vanilla:50"),)},
            "y=vanilla:50,vanilla:50 is invalid: the shares of different",
        ),
        (
            {"offload": (("y", "vanilla,one-row"),)},
            "y=vanilla,one-row is invalid: the shares of different",
        ),
        (
            {"offload": (("y", "vanilla:50,nobody:50"),)},
            "y=vanilla:50,nobody:50 is invalid: there is no target nobody",
        ),
        ({"pipeline_runs": True}, "operators are split over core and accelerator"),
    ],
)
def test_requests_that_cannot_be_fulfilled_are_errors(
    given: dict[str, Any], said: str
) -> None:
    fw.register_backend(Whole)
    fw.register_backend(Library)
    with pytest.raises(UsageError, match=re.escape(said)):
        compiled(network(), **{"target": "vanilla, one-row, library", **given})


def test_call_of_which_the_engine_takes_no_part_stays_whole() -> None:
    fw.register_backend(Whole)
    done = compiled(network(), target="one-row", devices=("cpu0", "whole0"))
    assert set(macs(done)) == {"y"}


def test_command_line_passes_shares(
    digits_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compile", str(digits_path), "--target", "vanilla", "--offload"]
    assert (
        main([*words, "conv_2d_2=vanilla:50", "--offload", "conv_2d_3=vanilla:200"])
        != 0
    )
    assert (
        "--offload conv_2d_3=vanilla:200 is invalid: a share is"
        in capsys.readouterr().err
    )


def test_parts_share_no_cache_line() -> None:
    pools = (PoolInfo("sram", cache_line=32),)
    done = compiled(
        network(dense=True), devices=(), pools=pools, offload=(("z", "vanilla:50"),)
    )
    assert macs(done)["z_vanilla0"] == 4 * macs(done)["z_cpu0"], (
        "32 and 8 of 40 outputs"
    )


def test_engine_and_two_cores_split_an_operator() -> None:
    done = compiled(network(), devices=("cpu0", "cpu1", "vanilla0"))
    assert set(macs(done)) == {"y_vanilla0", "y_cpu0", "y_cpu1"}


@pytest.mark.qemu
def test_engine_and_core_work_at_the_same_time_in_qemu() -> None:
    module = network(rows=40)
    done = compiled(module, board="mps2-an521")
    (sample,) = generate_samples(done.module.io.inputs, 1, 3).samples
    outputs: list[Any] = []
    line = measure_instructions(
        done, after_run=lambda session: outputs.append(session.run(sample)["y"])
    ).timeline
    assert line is not None
    assert np.array_equal(
        outputs[0], evaluate_graph(module, sample, op_table(), {})["y"]
    )
    calls = [
        item for item in line.schedule if item.call.op in (index(done), index(done) - 2)
    ]
    assert {item.call.device for item in calls} == {"vanilla0", ""}
    assert any({a, b} == {*calls} for a, b in parallel_calls(line.schedule))
    took = max(item.end for item in calls) - min(item.begin for item in calls)
    core = predict_instructions(done)[index(done)] / macs(done)["y_cpu0"]
    assert core > 1, "cycles of a multiply-add on the core; 1 on the engine"
    assert took < 0.8 * sum(macs(done).values())


# ---- planted defects -----------------------------------------------------------------


def on_board() -> Compilation:
    return compiled(network(), board="mps2-an521")


def changed(done: Compilation, rule: Callable[[Node], Node | None]) -> tir.PrimFunc:
    entry = done.module.entry
    assert isinstance(entry, tir.PrimFunc)
    assert [*diagnose_async_calls(entry, done.module.functions)] == []
    assert [*diagnose_devices(entry, done.module)] == []
    return rewrite_func(entry, rule)


def test_wait_that_is_too_late_is_found() -> None:
    done = on_board()

    entry = done.module.entry
    assert isinstance(entry, tir.PrimFunc)
    steps = {(call.device, call.phase): call for call in prim_calls(entry.body)}
    wait, copy = steps["vanilla0", "wait"], steps["dma1", "start"]

    def later(node: Node) -> Node | None:
        """Swap the wait for the accelerator and the start of its part's copy."""
        return copy if node == wait else wait if node == copy else None

    found = diagnose_async_calls(changed(done, later), done.module.functions)
    assert re.search(
        r"on dma1 reads bank .* while @vanilla_conv2d_0 .* is in flight", found[0]
    )


def test_part_that_reads_invisible_input_is_found() -> None:
    done = on_board()
    entry = done.module.entry
    assert isinstance(entry, tir.PrimFunc)
    source, target, _ = next(
        c.args for c in prim_calls(entry.body) if c.device == "dma0"
    )
    assert isinstance(source, tir.AccessPtr)
    assert isinstance(target, tir.AccessPtr)

    def uncopied(node: Node) -> Node | None:
        if not isinstance(node, tir.PrimFuncCall) or node.device != "vanilla0":
            return None
        inside, *rest = node.args
        assert isinstance(inside, tir.AccessPtr)
        assert inside.buffer == target.buffer
        return replace(node, args=(replace(inside, buffer=source.buffer), *rest))

    found = [*diagnose_devices(changed(done, uncopied), done.module)]
    assert re.search(
        r"on vanilla0 uses a_rows, which is in sram; this device can access bank",
        found[0],
    )
