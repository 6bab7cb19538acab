"""hybrid_conv2d on the DSP extension: quantize activations once, then run the int8 GEMM."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32, Array
from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ir.tir.schedule import Config
from firmwright.ops.conv2d import bias_of, weights_of
from firmwright.ops.conv_window import window_of
from firmwright.ops.dynamic_range import QuantizedRow
from firmwright.ops.hybrid_conv2d import quantize_input
from firmwright.ops.kernel import Kernel, Nest
from firmwright.ops.requantize import apply_activation, quantization_of
from firmwright.schedules.constant_channels import ChannelOrder
from firmwright.schedules.cortex_m_dsp.conv2d_fully_connected import (
    CHANNELS_BY_PIXELS,
    Im2colSource,
    block_pixels,
    convolve_in_blocks,
)
from firmwright.schedules.cortex_m_dsp.gemm_kernel import plan_gemm_without_bias
from firmwright.schedules.cortex_m_dsp.im2col import Im2colLayout
from firmwright.schedules.epilogue import FinishElement
from firmwright.schedules.schedule_factories import dsp_schedule

# The input is quantized as the operator defines it (ops/hybrid_conv2d.py) and multiplied as in
# conv2d_fully_connected.py. The integer sums are exact in any order. The zero point of an
# asymmetric input is known only at run time and also fills the padding, so its share of a sum is
# the zero point times the sum of the channel's weights.

_ODD_SHIFT = 8
"""Left shift of odd-channel sums in paired-channel micro-kernels."""


def _configs(op: OpCall) -> Sequence[Config]:
    if op.ints_attr("dilation")[1] != 1:
        return ()
    _, height, width, _ = op.output.shape
    return [{"pixels": count} for count in CHANNELS_BY_PIXELS if count <= height * width]


def _build(op: OpCall, config: Config, b: Kernel) -> None:
    kernel = weights_of(op)
    window = window_of(op, kernel.shape[1:3])
    layout = Im2colLayout(window, kernel.shape[3])
    x, (batch, height, width, channels) = op.input(0), op.output.shape
    pixels = height * width
    block = block_pixels(int(config["pixels"]), pixels)
    with b.for_("n", batch) as n, b.allocate("quantized", INT8, (1, *x.shape[1:])) as quantized:
        activations = quantize_input(op, b, n, quantized)

        def end(order: ChannelOrder, is_paired: bool) -> DequantizeEpilogue:
            return _make_epilogue(op, b, kernel, order, activations, is_paired=is_paired)

        gemm = plan_gemm_without_bias(b, layout, kernel, end, CHANNELS_BY_PIXELS[block])
        zero_point = 0 if activations.offset is None else b.load(activations.offset, [0])
        shape = (1, height, width, channels)
        convolve_in_blocks(b, Im2colSource(quantized, layout, zero_point), gemm, shape, n * pixels)


@dataclass(frozen=True, slots=True)
class DequantizeEpilogue:
    """Converts sums to float. Without a zero point, one scale serves all channels.

    `sums` holds the weight sum of each channel and `scales` the weight scales, in table order.
    With `joins_scales`, a sum is multiplied once, by the product of its scales.
    """

    activations: QuantizedRow
    bias: tir.Buffer | None
    sums: tir.Buffer | None
    scales: tir.Buffer | None
    activation: str
    is_paired: bool
    joins_scales: bool = False

    @contextmanager
    def bind_shared(self, b: Kernel) -> Iterator[Mapping[str, ArithExpr] | None]:
        yield None

    @contextmanager
    def bind_channel(
        self, b: Kernel, index: ArithExpr, place: int = 0,
        shared: Mapping[str, ArithExpr] | None = None,
    ) -> Iterator[FinishElement]:  # fmt: skip
        with Nest() as enter:
            bias: ArithExpr | None = None
            if self.bias is not None:
                bias = enter(b.let(f"channel_bias{place}", b.load(self.bias, [index])))
            correction: ArithExpr | None = None
            if self.sums is not None and self.activations.offset is not None:
                share = b.load(self.activations.offset, [0]) * b.load(self.sums, [index])
                correction = enter(b.let(f"zero_point_share{place}", share))
            scale: ArithExpr | None = None
            if self.scales is not None:
                scale = enter(b.let(f"scale{place}", b.load(self.scales, [index])))

            def finish(total: ArithExpr) -> ArithExpr:
                exact = total >> _ODD_SHIFT if self.is_paired and place % 2 == 1 else total
                if correction is not None:
                    exact = exact - correction
                scaled, common = exact.cast(FLOAT32), b.load(self.activations.scale, [0])
                if scale is not None and self.joins_scales:
                    common = common * scale
                elif scale is not None:
                    scaled = scaled * scale
                scaled = scaled * common
                return apply_activation(scaled if bias is None else scaled + bias, self.activation)

            yield finish


def _make_epilogue(
    op: OpCall, b: Kernel, kernel: Array, order: ChannelOrder, activations: QuantizedRow, *,
    is_paired: bool,
) -> DequantizeEpilogue:  # fmt: skip
    rows = list(order.rows)
    bias = b.constant("bias", bias_of(op, "float32")[rows], FLOAT32)
    sums = scales = None
    if activations.offset is not None:
        totals = kernel.reshape(len(kernel), -1).sum(axis=1, dtype=np.int64)
        sums = b.constant("sums", totals[rows], INT32)
        scales = b.constant("scales", np.array(quantization_of(op.input(1)).scales)[rows], FLOAT32)
    activation = op.str_attr("activation")
    return DequantizeEpilogue(activations, bias, sums, scales, activation, is_paired)


SCHEDULES = (
    dsp_schedule("dsp.hybrid_conv2d.im2col", "hybrid_conv2d", configs=_configs, build=_build),
)
