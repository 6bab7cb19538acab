"""hybrid_conv2d and hybrid_fully_connected on the DSP extension, by the int8 GEMM."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32, UINT32, Array, DType
from firmwright.ir import tir
from firmwright.ir.graph.attributes.layers import ActivationAttrs, WindowAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.kernels.dsp.weight_packing import PAIRED
from firmwright.ops.conv2d import bias_of, weights_of
from firmwright.ops.dynamic_range import QuantizedRow
from firmwright.ops.hybrid_conv2d import quantize_input
from firmwright.ops.hybrid_fully_connected import is_whole, quantized_rows
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import apply_activation, quantization_of
from firmwright.ops.schedule import NO_CONFIG, ScheduleConfig
from firmwright.schedules.computed_channels import ComputedChannels
from firmwright.schedules.cortex_m_dsp.conv2d_fully_connected import (
    CHANNELS_BY_PIXELS,
    Im2colSource,
    block_pixels,
    convolve_in_blocks,
    layer_layout,
)
from firmwright.schedules.cortex_m_dsp.gemm_tiles import (
    ByteColumnTile,
    PairTile,
    plan_dsp_sums,
)
from firmwright.schedules.epilogue import BindChannel, BindGroup
from firmwright.schedules.epilogue_forms import FinishElement
from firmwright.schedules.row_band import PixelBlock
from firmwright.schedules.schedule_factories import dsp_schedule

# The input is quantized as the operator defines it (ops/hybrid_conv2d.py) and
# multiplied as in conv2d_fully_connected.py. The integer sums are exact in any order.
# The zero point of an asymmetric input is known only at run time and also fills the
# padding, so its share of a sum is the zero point times the sum of the channel's
# weights.


_CHANNELS = 8
_WORD = 4
_BIAS = 2
_ROWS = (0, 0)
"""No padding of rows."""


def _configs(op: OpCall) -> Sequence[PixelBlock]:
    if op.attributes(WindowAttrs).dilation[1] != 1:
        return ()
    _, height, width, _ = op.output.shape
    pixels = height * width
    return [PixelBlock(count) for count in CHANNELS_BY_PIXELS if count <= pixels]


def _build(op: OpCall, config: PixelBlock, b: Kernel) -> None:
    kernel = weights_of(op)
    layout = layer_layout(op)
    x = op.input(0)
    batch, height, width, channels = op.output.shape
    pixels = height * width
    block = block_pixels(config.pixels, pixels)
    scales = np.array(quantization_of(op.input(1)).scales)
    with b.for_("n", batch) as n:
        quantized = b.allocate("quantized", INT8, (1, *x.shape[1:]))
        row = quantize_input(op, b, n, quantized)
        own = None if row.offset is None else scales
        end = _make_end(op, b, row, bias_of(op, "float32"), own)
        tile = partial(PairTile, pixels=block)
        channels_of_block = CHANNELS_BY_PIXELS[block]
        gemm = plan_dsp_sums(b, layout, kernel, channels_of_block, tile, end)
        source = Im2colSource(quantized, layout, row.zero_point)
        convolve_in_blocks(b, source, gemm, (1, height, width, channels), n * pixels)


def _matrix_configs(op: OpCall) -> Sequence[ScheduleConfig]:
    outputs, depth = op.input(1).shape
    for index in (1, _BIAS):
        if op.has_input(index) and op.constant(index) is None:
            return ()
    is_aligned = depth % _WORD == 0 or not is_whole(op)
    return (NO_CONFIG,) if is_aligned and outputs >= _CHANNELS else ()


def _build_matrix(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    outputs, depth = op.input(1).shape
    bias = op.constant(_BIAS)
    scales = np.array(quantization_of(op.input(1)).scales)
    per_channel = len(scales) > 1 or is_whole(op)
    common = None if per_channel else float(scales[0])
    padding = -depth % _WORD
    layout = replace(layer_layout(op), channels=depth + padding)
    with quantized_rows(op, b, common, padding=padding) as (n, quantized, row):
        addend = None if bias is None else bias.array().reshape(-1)
        own = np.resize(scales, outputs) if per_channel else None
        end = _make_end(op, b, row, addend, own, joins_scales=True)
        kernel = np.pad(weights_of(op).reshape(outputs, depth), (_ROWS, (0, padding)))
        gemm = plan_dsp_sums(b, layout, kernel, _CHANNELS, ByteColumnTile, end)
        size = (layout.channels // _WORD,)
        x = b.view("words", quantized, 0, size, dtype=UINT32, alignment=4)
        gemm.emit(b, x, n)


@dataclass(frozen=True, slots=True)
class DequantizeEpilogue:
    """Converts sums to float. Without a zero point, one scale serves all channels.

    `sums` holds the weight sum of each channel and `scales` the weight scales, in table
    order. With `joins_scales`, a sum is multiplied once, by the product of its scales.
    """

    activations: QuantizedRow
    bias: tir.Buffer | None
    sums: tir.Buffer | None
    scales: tir.Buffer | None
    activation: str
    is_paired: bool
    joins_scales: bool = False

    def bind_group(self, b: Kernel) -> BindChannel:
        return partial(self._bind_channel, b)

    def _bind_channel(self, b: Kernel, index: ArithExpr, place: int) -> FinishElement:
        bias: ArithExpr | None = None
        if self.bias is not None:
            bias = b.let(f"channel_bias{place}", b.load(self.bias, [index]))
        correction: ArithExpr | None = None
        if self.sums is not None and self.activations.offset is not None:
            share = self.activations.offset.value * b.load(self.sums, [index])
            correction = b.let(f"zero_point_share{place}", share)
        scale: ArithExpr | None = None
        if self.scales is not None:
            scale = b.let(f"scale{place}", b.load(self.scales, [index]))

        def finish(total: ArithExpr) -> ArithExpr:
            exact = (
                total >> PAIRED.odd_shift
                if self.is_paired and place % 2 == 1
                else total
            )
            if correction is not None:
                exact = exact - correction
            scaled = exact.cast(FLOAT32)
            common = self.activations.scale.value
            if scale is not None and self.joins_scales:
                common = common * scale
            elif scale is not None:
                scaled = scaled * scale
            scaled = scaled * common
            if bias is not None:
                scaled = scaled + bias
            return apply_activation(scaled, self.activation)

        return finish


def _make_end(
    op: OpCall,
    b: Kernel,
    activations: QuantizedRow,
    bias: Array | None,
    scales: Array | None,
    *,
    joins_scales: bool = False,
) -> Callable[[ComputedChannels, bool], BindGroup]:
    kernel = weights_of(op)
    totals = kernel.reshape(len(kernel), -1).sum(axis=1, dtype=np.int64)
    sums = None if activations.offset is None else totals

    def end(rows: ComputedChannels, is_paired: bool) -> BindGroup:
        def table(
            name: str, values: Array | None, dtype: DType = FLOAT32
        ) -> tir.Buffer | None:
            if values is None:
                return None
            return b.constant(name, values[list(rows.order.rows)], dtype)

        epilogue = DequantizeEpilogue(
            activations,
            table("bias", bias),
            table("sums", sums, INT32),
            table("scales", scales),
            op.attributes(ActivationAttrs).activation,
            is_paired,
            joins_scales,
        )
        return epilogue.bind_group

    return end


SCHEDULES = (
    dsp_schedule(
        "dsp.hybrid_conv2d.im2col", "hybrid_conv2d", configs=_configs, build=_build
    ),
    dsp_schedule(
        "dsp.hybrid_fully_connected.rows",
        "hybrid_fully_connected",
        configs=_matrix_configs,
        build=_build_matrix,
    ),
)
