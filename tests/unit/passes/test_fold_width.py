"""Narrow convolutions become one-dimensional ones over rows, with the same results."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.ir.graph.evaluate import evaluate_graph
from firmwright.ir.graph.verify import diagnose_graph
from firmwright.ir.module import IRModule
from firmwright.ir.printer import parse_module
from firmwright.ops.registry import op_table
from firmwright.passes.graph.fold_width import PASS

OPS = op_table()


def layer(
    x: tuple[int, int, int] = (9, 3, 2),
    window: tuple[int, int] = (4, 3),
    *,
    scales: str = "[0.25, 0.125], 0, axis=0",
    padding: tuple[int, int, int, int] = (1, 2, 1, 1),
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    filters: int = 2,
) -> IRModule:
    height, width = (
        (x[axis] + sum(padding[2 * axis : 2 * axis + 2]) - window[axis]) // stride[axis]
        + 1
        for axis in (0, 1)
    )
    size = filters * window[0] * window[1] * x[2]
    weights = [(37 * k) % 251 - 125 for k in range(size)]
    shape = f"[{filters},{window[0]},{window[1]},{x[2]}]"
    return parse_module(
        f"""\
const @w = i8{shape} {str(weights).replace(" ", "")}
const @b = i32[{filters}] {str([300 * k for k in range(filters)]).replace(" ", "")}
graph @main(%x: i8[2,{x[0]},{x[1]},{x[2]}] quant(0.5, -3)) -> (%y) attrs {{entry=true}} {{
  %w = const @w: i8{shape} quant({scales})
  %b = const @b: i32[{filters}]
  %y: i8[2,{height},{width},{filters}] quant(40.0, 5) = conv2d(%x, %w, %b) {{
      padding={list(padding)}, stride={list(stride)}, dilation={list(dilation)},
      activation="relu"}}
}}
""",
        fragment=True,
    )


@pytest.mark.parametrize(
    "module",
    [
        layer(),
        layer(scales="0.25, 0", stride=(2, 1)),
        layer((9, 2, 3), stride=(1, 2)),
        layer((9, 1, 4), (3, 3)),
        layer((9, 1, 4), (3, 1), padding=(0, 0, 0, 0)),
    ],
    ids=["channels", "tensor", "columns", "column", "line"],
)
def test_results_are_equal(module: IRModule) -> None:
    folded = PASS(module)
    assert [call.op for call in folded.entry.body] == ["reshape", "conv2d", "reshape"]
    assert folded.entry.body[1].outputs[0].type.shape[1] == 1
    assert diagnose_graph(folded.entry, folded, OPS) == []
    assert PASS(folded) is folded
    shape = module.entry.params[0].type.shape
    x = np.random.default_rng(1).integers(-128, 128, shape).astype(np.int8)
    before, after = (
        evaluate_graph(one, {"x": x}, OPS, {})["y"] for one in (module, folded)
    )
    np.testing.assert_array_equal(before, after)
    assert len(np.unique(before)) > 5


@pytest.mark.parametrize(
    "module",
    [
        layer((9, 4, 2)),
        layer((9, 3, 2), (1, 3), padding=(0, 0, 1, 1)),
        layer((9, 3, 2), (2, 3), dilation=(2, 1), padding=(1, 0, 1, 1)),
        layer(scales="0.25, 1"),
        layer((9, 3, 32), filters=16, scales="0.25, 0"),
    ],
    ids=["wide", "row", "dilated", "zero-point", "large"],
)
def test_other_layers_stay(module: IRModule) -> None:
    assert PASS(module) is module
