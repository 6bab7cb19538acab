"""Winograd matches direct convolution: borders, batches, extremes, odd heights."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.dtypes import INT8, INT32
from firmwright.base.quant import Quantization
from firmwright.ir.core import Constant
from firmwright.ir.graph.attributes.layers import Conv2DAttrs
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.schedules.dsp_and_scalar.winograd import SCHEDULES


def layer(
    seed: int, size: tuple[int, int], channels: int, outputs: int, pad: int
) -> OpCall:
    """A 3x3 layer of `size` outputs with foldable requantization."""
    rng = np.random.default_rng(seed)
    shape = (outputs, 3, 3, channels)
    weights = rng.integers(-127, 128, shape)
    if seed % 3 == 0:
        weights[:] = rng.choice([-127, 127], shape)
    scales = tuple(float(np.float32(s)) for s in rng.uniform(0.004, 0.009, outputs))
    height, width = (extent + 2 - 2 * pad for extent in size)
    point = int(rng.choice([-128, 127, 3]))
    y_point = int(rng.choice([-128, 5]))
    x = TensorType(
        (1 + seed % 2, height, width, channels), INT8, Quantization((0.05,), (point,))
    )
    y_scale = float(np.float32(0.05 * channels))
    return OpCall(
        "conv2d",
        (
            x,
            TensorType(shape, INT8, Quantization(scales, (0,) * outputs, 0)),
            TensorType((outputs,), INT32),
        ),
        (
            TensorType(
                (x.shape[0], *size, outputs), INT8, Quantization((y_scale,), (y_point,))
            ),
        ),
        Conv2DAttrs(
            stride=(1, 1), dilation=(1, 1), padding=(pad,) * 4, activation="none"
        ),
        (
            None,
            Constant.from_array("w", weights, INT8),
            Constant.from_array("b", rng.integers(-9000, 9000, outputs), INT32),
        ),
    )


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("size", "channels", "outputs"), [((6, 8), 8, 4), ((2, 16), 12, 4)]
)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule.name)
def test_winograd_matches_the_reference(
    schedule, seed, size, channels, outputs, judge
) -> None:
    call = layer(seed, size, channels, outputs, seed // 2 % 2)
    configs = schedule.configs(call)
    assert configs
    for config in configs:
        judge(call, schedule, config)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule.name)
def test_layers_without_whole_tiles_are_not_supported(schedule) -> None:
    assert not schedule.configs(layer(1, (6, 12), 8, 4, 1))
    assert not schedule.configs(layer(1, (5, 8), 8, 4, 1))
    assert not schedule.configs(layer(1, (6, 8), 6, 4, 1))
