"""Biases move into float convolutions, activations behind max pools; results stay."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.ir.graph.attributes.layers import activation_of
from firmwright.ir.graph.evaluate import evaluate_graph
from firmwright.ir.graph.verify import diagnose_graph
from firmwright.ir.module import IRModule
from firmwright.ir.printer import parse_module
from firmwright.ops.registry import op_table
from firmwright.passes.graph import fold_scale, fuse_activations

OPS = op_table()


def row_network(bias: str, shift: str) -> IRModule:
    """Return a one-dimensional convolution as in TFLite, its bias added behind it."""
    return parse_module(
        f"""\
const @w = f32[2,1,3,2] [0.5, -0.25, 1.0, 0.125, -1.5, 0.75, 0.1, 0.2, 0.3, -0.4, 0.5, 0.6]
const @b = f32[2] {bias}
const @s = f32[2] {shift}
graph @main(%x: f32[1,1,9,2]) -> (%z) attrs {{entry=true}} {{
  %w = const @w: f32[2,1,3,2]
  %b = const @b: f32[2]
  %s = const @s: f32[2]
  %c: f32[1,1,7,2] = conv2d(%x, %w, %b) {{padding=[0, 0, 0, 0], stride=[1, 1], dilation=[1, 1],
      activation="none"}}
  %r: f32[1,7,2] = reshape(%c)
  %y: f32[1,7,2] = add(%r, %s) {{activation="relu"}}
  %q: f32[1,7,1,2] = reshape(%y)
  %z: f32[1,3,1,2] = max_pool2d(%q) {{size=[2, 1], stride=[2, 1], dilation=[1, 1],
      padding=[0, 0, 0, 0], activation="none"}}
}}
""",
        fragment=True,
    )


def results(module: IRModule) -> np.ndarray:
    assert diagnose_graph(module.entry, module, OPS) == []
    x = np.random.default_rng(1).uniform(-2, 2, (1, 1, 9, 2)).astype(np.float32)
    return evaluate_graph(module, {"x": x}, OPS, {})["z"]


@pytest.mark.parametrize(
    ("bias", "is_folded"), [("[0.0, 0.0]", True), ("[0.5, 0.0]", False)]
)
def test_an_add_behind_a_reshape_becomes_a_missing_bias(
    bias: str, is_folded: bool
) -> None:
    module = row_network(bias, "[0.25, -3.0]")
    folded = fold_scale.PASS(module)
    assert ("add" in [call.op for call in folded.entry.body]) != is_folded
    np.testing.assert_array_equal(results(folded), results(module))


def test_a_relu_moves_behind_the_max_pool_that_reads_it() -> None:
    text = """\
graph @main(%x: f32[1,1,9,2]) -> (%z) attrs {entry=true} {
  %y: f32[1,1,9,2] = add(%x, %x) {activation="relu"}
  %z: f32[1,1,4,2] = max_pool2d(%y) {size=[1, 2], stride=[1, 2], dilation=[1, 1],
      padding=[0, 0, 0, 0], activation="none"}
}
"""
    module = parse_module(text, fragment=True)
    moved = fuse_activations.PASS(module)
    assert [activation_of(call.attrs) for call in moved.entry.body] == ["none", "relu"]
    np.testing.assert_array_equal(results(moved), results(module))
