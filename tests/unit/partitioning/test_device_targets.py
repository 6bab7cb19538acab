"""Targets of cores: the rules for targets, devices and scopes, and the kernels."""

from __future__ import annotations

import json
from typing import Any

import pytest

from firmwright.base.errors import UsageError
from firmwright.cli.main import main
from firmwright.flows.model.compilation import compile_for, module_after, options_for
from firmwright.flows.model.model import Model
from firmwright.ir.core import UNCONSTRAINED, PoolInfo, VirtualDevice
from firmwright.ir.module import IRModule
from firmwright.ir.printer import parse_module, print_module
from firmwright.ir.tir.traversal import prim_calls
from firmwright.pipeline import Compilation

FAST = "cpu1=cortex-m -mcpu=cortex-m33"
ON_BOARD: dict[str, Any] = {
    "board": "mps2-an521",
    "devices": ("cpu0", FAST),
    "planner": "greedy_by_size",
}
GIVEN: dict[str, Any] = {
    **ON_BOARD,
    "board": "host",
    "pools": (PoolInfo("sram"), PoolInfo("dtcm")),
}


def net(place: str = "", constant: str = "") -> IRModule:
    """Return three layers, of which the second one and its constant have a place."""
    return parse_module(
        "firmwright ir 2\nmodule @net\n"
        'target @cpu = "cortex-m" {mcpu="cortex-m33+nodsp"}\n'
        'target @cpu1 = "cortex-m" {mcpu="cortex-m33"}\n'
        "const @w = f32[8] [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]\n"
        "graph @main(%x: f32[1,8]) -> (%c) {\n"
        f"  %w = const @w: f32[8]{constant}\n"
        "  %a: f32[1,8] = tanh(%x)\n"
        f'  %b: f32[1,8]{place} = add(%a, %w) {{activation="none"}}\n'
        "  %c: f32[1,8] = tanh(%b)\n}\n"
    )


def place_of(done: Compilation, tensor: str) -> tuple[str, str, str]:
    """Return the device, target and pool of a tensor in the firmware."""
    module = done.module
    assert module.plan is not None
    index = {"a": 0, "b": 1, "c": 2}[tensor]
    (call,) = [
        c
        for c in prim_calls(module.aot_main.body)
        if c.op == index and c.phase != "wait"
    ]
    target = str(module.kernel(call.callee).attrs["target"])
    return call.device or "cpu0", target, module.plan.placements[tensor].pool


CPU1, ON_CPU1 = 'type="cpu", id=1', {"device_assignments": (("b", "cpu1", ""),)}
ROWS: dict[str, tuple[str, dict[str, Any], tuple[str, str, str]]] = {
    "nothing": ("", {}, ("cpu0", "cpu", "sram")),
    "scope": (
        'scope="dtcm"',
        {"pool_assignments": (("b", "dtcm"),)},
        ("cpu0", "cpu", "dtcm"),
    ),
    "device": (CPU1, ON_CPU1, ("cpu1", "cpu1", "sram")),
    "device and scope": (
        f'{CPU1}, scope="dtcm"',
        {"device_assignments": (("b", "cpu1", "dtcm"),)},
        ("cpu1", "cpu1", "dtcm"),
    ),
    "target": ('target="cpu1"', ON_CPU1, ("cpu1", "cpu1", "sram")),
    "target of the main core": (
        'target="cpu"',
        {"device_assignments": (("b", "cpu0", ""),)},
        ("cpu0", "cpu", "sram"),
    ),
    "target and scope": (
        'target="cpu1", scope="dtcm"',
        {"device_assignments": (("b", "cpu1", "dtcm"),)},
        ("cpu1", "cpu1", "dtcm"),
    ),
    "device and target": (f'{CPU1}, target="cpu1"', ON_CPU1, ("cpu1", "cpu1", "sram")),
    "all": (
        f'{CPU1}, target="cpu1", scope="dtcm"',
        {"device_assignments": (("b", "cpu1", "dtcm"),)},
        ("cpu1", "cpu1", "dtcm"),
    ),
}
"""The rows of docs/reference/devices.md: in the text, as options, and in firmware."""


@pytest.mark.parametrize("row", ROWS)
def test_a_place_means_the_same_in_text_and_options(row: str) -> None:
    text, options, place = ROWS[row]
    in_text = compile_for(net(f" on({text})" if text else ""), **GIVEN)
    by_options = compile_for(net(), **GIVEN, **options)
    assert place_of(in_text, "b") == place_of(by_options, "b") == place
    assert place_of(in_text, "c")[:2] == ("cpu0", "cpu")
    assert in_text.tree.files["model/net.c"] == by_options.tree.files["model/net.c"]
    again = compile_for(parse_module(print_module(in_text.imported)))
    assert again.tree.files == in_text.tree.files
    planned = module_after(
        Model(net(f" on({text})" if text else "")),
        "plan-devices",
        options_for(net(), GIVEN),
    )
    placed = {value.name: value for value in planned.entry_graph.values}
    number = int(place[0].removeprefix("cpu"))
    expected = UNCONSTRAINED
    if text:
        scope = place[2] if "scope" in text else ""
        expected = VirtualDevice("cpu", number, "cpu1" if number else "", scope)
    assert placed["b"].virtual_device == expected


def test_a_constant_is_placed_in_a_pool() -> None:
    done = compile_for(net(constant=' on(scope="dtcm")'), **GIVEN)
    assert done.module.requests[0].buffers
    for place in (CPU1, 'target="cpu1"'):
        with pytest.raises(
            UsageError, match="w cannot be placed: a constant is placed in a pool"
        ):
            compile_for(net(constant=f" on({place})"), **GIVEN)


@pytest.mark.parametrize(
    ("place", "devices", "said"),
    [
        (
            'type="cpu", id=0, target="cpu1"',
            FAST,
            "assigns it to cpu0 and to the target cpu1, which is cpu1",
        ),
        ('target="cpu1"', "cpu1", "names the target cpu1, which no device has"),
        ("", "cpu1=vanilla", "this is the target of an accelerator"),
        (
            "",
            "cpu1=cortex-m -mcpu=cortex-m55",
            "cpu1 of board mps2-an521 is cortex-m -mcpu=cortex-m33",
        ),
        ("", "dma0=c", "only cores beside the main core have a target"),
        ("", "cpu2=c", "there is no device cpu2"),
    ],
)
def test_a_target_that_a_device_cannot_have_is_an_error(
    place: str, devices: str, said: str
) -> None:
    given = {**ON_BOARD, "devices": ("cpu0", devices)}
    with pytest.raises(UsageError, match=said):
        compile_for(net(f" on({place})" if place else ""), **given)


def test_the_main_core_executes_no_calls_for_other_instructions() -> None:
    with pytest.raises(UsageError, match="with --fallback, cpu0 executes"):
        compile_for(net(), **ON_BOARD, fallback=True)


def test_each_core_has_its_kernels_and_flags(tmp_path: Any, capsys: Any) -> None:
    done = compile_for(net(f" on({CPU1})"), **ON_BOARD)
    files = done.tree.files
    assert json.loads(files["backend/cpu1/build.json"]) == {
        "flags": ["-mcpu=cortex-m33", "-mfloat-abi=softfp"]
    }
    own, main_file = str(files["backend/cpu1/net_cpu1.c"]), str(files["model/net.c"])
    assert "\nvoid net_add_1(" in own
    assert "void net_add_1(const net_f32 *x, " in main_file
    assert "static __attribute__((noinline)) void net_add_1" not in main_file
    sections = (("code", ".text.fast"),)
    placed = compile_for(net(f" on({CPU1})"), **ON_BOARD, sections=sections)
    assert "\nNET_CODE void net_add_1(" in str(
        placed.tree.files["backend/cpu1/net_cpu1.c"]
    )
    path = tmp_path / "net.fwir"
    path.write_text(print_module(net()))
    words = ["compile", str(path), "--board", "mps2-an521", "--devices", f"cpu0,{FAST}"]
    assert main([*words, "--assign-device", "b=cpu1", "-o", str(tmp_path / "out")]) == 0
    capsys.readouterr()
    assert (tmp_path / "out" / "backend" / "cpu1" / "net_cpu1.c").read_text() == own
