"""Floats of eight bits, limited to their finite numbers as ONNX's `saturate` says."""

from collections.abc import Mapping

from firmwright.base.dtypes import (
    FLOAT8_E4M3FN,
    FLOAT8_E4M3FNUZ,
    FLOAT8_E5M2,
    FLOAT8_E5M2FNUZ,
    FLOAT8_E8M0FNU,
    DType,
)
from firmwright.frontends.onnx.node_context import CallEmitter, OnnxValue

FLOAT8_ENDS: Mapping[DType, tuple[float, float]] = {
    FLOAT8_E4M3FN: (-448.0, 448.0),
    FLOAT8_E4M3FNUZ: (-240.0, 240.0),
    FLOAT8_E5M2: (-57344.0, 57344.0),
    FLOAT8_E5M2FNUZ: (-57344.0, 57344.0),
    FLOAT8_E8M0FNU: (2.0**-127, 2.0**127),
}
"""The least and the greatest finite number of the types that Cast can saturate."""


def saturated_float8(emit: CallEmitter, x: OnnxValue, dtype: DType) -> OnnxValue:
    """Return float32 numbers as `dtype`, limited to its finite numbers; NaN stays."""
    low, high = FLOAT8_ENDS[dtype]
    limited = f"where(a < {low!r}, {low!r}, where(a > {high!r}, {high!r}, a))"
    return emit.expression(f"{dtype.name}({limited})", x)
