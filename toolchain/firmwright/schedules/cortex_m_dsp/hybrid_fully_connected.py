"""hybrid_fully_connected on the DSP extension: quantize each row, then run the int8 GEMM."""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32, UINT32
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.schedule import Config
from firmwright.ops.conv2d import weights_of
from firmwright.ops.hybrid_fully_connected import has_constant_operands, is_whole, quantized_rows
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import quantization_of
from firmwright.schedules.constant_channels import ChannelOrder
from firmwright.schedules.cortex_m_dsp.conv2d_fully_connected import matrix_layout
from firmwright.schedules.cortex_m_dsp.gemm_kernel import plan_gemm_without_bias
from firmwright.schedules.cortex_m_dsp.hybrid_conv2d import DequantizeEpilogue
from firmwright.schedules.schedule_factories import dsp_schedule

# The zero point of a row is known only at run time, so its share of a sum is the zero point times
# the sum of the channel's weights. Integer sums are exact in any order.

_CHANNELS = 8
_WORD = 4
_BIAS = 2


def _configs(op: OpCall) -> Sequence[Config]:
    outputs, depth = op.input(1).shape
    return (
        ({},) if has_constant_operands(op) and depth % _WORD == 0 and outputs >= _CHANNELS else ()
    )


def _build(op: OpCall, config: Config, b: Kernel) -> None:
    matrix, bias = weights_of(op), op.constant(_BIAS)
    outputs, depth = matrix.shape
    scales = np.array(quantization_of(op.input(1)).scales)
    per_channel = len(scales) > 1 or is_whole(op)
    with quantized_rows(op, b, None if per_channel else float(scales[0])) as (n, quantized, row):

        def end(order: ChannelOrder, is_paired: bool) -> DequantizeEpilogue:
            rows = list(order.rows)
            own = np.resize(scales, outputs)[rows]
            addend = None if bias is None else bias.array().reshape(-1)[rows]
            sums = matrix.sum(axis=1, dtype=np.int64)[rows]
            return DequantizeEpilogue(
                row,
                None if addend is None else b.constant("bias", addend, FLOAT32),
                None if row.offset is None else b.constant("sums", sums, INT32),
                b.constant("scales", own, FLOAT32) if per_channel else None,
                op.str_attr("activation"), is_paired, joins_scales=True,
            )  # fmt: skip

        kernel = matrix.reshape(outputs, 1, 1, depth)
        gemm = plan_gemm_without_bias(b, matrix_layout(depth), kernel, end, _CHANNELS)
        words = (depth // _WORD,)
        with b.view("words", quantized, 0, words, dtype=UINT32, alignment=4) as x:
            gemm.emit_from_bytes(b, x, n)


SCHEDULES = (
    dsp_schedule(
        "dsp.hybrid_fully_connected.rows", "hybrid_fully_connected", configs=_configs, build=_build
    ),
)
