"""add: y = x_0 + x_1 with broadcasting, activated.

Attribute: `activation`. Integers: see rescaled_sum.py; both roundings of the requantise, in both
profiles.
Source of the semantics: TFLite's reference addition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from firmwright.base.dtypes import FLOAT32, INT32
from firmwright.base.quant import Rounding
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import Array, ConformanceCase, NumericsSpec, OpCall, OpDef
from firmwright.ops import elementwise, rescaled_sum
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import apply_activation
from firmwright.ops.row_windows import elementwise_row_window


def infer(call: OpCall) -> tuple[TensorType, ...]:
    kinds = elementwise.infer(call)
    rescaled_sum.check(call)
    return kinds


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    if call.input(0).dtype == FLOAT32:
        return elementwise.float_reference(call, arrays, lambda a, b: a + b)
    if call.input(0).dtype == INT32:
        return elementwise.int32_reference(arrays, lambda a, b: a + b)
    return rescaled_sum.reference(call, arrays, 1)


def lower(call: OpCall, b: Kernel) -> None:
    if call.input(0).dtype == FLOAT32:
        activation = call.str_attr("activation")
        elementwise.lower_elementwise(call, b, lambda x: apply_activation(x[0] + x[1], activation))
    elif call.input(0).dtype == INT32:
        elementwise.lower_int32(call, b, lambda left, right: left + right)
    else:
        rescaled_sum.lower(call, b, 1)


def cases() -> Iterator[ConformanceCase]:
    yield from elementwise.binary_cases("ADD", lambda a, b, y: y)


OPDEF = OpDef(
    name="add",
    infer=infer,
    reference=reference,
    lower=lower,
    row_access=elementwise_row_window,
    imports={"tflite:ADD": elementwise.tflite_importer("add")},
    cases=cases,
    dtypes=elementwise.DTYPES,
    numerics={
        profile: NumericsSpec(
            Rounding.TWICE, "int32, inputs << 20 (int16: 15)", "reference_integer_ops Add"
        )
        for profile in ("litert", "tflm")
    },
)
