"""Devices in branches, loops and called graphs: places, copies, results, errors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from firmwright.base.dtypes import INT8, INT32
from firmwright.base.errors import ModelError, UsageError
from firmwright.flows.board.model_session import open_session
from firmwright.flows.measure.instruction_counts import measure_instructions
from firmwright.flows.model.compilation import compile_for
from firmwright.ir import tir
from firmwright.ir.core import Constant, PoolInfo
from firmwright.ir.graph.evaluate import evaluate_graph, initial_state, next_state
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IRModule
from firmwright.ir.printer import parse_module, print_module
from firmwright.ir.tir.traversal import (
    Node,
    prim_calls,
    rewrite_func,
    statements,
    used_buffers,
)
from firmwright.ops.registry import op_table
from firmwright.pipeline import Compilation

BANK = (PoolInfo("sram"), PoolInfo("dtcm"), PoolInfo("bank", targets=("vanilla",)))
DEEP = pytest.mark.deep
KIND = "i8[1, 16, 8, 8] quant(12.0, -2)"


def conv(y: str, x: str, number: int = 0) -> str:
    return (
        f"  %{y}: {KIND} = conv2d(%{x}, %w{number}: i8[8, 3, 3, 8] quant(0.01, 0) "
        f"const @w{number}, %b{number}: i32[8] quant(0.12, 0) const @b{number}) "
        '{stride=[1, 1], dilation=[1, 1], padding=[1, 1, 1, 1], activation="none"}\n'
    )


def relu(y: str, x: str) -> str:
    return f"  %{y}: {KIND} = relu(%{x})\n"


def net(*graphs: str) -> IRModule:
    rng = np.random.Generator(np.random.PCG64(5))
    constants = {"one": Constant.from_array("one", np.array([1]), INT32)}
    constants["zero"] = Constant.from_array("zero", np.array([0]), INT32)
    for number in range(3):
        for name, shape, dtype in (("w", (8, 3, 3, 8), INT8), ("b", (8,), INT32)):
            array = rng.integers(-100, 100, shape)
            constants[f"{name}{number}"] = Constant.from_array(
                f"{name}{number}", array, dtype
            )
    constants["k"] = Constant.from_array(
        "k", rng.integers(-100, 100, (1, 16, 8, 8)), INT8
    )
    declared = "".join(
        f"const @{c.name} = {c.dtype.short}[{', '.join(map(str, c.shape))}] sha256.{c.digest}\n"
        for c in constants.values()
    )
    text = f"firmwright ir 2\nmodule @net\n{declared}" + "".join(graphs)
    return replace(parse_module(text, structure_only=True), constants=constants)


def branches(
    then: str,
    orelse: str,
    *,
    before: str = "",
    after: str = relu("y", "r"),
    result: str = "e",
) -> IRModule:
    """Return a model with `r`, an if on `a`, or on `x` without calls before it."""
    a = "a" if before else "x"
    return net(
        f"graph @main(%c: bool[1], %x: {KIND}) -> (%y) {{\n{before}"
        f'  %r: {KIND} = if(%c, %{a}) {{then="then", else="else"}}\n{after}}}\n',
        f"graph @then(%x: {KIND}) -> (%t) {{\n{then}}}\n",
        f"graph @else(%x: {KIND}) -> (%{result}) {{\n{orelse}}}\n",
    )


def loop(
    body: str, *, results: str = "%v, %k", after: str = relu("y", "r")
) -> IRModule:
    """Return a loop of `n` rounds with variables `v` and `k` that starts at `x`."""
    params = f"%n: i32[1], %v: {KIND}, %k: {KIND}"
    return net(
        f"graph @main(%n: i32[1], %x: {KIND}) -> (%y) {{\n"
        f"  %left: i32[1], %r: {KIND}, %s: {KIND} = while(%n, %x, %x) "
        '{cond="cond", body="body"}\n'
        f"{after}}}\n",
        f"graph @cond({params}) -> (%more) {{\n  %zero = const @zero: i32[1]\n"
        "  %more: bool[1] = greater(%n, %zero)\n}\n",
        f"graph @body({params}) -> (%less, {results}) {{\n  %one = const @one: i32[1]\n"
        f'  %less: i32[1] = sub(%n, %one) {{activation="none"}}\n{body}}}\n',
    )


def compiled(module: IRModule, **given: Any) -> Compilation:
    options = {
        "target": "vanilla, host",
        "pools": BANK,
        "devices": ("cpu0", "dma0"),
        **given,
    }
    return compile_for(module, **options)


def run_calls(done: Compilation) -> list[tir.PrimFuncCall]:
    """Return the calls of a run in the order of the text, without waits."""
    main = done.module.entry
    assert isinstance(main, tir.PrimFunc)
    kernels = done.module.functions
    calls = (
        c for c in prim_calls(main.body) if not kernels[c.callee].attrs.get("keeps")
    )
    return [call for call in calls if call.phase != "wait"]


def devices(done: Compilation) -> list[str]:
    return [call.device or "cpu0" for call in run_calls(done)]


def inputs(done: Compilation) -> Iterator[dict[str, Any]]:
    rng = np.random.Generator(np.random.PCG64(3))
    for number in range(3):
        entry = done.imported.entry
        assert isinstance(entry, Function)
        values = {
            v.name: rng.integers(-128, 128, v.type.shape, np.int8) for v in entry.params
        }
        values |= {"c": np.array([number % 2 == 1])} if "c" in values else {}
        values |= {"n": np.array([number], np.int32)} if "n" in values else {}
        yield values


def is_right(done: Compilation, **given: Any) -> bool:
    """Return whether runs have the bits of the reference, on every path."""
    state = initial_state(done.imported)
    with open_session(done, **{"in_process": True, **given}) as session:
        for sample in inputs(done):
            result = session.run(sample)
            expected = evaluate_graph(done.imported, sample, op_table(), {}, state)
            state = next_state(done.imported, expected)
            if any(not np.array_equal(result[name], expected[name]) for name in result):
                return False
    return True


def places(done: Compilation) -> dict[str, set[str]]:
    """Return the pools of the arguments of each device's calls, without copies."""
    assert done.module.plan is not None
    result: dict[str, set[str]] = {}
    pool_of = {name: place.pool for name, place in done.module.plan.placements.items()}
    main = done.module.entry
    assert isinstance(main, tir.PrimFunc)
    for node in statements(main.body):
        if isinstance(node, tir.DeclBuffer) and node.buffer.name not in pool_of:
            pool_of[node.buffer.name] = pool_of.get(node.source.buffer.name, "")
    for call in run_calls(done):
        kernel = done.module.functions[call.callee]
        if kernel.attrs.get("op") != "device_copy":
            pools = {
                pool_of[n] for a in call.args for n in used_buffers(a) if n in pool_of
            }
            result.setdefault(call.device or "cpu0", set()).update(pools)
    return result


def everything() -> IRModule:
    """Return a model with an engine's operators, also in an if, loop and function."""
    state = f"%n: i32[1], %v: {KIND}, %k: {KIND}"
    return net(
        f"graph @main(%c: bool[1], %n: i32[1], %x: {KIND}) -> (%y, %s) {{\n"
        + conv("a", "x")
        + f'  %r: {KIND} = if(%c, %a) {{then="then", else="else"}}\n'
        + f'  %m: i32[1], %s: {KIND}, %t: {KIND} = while(%n, %r, %r) {{cond="cond", body="body"}}\n'
        + f"  %y: {KIND} = @tail(%s)\n}}\n",
        f"graph @then(%x: {KIND}) -> (%t) {{\n{conv('t', 'x', 1)}}}\n",
        f"graph @else(%x: {KIND}) -> (%e) {{\n{relu('e', 'x')}}}\n",
        f"graph @cond({state}) -> (%more) {{\n  %zero = const @zero: i32[1]\n"
        "  %more: bool[1] = greater(%n, %zero)\n}\n",
        f"graph @body({state}) -> (%less, %w, %k) {{\n  %one = const @one: i32[1]\n"
        '  %less: i32[1] = sub(%n, %one) {activation="none"}\n'
        + conv("i", "k", 1)
        + conv("j", "v")
        + f'  %w: {KIND} = add(%i, %j) {{activation="none"}}\n}}\n',
        f"graph @tail(%x: {KIND}) -> (%z) {{\n{conv('z', 'x', 2)}}}\n",
    )


CASES = {
    "in one branch": (branches(conv("t", "x"), relu("e", "x")), 4),
    "in both branches": (branches(conv("t", "x"), conv("e", "x", 1)), 8),
    "before and after": (
        branches(
            conv("t", "x"),
            relu("e", "x"),
            before=conv("a", "x", 1),
            after=conv("y", "r"),
        ),
        4,
    ),
    "whose argument is a result": (branches(conv("t", "x"), "", result="x"), 4),
    "of a view": (
        branches(
            conv("t", "x"), f"  %e: {KIND} = reshape(%x)\n", before=conv("a", "x", 1)
        ),
        3,
    ),
    "whose result is read by it": (
        branches(conv("t", "x"), relu("e", "x"), after=conv("y", "r")),
        3,
    ),
    "in a loop": (loop(conv("v1", "v"), results="%v1, %k"), 3),
    "in a loop that shifts values": (loop(conv("v1", "v"), results="%v1, %v"), 5),
}
"""Models with an engine's operator, and the copies between memories in their text."""


@pytest.mark.parametrize("name", CASES)
def test_engine_sees_only_its_bank(name: str) -> None:
    module, copies = CASES[name]
    done = compiled(module)
    assert places(done) == {"vanilla0": {"bank"}, "cpu0": {"sram"}}
    assert devices(done).count("dma0") == copies


@pytest.mark.host_c
@pytest.mark.parametrize(
    "given", [{}, pytest.param({"fallback": True}, marks=DEEP)], ids=str
)
def test_results_on_every_path_are_exact(given: dict[str, Any]) -> None:
    done = compiled(everything(), **given)
    assert places(done) == {"vanilla0": {"bank"}, "cpu0": {"sram"}}
    assert is_right(done)
    saved = parse_module(print_module(done.imported), structure_only=True)
    saved = replace(saved, constants=done.imported.constants)
    assert compile_for(saved).tree.files == done.tree.files


TWO_CORES: dict[str, Any] = {
    "target": "",
    "pools": BANK[:2],
    "devices": ("cpu0", "cpu1"),
}


def inside(done: Compilation, kind: type[tir.If] | type[tir.While]) -> list[str]:
    """Return the devices of the calls inside the branches or loops of a run."""
    main = done.module.entry
    assert isinstance(main, tir.PrimFunc)
    found = (node for node in statements(main.body) if isinstance(node, kind))
    return [
        call.device
        for node in found
        for call in prim_calls(node)
        if call.phase != "wait"
    ]


@pytest.mark.host_c
def test_cores_share_calls_in_branches_loops_and_functions() -> None:
    done = compiled(everything(), **TWO_CORES)
    assert inside(done, tir.If).count("cpu1") == 1
    assert inside(done, tir.While).count("cpu1") == 2
    assert devices(done).count("cpu1") == 5
    assert is_right(done)


@pytest.mark.qemu
@pytest.mark.parametrize(
    "given",
    [{"target": "vanilla"}, pytest.param({"devices": ("cpu0", "cpu1")}, marks=DEEP)],
    ids=str,
)
def test_results_on_a_board_are_exact_and_timed(given: dict[str, Any]) -> None:
    done = compile_for(everything(), board="mps2-an521", **given)
    assert is_right(done, in_process=False)
    *_, sample = inputs(done)
    line = measure_instructions(done, sample={**sample, "c": np.array([True])}).timeline
    assert line is not None
    kinds = {row["index"]: row["kind"] for row in done.metadata["operators"]}
    ran = Counter(kinds[item.call.op] for item in line.schedule if item.call.op >= 0)
    assert ran["relu"] == 0, "the branch that is not taken"
    assert ran["greater"] == 3, "of two iterations"
    assert ran["add"] in (2, 4), "whole or in two parts"
    assert {item.call.device for item in line.schedule} >= {
        "",
        *given.get("devices", ())[1:],
    }


@pytest.mark.host_c
@pytest.mark.parametrize(
    ("module", "copies"),
    [
        (branches(conv("t", "x"), conv("e", "x", 1)), {"r_in_sram": "sram"}),
        (
            loop(conv("a", "k") + relu("m", "a"), results="%m, %k"),
            {"r": "sram", "s": "bank", "a_in_sram": "sram"},
        ),
    ],
    ids=["branch", "loop"],
)
def test_an_input_in_the_bank_is_read_there_in_control_flow(
    module: IRModule, copies: dict[str, str]
) -> None:
    """The engine's input is not copied to the core's memory and back.

    The initial values of both variables of the loop are copied before it.
    """
    done = compiled(module, device_assignments=(("x", "vanilla0", "bank"),))
    assert done.module.plan is not None
    written: dict[str, str] = {}
    for call in run_calls(done):
        if "device_copy" in call.callee:
            target = call.args[1]
            assert isinstance(target, tir.AccessPtr)
            name = target.buffer.name
            written[name] = done.module.plan.placements[name].pool
    assert written == copies
    assert is_right(done)


PLAIN = branches(relu("t", "x"), relu("e", "x"))
MIXED = CASES["in one branch"][0]


def test_device_of_a_result_of_an_if_is_that_of_the_calls_in_its_branches() -> None:
    done = compiled(PLAIN, **TWO_CORES, device_assignments=(("r", "cpu1", "dtcm"),))
    assert inside(done, tir.If) == ["cpu1", "cpu1"]
    one = compiled(PLAIN, **TWO_CORES, device_assignments=(("t", "cpu1", "dtcm"),))
    assert sorted(inside(one, tir.If)) == ["", "cpu1"]
    for each in (done, one):
        assert each.module.plan is not None
        assert each.module.plan.placements["r"].pool == "dtcm"


def test_pool_of_a_result_of_an_if_is_honoured_if_a_branch_computes_it_elsewhere() -> (
    None
):
    done = compiled(MIXED, pool_assignments=(("r", "dtcm"),))
    assert done.module.plan is not None
    assert done.module.plan.placements["r"].pool == "dtcm"
    assert places(done) == {"vanilla0": {"bank"}, "cpu0": {"sram", "dtcm"}}


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        (
            ("r", "cpu0", ""),
            "net: the tensor t has two contradictory assignments: --assign-device r=cpu0 "
            "assigns it to cpu0, and the partition @vanilla_conv2d_0, which computes t, "
            "assigns it to vanilla0. Try: omit one of the two.",
        ),
        (
            ("r", "vanilla0", ""),
            "net: the tensor e cannot be computed on vanilla0, as --assign-device r=vanilla0 "
            "requires: its operator relu is not part of a partition for that device. "
            "Try: a core, such as cpu0, or a backend that supports the operator.",
        ),
        (
            ("e", "cpu0", "bank"),
            "net: the tensor e cannot be in bank: the device that computes it can access "
            "dtcm, sram. Try: another scope for --assign-device, or a --pool of that name.",
        ),
        (
            ("f", "cpu0", ""),
            "net: --assign-device f=cpu0 is invalid: the model has no such tensor. "
            "Try: one of y, x, w0, ....",
        ),
    ],
)
def test_device_that_cannot_be_honoured_is_an_error(
    assignment: tuple[str, str, str], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        compiled(MIXED, device_assignments=(assignment,))
    assert str(caught.value) == message


def test_constants_and_state_are_copied_to_the_memory_of_their_readers() -> None:
    module = net(
        f"graph @main(%c: bool[1], %x: {KIND}) -> (%y)\n"
        f"    state(%kept: {KIND} = @k -> %next) {{\n"
        f"  %k = const @k: {KIND}\n"
        f'  %r: {KIND} = if(%c, %k) {{then="then", else="else"}}\n'
        f'  %next: {KIND} = if(%c, %kept) {{then="update", else="else"}}\n'
        f'  %y: {KIND} = add(%r, %x) {{activation="none"}}\n}}\n',
        f"graph @then(%x: {KIND}) -> (%t) {{\n{conv('t', 'x')}}}\n",
        f"graph @else(%x: {KIND}) -> (%e) {{\n{relu('e', 'x')}}}\n",
        f"graph @update(%x: {KIND}) -> (%u) {{\n{conv('u', 'x', 1)}}}\n",
    )
    done = compiled(module)
    assert places(done) == {"vanilla0": {"bank"}, "cpu0": {"sram"}}
    assert is_right(done)


@pytest.mark.parametrize(
    ("kernel", "device", "message"),
    [
        (
            "vanilla_conv2d_0",
            "",
            "vanilla_conv2d_0 on cpu0 uses then_x_in_bank, which is in bank; ",
        ),
        (
            "else_relu_0",
            "vanilla0",
            "else_relu_0 on vanilla0 uses x, which is in sram; ",
        ),
        (
            "then_device_copy_0",
            "vanilla0",
            "on vanilla0 uses y, which is in sram; this device can access bank",
        ),
    ],
)
def test_verifier_refuses_calls_on_devices_that_cannot_access_their_buffers(
    kernel: str, device: str, message: str
) -> None:
    planned = compiled(CASES["whose result is read by it"][0]).module
    main = planned.entry
    assert isinstance(main, tir.PrimFunc)

    def defect(node: Node) -> Node | None:
        if not isinstance(node, tir.PrimFuncCall) or node.callee != kernel:
            return None
        return replace(node, device=device, phase=node.phase if device else "call")

    with pytest.raises(ModelError, match=re.escape(message)):
        compile_for(planned.with_function(rewrite_func(main, defect)))
