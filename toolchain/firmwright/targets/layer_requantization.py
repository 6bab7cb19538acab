"""The requantization of layers with weights, for backends that compute it."""

from firmwright.ir.graph.op_call import OpCall
from firmwright.ops import conv2d, fully_connected
from firmwright.ops.int16x8 import is_int16x8
from firmwright.ops.requantize import Requantization


def requantize_step(call: OpCall) -> Requantization | None:
    """Return the requantization of a layer; None if it is no multiplier and shift."""
    if call.op != "fully_connected":
        return conv2d.requantization_of(call)
    if is_int16x8(call):
        step = fully_connected.defined_requantization(call)
        return step if isinstance(step, Requantization) else None
    is_plain = fully_connected.has_int32_multiplier(call)
    return fully_connected.requantization_of(call) if is_plain else None
