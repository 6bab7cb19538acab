"""Depthwise layers of all shapes in one function (goal `size`)."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.dtypes import INT8, INT64
from firmwright.base.quant import Quantization, Rounding
from firmwright.flows.model.compilation import compile_for
from firmwright.graph_builder import GraphBuilder
from firmwright.ir.graph.attributes.base import attrs_to_mapping
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir import PrimFunc
from firmwright.ops.requantize import make_requantization
from firmwright.schedules.cortex_m_dsp.depthwise_shared import SCHEDULES
from firmwright.schedules.folded_requantize import fit_offset_form, read_offset_form
from tests.unit.schedules.relu_layers import relu_layer

(SHARED,) = SCHEDULES


def layer(
    seed: int,
    shape: tuple[int, int, int],
    stride: int,
    padding: tuple[int, int, int, int],
) -> OpCall:
    """A layer with channels of very different scales, some dead or nearly dead."""
    rng, channels = np.random.default_rng(seed), shape[2]
    scales = tuple(
        float(np.float32(s)) for s in rng.choice([1e-3, 1e-2, 0.1], channels)
    )
    scales = (scales[0] * 1e-4, *scales[1:]) if channels > 4 else scales
    weights = rng.integers(-128, 128, (1, 3, 3, channels)).astype(np.int8)
    bias = (rng.uniform(-1, 4, channels) / np.maximum(scales, 1e-3) / 0.02).astype(
        np.int32
    )
    zero_point = int(rng.choice([-128, 0, 127, 5]))
    return relu_layer(
        "depthwise_conv2d",
        zero_point,
        shape,
        weights,
        scales,
        bias,
        (stride, stride),
        padding,
    )


@pytest.mark.parametrize("numbers", [(8, 29), (10, 28)], ids=["depthwise", "conv2d"])
def test_the_offset_form_is_exact_for_every_accumulator(numbers) -> None:
    rng = np.random.default_rng(7)
    fitted = 0
    for _ in range(16):
        factors = 10.0 ** rng.uniform(-5, -1.2, 3)
        y = TensorType((1, 1), INT8, Quantization((1.0,), (-128,)))
        params = make_requantization(factors, Rounding.TWICE, y, "relu")
        bias = (rng.uniform(-100, 200, 3) / factors).astype(np.int64)
        low, high = bias - rng.integers(0, 60_000, 3), bias + rng.integers(0, 60_000, 3)
        records = fit_offset_form(params, low, high, bias, *numbers)
        if records is None:
            continue
        offset, multiplier = read_offset_form(records, numbers[1])
        sums = (np.arange(-60_000, 60_001)[:, None] + bias).clip(low, high)
        scaled = (((sums - bias) << 8) + offset) * multiplier >> (32 + numbers[0])
        np.testing.assert_array_equal(
            scaled.clip(0, 255) - 128, params.apply(sums, INT64)
        )
        fitted += 1
    assert fitted > 5


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(
    "padding", [(1, 1, 1, 1), (0, 1, 0, 1), (0, 0, 0, 0), (1, 0, 1, 0)]
)
def test_layers_of_many_shapes_match_the_reference(stride, padding, judge) -> None:
    shapes = [
        (3, 3, 7),
        (4, 4, 1),
        (6, 7, 22),
        (9, 5, 3),
        (12, 12, 30),
        (25, 5, 8),
        (5, 48, 2),
    ]
    judged = 0
    for seed, shape in enumerate(shapes):
        call = layer(seed, shape, stride, padding)
        for config in SHARED.configs(call):
            judge(call, SHARED, config)
            judged += 1
    assert judged > len(shapes) // 2


def test_layers_of_many_shapes_share_one_function() -> None:
    g = GraphBuilder("many")
    x = g.input("x", (1, 24, 20, 22), scale=0.02, zero_point=-128)
    y = x
    strides = (1, 2, 1, 2)
    for seed, stride in enumerate(strides):
        _, height, width, _ = y.shape
        sides = [(side % 2 == 0 or stride == 1) * 1 for side in (height, width)]
        made = layer(seed, y.shape[1:], stride, (sides[0], 1, sides[1], 1))
        weights, bias = (constant.array() for constant in made.constants[1:])
        scales = made.input(1).quantization.scales
        y = g.call(
            "depthwise_conv2d",
            y,
            g.constant(weights, scale=scales, axis=3),
            g.constant(bias),
            scale=6 / 255,
            zero_point=-128,
            **attrs_to_mapping(made.attrs),
        )
    compiled = compile_for(g.model(y), "mps2-an386", optimize="size")
    used = [item.schedule for item in compiled.summary.operators]
    assert [name.split()[0] for name in used] == ["dsp.depthwise.shared"] * len(strides)
    functions = [
        f for f in compiled.module.functions.values() if isinstance(f, PrimFunc)
    ]
    assert (
        len({f.code for f in functions if f.attrs.get("op") == "depthwise_conv2d"}) == 1
    )
