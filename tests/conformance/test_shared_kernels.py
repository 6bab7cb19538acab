"""Layers with a ReLU in the code that they share with `--optimize size`.

The random layers of the grid rarely have an output without negative values.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from firmwright.conformance.case_tables import CaseTensor, ConformanceCase, float32
from tests.conformance.board_runner import failures_on_board
from tests.conformance.expected_results import run_oracles
from tests.conformance.host_runner import SANITIZED, build, find_failures, make_runs
from tests.conformance.kernel_batches import Batch, emit_batch, make_batch
from tests.conformance.layer_shapes import Shapes

SHARED = {"dsp.conv2d.shared", "dsp.depthwise.shared"}
COUNT = 12
MANY = 200
SAMPLES = (0, 1, 2)
PROFILES = ("litert", "tflm")


def layer(number: int) -> ConformanceCase:
    """Return a random layer, every second a conv2d; some channels are (nearly) dead."""
    return conv2d_layer(number // 2) if number % 2 else depthwise_layer(number // 2)


def conv2d_layer(number: int) -> ConformanceCase:
    rng = np.random.default_rng(number)
    rows, columns = map(int, rng.choice([(1, 1), (3, 3), (1, 4), (5, 2)]))
    stride, is_same = tuple(map(int, rng.integers(1, 3, 2))), bool(rng.random() < 0.7)
    height, width = (int(rng.integers(5, 20)) for _ in "hw")
    channels, outputs = int(rng.integers(1, 24)), 2 * int(rng.integers(1, 14))
    sides = zip((height, width), (rows, columns), stride, strict=True)
    out = [-(-(size - (k - 1) * (not is_same)) // step) for size, k, step in sides]
    options: dict[str, object] = {
        "padding": "SAME" if is_same else "VALID",
        "stride_h": stride[0],
        "stride_w": stride[1],
        "dilation_h_factor": 1,
        "dilation_w_factor": 1,
        "fused_activation_function": ("RELU", "RELU6")[number % 3 == 0],
    }
    shapes = Shapes(
        "CONV_2D",
        (1, height, width, channels),
        (outputs, rows, columns, channels),
        (1, *out, outputs),
        0,
        options,
    )
    return relu_case(f"conv2d_{number}", shapes, rng, (-10, -7))


def depthwise_layer(number: int) -> ConformanceCase:
    rng = np.random.default_rng(number)
    stride, is_same = 1 + number % 2, bool(rng.random() < 0.7)
    height, width = (int(rng.integers(3, 27)) for _ in "hw")
    channels = int(rng.integers(1, max(2, min(60, 6000 // (height * width)))))
    rows, columns = (
        -(-(size - 2 * (not is_same)) // stride) for size in (height, width)
    )
    options: dict[str, object] = {
        "padding": "SAME" if is_same else "VALID",
        "stride_h": stride,
        "stride_w": stride,
        "dilation_h_factor": 1,
        "dilation_w_factor": 1,
        "depth_multiplier": 1,
        "fused_activation_function": ("RELU", "RELU6")[number % 3 == 0],
    }
    shapes = Shapes(
        "DEPTHWISE_CONV_2D",
        (1, height, width, channels),
        (1, 3, 3, channels),
        (1, rows, columns, channels),
        3,
        options,
    )
    return relu_case(f"depthwise_{number}", shapes, rng, (-10, -6))


def relu_case(
    name: str, shapes: Shapes, rng: np.random.Generator, exponents: tuple[int, int]
) -> ConformanceCase:
    channels = shapes.y[-1]
    scales = tuple(map(float32, 2.0 ** rng.uniform(*exponents, channels)))
    scales = (*scales[:-1], float32(scales[-1] * rng.choice([1, 1, 2.0**-12])))
    x_scale, units = (
        float32(6 / 255),
        tuple(float32(6 / 255 * scale) for scale in scales),
    )
    bias = (rng.uniform(-2, 5, channels) / np.maximum(units, 2.0**-16)).astype(np.int32)
    tensors = (
        CaseTensor(shapes.x, "int8", (x_scale,), (int(rng.choice([-128, 3, 127])),)),
        CaseTensor(
            shapes.w,
            "int8",
            scales,
            (0,) * channels,
            shapes.axis,
            rng.integers(-127, 128, shapes.w).astype(np.int8),
        ),
        CaseTensor((channels,), "int32", units, (0,) * channels, 0, bias),
    )
    y = CaseTensor(
        shapes.y, "int8", (float32(6 / 255 * 2.0 ** rng.uniform(-2, 2)),), (-128,)
    )
    return shapes.case(name, tensors, y)


def shared_kernels(numbers: range) -> Batch:
    """Return the layers with their kernels in shared code."""
    cases = [layer(number) for number in numbers]
    batch = make_batch(cases, ("cortex-m -mcpu=cortex-m4",), PROFILES, is_quick=True)
    kernels = [item for item in batch.kernels if item.schedule.split()[0] in SHARED]
    assert len(kernels) > len(numbers) // 2
    return emit_batch(cases, kernels)


def boards() -> Iterator[object]:
    for board in ("mps2-an386", "mps2-an500"):
        for first in range(0, MANY, COUNT):
            deep = [pytest.mark.deep] if first or board != "mps2-an386" else []
            marks = [pytest.mark.qemu("arm"), *deep]
            yield pytest.param(board, first, marks=marks, id=f"{board}-{first}")


@pytest.mark.parametrize(("board", "first"), list(boards()))
@pytest.mark.deep
def test_shared_code_matches_the_reference_on_boards(
    board: str, first: int, tmp_path: Path
) -> None:
    batch = shared_kernels(range(first, first + COUNT))
    expected = run_oracles(batch.cases, PROFILES, SAMPLES)
    assert list(failures_on_board(batch, expected, SAMPLES, board, tmp_path)) == []


def test_shared_code_matches_the_reference_on_the_host(tmp_path: Path) -> None:
    batch = shared_kernels(range(COUNT))
    program = build(batch, tmp_path, SANITIZED)
    runs = list(make_runs(batch, run_oracles(batch.cases, PROFILES), SAMPLES))
    assert find_failures(batch, program, runs) == []
