"""hybrid_conv2d on the DSP extension: floats quantised once, then the product of conv2d.

The input becomes int8 as the operator defines it (ops/hybrid_conv2d.py), its windows are packed as
columns and multiplied in blocks (conv2d.py, product.py). The sums are the definition's: integers,
exact in any order. An asymmetric input's zero point, known only when the kernel runs, stands in
padding too, so that its share of a sum is that point times the sum of the channel's weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32
from firmwright.ir import tir
from firmwright.ir.graph.opdef import Array, OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ir.tir.schedule import Config, Schedule
from firmwright.ops.conv2d import bias_of, weights_of
from firmwright.ops.conv_window import window_of
from firmwright.ops.hybrid_conv2d import QuantizedBatch, quantize_batch
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import apply_activation, quantization_of
from firmwright.schedules.constant_channels import ChannelOrder
from firmwright.schedules.cortex_m_dsp.conv2d import (
    CHANNELS_BY_PIXELS,
    Im2colSource,
    block_pixels,
    convolve_in_blocks,
)
from firmwright.schedules.cortex_m_dsp.gemm_kernel import plan_gemm_without_bias
from firmwright.schedules.cortex_m_dsp.im2col import Im2colLayout
from firmwright.schedules.epilogue import FinishElement

_BORROWED = 8
"""Bits that the sums of odd channels stand too high in a borrowing block."""


def _configs(op: OpCall) -> Sequence[Config]:
    """Blocks of pixels as conv2d's; no horizontal dilation."""
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
    with (
        b.for_("n", batch) as n,
        b.allocate("quantized", INT8, (1, *x.shape[1:])) as quantized,
    ):
        found = quantize_batch(op, b, n, quantized)
        product = plan_gemm_without_bias(
            b, layout, kernel,
            lambda order, borrows: _make_epilogue(op, b, kernel, order, found, borrows=borrows),
            CHANNELS_BY_PIXELS[block],
        )  # fmt: skip
        zero_point = 0 if found.offset is None else b.load(found.offset, [0])
        shape = (1, height, width, channels)
        convolve_in_blocks(
            b, Im2colSource(quantized, layout, zero_point), product, shape, n * pixels
        )


@dataclass(frozen=True, slots=True)
class _DequantizeEpilogue:
    """From sums to floats. Without a zero point all channels share one scale.

    `sums` holds the sum of each channel's weights, `scales` their scales; rows of all tables are
    in the order of the product.
    """

    found: QuantizedBatch
    bias: tir.Buffer
    sums: tir.Buffer | None
    scales: tir.Buffer | None
    activation: str
    borrows: bool

    @contextmanager
    def shared(self, b: Kernel) -> Iterator[Mapping[str, ArithExpr] | None]:
        yield None

    @contextmanager
    def channel(
        self,
        b: Kernel,
        index: ArithExpr,
        parity: int = 0,
        shared: Mapping[str, ArithExpr] | None = None,
    ) -> Iterator[FinishElement]:
        with ExitStack() as stack:
            bias = stack.enter_context(b.let("bias_here", b.load(self.bias, [index])))
            correction: ArithExpr | None = None
            if self.sums is not None and self.found.offset is not None:
                share = b.load(self.found.offset, [0]) * b.load(self.sums, [index])
                correction = stack.enter_context(b.let("share", share))
            own: ArithExpr | None = None
            if self.scales is not None:
                own = stack.enter_context(b.let("own_scale", b.load(self.scales, [index])))

            def finish(total: ArithExpr) -> ArithExpr:
                exact = total >> _BORROWED if self.borrows and parity == 1 else total
                if correction is not None:
                    exact = exact - correction
                scaled = exact.cast(FLOAT32)
                if own is not None:
                    scaled = scaled * own
                return apply_activation(
                    scaled * b.load(self.found.scale, [0]) + bias, self.activation
                )

            yield finish


def _make_epilogue(
    op: OpCall,
    b: Kernel,
    kernel: Array,
    order: ChannelOrder,
    found: QuantizedBatch,
    *,
    borrows: bool,
) -> _DequantizeEpilogue:
    """The tables of `order`'s rows."""
    rows = list(order.rows)
    bias = b.constant("bias", bias_of(op, "float32")[rows], FLOAT32)
    sums = scales = None
    if found.offset is not None:
        totals = kernel.reshape(len(kernel), -1).sum(axis=1, dtype=np.int64)
        sums = b.constant("sums", totals[rows], INT32)
        scales = b.constant("scales", np.array(quantization_of(op.input(1)).scales)[rows], FLOAT32)
    return _DequantizeEpilogue(found, bias, sums, scales, op.str_attr("activation"), borrows)


RULES = (
    Schedule(
        "dsp.hybrid_conv2d.columns",
        "hybrid_conv2d",
        frozenset({"dsp"}),
        _configs,
        _build,
        disable_scheduling=True,
    ),
)
