"""Whether Vela's command streams compute a profile's integers, call by call.

Vela derives multipliers from products of scales in double precision, and the NPU rounds
results of convolutions twice. Another requantization is accepted if no sum that the
weights allow gives another result: both are monotonic, so the lowest sums of every
level are compared.
"""

import numpy as np

from firmwright.base import quant
from firmwright.base.dtypes import INT8, INT16, UINT8
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import IntArray, Rounding
from firmwright.ir.graph.attributes.layers import AveragePoolAttrs
from firmwright.ir.graph.attributes.values import L2NormalizationAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.requantize import (
    Requantization,
    per_tensor_quant,
    quantization_of,
    weight_zero_point,
)
from firmwright.targets.layer_requantization import requantize_step

_WEIGHTED = ("conv2d", "depthwise_conv2d", "fully_connected", "transpose_conv")
_ONLY_MOVED = ("reshape", "concatenation", "split", "strided_slice", "transpose", "pad")
_TANH_SCALE = 1 / 128


def _is_unsigned(call: OpCall) -> bool:
    """Return whether a call without weights rounds for the uint8 tensors of a model."""
    match call.attrs:
        case AveragePoolAttrs(unsigned=True) | L2NormalizationAttrs(unsigned=True):
            return True
    return False


def check_npu_numerics(call: OpCall) -> None:
    """Raise NotSupportedError if the NPU may compute other values than the profile."""
    types = (*call.inputs[:1], *call.outputs)
    kinds = {kind.dtype for kind in types if kind is not None}
    if call.op == "quantize" and kinds == {INT8, UINT8}:
        if per_tensor_quant(call.input(0)).scale != per_tensor_quant(call.output).scale:
            raise NotSupportedError("it changes the scale of uint8 values")
        return
    if not kinds <= {INT8, INT16}:
        raise NotSupportedError("its tensors are not int8 or int16")
    if call.op in _WEIGHTED:
        step = requantize_step(call)
        if step is None or not _is_same_step(call, step):
            raise _differs(call)
    elif _is_unsigned(call):
        raise NotSupportedError("it rounds for uint8")
    elif call.numerics == "onnx" and call.op not in _ONLY_MOVED:
        raise _differs(call)
    elif call.op in ("logistic", "tanh") and kinds != {INT8}:
        raise NotSupportedError("its int16 table differs from Vela's")
    elif not _is_like_npu(call):
        raise _differs(call)


def _differs(call: OpCall) -> NotSupportedError:
    other = "; --numerics tflm rounds like it" if call.numerics == "litert" else ""
    return NotSupportedError(f"--numerics {call.numerics} rounds unlike the NPU{other}")


def _is_like_npu(call: OpCall) -> bool:
    if call.op == "softmax":
        return call.numerics == "tflm"
    if call.op == "relu6" and call.numerics == "tflm":
        return call.input(0).quantization == call.output.quantization
    if call.op == "tanh" and call.numerics == "tflm":
        return per_tensor_quant(call.output).scale == _TANH_SCALE
    return True


def _is_same_step(call: OpCall, step: Requantization) -> bool:
    x, y = per_tensor_quant(call.input(0)).scale, per_tensor_quant(call.output).scale
    scales = quantization_of(call.input(1)).scales
    multipliers = [quant.quantize_multiplier(x * scale / y) for scale in scales]
    vela = np.array(multipliers, np.int64)
    pairs = np.array([step.multipliers, step.shifts], np.int64).T
    own = np.broadcast_to(pairs, vela.shape)
    if step.rounding is Rounding.TWICE and np.array_equal(vela, own):
        return True
    low, high = _reachable_sums(call, len(scales))
    least, most = step.clamp_min - step.zero_point, step.clamp_max - step.zero_point
    levels = np.arange(least, most) + 1
    first = _first_sums(levels, own, step.rounding, low, high)
    return np.array_equal(first, _first_sums(levels, vela, Rounding.TWICE, low, high))


def _reachable_sums(call: OpCall, channels: int) -> tuple[IntArray, IntArray]:
    """Return the lowest and highest sum of each multiplier's channels."""
    weights, bias = call.constant_array(1), call.constant(2)
    axis = 3 if call.op == "depthwise_conv2d" else 0
    offsets = weights.astype(np.int64) - weight_zero_point(call)
    w = np.moveaxis(offsets, axis, 0).reshape(weights.shape[axis], -1)
    kind = call.input(0).dtype
    ends = np.array([kind.min, kind.max]) - per_tensor_quant(call.input(0)).zero_point
    products = w[..., None] * ends
    offset = 0 if bias is None else bias.array().astype(np.int64)
    low = np.minimum(products.min(axis=-1), 0).sum(axis=1) + offset
    high = np.maximum(products.max(axis=-1), 0).sum(axis=1) + offset
    if channels > 1:
        return low, high
    return low.min(keepdims=True), high.max(keepdims=True)


def _first_sums(
    levels: IntArray, pairs: IntArray, rounding: Rounding, low: IntArray, high: IntArray
) -> IntArray:
    """Return per channel the lowest sum that gives each level or more, by bisection."""
    multipliers, shifts = pairs[:, :1], pairs[:, 1:]
    shape = (len(pairs), len(levels))
    first = np.broadcast_to(low[:, None], shape)
    end = np.broadcast_to(high[:, None] + 1, shape)
    while (first < end).any():
        middle = (first + end) // 2
        results = quant.multiply_by_quantized_multiplier(
            middle, multipliers, shifts, rounding
        )
        reached = results >= levels
        first = np.where(reached | (first >= end), first, middle + 1)
        end = np.where(reached & (first < end), middle, end)
    return first
