"""relu, relu6, relu_n1_to_1 and relu_0_to_1: clamp to [0, inf), [0, 6], [-1, 1] or [0, 1].

int8: x without its zero point is requantized by x scale / y scale, rounding twice, then clamped to
the quantized range. LiteRT divides the scales in float32, TFLM in double. TFLM's relu6 does not
requantize; it clamps raw values in terms of the input, which is equal if input and output have the
same quantization. TFLM has no relu_n1_to_1 and relu_0_to_1.
Semantics: the reference kernels of TFLite and TFLM.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT16, INT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import Rounding
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_import import ImportContext, ImportedCall
from firmwright.ir.graph.opdef import NumericsProfile, NumericsSpec, OpCall, OpDef
from firmwright.ops.constant_requantize import store_requantized
from firmwright.ops.elementwise import loop_over_elements, lower_elementwise
from firmwright.ops.import_checks import require_tensors
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import (
    Requantization,
    apply_activation,
    clamp,
    float_activation_range,
    make_requantization,
    quantized_activation_range,
    tensor_quant,
)
from firmwright.ops.row_windows import elementwise_row_window


def _dtypes(name: str) -> tuple[str, ...]:
    """Return the element types; TFLite's relu_n1_to_1 and relu_0_to_1 have no int16."""
    return ("int8", "float32") if name.endswith("_to_1") else ("int8", "int16", "float32")


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x, y = call.input(0), call.output
    if x.dtype.name not in _dtypes(call.op) or y.dtype != x.dtype:
        raise NotSupportedError(f"{x.dtype.name} input with {y.dtype.name} output")
    if x.dtype != FLOAT32:
        zero_points = tensor_quant(x).zero_point, tensor_quant(y).zero_point
        if x.dtype == INT16 and any(zero_points):
            raise NotSupportedError("int16 with a zero point other than 0")
    return (TensorType(x.shape, x.dtype, y.quantization),)


def _cuts_stored_values(call: OpCall) -> bool:
    return call.numerics == "tflm" and call.op == "relu6"


def requantization_of(call: OpCall) -> Requantization:
    """Return the requantization from an int8 input without its zero point to the output."""
    x_scale, y_scale = tensor_quant(call.input(0)).scale, tensor_quant(call.output).scale
    factor = x_scale / y_scale
    if call.numerics == "litert":
        with np.errstate(over="ignore"):  # make_requantization rejects an infinite factor
            factor = float(np.float32(x_scale) / np.float32(y_scale))
    return make_requantization([factor], Rounding.TWICE, call.output, call.op)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    x = arrays[0]
    if x.dtype == np.float32:
        low, high = float_activation_range(call.op)
        return (np.clip(x, np.float32(low), np.float32(high)),)
    if _cuts_stored_values(call):
        return (np.clip(x, *quantized_activation_range(call.op, call.input(0))).astype(x.dtype),)
    offset = x.astype(np.int64) - tensor_quant(call.input(0)).zero_point
    return (requantization_of(call).apply(offset, call.output.dtype),)


def lower(call: OpCall, b: Kernel) -> None:
    kind = call.input(0)
    if kind.dtype == FLOAT32:
        lower_elementwise(call, b, lambda x: apply_activation(x[0], call.op))
    elif _cuts_stored_values(call):
        low, high = quantized_activation_range(call.op, kind)
        lower_elementwise(call, b, lambda x: clamp(x[0].cast(INT32), low, high, kind.dtype))
    else:
        with loop_over_elements(call, b) as (values, store):
            offset = values[0].cast(INT32) - tensor_quant(kind).zero_point
            store_requantized(b, offset, requantization_of(call), kind.dtype, store)


def _importer(name: str) -> Callable[[ImportContext], ImportedCall]:
    def imported(context: ImportContext) -> ImportedCall:
        require_tensors(context, 1)
        return ImportedCall(name, {}, (0,))

    return imported


def _opdef(name: str, profiles: tuple[NumericsProfile, ...]) -> OpDef:
    builtin = name.upper()
    return OpDef(
        name=name,
        infer=infer,
        reference=reference,
        lower=lower,
        row_access=elementwise_row_window,
        imports={f"tflite:{builtin}": _importer(name)},
        dtypes=_dtypes(name),
        numerics={
            profile: NumericsSpec(Rounding.TWICE, "int32", "reference_ops ReluX")
            for profile in profiles
        },
    )


OPDEFS = (
    _opdef("relu", ("litert", "tflm")),
    _opdef("relu6", ("litert", "tflm")),
    _opdef("relu_n1_to_1", ("litert",)),
    _opdef("relu_0_to_1", ("litert",)),
)
