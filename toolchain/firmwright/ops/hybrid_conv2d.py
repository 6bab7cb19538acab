"""hybrid_conv2d, hybrid_depthwise_conv2d: float activations with int8 weights.

Each input batch is quantized at run time (dynamic_range.py), convolved in integers,
scaled back to float, biased and activated. Quantization is asymmetric if the weights
have one scale per channel or the convolution is depthwise, else symmetric. Layouts and
attributes as in conv2d. Semantics: TFLite's hybrid convolutions.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir import tir
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.graph.attributes.layers import ActivationAttrs
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ops import conv2d, dynamic_range
from firmwright.ops.conv_window import OutputPosition, window_of
from firmwright.ops.dynamic_range import FloatRow, QuantizedRow, QuantizePasses
from firmwright.ops.kernel import Kernel, Nest
from firmwright.ops.opdef import OpDef
from firmwright.ops.requantize import apply_activation, quantization_of

_DEPTHWISE = "hybrid_depthwise_conv2d"


def infer(call: OpCall, channel_axis: int) -> tuple[TensorType, ...]:
    x, w = call.input(0), call.input(1)
    if len(x.shape) != 4 or len(w.shape) != 4:
        raise NotSupportedError("a convolution of tensors that are not 4-D")
    if w.shape[3] % x.shape[3] or (channel_axis == 0 and w.shape[3] != x.shape[3]):
        raise NotSupportedError(
            f"{w.shape[3]} channels of weights for {x.shape[3]} of the input"
        )
    if call.constant(1) is None or (call.has_input(2) and call.constant(2) is None):
        raise NotSupportedError("variable weights or bias")
    dynamic_range.check_hybrid(call, channel_axis)
    if call.op == _DEPTHWISE and len(quantization_of(w).scales) != w.shape[3]:
        # LiteRT reads one scale for each channel, also beyond the end of the scales.
        raise NotSupportedError("one weight scale for all channels")
    return (TensorType(conv2d.output_shape(call, w.shape[channel_axis]), FLOAT32),)


def is_asymmetric(call: OpCall) -> bool:
    return call.op == _DEPTHWISE or len(quantization_of(call.input(1)).scales) > 1


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    x = arrays[0].astype(np.float32)
    w = arrays[1].astype(np.float64)
    scales = np.array(quantization_of(call.input(1)).scales, np.float32)
    bias = conv2d.bias_of(call, "float32")
    results = []
    asymmetric = is_asymmetric(call)
    for batch in x:
        quantized, scale, offset = dynamic_range.quantize_array(
            batch, asymmetric=asymmetric
        )
        acc = conv2d.window_sums(call, quantized[None].astype(np.float64) - offset, w)
        scaled = acc.astype(np.float32)
        if call.op == _DEPTHWISE or not asymmetric:
            scaled = scaled * (scales * scale)
        else:
            scaled = scaled * scales * scale
        activation = call.attributes(ActivationAttrs).activation
        results.append(apply_activation(scaled + bias, activation))
    return (np.concatenate(results),)


def quantize_input(
    call: OpCall,
    b: Kernel,
    n: ArithExpr,
    target: tir.Buffer,
    passes: QuantizePasses | None = None,
) -> QuantizedRow:
    asymmetric = is_asymmetric(call)
    scale = None if asymmetric else quantization_of(call.input(1)).scale
    row = FloatRow(b.input(0), n * target.elements, target.elements)
    return dynamic_range.quantize_row(
        b, row, target, weight_scale=scale, asymmetric=asymmetric, passes=passes
    )


def lower(call: OpCall, b: Kernel, channel_axis: int) -> None:
    attrs = call.attributes(ActivationAttrs)
    x, w = call.input(0), b.input(1)
    bias = b.constant("bias", conv2d.bias_of(call, "float32"), FLOAT32)
    window = window_of(call, (w.shape[1], w.shape[2]))
    table = None
    with Nest() as enter:
        n = enter(b.for_("n", x.shape[0]))
        target = b.allocate("quantized", INT8, (1, *x.shape[1:]))
        row = quantize_input(call, b, n, target)
        if row.offset is not None:
            scales = np.array(quantization_of(call.input(1)).scales)
            table = b.constant("scales", scales, FLOAT32)
        _, height, width, _ = call.output.shape
        oy = enter(b.for_("oy", height))
        ox = enter(b.for_("ox", width))
        oc, ic = enter(conv2d.output_channels(call, b, channel_axis))
        acc = b.register("acc", INT32, 0)
        with Nest() as taps:
            ky, kx, iy, ix = taps(window.taps(b, OutputPosition(n, oy, ox)))
            channel = taps(b.for_("ic", w.shape[3])) if ic is None else ic
            value = row.load(b, target, [0, iy, ix, channel])
            place: Sequence[ArithExpr | int]
            place = [oc, ky, kx, channel] if channel_axis == 0 else [0, ky, kx, oc]
            acc.add(value * b.load_i32(w, place))
        sum_ = acc.value.cast(FLOAT32)
        scale = row.scale.value
        if table is not None:
            own = b.load(table, [oc if table.elements > 1 else 0])
            if channel_axis == 0:
                sum_ = sum_ * own
            else:
                scale = scale * own
        result = sum_ * scale + b.load(bias, [oc])
        b.store(b.y, [n, oy, ox, oc], apply_activation(result, attrs.activation))


def _hybrid_op(
    name: str, channel_axis: int, count_macs: Callable[[OpCall], int]
) -> OpDef:
    return OpDef(
        name,
        partial(infer, channel_axis=channel_axis),
        reference,
        partial(lower, channel_axis=channel_axis),
        macs=count_macs,
    )


OPDEFS = (
    _hybrid_op("hybrid_conv2d", 0, conv2d.count_macs),
    _hybrid_op(_DEPTHWISE, 3, conv2d.count_depthwise_macs),
)
