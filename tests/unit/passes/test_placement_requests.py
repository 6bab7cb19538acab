"""Requests for a tensor's place: recorded once, kept by every pass, or an error."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from firmwright.base.errors import FirmwrightError, ModelError, PluginError, UsageError
from firmwright.cli.main import main
from firmwright.flows.model.compilation import compile_for, module_after, options_for
from firmwright.flows.model.model import Model
from firmwright.ir.core import UNCONSTRAINED, PoolInfo
from firmwright.ir.graph.nodes import Value
from firmwright.ir.module import IRModule, Pass
from firmwright.ir.printer import parse_module, print_module
from firmwright.ir.requests import PlacementRequest, RequestOrigin
from firmwright.ir.tir.traversal import prim_calls
from firmwright.ir.tir.verify import verify_module
from firmwright.ops.registry import op_table
from firmwright.passes.graph.value_names import map_values
from firmwright.passes.map_functions import map_graph_functions
from firmwright.schedules.registry import INTRINSICS

TEXT = """firmwright ir 2
module @net
const @w = f32[8] [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
graph @main(%x: f32[1,8]) -> (%c) {
  %w = const @w: f32[8]
  %a: f32[1,8] = add(%x, %w) {activation="none"}
  %v: f32[8] = reshape(%a)
  %b: f32[8] = tanh(%v)
  %c: f32[8] = relu(%b)
}
"""
TWO_CORES: dict[str, Any] = {
    "pools": (PoolInfo("sram"), PoolInfo("dtcm")),
    "devices": ("cpu0", "cpu1"),
    "planner": "greedy_by_size",
}
ON_CPU1 = (("a", "cpu1", "dtcm"),)


def net(text: str = TEXT) -> IRModule:
    return parse_module(text)


def forget(tensor: str) -> Callable[[IRModule], IRModule]:
    """Return a pass that drops the place of a tensor."""

    def change(value: Value) -> Value:
        return (
            replace(value, virtual_device=UNCONSTRAINED)
            if value.name == tensor
            else value
        )

    def run(module: IRModule) -> IRModule:
        return map_graph_functions(module, lambda graph: map_values(graph, change))

    return run


def devices(module: IRModule) -> list[str]:
    return [call.device for call in prim_calls(module.aot_main.body)]


def test_a_requested_tensor_is_not_fused_into_its_reader(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "net.fwir"
    file.write_text(
        "firmwright ir 2\nmodule @net\n"
        "graph @main(%x: f32[1,8,8,4], %w: f32[1,8,8,4]) -> (%c) {\n"
        '  %b: f32[1,8,8,4] = add(%x, %w) {activation="none"}\n'
        "  %c: f32[1,8,8,4] = relu(%b)\n}\n"
    )
    words = ["compile", str(file), "--board", "mps2-an521", "--devices", "cpu0,cpu1"]
    assert main([*words, "--assign-device", "b=cpu1", "-o", str(tmp_path / "out")]) == 0
    capsys.readouterr()
    source = (tmp_path / "out" / "model" / "net.c").read_text()
    on_cpu1 = source[source.index("net_on_cpu1(") :]
    assert "net_add_0(" in on_cpu1


def test_a_module_has_the_request_at_every_stage_and_in_its_text() -> None:
    stages: dict[str, IRModule] = {}
    done = compile_for(
        net(), watch=stages.__setitem__, device_assignments=ON_CPU1, **TWO_CORES
    )
    for module in stages.values():
        (request,) = module.requests
        assert (request.tensor, request.device, request.pool) == ("a", "cpu1", "dtcm")
        assert parse_module(print_module(module)).requests == module.requests
    assert 'request %a "assign-device" {device="cpu1", pool="dtcm"}' in print_module(
        done.imported
    )
    assert done.module.requests[0].calls == (0,)
    assert done.module.requests[0].buffers == ("a",)
    resumed = compile_for(
        parse_module(print_module(stages["plan-devices"])), planner="greedy_by_size"
    )
    assert resumed.tree.files["model/net.c"] == done.tree.files["model/net.c"]
    again = compile_for(parse_module(print_module(done.imported)), **TWO_CORES)
    assert again.tree.files == done.tree.files


def test_a_started_module_accepts_no_other_request() -> None:
    options = options_for(net(), TWO_CORES)
    started = module_after(Model(net()), "cse", options)
    for other in (
        {"device_assignments": ON_CPU1},
        {"pool_assignments": (("a", "dtcm"),)},
    ):
        with pytest.raises(UsageError, match=r"cannot be changed to .*'a'"):
            compile_for(started, **other)


PLACES = (
    *("import", "partition", "cse", "sink-transposes", "fuse-activations", "fold-pad"),
    *("graph-dce", "reorder-calls", "multi-core-split", "plan-devices", "plan-scopes"),
)


@pytest.mark.parametrize("place", PLACES)
def test_a_pass_of_the_user_that_drops_a_place_is_reported(place: str) -> None:
    step = Pass("forgetful", forget("a"), after=place)
    with pytest.raises(PluginError) as error:
        compile_for(net(), passes=[step], device_assignments=ON_CPU1, **TWO_CORES)
    message = str(error.value)
    assert "the pass forgetful" in message
    assert "the tensor a is not where --assign-device a=cpu1:dtcm places it" in message


def without_requests(module: IRModule) -> IRModule:
    return replace(module, requests=())


def without_pins(module: IRModule) -> IRModule:
    run = module.aot_main
    attrs = {
        name: item for name, item in run.attrs.items() if name != "pool_assignments"
    }
    return module.with_function(replace(run, attrs=attrs))


@pytest.mark.parametrize(
    ("change", "place", "said"),
    [
        (
            without_requests,
            "cse",
            "the request --assign-device a=cpu1:dtcm for the tensor a",
        ),
        (without_pins, "lower-select", "it is in no certain pool, not in dtcm"),
    ],
)
def test_a_pass_of_the_user_that_changes_the_record_is_reported(
    change: Callable[[IRModule], IRModule], place: str, said: str
) -> None:
    step = Pass("forgetful", change, after=place)
    with pytest.raises(PluginError, match=re.escape(said)) as error:
        compile_for(net(), passes=[step], device_assignments=ON_CPU1, **TWO_CORES)
    assert "forgetful" in str(error.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"device": "cpu0"}, "it is computed on cpu1, not on cpu0"),
        ({"pool": "sram"}, "it is in dtcm, not in sram"),
        ({"buffers": ("gone",)}, "it has no memory of its own in the AOT main"),
        ({"calls": (99,)}, "it is computed on no device, not on cpu1"),
    ],
)
def test_the_plan_is_compared_with_the_requests(
    change: dict[str, Any], said: str
) -> None:
    module = compile_for(net(), device_assignments=ON_CPU1, **TWO_CORES).module
    verify_module(module, op_table(), INTRINSICS)
    (request,) = module.requests
    wrong = replace(module, requests=(replace(request, **change),))
    with pytest.raises(ModelError, match=said):
        verify_module(wrong, op_table(), INTRINSICS)


def test_the_device_of_a_view_is_that_of_the_call_that_computes_its_memory() -> None:
    done = compile_for(net(), device_assignments=(("v", "cpu1", ""),), **TWO_CORES)
    assert devices(done.module) == ["cpu1", "cpu1", "", ""]


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        (
            TEXT.replace("%b: f32[8] =", '%b: f32[8] on(type="cpu", id=1) ='),
            {"device_assignments": (("b", "cpu0", ""),)},
            "the tensor b has two contradictory assignments: its own text assigns it to cpu1, and "
            "--assign-device b=cpu0 assigns it to cpu0. Try: omit one of the two.",
        ),
        (
            TEXT.replace("%b: f32[8] =", '%b: f32[8] on(scope="sram") ='),
            {"pool_assignments": (("b", "dtcm"),)},
            "the tensor b has two contradictory assignments: its own text assigns it to sram, and "
            "--assign-pool b=dtcm assigns it to dtcm. Try: omit one of the two.",
        ),
        (
            TEXT.replace("%b: f32[8] =", '%b: f32[8] on(type="cpu", id=2) ='),
            {},
            "its own text assigns the tensor b to cpu2, which is no device. "
            "Try: one of cpu0, cpu1, or --devices.",
        ),
        (
            TEXT.replace("%b: f32[8] =", '%b: f32[8] on(target="cpu7") ='),
            {},
            "its own text names the target cpu7, which no device has. "
            "Try: one of cpu; or --devices with a target.",
        ),
        (
            TEXT.replace("tanh(%v)", "tanh(%x)").replace("f32[1,8]", "f32[8]"),
            {"device_assignments": (("a", "cpu1", ""),)},
            "after the pass graph-dce, the tensor a is not where --assign-device a=cpu1 places it: "
            "it is no longer in the module. Try: omit the request, or place another tensor.",
        ),
        (
            TEXT.replace("reshape(%a)", "reshape(%x)"),
            {"device_assignments": (("v", "cpu1", ""),)},
            "no call computes the tensor v, as --assign-device v=cpu1 requires. "
            "Try: the tensor that is computed, or a pool.",
        ),
    ],
)
def test_a_request_that_cannot_be_kept_is_an_error(
    text: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(FirmwrightError) as error:
        compile_for(net(text), **options, **TWO_CORES)
    assert str(error.value) == f"net: {said}"


def test_a_place_in_the_text_is_a_request() -> None:
    text = TEXT.replace(
        "%b: f32[8] =", '%b: f32[8] on(type="cpu", id=1, scope="dtcm") ='
    )
    done = compile_for(net(text), **TWO_CORES)
    assert done.imported.requests == (
        PlacementRequest("b", "cpu1", "dtcm", RequestOrigin.TEXT),
    )
    assert done.module.memory_plan.placements["b"].pool == "dtcm"
    assert devices(done.module) == ["", "cpu1", "cpu1", ""]


def test_a_requested_constant_is_copied_to_its_pool_once() -> None:
    done = compile_for(net(), device_assignments=(("w", "cpu0", "dtcm"),), **TWO_CORES)
    (request,) = done.module.requests
    places = done.module.memory_plan.placements
    assert request.buffers
    assert {places[name].pool for name in request.buffers} == {"dtcm"}
    private = (PoolInfo("sram"), PoolInfo("bank", targets=("npu",)))
    with pytest.raises(
        UsageError, match="the constant w cannot be in bank, as --assign-device w="
    ):
        compile_for(net(), pools=private, device_assignments=(("w", "cpu0", "bank"),))
