"""conv2d: y[n, oy, ox, oc] = sum over taps and input channels of x * w, plus bias, activated.

Layouts as in TFLite: x NHWC, w OHWI, bias O (int32 for int8). Attributes: `stride`, `dilation`
(vertical, horizontal), `padding` (top, bottom, left, right), `activation`. Outside of the input
lies the zero point, whose real value is 0. Rounding of the int8 requantise: twice (both profiles).
Source of the semantics: TFLite's reference convolution and quantisation specification.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32
from firmwright.base.quant import Rounding
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import (
    Array,
    Case,
    ImportContext,
    Imported,
    NotSupportedError,
    NumericsCell,
    OpCall,
    OpDef,
    RowMap,
)
from firmwright.ops.arity import require_tensors
from firmwright.ops.conv_shapes import (
    check_padding,
    columns,
    conv_cases,
    import_window,
    window_of,
)
from firmwright.ops.fixed_point import (
    Requant,
    activated,
    activation_name,
    check_filters,
    float_activation_range,
    per_tensor,
    quant_of,
    requant,
    requantized,
)
from firmwright.ops.kernel import Kernel
from firmwright.ops.rows import window_rows


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x, w = call.input(0), call.input(1)
    if len(x.shape) != 4 or len(w.shape) != 4:
        raise NotSupportedError("conv2d needs an input and weights of four dimensions")
    if w.shape[3] != x.shape[3]:
        raise NotSupportedError(
            f"grouped convolution ({x.shape[3]} input channels, {w.shape[3]} in the weights)"
        )
    check_filters(call, 0)
    window = window_of(call, (w.shape[1], w.shape[2]))
    check_padding(window)
    shape = (x.shape[0], *window.output_size(x.shape[1], x.shape[2]), w.shape[0])
    return (TensorType(shape, x.dtype, call.output.quantization),)


def requant_of(call: OpCall) -> Requant:
    """Per-channel requantise parameters: double(x scale) * w scale / y scale, rounded twice."""
    x, w, y = per_tensor(call.input(0)), quant_of(call.input(1)), per_tensor(call.output)
    channels = call.output.shape[-1]
    scales = w.scales if len(w.scales) > 1 else w.scales * channels
    factors = [x.scale * scale / y.scale for scale in scales]
    return requant(factors, Rounding.TWICE, call.output, call.str_attr("activation"))


def bias_of(call: OpCall, dtype: str) -> Array:
    """The bias, one a channel; zeros where the model has none."""
    bias = call.constant(2)
    if bias is None:
        return np.zeros(call.output.shape[-1], dtype)
    return np.asarray(bias.array()).reshape(-1)


def weights_of(call: OpCall) -> Array:
    """The weights, which `infer` made sure are constant."""
    weights = call.constant(1)
    assert weights is not None
    return np.asarray(weights.array())


def rows(call: OpCall) -> RowMap | None:
    """Rows under the window; the padding holds the zero point."""
    w = call.input(1)
    quantized = call.input(0).dtype == INT8
    outside = per_tensor(call.input(0)).zero_point if quantized else 0.0
    return window_rows(call, window_of(call, w.shape[1:3]), outside)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    x, w = arrays[0], arrays[1]
    window = window_of(call, w.shape[1:3])
    kernel = w.reshape(w.shape[0], -1).astype(np.float64)
    if call.input(0).dtype == INT8:
        zero_point = per_tensor(call.input(0)).zero_point
        patches = columns(x.astype(np.float64) - zero_point, window)
        acc = (patches @ kernel.T).astype(np.int64) + bias_of(call, "int32")
        return (requant_of(call).apply(acc, INT8),)
    low, high = float_activation_range(call.str_attr("activation"))
    total = columns(x.astype(np.float64), window) @ kernel.T + bias_of(call, "float32")
    return (np.clip(total, low, high).astype(np.float32),)


def lower(call: OpCall, b: Kernel) -> None:
    """Direct loops, one output at a time; taps outside of the input are skipped."""
    if call.input(0).dtype == INT8:
        _lower_int8(call, b)
    else:
        _lower_float(call, b)


def _lower_int8(call: OpCall, b: Kernel) -> None:
    params = requant_of(call)
    zero_point = per_tensor(call.input(0)).zero_point
    w = b.input(1)
    bias = b.constant("bias", bias_of(call, "int32"), INT32)
    multiplier = b.constant("multiplier", np.array(params.multipliers), INT32)
    shift = b.constant("shift", np.array(params.shifts), INT32)
    window = window_of(call, (w.shape[1], w.shape[2]))
    with (
        window.outputs(b, call.input(0).shape, call.output.shape) as at,
        b.for_("oc", w.shape[0]) as oc,
    ):
        acc = b.reg("acc", INT32)
        b.store(acc, [0], b.load(bias, [oc]))
        with window.taps(b, at) as (ky, kx, iy, ix), b.for_("ic", w.shape[3]) as ic:
            product = (b.load_i32(b.input(0), [at.n, iy, ix, ic]) - zero_point) * b.load_i32(
                w, [oc, ky, kx, ic]
            )
            b.store(acc, [0], b.load(acc, [0]) + product)
        channel = oc if params.per_channel else 0
        value = requantized(
            b.load(acc, [0]), b.load(multiplier, [channel]), b.load(shift, [channel]),
            params, INT8,
        )  # fmt: skip
        b.store(b.y, [at.n, at.oy, at.ox, oc], value)


def _lower_float(call: OpCall, b: Kernel) -> None:
    w = b.input(1)
    bias = b.constant("bias", bias_of(call, "float32"), FLOAT32)
    window = window_of(call, (w.shape[1], w.shape[2]))
    with (
        window.outputs(b, call.input(0).shape, call.output.shape) as at,
        b.for_("oc", w.shape[0]) as oc,
    ):
        # The order of additions is the reference kernel's: hybrid layers behind round its result.
        acc = b.reg("acc", FLOAT32)
        b.store(acc, [0], 0.0)
        with window.taps(b, at) as (ky, kx, iy, ix), b.for_("ic", w.shape[3]) as ic:
            product = b.load(b.input(0), [at.n, iy, ix, ic]) * b.load(w, [oc, ky, kx, ic])
            b.store(acc, [0], b.load(acc, [0]) + product)
        value = activated(b.load(acc, [0]) + b.load(bias, [oc]), call.str_attr("activation"))
        b.store(b.y, [at.n, at.oy, at.ox, oc], value)


def macs(call: OpCall) -> int:
    _, kh, kw, ic = call.input(1).shape
    return call.output.elements * kh * kw * ic


def from_tflite(context: ImportContext) -> Imported:
    require_tensors(context, 2)
    kernel = context.inputs[1]
    if kernel is None or len(kernel.shape) != 4:
        raise NotSupportedError("weights of other than four dimensions")
    attrs = import_window(context, (kernel.shape[1], kernel.shape[2]))
    attrs["activation"] = activation_name(context.node.options["fused_activation_function"])
    # Float activations with int8 weights are another operator: hybrid_conv2d.py.
    x = context.inputs[0]
    hybrid = x is not None and x.dtype == FLOAT32 and kernel.dtype == INT8
    op = "hybrid_conv2d" if hybrid else "conv2d"
    return Imported(op, attrs, tuple(range(len(context.inputs))))


def cases() -> Iterator[Case]:
    yield from conv_cases("CONV_2D")


OPDEF = OpDef(
    name="conv2d",
    infer=infer,
    reference=reference,
    lower=lower,
    rows=rows,
    imports={"tflite:CONV_2D": from_tflite},
    cases=cases,
    dtypes=("int8", "float32"),
    numerics={
        "litert": NumericsCell(Rounding.TWICE, "int32", "reference_integer_ops ConvPerChannel"),
        "tflm": NumericsCell(
            Rounding.TWICE, "int32", "arm_nn_requantize, reference ConvPerChannel"
        ),
    },
    macs=macs,
)
