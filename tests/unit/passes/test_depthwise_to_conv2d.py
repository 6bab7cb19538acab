"""Depthwise convolutions of one channel become convolutions with the same results."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.dtypes import FLOAT32
from firmwright.ir.core import Constant
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.evaluate import evaluate_graph
from firmwright.ir.graph.nodes import Call, Function, TensorType, Value
from firmwright.ir.graph.verify import diagnose_graph
from firmwright.ir.module import IRModule
from firmwright.ir.printer import parse_module
from firmwright.ops.registry import op_table
from firmwright.passes.graph.depthwise_to_conv2d import PASS

OPS = op_table()


def layer(scales: str, *, channels: int = 1, filters: int = 3) -> IRModule:
    weights = [(37 * k) % 251 - 125 for k in range(6 * filters)]
    return parse_module(
        f"""\
const @w = i8[1,3,2,{filters}] {str(weights).replace(" ", "")}
const @b = i32[{filters}] {str([300 * k for k in range(filters)]).replace(" ", "")}
graph @main(%x: i8[1,5,6,{channels}] quant(0.5, -3)) -> (%y) attrs {{entry=true}} {{
  %w = const @w: i8[1,3,2,{filters}] quant({scales})
  %b = const @b: i32[{filters}]
  %y: i8[1,3,6,{filters}] quant(40.0, 5) = depthwise_conv2d(%x, %w, %b) {{padding=[1, 1, 0, 1],
      stride=[2, 1], dilation=[1, 1], activation="relu"}}
}}
""",
        fragment=True,
    )


@pytest.mark.parametrize("scales", ["0.25, 0", "[0.25, 0.125, 0.5], 0, axis=3"])
def test_results_are_equal(scales: str) -> None:
    module = layer(scales)
    converted = PASS(module)
    assert [call.op for call in converted.entry.body] == ["conv2d"]
    assert diagnose_graph(converted.entry, converted, OPS) == []
    x = np.random.default_rng(1).integers(-128, 128, (1, 5, 6, 1)).astype(np.int8)
    before, after = (
        evaluate_graph(one, {"x": x}, OPS, {})["y"] for one in (module, converted)
    )
    np.testing.assert_array_equal(before, after)
    assert len(np.unique(before)) > 5


def test_floats_convert_in_large_windows_only() -> None:
    value = Value("x", TensorType((1, 9, 9, 1), FLOAT32))

    def convolution(rows: int) -> IRModule:
        array = np.arange(rows * 12, dtype=np.float32).reshape(1, rows, 4, 3)
        weights = Value("w", TensorType(array.shape, FLOAT32), "w")
        y = Value("y", TensorType((1, 10 - rows, 6, 3), FLOAT32))
        window = {
            "padding": (0,) * 4,
            "stride": (1, 1),
            "dilation": (1, 1),
            "activation": "none",
        }
        call = Call(
            "depthwise_conv2d",
            (value, weights),
            (y,),
            attrs_from_mapping("depthwise_conv2d", window),
        )
        constants = {"w": Constant.from_array("w", array, FLOAT32)}
        main = Function("main", (value,), (call,), call.outputs)
        return IRModule("net", {"main": main}, constants, entry_name="main")

    small, large = convolution(3), convolution(4)
    assert PASS(small) is small
    x = np.random.default_rng(2).normal(size=(1, 9, 9, 1)).astype(np.float32)
    before, after = (
        evaluate_graph(m, {"x": x}, OPS, {})["y"] for m in (large, PASS(large))
    )
    np.testing.assert_allclose(before, after, rtol=1e-6)


@pytest.mark.parametrize("shape", [{"channels": 3}, {"filters": 1}])
def test_other_layers_stay(shape: dict[str, int]) -> None:
    module = layer("0.25, 0", **shape)
    assert PASS(module) is module
