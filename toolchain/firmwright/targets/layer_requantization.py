"""The requantization of layers with weights, for backends that compute it."""

import numpy as np

from firmwright.base.dtypes import INT8, INT32, INT64
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops import conv2d, fully_connected
from firmwright.ops.int16x8 import has_int64_sum, is_int16x8
from firmwright.ops.requantize import Requantization
from firmwright.targets.kernel_builder import BackendKernel


def requantize_step(call: OpCall) -> Requantization | None:
    """Return the requantization of a layer; None if it is no multiplier and shift."""
    if call.op != "fully_connected":
        return conv2d.requantization_of(call)
    if is_int16x8(call):
        step = fully_connected.defined_requantization(call)
        return step if isinstance(step, Requantization) else None
    is_plain = fully_connected.has_int32_multiplier(call)
    return fully_connected.requantization_of(call) if is_plain else None


def known_requantization(call: OpCall) -> Requantization:
    """Return the step of a layer whose pattern has checked that there is one."""
    step = requantize_step(call)
    assert step is not None
    return step


def layer_constants(kernel: BackendKernel, call: OpCall) -> list[tir.Buffer]:
    """Add the weights, bias, and per-output multipliers and shifts as constants."""
    step, wide = known_requantization(call), has_int64_sum(call)
    channels = call.output.shape[-1]
    table = np.array([step.multipliers, step.shifts], np.int32).reshape(2, -1)
    pairs = np.broadcast_to(table, (2, channels))
    bias = conv2d.bias_of(call, "int64")
    return [
        kernel.constant("weights", call.constant_array(1), INT8),
        kernel.constant("bias", bias, INT64 if wide else INT32),
        kernel.constant("multipliers", pairs[0], INT32),
        kernel.constant("shifts", pairs[1], INT32),
    ]
