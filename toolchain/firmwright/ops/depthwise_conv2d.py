"""depthwise_conv2d: each input channel is convolved with its own `multiplier` filters.

y[n, oy, ox, ic * multiplier + m] = sum over taps of x[.., ic] * w[ky, kx, ic * multiplier + m],
plus bias, activated. Layouts as in TFLite: x NHWC, w 1HWO, bias O (int32 for int8, int64 for
int16). Attributes `stride`, `dilation`, `padding` and `activation`, padding and rounding as in
conv2d. Semantics: TFLite's reference depthwise convolution and quantization specification.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from firmwright.base.dtypes import FLOAT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import Rounding
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_import import ImportContext, ImportedCall
from firmwright.ir.graph.opdef import OpCall, OpDef, both_profiles
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ops.conv2d import bias_of, lower_convolution, requantization_of, row_window
from firmwright.ops.conv_window import check_window, im2col, import_window, window_of
from firmwright.ops.import_checks import require_tensors
from firmwright.ops.int16x8 import apply_int64_requant, has_int64_sum, is_int16x8
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import (
    check_weights_and_bias,
    float_activation_range,
    import_activation,
    tensor_quant,
)

__all__ = ["OPDEF", "bias_of", "channel_multiplier_of", "requantization_of"]


def channel_multiplier_of(call: OpCall) -> int:
    return call.input(1).shape[3] // call.input(0).shape[3]


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x, w = call.input(0), call.input(1)
    if len(x.shape) != 4 or len(w.shape) != 4 or w.shape[0] != 1:
        raise NotSupportedError(
            "depthwise_conv2d without a four-dimensional input and weights of shape [1, h, w, c]"
        )
    if w.shape[3] % x.shape[3]:
        raise NotSupportedError(f"{w.shape[3]} filters for {x.shape[3]} input channels")
    check_weights_and_bias(call, 3)
    if is_int16x8(call) and not has_int64_sum(call):
        raise NotSupportedError("an int16 depthwise convolution with a 32-bit bias")
    window = window_of(call, (w.shape[1], w.shape[2]))
    check_window(window)
    shape = (x.shape[0], *window.output_size(x.shape[1], x.shape[2]), w.shape[3])
    return (TensorType(shape, x.dtype, call.output.quantization),)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    x, w = arrays[0], arrays[1]
    window = window_of(call, w.shape[1:3])
    taps = w.reshape(-1, w.shape[3]).astype(np.float64)
    quantized = call.input(0).dtype != FLOAT32
    offset = tensor_quant(call.input(0)).zero_point if quantized else 0
    patches = im2col(x.astype(np.float64) - offset, window)
    patches = patches.reshape(*patches.shape[:3], len(taps), x.shape[3])
    acc = (np.repeat(patches, channel_multiplier_of(call), axis=-1) * taps).sum(axis=-2)
    if quantized:
        wide = acc.astype(np.int64) + bias_of(call, "int32")
        return (apply_int64_requant(requantization_of(call), wide, call.output.dtype),)
    low, high = float_activation_range(call.str_attr("activation"))
    return (np.clip(acc + bias_of(call, "float32"), low, high).astype(np.float32),)


def lower(call: OpCall, b: Kernel) -> None:
    lower_convolution(call, b, 3, _channels(call, b))


@contextmanager
def _channels(call: OpCall, b: Kernel) -> Iterator[tuple[ArithExpr, ArithExpr]]:
    """Open loops over the channels; yield (output channel, input channel)."""
    count = channel_multiplier_of(call)
    with b.for_("ic", call.input(0).shape[3]) as ic:
        if count == 1:
            yield ic, ic
        else:
            with b.for_("m", count) as m:
                yield ic * count + m, ic


def count_macs(call: OpCall) -> int:
    return call.output.elements * call.input(1).shape[1] * call.input(1).shape[2]


def import_tflite(context: ImportContext) -> ImportedCall:
    require_tensors(context, 2)
    kernel = context.inputs[1]
    if kernel is None or len(kernel.shape) != 4:
        raise NotSupportedError("weights without four dimensions")
    attrs = import_window(context, (kernel.shape[1], kernel.shape[2]))
    attrs["activation"] = import_activation(context.node.options["fused_activation_function"])
    return ImportedCall("depthwise_conv2d", attrs, tuple(range(len(context.inputs))))


OPDEF = OpDef(
    name="depthwise_conv2d",
    infer=infer,
    reference=reference,
    lower=lower,
    row_access=row_window,
    imports={"tflite:DEPTHWISE_CONV_2D": import_tflite},
    dtypes=("int8", "int16", "float32"),
    numerics=both_profiles(
        Rounding.TWICE,
        "int32; int16: int64, rounded once by 16 bits",
        "reference DepthwiseConvPerChannel",
    ),
    macs=count_macs,
    restrictions="constant weights; not hybrid",
)
