"""Whether the result of a function may change much with the last bit of a float."""

from firmwright.base.dtypes import FLOAT32
from firmwright.ir.graph.nodes import Call, Function

_ROUNDING_OPS = frozenset({"ceil", "floor", "round", "sign"})
"""Operators whose result is a step function of their input."""


def has_discontinuity(function: Function) -> bool:
    """Return whether any call may amplify a small difference of its float input."""
    return any(_is_discontinuous(call) for call in function.body)


def _is_discontinuous(call: Call) -> bool:
    """Return whether a call rounds or converts floats, or quantizes hybrid inputs."""
    if not any(value.type.dtype == FLOAT32 for value in call.variables):
        return False
    if call.op.startswith("@") or call.op in _ROUNDING_OPS:
        return True
    if any(value.type.dtype != FLOAT32 for value in call.outputs):
        return True
    for value in call.inputs:
        if value is None or value.constant is None:
            continue
        if value.type.quantization is not None:
            return True
    return False
