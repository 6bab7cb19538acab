"""hybrid_fully_connected: y = activation(bias + x w), float x, int8 w [outputs, inputs].

Each row of x is quantized at run time, asymmetrically with the attribute `asymmetric`, multiplied
in integers and scaled back by its scale and the weight scale. Bias and weights may be variable.
Semantics: TFLite's hybrid fully connected kernel.
"""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph import NumericsSpec, OpCall, OpDef, TensorType
from firmwright.ops.dynamic_range import FloatRow, check_hybrid, quantize_array, quantize_row
from firmwright.ops.fully_connected import macs, output_shape
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import apply_activation, float_activation_range, quantization_of

_BIAS = 2


def infer(call: OpCall) -> tuple[TensorType, ...]:
    check_hybrid(call, 0)
    if call.has_input(_BIAS):
        bias = call.input(_BIAS)
        if (bias.dtype, bias.elements) != (FLOAT32, call.input(1).shape[0]):
            raise NotSupportedError(f"a bias with {bias.elements} {bias.dtype.name}")
    return (TensorType(output_shape(call), FLOAT32),)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    w = arrays[1].astype(np.int64)
    bias = arrays[2].reshape(-1) if call.has_input(_BIAS) else np.float32(0)
    scales = np.array(quantization_of(call.input(1)).scales, np.float32)
    low, high = float_activation_range(call.str_attr("activation"))
    results = []
    for row in arrays[0].astype(np.float32).reshape(-1, w.shape[1]):
        quantized, scale, offset = quantize_array(row, asymmetric=bool(call.attrs["asymmetric"]))
        acc = (w @ (quantized.astype(np.int64) - offset)).astype(np.float32)
        results.append(np.clip(acc * (scale * scales) + bias, low, high))
    return (np.array(results, np.float32).reshape(call.output.shape),)


def lower(call: OpCall, b: Kernel) -> None:
    w, scales = b.input(1), np.array(quantization_of(call.input(1)).scales)
    outputs, inputs = w.shape
    per_channel = len(scales) > 1
    table = b.constant("scales", scales, FLOAT32) if per_channel else None
    with (
        b.for_("n", call.input(0).elements // inputs) as n,
        b.allocate("quantized", INT8, (inputs,)) as quantized,
        b.view("out", b.y, n * outputs, (outputs,), access="w") as out,
    ):
        row = quantize_row(
            b, FloatRow(b.input(0), n * inputs, inputs), quantized,
            weight_scale=None if per_channel else float(scales[0]),
            asymmetric=bool(call.attrs["asymmetric"]),
        )  # fmt: skip
        with b.for_("o", outputs) as o:
            acc = b.register("acc", INT32, 0)
            with b.for_("i", inputs) as i:
                value = b.load_i32(quantized, [i])
                if row.offset is not None:
                    value = value - b.load(row.offset, [0])
                acc.add(value * b.load_i32(w, [o, i]))
            scale = b.load(row.scale, [0])
            if table is not None:
                scale = scale * b.load(table, [o])
            total = acc.value.cast(FLOAT32) * scale
            if call.has_input(_BIAS):
                with b.view("bias", b.input(_BIAS), 0, (outputs,)) as bias:
                    total = total + b.load(bias, [o])
                    b.store(out, [o], apply_activation(total, call.str_attr("activation")))
            else:
                b.store(out, [o], apply_activation(total, call.str_attr("activation")))


OPDEF = OpDef(
    name="hybrid_fully_connected",
    infer=infer,
    reference=reference,
    lower=lower,
    dtypes=("float32 with int8 weights",),
    numerics={"litert": NumericsSpec(None, "int32, scaled in float32", "FullyConnected hybrid")},
    macs=macs,
)
