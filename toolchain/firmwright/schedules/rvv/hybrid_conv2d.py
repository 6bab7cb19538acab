"""hybrid_conv2d on RISC-V vectors: integer sums of all channels in lanes.

The input is quantized as the operator defines it. Without float vectors, the sums of a
block of pixels are scaled in the default order of operations, one by one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32, Array
from firmwright.ir import tir
from firmwright.ir.graph.attributes.layers import ActivationAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ops.conv2d import bias_of, weights_of
from firmwright.ops.conv_window import window_of
from firmwright.ops.dynamic_range import QuantizedRow, QuantizePasses
from firmwright.ops.hybrid_conv2d import quantize_input
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import apply_activation, quantization_of
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.rvv.conv2d_fully_connected import choose_loop
from firmwright.schedules.rvv.endings import SUMS
from firmwright.schedules.rvv.window_kernel import (
    WindowCall,
    adjacent_taps,
    emit_windows,
)


@dataclass(frozen=True, slots=True)
class HybridSums:
    """The sums of a block of pixels, and the operands that make them outputs.

    `totals` are the sums of each channel's weights, and `scales` those of the weights.
    """

    sums: tir.Buffer
    totals: tir.Buffer
    scales: tir.Buffer
    bias: tir.Buffer
    row: QuantizedRow


def configs_of_adjacent_taps(op: OpCall) -> Sequence[ScheduleConfig]:
    window = window_of(op, op.input(1).shape[1:3])
    return () if adjacent_taps(window, 1) is None else (NO_CONFIG,)


def emit_hybrid(
    op: OpCall,
    b: Kernel,
    finish: Callable[[Kernel, HybridSums, ArithExpr], None],
    passes: QuantizePasses | None = None,
) -> None:
    """Compute a layer; `finish` emits the outputs of a block from a pixel on."""
    weights, (_, height, width, outputs) = weights_of(op), op.output.shape
    flat = weights.reshape(outputs, -1)
    window = window_of(op, weights.shape[1:3])
    x = op.input(0)
    taps = adjacent_taps(window, x.shape[3])
    assert taps is not None
    rows, run = taps
    pixels = height * width if window.pointwise else width
    loop = choose_loop(SUMS[INT8], flat, rows, pixels)
    table = b.constant("weights", flat.T, INT8)
    starts = b.constant("starts", np.zeros(outputs, np.int32), INT32)
    totals = b.constant("totals", flat.sum(axis=1, dtype=np.int64), INT32)
    scales = b.constant("scales", _scales(op, outputs), FLOAT32)
    bias = b.constant("bias", bias_of(op, "float32"), FLOAT32)
    quantized = b.allocate("quantized", INT8, (1, *x.shape[1:]), 8)
    sums = b.allocate("sums", INT32, (loop.pixels, outputs), 4)
    with b.for_("n", x.shape[0]) as n:
        row = quantize_input(op, b, n, quantized, passes)
        block = HybridSums(sums, totals, scales, bias, row)
        first = n * (height * width)
        call = WindowCall(
            loop.name,
            loop.pixels,
            table,
            (starts,),
            padding=row.zero_point,
            source=quantized,
            sums=sums,
            finish=lambda at: finish(b, block, first + at),
        )
        emit_windows(b, window, call, outputs, (run, 1, 1))


def _scales(op: OpCall, outputs: int) -> Array:
    """Return the scales of the weights; one of all channels is part of the row's."""
    scales = np.array(quantization_of(op.input(1)).scales, np.float32)
    return scales if len(scales) > 1 else np.ones(outputs, np.float32)


def _finish(b: Kernel, block: HybridSums, at: ArithExpr) -> None:
    pixels, outputs = block.sums.shape
    shape = (pixels, outputs)
    y = b.view("out", b.y, at * outputs, shape, access="w")
    activation = b.call.attributes(ActivationAttrs).activation
    with b.loops("p o", shape) as (p, o):
        total = b.load(block.sums, [p, o])
        value = total
        if block.row.offset is not None:
            value = total - block.row.offset.value * b.load(block.totals, [o])
        scaled = value.cast(FLOAT32)
        if len(quantization_of(b.call.input(1)).scales) > 1:
            scaled = scaled * b.load(block.scales, [o])
        result = scaled * block.row.scale.value + b.load(block.bias, [o])
        b.store(y, [p, o], apply_activation(result, activation))


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    emit_hybrid(op, b, _finish)


SCHEDULES = (
    Schedule(
        "rvv.hybrid_conv2d.sums",
        "hybrid_conv2d",
        frozenset({"rvv"}),
        configs_of_adjacent_taps,
        _build,
    ),
)
