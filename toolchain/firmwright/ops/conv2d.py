"""conv2d: y[n, oy, ox, oc] = sum over taps and input channels of x * w, plus bias, activated.

Layouts as in TFLite: x NHWC, w OHWI, bias O (int32 for int8, int64 or int32 for int16). Attributes:
`stride` and `dilation` (vertical, horizontal), `padding` (top, bottom, left, right), `activation`.
Padding has the real value 0. The int8 requantization rounds twice in both profiles; int16x8.py
describes int16. Semantics: TFLite's reference convolution and quantization specification.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, Array
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import Rounding
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_import import ImportContext, ImportedCall
from firmwright.ir.graph.opdef import NumericsSpec, OpCall, OpDef, RowWindow
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
    requant_with_16_bit_multiplier,
    requantize_epilogue,
)
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import (
    Requantization,
    apply_activation,
    check_weights_and_bias,
    float_activation_range,
    import_activation,
    make_requantization,
    quantization_of,
    tensor_quant,
)
from firmwright.ops.row_windows import sliding_row_window


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x, w = call.input(0), call.input(1)
    if len(x.shape) != 4 or len(w.shape) != 4:
        raise NotSupportedError("conv2d without four-dimensional input and weights")
    if w.shape[3] != x.shape[3]:
        raise NotSupportedError(
            f"grouped convolution ({x.shape[3]} input channels, {w.shape[3]} in the weights)"
        )
    check_weights_and_bias(call, 0)
    window = window_of(call, (w.shape[1], w.shape[2]))
    check_window(window)
    shape = (x.shape[0], *window.output_size(x.shape[1], x.shape[2]), w.shape[0])
    return (TensorType(shape, x.dtype, call.output.quantization),)


def requantization_of(call: OpCall) -> Requantization:
    """Return the per-channel requantization by double(x scale) * w scale / y scale."""
    x, w, y = tensor_quant(call.input(0)), quantization_of(call.input(1)), tensor_quant(call.output)
    channels = call.output.shape[-1]
    scales = w.scales if len(w.scales) > 1 else w.scales * channels
    factors = [x.scale * scale / y.scale for scale in scales]
    if is_int16x8(call) and has_int64_sum(call):
        return requant_with_16_bit_multiplier(factors, call.output, call.str_attr("activation"))
    return make_requantization(factors, Rounding.TWICE, call.output, call.str_attr("activation"))


def bias_of(call: OpCall, dtype: str) -> Array:
    """Return the bias of each channel; zeros if the model has none."""
    bias = call.constant(2)
    if bias is None:
        return np.zeros(call.output.shape[-1], dtype)
    return np.asarray(bias.array()).reshape(-1)


def weights_of(call: OpCall) -> Array:
    """Return the weights; `infer` checks that they are constant."""
    weights = call.constant(1)
    assert weights is not None
    return np.asarray(weights.array())


def row_window(call: OpCall) -> RowWindow | None:
    """Return the row window; padding rows hold the zero point."""
    w = call.input(1)
    quantized = call.input(0).dtype != FLOAT32
    outside = tensor_quant(call.input(0)).zero_point if quantized else 0.0
    return sliding_row_window(call, window_of(call, w.shape[1:3]), outside)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    x, w = arrays[0], arrays[1]
    window = window_of(call, w.shape[1:3])
    kernel = w.reshape(w.shape[0], -1).astype(np.float64)
    if call.input(0).dtype != FLOAT32:
        zero_point = tensor_quant(call.input(0)).zero_point
        patches = im2col(x.astype(np.float64) - zero_point, window)
        acc = (patches @ kernel.T).astype(np.int64) + bias_of(call, "int32")
        return (apply_int64_requant(requantization_of(call), acc, call.output.dtype),)
    low, high = float_activation_range(call.str_attr("activation"))
    total = im2col(x.astype(np.float64), window) @ kernel.T + bias_of(call, "float32")
    return (np.clip(total, low, high).astype(np.float32),)


def lower(call: OpCall, b: Kernel) -> None:
    """Emit direct loops, one output at a time; taps outside the input are skipped."""
    if call.input(0).dtype == FLOAT32:
        _lower_float(call, b)
    else:
        _lower_quantized(call, b)


def _lower_quantized(call: OpCall, b: Kernel) -> None:
    zero_point = tensor_quant(call.input(0)).zero_point
    w, wide = b.input(1), accumulator_dtype(call, 0)
    bias = b.constant("bias", bias_of(call, "int32"), wide)
    finish = requantize_epilogue(b, requantization_of(call), wide, call.output.dtype)
    window = window_of(call, (w.shape[1], w.shape[2]))
    with (
        window.outputs(b, call.input(0).shape, call.output.shape) as at,
        b.for_("oc", w.shape[0]) as oc,
    ):
        acc = b.reg("acc", wide)
        b.store(acc, [0], b.load(bias, [oc]))
        with window.taps(b, at) as (ky, kx, iy, ix), b.for_("ic", w.shape[3]) as ic:
            product = (b.load_i32(b.input(0), [at.n, iy, ix, ic]) - zero_point) * b.load_i32(
                w, [oc, ky, kx, ic]
            )
            b.store(acc, [0], b.load(acc, [0]) + product.cast(wide))
        b.store(b.y, [at.n, at.oy, at.ox, oc], finish(b.load(acc, [0]), oc))


def _lower_float(call: OpCall, b: Kernel) -> None:
    w = b.input(1)
    bias = b.constant("bias", bias_of(call, "float32"), FLOAT32)
    window = window_of(call, (w.shape[1], w.shape[2]))
    with (
        window.outputs(b, call.input(0).shape, call.output.shape) as at,
        b.for_("oc", w.shape[0]) as oc,
    ):
        # Add in the order of the reference kernel: subsequent hybrid layers round this result.
        acc = b.reg("acc", FLOAT32)
        b.store(acc, [0], 0.0)
        with window.taps(b, at) as (ky, kx, iy, ix), b.for_("ic", w.shape[3]) as ic:
            product = b.load(b.input(0), [at.n, iy, ix, ic]) * b.load(w, [oc, ky, kx, ic])
            b.store(acc, [0], b.load(acc, [0]) + product)
        value = apply_activation(b.load(acc, [0]) + b.load(bias, [oc]), call.str_attr("activation"))
        b.store(b.y, [at.n, at.oy, at.ox, oc], value)


def count_macs(call: OpCall) -> int:
    _, kh, kw, ic = call.input(1).shape
    return call.output.elements * kh * kw * ic


def import_tflite(context: ImportContext) -> ImportedCall:
    require_tensors(context, 2)
    kernel = context.inputs[1]
    if kernel is None or len(kernel.shape) != 4:
        raise NotSupportedError("weights without four dimensions")
    attrs = import_window(context, (kernel.shape[1], kernel.shape[2]))
    attrs["activation"] = import_activation(context.node.options["fused_activation_function"])
    # hybrid_conv2d.py defines float activations with int8 weights.
    x = context.inputs[0]
    hybrid = x is not None and x.dtype == FLOAT32 and kernel.dtype == INT8
    op = "hybrid_conv2d" if hybrid else "conv2d"
    return ImportedCall(op, attrs, tuple(range(len(context.inputs))))


OPDEF = OpDef(
    name="conv2d",
    infer=infer,
    reference=reference,
    lower=lower,
    row_access=row_window,
    imports={"tflite:CONV_2D": import_tflite},
    dtypes=("int8", "int16", "float32"),
    numerics={
        "litert": NumericsSpec(
            Rounding.TWICE,
            "int32; int16: int64, rounded once by 16 bits",
            "reference_integer_ops ConvPerChannel",
        ),
        "tflm": NumericsSpec(
            Rounding.TWICE,
            "int32; int16: int64, rounded once by 16 bits",
            "arm_nn_requantize, reference ConvPerChannel",
        ),
    },
    macs=count_macs,
    restrictions="constant weights; floats with int8 weights: hybrid_conv2d",
)
