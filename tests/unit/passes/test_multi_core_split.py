"""Tests of the multi-core split: equal values, computed in place by each core."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.dtypes import INT8, INT32, DType
from firmwright.base.quant import Quantization
from firmwright.ir.core import Constant
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.attributes.layers import ActivationAttrs, FullyConnectedAttrs
from firmwright.ir.graph.attributes.movement import is_subview
from firmwright.ir.graph.devices import executing_device
from firmwright.ir.graph.evaluate import evaluate_graph
from firmwright.ir.graph.nodes import Call, Function, TensorType, Value
from firmwright.ir.graph.verify import diagnose_graph
from firmwright.ir.module import IRModule
from firmwright.ir.printer import parse_module
from firmwright.ir.settings import Devices, Settings
from firmwright.ops.registry import op_table
from firmwright.passes.graph.copy_elision import mark_copies_as_views
from firmwright.passes.graph.multi_core_split import choose_cuts, split_over_cores

OPS = op_table()
RNG = np.random.Generator(np.random.PCG64(7))
FACTORS = tuple(0.01 * k for k in range(1, 11))


def tensor(
    name: str, shape: tuple[int, ...], dtype: DType = INT8, *, scale: float = 0.5
) -> Value:
    return Value(name, TensorType(shape, dtype, Quantization((scale,), (1,))))


def weights(name: str, shape: tuple[int, ...], dtype: DType) -> Value:
    """Return a constant with one scale per entry of its first axis."""
    count = shape[0]
    quantization = Quantization(FACTORS[:count], (0,) * count, 0)
    return Value(name, TensorType(shape, dtype, quantization), constant=name)


def conv(
    height: int, rows: int, stride: int, dilation: int, padding: tuple[int, int]
) -> Call:
    inputs = (
        tensor("x", (1, height, 8, 8)),
        weights("w", (8, 3, 3, 8), INT8),
        weights("b", (8,), INT32),
    )
    attrs = {
        "stride": (stride, 1),
        "dilation": (dilation, 1),
        "padding": (*padding, 1, 1),
        "activation": "none",
    }
    return Call(
        "conv2d",
        inputs,
        (tensor("y", (1, rows, 8, 8), scale=60.0),),
        attrs_from_mapping("conv2d", attrs),
    )


POOL = {
    "size": (2, 1),
    "stride": (2, 1),
    "dilation": (1, 1),
    "padding": (0, 0, 0, 0),
    "activation": "none",
}
CASES = {
    "same": conv(11, 11, 1, 1, (1, 1)),
    "strided": conv(13, 7, 2, 1, (1, 1)),
    "dilated": conv(15, 11, 1, 2, (0, 0)),
    "uneven padding": conv(12, 12, 1, 1, (0, 2)),
    "pool": Call(
        "max_pool2d",
        (tensor("x", (1, 36, 16, 16)),),
        (tensor("y", (1, 18, 16, 16)),),
        attrs_from_mapping("max_pool2d", POOL),
    ),
    "two inputs": Call(
        "add",
        (tensor("x", (1, 9, 32, 16)),) * 2,
        (tensor("y", (1, 9, 32, 16), scale=0.9),),
        ActivationAttrs(activation="none"),
    ),
    "outputs": Call(
        "fully_connected",
        (
            tensor("x", (1, 512)),
            weights("w", (10, 512), INT8),
            weights("b", (10,), INT32),
        ),
        (tensor("y", (1, 10), scale=90.0),),
        FullyConnectedAttrs(activation="none", keep_dims=False),
    ),
}


def graph(case: str, *devices: str) -> IRModule:
    call = CASES[case]
    x = call.inputs[0]
    assert x is not None
    constants = {
        v.name: Constant.from_array(
            v.name, RNG.integers(-100, 100, v.type.shape), v.type.dtype
        )
        for v in call.inputs
        if v is not None and v.constant
    }
    main = Function("main", (x,), (call,), call.outputs)
    settings = Settings(devices=Devices(devices))
    return IRModule(
        "net", {"main": main}, constants, entry_name="main", settings=settings
    )


def no_cycles(module: IRModule) -> list[int]:
    raise AssertionError("cores with one target have equal parts")


def body(module: IRModule) -> tuple[Call, ...]:
    assert isinstance(module.entry, Function)
    return module.entry.body


@pytest.mark.parametrize("devices", [("cpu0", "cpu1"), ("cpu0", "cpu1", "cpu2")])
@pytest.mark.parametrize("case", CASES)
def test_a_split_call_computes_the_same_result(
    case: str, devices: tuple[str, ...]
) -> None:
    module = graph(case, *devices)
    split = split_over_cores(module, OPS, no_cycles)
    assert isinstance(split.entry, Function)
    assert diagnose_graph(split.entry, split, OPS) == []
    kind = split.entry.params[0].type
    x = (
        np.random.Generator(np.random.PCG64(1))
        .integers(-128, 128, kind.shape)
        .astype(np.int8)
    )
    whole, parts = (
        evaluate_graph(one, {"x": x}, OPS, {})["y"] for one in (module, split)
    )
    assert np.array_equal(whole, parts)
    assert len(np.unique(whole)) > 2, "the case must not saturate"
    makers = [call for call in body(split) if call.op == body(module)[0].op]
    assert [executing_device(call) for call in makers] == ["", *devices[1:]]
    moved = [
        call
        for call in body(mark_copies_as_views(split, OPS))
        if call.op not in (makers[0].op,)
    ]
    assert moved
    joints = [call for call in moved if call.op == "concatenation" or case != "outputs"]
    assert all(is_subview(call.attrs) for call in joints), "no byte is moved"


def test_small_or_placed_calls_are_not_split() -> None:
    small = parse_module(
        'firmwright ir 2\nmodule @net attrs {devices=["cpu0", "cpu1"], entry="main"}\n'
        "graph @main(%x: i8[1, 8, 8, 4] quant(0.5, 0)) -> (%y) "
        "{ %y: i8[1, 8, 8, 4] quant(0.5, 0) = relu(%x) }"
    )
    assert body(split_over_cores(small, OPS, no_cycles)) == body(small)
    alone = graph("same", "cpu0")
    assert split_over_cores(alone, OPS, no_cycles) is alone


def test_cuts_are_as_even_as_valid_positions_allow() -> None:
    halves, thirds = (("cpu0", 1), ("cpu1", 1)), (("cpu0", 1), ("cpu1", 1), ("cpu2", 1))
    assert choose_cuts(25, halves, lambda place: True) == (0, 12, 25)
    assert choose_cuts(12, halves, lambda place: place % 4 == 0) == (0, 4, 12)
    assert choose_cuts(24, thirds, lambda place: place % 4 == 0) == (0, 8, 16, 24)
    assert choose_cuts(25, (("npu0", 80), ("cpu0", 20)), lambda place: True) == (
        0,
        20,
        25,
    )
    assert choose_cuts(3, halves, lambda place: False) is None
