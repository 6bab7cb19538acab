"""int16 layers of usual scales execute at most three instructions per multiply-add on DSP cores.

The layers have at least three products per output; the scales keep sums and bias in 32 bits.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from layer_shapes import Shapes
from tflite_writer import write_cases

import firmwright as fw
from firmwright.conformance.case_tables import CaseTensor, ConformanceCase, float32
from firmwright.flows.profiling import profile

MAX_PER_MAC = 3.0
IMAGE = (1, 8, 8)
OPTIONS = {
    "padding": "SAME",
    "stride_h": 1,
    "stride_w": 1,
    "dilation_h_factor": 1,
    "dilation_w_factor": 1,
    "fused_activation_function": "NONE",
}


def convolution(channels: int, outputs: int) -> Shapes:
    x, w, y = (*IMAGE, channels), (outputs, 1, 1, channels), (*IMAGE, outputs)
    return Shapes("CONV_2D", x, w, y, 0, dict(OPTIONS))


def depthwise(rows: int, columns: int, channels: int) -> Shapes:
    x, w = (*IMAGE, channels), (1, rows, columns, channels)
    return Shapes("DEPTHWISE_CONV_2D", x, w, x, 3, {**OPTIONS, "depth_multiplier": 1})


LAYERS = (
    convolution(4, 16),
    convolution(8, 7),
    depthwise(3, 3, 13),
    depthwise(5, 5, 8),
    depthwise(1, 3, 8),
)


def layer(shapes: Shapes, number: int) -> ConformanceCase:
    rng = np.random.default_rng(number)
    count = shapes.w[shapes.axis]
    scales = tuple(map(float32, 2.0 ** rng.uniform(-9.5, -7.5, count)))
    bias = rng.integers(-9000, 9000, count)
    weights = rng.integers(-127, 128, shapes.w).astype(np.int8)
    x_scale = y_scale = 2.0**-12
    units = tuple(x_scale * scale for scale in scales)
    tensors = (
        CaseTensor(shapes.x, "int16", (x_scale,), (0,)),
        CaseTensor(shapes.w, "int8", scales, (0,) * count, shapes.axis, weights),
        CaseTensor((count,), "int64", units, (0,) * count, 0, bias),
    )
    return shapes.case(f"layer_{number}", tensors, CaseTensor(shapes.y, "int16", (y_scale,), (0,)))


@pytest.mark.qemu("arm")
def test_int16_layers_take_few_instructions(tmp_path: Path) -> None:
    file = tmp_path / "layers.tflite"
    file.write_bytes(write_cases([layer(shapes, n) for n, shapes in enumerate(LAYERS)]))
    compiled = fw.compile(fw.load(file), board="mps2-an386")
    assert fw.verify(compiled, samples=1).exact
    operators = [each for each in profile(compiled).operators if each.macs]
    assert len(operators) == len(LAYERS)
    for operator in operators:
        assert operator.count <= MAX_PER_MAC * operator.macs, operator
