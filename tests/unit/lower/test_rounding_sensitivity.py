"""Tests of the detection of rounding-sensitive models."""

from __future__ import annotations

import pytest

from firmwright.base.dtypes import BOOL, FLOAT32, INT8, DType
from firmwright.base.quant import Quantization
from firmwright.ir.graph.nodes import Call, Function, TensorType, Value
from firmwright.lower.rounding_sensitivity import has_discontinuity


def calling(op: str, x: DType, y: DType, weights: Value | None = None) -> Function:
    inputs = (Value("x", TensorType((4,), x)), weights)
    call = Call(op, inputs, (Value("y", TensorType((4,), y)),))
    return Function("main", (), (call,), ())


@pytest.mark.parametrize(
    ("op", "x", "y", "expected"),
    [
        ("add", FLOAT32, FLOAT32, False),
        ("floor", FLOAT32, FLOAT32, True),
        ("quantize", FLOAT32, INT8, True),
        ("dequantize", INT8, FLOAT32, False),
        ("greater", FLOAT32, BOOL, True),
        ("add", INT8, INT8, False),
    ],
)
def test_float_to_integer_conversions_are_discontinuous(
    op: str, x: DType, y: DType, *, expected: bool
) -> None:
    assert has_discontinuity(calling(op, x, y)) is expected


def test_a_hybrid_layer_is_discontinuous() -> None:
    kind = TensorType((4, 4), INT8, Quantization((0.1,), (0,)))
    assert has_discontinuity(
        calling("fc", FLOAT32, FLOAT32, Value("w", kind, constant="w"))
    )
