"""Detection of operators that turn a float rounding difference into a large difference.

Such operators convert floats to integers or round them. A model with such an operator is offered
only bit-exact schedules (`Schedule.fuses`).
"""

from firmwright.base.dtypes import FLOAT32
from firmwright.ir.graph.nodes import Call, Function

_ROUNDING_OPS = frozenset({"ceil", "floor", "round", "sign"})


def has_discontinuity(function: Function) -> bool:
    """Return whether any call may amplify a small difference of its float input."""
    return any(_is_discontinuous(call) for call in function.body)


def _is_discontinuous(call: Call) -> bool:
    if not any(value.type.dtype == FLOAT32 for value in call.variables):
        return False
    constants = [value for value in call.inputs if value is not None and value.constant is not None]
    is_hybrid = any(value.type.quantization is not None for value in constants)
    leaves_floats = any(value.type.dtype != FLOAT32 for value in call.outputs)
    return is_hybrid or leaves_floats or call.op.startswith("@") or call.op in _ROUNDING_OPS
