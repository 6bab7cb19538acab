"""depthwise_conv2d: each input channel is convolved with its own `multiplier` filters.

y[n, oy, ox, ic * multiplier + m] = sum over taps of x[.., ic] * w[ky, kx, ic * multiplier + m],
plus bias, activated. Layouts as in TFLite: x NHWC, w 1HWO, bias O (int32 for int8, int64 for
int16). Attributes `stride`, `dilation`, `padding` and `activation`, padding and rounding are those
of conv2d. Semantics: TFLite's reference depthwise convolution and quantization specification.
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
from firmwright.ops.conv2d import bias_of, requantization_of, row_window
from firmwright.ops.conv_window import (
    check_window,
    im2col,
    import_window,
    window_of,
)
from firmwright.ops.import_checks import require_tensors
from firmwright.ops.int16x8 import (
    accumulator_dtype,
    apply_int64_requant,
    has_int64_sum,
    is_int16x8,
    requantize_epilogue,
)
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import (
    apply_activation,
    check_weights_and_bias,
    float_activation_range,
    import_activation,
    tensor_quant,
)

__all__ = ["OPDEF", "bias_of", "channel_multiplier_of", "requantization_of"]


def channel_multiplier_of(call: OpCall) -> int:
    """Return the number of output channels per input channel."""
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
    """Emit direct loops, one output at a time; taps outside the input are skipped."""
    if call.input(0).dtype == FLOAT32:
        _lower_float(call, b)
    else:
        _lower_quantized(call, b)


def _lower_quantized(call: OpCall, b: Kernel) -> None:
    zero_point = tensor_quant(call.input(0)).zero_point
    w, wide = b.input(1), accumulator_dtype(call, 3)
    bias = b.constant("bias", bias_of(call, "int32"), wide)
    finish = requantize_epilogue(b, requantization_of(call), wide, call.output.dtype)
    window = window_of(call, (w.shape[1], w.shape[2]))
    with window.outputs(b, call.input(0).shape, call.output.shape) as at, _channels(call, b) as c:
        oc, ic = c
        acc = b.reg("acc", wide)
        b.store(acc, [0], b.load(bias, [oc]))
        with window.taps(b, at) as (ky, kx, iy, ix):
            x = b.load_i32(b.input(0), [at.n, iy, ix, ic]) - zero_point
            product = x * b.load_i32(w, [0, ky, kx, oc])
            b.store(acc, [0], b.load(acc, [0]) + product.cast(wide))
        b.store(b.y, [at.n, at.oy, at.ox, oc], finish(b.load(acc, [0]), oc))


def _lower_float(call: OpCall, b: Kernel) -> None:
    w = b.input(1)
    bias = b.constant("bias", bias_of(call, "float32"), FLOAT32)
    window = window_of(call, (w.shape[1], w.shape[2]))
    with window.outputs(b, call.input(0).shape, call.output.shape) as at, _channels(call, b) as c:
        oc, ic = c
        # Add in the order of the reference kernel: subsequent hybrid layers round this result.
        acc = b.reg("acc", FLOAT32)
        b.store(acc, [0], 0.0)
        with window.taps(b, at) as (ky, kx, iy, ix):
            product = b.load(b.input(0), [at.n, iy, ix, ic]) * b.load(w, [0, ky, kx, oc])
            b.store(acc, [0], b.load(acc, [0]) + product)
        value = apply_activation(b.load(acc, [0]) + b.load(bias, [oc]), call.str_attr("activation"))
        b.store(b.y, [at.n, at.oy, at.ox, oc], value)


@contextmanager
def _channels(call: OpCall, b: Kernel) -> Iterator[tuple[ArithExpr, ArithExpr]]:
    """Loop over the channels and yield (output channel, input channel)."""
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
