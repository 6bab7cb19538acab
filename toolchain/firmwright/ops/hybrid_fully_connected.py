"""hybrid_fully_connected: activation(bias + x w) of float x, int8 w [outputs, inputs].

Each row of x is quantized at run time, asymmetrically with the attribute `asymmetric`,
multiplied in integers and scaled back by its scale and the weight scale. Bias and
weights may be variable. With attribute `whole`, all rows have one scale, in ONNX's
arithmetic. Semantics: TFLite's hybrid fully connected kernel; ONNX's
DynamicQuantizeLinear and MatMulInteger.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir import tir
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.graph.attributes.layers import (
    ActivationAttrs,
    HybridFullyConnectedAttrs,
)
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ops import dynamic_range
from firmwright.ops.dynamic_range import FloatRow, QuantizedRow, QuantizePasses
from firmwright.ops.fully_connected import macs, output_shape
from firmwright.ops.kernel import Kernel, Nest
from firmwright.ops.opdef import OpDef
from firmwright.ops.requantize import apply_activation, quantization_of

_BIAS = 2


def infer(call: OpCall) -> tuple[TensorType, ...]:
    dynamic_range.check_hybrid(call, 0)
    if call.has_input(_BIAS):
        bias = call.input(_BIAS)
        if (bias.dtype, bias.elements) != (FLOAT32, call.input(1).shape[0]):
            raise NotSupportedError(f"a bias with {bias.elements} {bias.dtype.name}")
    return (TensorType(output_shape(call), FLOAT32),)


def has_constant_operands(call: OpCall) -> bool:
    for index in (1, _BIAS):
        if call.has_input(index) and call.constant(index) is None:
            return False
    return True


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    attrs = call.attributes(HybridFullyConnectedAttrs)
    w = arrays[1].astype(np.int64)
    bias = arrays[2].reshape(-1) if call.has_input(_BIAS) else np.float32(0)
    scales = np.array(quantization_of(call.input(1)).scales, np.float32)
    rows = arrays[0].astype(np.float32).reshape(-1, w.shape[1])
    whole = dynamic_range.quantize_array_onnx(rows) if is_whole(call) else None
    results = []
    for k, row in enumerate(rows):
        if whole is None:
            quantized, scale, offset = dynamic_range.quantize_array(
                row, asymmetric=attrs.asymmetric
            )
        else:
            quantized = whole[0][k]
            scale = whole[1]
            offset = whole[2]
        acc = (w @ (quantized.astype(np.int64) - offset)).astype(np.float32)
        results.append(acc * (scale * scales) + bias)
    y = apply_activation(np.array(results), attrs.activation)
    return (y.reshape(call.output.shape),)


def is_whole(call: OpCall) -> bool:
    return call.attributes(HybridFullyConnectedAttrs).whole


@contextmanager
def quantized_rows(
    call: OpCall,
    b: Kernel,
    weight_scale: float | None,
    passes: QuantizePasses | None = None,
    padding: int = 0,
) -> Iterator[tuple[ArithExpr, tir.Buffer, QuantizedRow]]:
    """Open a loop over rows; yield index, view of the int8 row, and quantization.

    Rows with a scale of their own end with `padding` zeros.
    """
    inputs = call.input(1).shape[1]
    elements = call.input(0).elements
    with Nest() as enter:
        if is_whole(call):
            quantized = b.allocate("quantized", INT8, (elements,))
            row = FloatRow(b.input(0), 0, elements)
            whole = dynamic_range.quantize_row_onnx(b, row, quantized)
            n = enter(b.for_("n", elements // inputs))
            # Of words, if all rows consist of them.
            alignment = math.gcd(inputs, 4)
            start = n * inputs
            view = b.view("row", quantized, start, (inputs,), alignment=alignment)
            yield n, view, whole
            return
        n = enter(b.for_("n", elements // inputs))
        quantized = b.allocate("quantized", INT8, (inputs + padding,))
        for place in range(inputs, inputs + padding):
            b.store(quantized, [place], 0)
        values = quantized
        if padding:
            values = b.view("whole", quantized, 0, (inputs,), access="w")
        row = FloatRow(b.input(0), n * inputs, inputs)
        of_row = dynamic_range.quantize_row(
            b,
            row,
            values,
            weight_scale=weight_scale,
            asymmetric=call.attributes(HybridFullyConnectedAttrs).asymmetric,
            passes=passes,
        )
        yield n, quantized, of_row


def weight_scales(call: OpCall, b: Kernel) -> tuple[tir.Buffer | None, float | None]:
    """Return a table of the weights' scales, or the one that all channels share."""
    scales = np.array(quantization_of(call.input(1)).scales)
    if len(scales) == 1 and not is_whole(call):
        return None, float(scales[0])
    outputs = call.input(1).shape[0]
    return b.constant("scales", np.resize(scales, outputs), FLOAT32), None


def dequantized(
    call: OpCall,
    b: Kernel,
    total: ArithExpr,
    row: QuantizedRow,
    o: ArithExpr,
    scales: tir.Buffer | None,
) -> ArithExpr:
    """Return output `o` of a row from its sum less the zero point's share."""
    scale = row.scale.value
    if scales is not None:
        scale = scale * b.load(scales, [o])
    result = total.cast(FLOAT32) * scale
    if call.has_input(_BIAS):
        bias = b.view("bias", b.input(_BIAS), 0, (call.input(1).shape[0],))
        result = result + b.load(bias, [o])
    return apply_activation(result, call.attributes(ActivationAttrs).activation)


def lower(call: OpCall, b: Kernel) -> None:
    w = b.input(1)
    outputs, inputs = w.shape
    scales, weight_scale = weight_scales(call, b)
    with quantized_rows(call, b, weight_scale) as (n, quantized, row):
        out = b.view("out", b.y, n * outputs, (outputs,), access="w")
        with b.for_("o", outputs) as o:
            acc = b.register("acc", INT32, 0)
            with b.for_("i", inputs) as i:
                acc.add(row.load(b, quantized, [i]) * b.load_i32(w, [o, i]))
            b.store(out, [o], dequantized(call, b, acc.value, row, o, scales))


OPDEF = OpDef("hybrid_fully_connected", infer, reference, lower, macs=macs)
