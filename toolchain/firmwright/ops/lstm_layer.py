"""Types and parameters of LSTM layers: shapes, gates, scales and constants."""

import math

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, INT64, Array
from firmwright.base.errors import ModelError, NotSupportedError
from firmwright.base.quant import quantize_multiplier
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.graph.attributes.recurrent import LstmAttrs
from firmwright.ops.gate_functions import GATE_BITS
from firmwright.ops.requantize import check_zero_points, per_tensor_quant

GATES = ("input", "forget", "cell", "output")
INPUT_WEIGHTS = 1
RECURRENT_WEIGHTS = 5
BIAS = 9
HIDDEN_STATE = 13
CELL_STATE = 14
_CONSTANTS = {FLOAT32: (FLOAT32, FLOAT32), INT8: (INT8, INT32), INT16: (INT8, INT64)}
"""Activation type -> types of weights and biases."""
_ACTIVATIONS = (
    (FLOAT32, FLOAT32, FLOAT32),
    (INT8, INT8, INT16),
    (INT16, INT16, INT16),
)
"""Types of x, hidden values and cells."""
GATE_SCALE = 2.0**-12
"""Scale of the 16-bit sum of a gate."""


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x = call.input(0)
    hidden = call.input(HIDDEN_STATE)
    cells = call.input(CELL_STATE)
    if (x.dtype, hidden.dtype, cells.dtype) not in _ACTIVATIONS:
        what = f"an LSTM of {x.dtype.name} with state of {hidden.dtype.name} and "
        what += cells.dtype.name
        if (hidden.dtype, cells.dtype) == (INT8, INT8):
            what += "; cells have 16 bits, so that LiteRT writes beyond the end of "
            what += "this tensor and has no defined result, and TFLM refuses the "
            what += "model: convert it again, to cells of int16"
        raise NotSupportedError(what)
    if len(x.shape) != 3 or len(hidden.shape) != 2:
        raise NotSupportedError(f"an LSTM over input of shape {list(x.shape)}")
    batch, _, inputs = batch_time_inputs(call)
    units = hidden.shape[1]
    for gate in range(len(GATES)):
        _check_gate(call, gate, inputs, units)
    if {hidden.shape, cells.shape} != {(batch, units)}:
        raise NotSupportedError(
            f"state of shapes {list(hidden.shape)}, {list(cells.shape)}"
        )
    if x.dtype != FLOAT32:
        _check_quantized(call)
    y = TensorType((*x.shape[:2], units), x.dtype, call.output.quantization)
    return (
        y,
        TensorType(hidden.shape, hidden.dtype, hidden.quantization),
        TensorType(cells.shape, cells.dtype, cells.quantization),
    )


def _check_gate(call: OpCall, gate: int, inputs: int, units: int) -> None:
    shapes = {
        INPUT_WEIGHTS: (units, inputs),
        RECURRENT_WEIGHTS: (units, units),
        BIAS: (units,),
    }
    for first, shape in shapes.items():
        constant = call.constant(first + gate)
        if constant is None or constant.shape != shape:
            raise NotSupportedError(
                f"weights or biases not constant of shape {list(shape)}"
            )
        weights, bias = INT8, FLOAT32
        if call.op == "lstm":
            weights, bias = _CONSTANTS[call.input(0).dtype]
        if constant.dtype != (bias if first == BIAS else weights):
            raise NotSupportedError(f"weights or biases of {constant.dtype.name}")
        if first == BIAS or weights != INT8:
            continue
        if per_tensor_quant(call.input(first + gate)).zero_point:
            raise NotSupportedError("weights with a zero point other than 0")


def _check_quantized(call: OpCall) -> None:
    tensors = (call.input(HIDDEN_STATE), call.input(CELL_STATE), call.output)
    hidden, cells, y = map(per_tensor_quant, tensors)
    if (hidden.scale, hidden.zero_point) != (y.scale, y.zero_point):
        raise NotSupportedError("hidden values and output quantized differently")
    if call.input(0).dtype == INT16:
        check_zero_points(call.input(0), call.output)
    mantissa, exponent = math.frexp(cells.scale)
    if mantissa != 0.5 or cells.zero_point:
        raise NotSupportedError(
            f"cells of scale {cells.scale} and zero point {cells.zero_point}, where "
            "the reference kernels have a power of two and 0"
        )
    if not -17 <= exponent - 1 <= -9:
        raise NotSupportedError(f"a cell scale of 2^{exponent - 1}, not 2^-17 to 2^-9")


def batch_time_inputs(call: OpCall) -> tuple[int, int, int]:
    attrs = call.attributes(LstmAttrs)
    first, second, inputs = call.input(0).shape
    return (second, first, inputs) if attrs.time_major else (first, second, inputs)


def macs(call: OpCall) -> int:
    batch, time, inputs = batch_time_inputs(call)
    units = call.input(HIDDEN_STATE).shape[1]
    return batch * time * len(GATES) * units * (inputs + units)


def cell_bits(call: OpCall) -> int:
    return 15 + math.frexp(per_tensor_quant(call.input(CELL_STATE)).scale)[1] - 1


def sigmoid_steps(integer_bits: int) -> tuple[int, int]:
    """Return TFLM's (multiplier, right shift) from int16 to steps of 1/12288."""
    left = integer_bits - GATE_BITS
    return (3 << left, 0) if left >= 0 else (3, -left)


def cell_clip(call: OpCall) -> float:
    limit = call.attributes(LstmAttrs).cell_clip
    if not math.isfinite(limit):
        raise ModelError(f"the cells of {call.op} are clipped at {limit}.")
    if limit == 0 or call.input(0).dtype == FLOAT32:
        return limit
    return int(min(limit / per_tensor_quant(call.input(CELL_STATE)).scale, INT16.max))


def gate_factors(call: OpCall, gate: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return (multiplier, shift) of a gate's products with x and with hidden values."""
    x = per_tensor_quant(call.input(0)).scale
    hidden = per_tensor_quant(call.input(HIDDEN_STATE)).scale
    w = per_tensor_quant(call.input(INPUT_WEIGHTS + gate)).scale
    r = per_tensor_quant(call.input(RECURRENT_WEIGHTS + gate)).scale
    input_factor = quantize_multiplier(x * w / GATE_SCALE)
    return input_factor, quantize_multiplier(hidden * r / GATE_SCALE)


def uses_tflm_arithmetic(call: OpCall) -> bool:
    """Whether to use TFLM's arithmetic: in its profile, and where LiteRT has none."""
    if call.numerics == "tflm" or call.input(0).dtype == INT16:
        return True
    return bool(litert_gap(call))


def litert_gap(call: OpCall) -> str:
    if call.input(0).dtype != INT8 or cell_bits(call) >= 0:
        return ""
    scale = per_tensor_quant(call.input(CELL_STATE)).scale
    return f"LiteRT's LSTM computes no tanh of cells of scale {scale:.3g} (below 2^-15)"


def hidden_factor(call: OpCall) -> tuple[int, int]:
    scale = per_tensor_quant(call.input(HIDDEN_STATE)).scale
    return quantize_multiplier(2.0**-30 / scale)


def weights_at(call: OpCall, index: int) -> Array:
    """Return the constant input `index`, integers as int64."""
    values = call.constant_array(index)
    return values if values.dtype == np.float32 else values.astype(np.int64)


def folded_biases(call: OpCall, gate: int) -> tuple[Array, Array]:
    """Return the biases of both products of a gate [units], including zero points."""
    x_zero = per_tensor_quant(call.input(0)).zero_point
    hidden_zero = per_tensor_quant(call.input(HIDDEN_STATE)).zero_point
    correction = -x_zero * weights_at(call, INPUT_WEIGHTS + gate).sum(axis=1)
    recurrent = weights_at(call, RECURRENT_WEIGHTS + gate).sum(axis=1)
    return weights_at(call, BIAS + gate) + correction, -hidden_zero * recurrent


def rows_of_units(call: OpCall, first: int) -> tuple[Array, Array]:
    """Return weights [row, column] and biases of all gates, including zero points.

    `first` is the input of the first gate's weights. Rows are in the order [unit,
    gate]; those of zeros make the number of units even.
    """
    of_gates: list[Array] = []
    biases: list[Array] = []
    for gate in range(len(GATES)):
        of_gates.append(weights_at(call, first + gate))
        biases.append(folded_biases(call, gate)[first == RECURRENT_WEIGHTS])
    weights = np.stack(of_gates, axis=1)
    pad = (0, len(weights) % 2), (0, 0), (0, 0)
    bias = np.pad(np.stack(biases, axis=1), pad[:2]).reshape(-1)
    return np.pad(weights, pad).reshape(-1, weights.shape[2]), bias
